"""Every write of the REST API with a real ZooKeeper: the znodes in the response equal the znodes in ZooKeeper."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from urllib.request import Request, urlopen

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from rest_writes import WRITES

from tests.support.process_cluster import ProcessCluster, direct_places, wait_until

ROOT = "/rest"
SESSION_MS = 18_000
SEEN_S_MAX = 8.0
"""Shorter than the session timeout of the controller, which is paused for this time."""


@pytest.fixture(scope="module")
def shared_cluster(zookeeper, tmp_path_factory):
    """Two brokers, each with its own admin API."""
    places = direct_places(f"{zookeeper.connect_string}{ROOT}", 2)
    settings = {
        "kreplica.admin.listener": "127.0.0.1:0",
        "zookeeper.session.timeout.ms": SESSION_MS,
        "default.replication.factor": 2,
    }
    with ProcessCluster(tmp_path_factory.mktemp("rest"), places, settings=settings) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def tree(zookeeper):
    """A separate ZooKeeper client."""
    client = KazooClient(f"{zookeeper.connect_string}{ROOT}")
    client.start()
    yield client
    client.stop()
    client.close()


class AdminApi:
    """The admin API of a broker that is not the controller, because it needs only ZooKeeper."""

    def __init__(self, cluster, tree):
        self.controller = cluster.controller()
        (other,) = {1, 2} - {self.controller}
        self.url = json.loads(tree.get(f"/brokers/ids/{other}")[0])["kreplica_admin"]

    def __call__(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = Request(self.url + path, data, {"content-type": "application/json"} if data else {}, method=method)
        with urlopen(request, timeout=30) as answer:
            return json.load(answer)


def filled(value, names):
    """Return a row of the table with the names of topics filled in."""
    if isinstance(value, str):
        for name, text in names.items():
            value = value.replace("{" + name + "}", text)
        return value
    if isinstance(value, dict):
        return {filled(key, names): filled(each, names) for key, each in value.items()}
    return [filled(each, names) for each in value] if isinstance(value, (list, tuple)) else value


def same(data, chosen):
    """Return the fields that must be equal each time."""
    return {key: each for key, each in data.items() if key not in chosen} if isinstance(data, dict) else data


def held(tree, path):
    """Return a znode's data as responses show it; None if it does not exist."""
    try:
        text = (tree.get(path)[0] or b"").decode()  # persistent paths have no data
    except NoNodeError:
        return None
    return json.loads(text) if text else text


def next_plan(tree):
    """Return the ID of the next plan."""
    known = held(tree, "/kreplica/plans")
    return f"plan-{(known['last_number'] if known else 0) + 1:010d}"


def prepare(ask, requests, names):
    for method, path, body in requests:
        ask(method, filled(path, names), filled(body, names))


@contextmanager
def stopped(process):
    process.pause()
    try:
        yield
    finally:
        process.resume()


@pytest.mark.parametrize("write", WRITES, ids=lambda write: write.name.replace(" ", "-"))
def test_the_znodes_of_a_write(write, cluster, tree, topic):
    """A dry run shows the znodes and writes none; the same request then writes exactly these znodes."""
    ask = AdminApi(cluster, tree)
    names = {"topic": topic, "new": f"{topic}-new", "plan": next_plan(tree)}
    ask("POST", "/v1/topics", {"name": topic, "partitions": 1, "replication_factor": 2})
    prepare(ask, write.before, names)
    if write.until is not None:
        where, member, value = filled(write.until, names)
        wait_until(lambda: ask("GET", where)[member] == value, f"{where} to be {value}", 30)
    method, path, body = write.method, filled(write.path, names), filled(write.body, names)
    paths = filled(write.znodes, names)

    tried = ask(method, f"{path}?dry_run=true", body)
    assert tried["dry_run"] is True
    assert [row["path"] for row in tried["znodes"]] == [path.removesuffix("*") for path in paths]
    before = {row["path"]: held(tree, row["path"]) for row in tried["znodes"]}
    assert all(before[row["path"]] != row.get("data") for row in tried["znodes"]), "nothing was written"

    if write.is_taken:
        with ThreadPoolExecutor(1) as other, stopped(cluster.brokers[ask.controller]):
            asked = other.submit(ask, method, path, body)
            (row,) = tried["znodes"]
            found = seen(tree, row["path"])
            assert found == row["data"]
            cluster.brokers[ask.controller].resume()
            done = asked.result(30)
    else:
        with stopped(cluster.brokers[ask.controller]) if write.is_changed else nullcontext():
            done = ask(method, path, body)
            for row in done["znodes"]:
                assert held(tree, row["path"]) == row.get("data"), row
    assert done["dry_run"] is False
    for row, shown, path in zip(done["znodes"], tried["znodes"], paths, strict=True):
        assert row["path"].startswith(path.removesuffix("*"))
        assert row["operation"] == shown["operation"]
        assert same(row.get("data"), write.chosen) == same(shown.get("data"), write.chosen)
    prepare(ask, write.after, names)


def seen(tree, path):
    """Return a znode's data as soon as the znode exists."""
    deadline_s = time.monotonic() + SEEN_S_MAX
    while time.monotonic() < deadline_s:
        found = held(tree, path)
        if found is not None:
            return found
        time.sleep(0.01)
    raise AssertionError(f"{path} was not created")


def test_requests_take_effect(cluster, tree, topic):
    """Through another broker's API, the controller creates a topic, adds partitions and deletes it."""
    ask = AdminApi(cluster, tree)
    made = ask("POST", "/v1/topics", {"name": topic, "partitions": 2, "replication_factor": 2})
    assert made["led"] is True
    assert ask("PATCH", f"/v1/topics/{topic}", {"partitions": 4})["led"] is True
    partitions = ask("GET", f"/v1/topics/{topic}/partitions")["partitions"]
    assert [row["partition"] for row in partitions] == [0, 1, 2, 3]
    assert all(row["leader"] is not None for row in partitions)
    assert ask("DELETE", f"/v1/topics/{topic}")["deleted"] is True
    assert tree.exists(f"/brokers/topics/{topic}") is None


def test_settings_take_effect(cluster, tree, topic):
    """Kafka's own requests return a setting that was changed by REST, on every broker."""
    ask = AdminApi(cluster, tree)
    ask("POST", "/v1/topics", {"name": topic, "partitions": 1})
    ask("PATCH", f"/v1/configs/topics/{topic}", {"set": {"max.message.bytes": 4321}})

    def known(of):
        url = json.loads(tree.get(f"/brokers/ids/{of}")[0])["kreplica_admin"]
        rows = json.load(urlopen(f"{url}/v1/configs/topics/{topic}"))["configs"]
        return next(row for row in rows if row["name"] == "max.message.bytes")

    wait_until(lambda: all(known(of)["value"] == "4321" for of in (1, 2)), "both brokers to know it", 10)
    assert known(1)["source"] == "dynamic_topic_config"
    assert known(1)["default_value"] == "1048588"
