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


def substitute(value, names):
    """Return a value from the table with the names substituted in all of its strings."""
    if isinstance(value, str):
        for name, text in names.items():
            value = value.replace("{" + name + "}", text)
        return value
    if isinstance(value, dict):
        return {substitute(key, names): substitute(each, names) for key, each in value.items()}
    return [substitute(each, names) for each in value] if isinstance(value, (list, tuple)) else value


def fixed_fields(data, variable_fields):
    """Return the fields that are equal in all requests."""
    return {key: each for key, each in data.items() if key not in variable_fields} if isinstance(data, dict) else data


def read_znode(tree, path):
    """Return a znode's data as responses show it; None if it does not exist."""
    try:
        text = (tree.get(path)[0] or b"").decode()  # persistent paths have no data
    except NoNodeError:
        return None
    return json.loads(text) if text else text


def next_plan(tree):
    """Return the ID of the next plan."""
    described = read_znode(tree, "/kreplica/plans")
    return f"plan-{(described['last_number'] if described else 0) + 1:010d}"


def prepare(send, requests, names):
    for method, path, body in requests:
        send(method, substitute(path, names), substitute(body, names))


@contextmanager
def paused(process):
    process.pause()
    try:
        yield
    finally:
        process.resume()


@pytest.mark.parametrize("write", WRITES, ids=lambda write: write.name.replace(" ", "-"))
def test_a_dry_run_shows_the_znodes_of_a_write(write, cluster, tree, topic):
    """A dry run shows the znodes and writes none; the same request then writes exactly these znodes."""
    send = AdminApi(cluster, tree)
    names = {"topic": topic, "new": f"{topic}-new", "plan": next_plan(tree)}
    send("POST", "/v1/topics", {"name": topic, "partitions": 1, "replication_factor": 2})
    prepare(send, write.before, names)
    if write.until is not None:
        where, member, value = substitute(write.until, names)
        wait_until(lambda: send("GET", where)[member] == value, f"{where} to be {value}", 30)
    method, path, body = write.method, substitute(write.path, names), substitute(write.body, names)
    paths = substitute(write.znodes, names)

    preview = send(method, f"{path}?dry_run=true", body)
    assert preview["dry_run"] is True
    assert [row["path"] for row in preview["znodes"]] == [path.removesuffix("*") for path in paths]
    before = {row["path"]: read_znode(tree, row["path"]) for row in preview["znodes"]}
    assert all(before[row["path"]] != row.get("data") for row in preview["znodes"]), "nothing was written"

    if write.is_taken:
        with ThreadPoolExecutor(1) as other, paused(cluster.brokers[send.controller]):
            pending = other.submit(send, method, path, body)
            (row,) = preview["znodes"]
            data = wait_for_znode(tree, row["path"])
            assert data == row["data"]
            cluster.brokers[send.controller].resume()
            done = pending.result(30)
    else:
        with paused(cluster.brokers[send.controller]) if write.is_changed else nullcontext():
            done = send(method, path, body)
            for row in done["znodes"]:
                assert read_znode(tree, row["path"]) == row.get("data"), row
    assert done["dry_run"] is False
    for row, shown, path in zip(done["znodes"], preview["znodes"], paths, strict=True):
        assert row["path"].startswith(path.removesuffix("*"))
        assert row["operation"] == shown["operation"]
        assert fixed_fields(row.get("data"), write.variable_fields) == fixed_fields(
            shown.get("data"), write.variable_fields
        )
    prepare(send, write.after, names)


def wait_for_znode(tree, path):
    """Return a znode's data as soon as the znode exists."""
    deadline_s = time.monotonic() + SEEN_S_MAX
    while time.monotonic() < deadline_s:
        data = read_znode(tree, path)
        if data is not None:
            return data
        time.sleep(0.01)
    raise AssertionError(f"{path} was not created")


def test_requests_take_effect(cluster, tree, topic):
    """Through another broker's API, the controller creates a topic, adds partitions and deletes it."""
    send = AdminApi(cluster, tree)
    made = send("POST", "/v1/topics", {"name": topic, "partitions": 2, "replication_factor": 2})
    assert made["led"] is True
    assert send("PATCH", f"/v1/topics/{topic}", {"partitions": 4})["led"] is True
    partitions = send("GET", f"/v1/topics/{topic}/partitions")["partitions"]
    assert [row["partition"] for row in partitions] == [0, 1, 2, 3]
    assert all(row["leader"] is not None for row in partitions)
    assert send("DELETE", f"/v1/topics/{topic}")["deleted"] is True
    assert tree.exists(f"/brokers/topics/{topic}") is None


def test_settings_take_effect(cluster, tree, topic):
    """Every broker's DescribeConfigs response contains a setting that was changed through the REST API."""
    send = AdminApi(cluster, tree)
    send("POST", "/v1/topics", {"name": topic, "partitions": 1})
    send("PATCH", f"/v1/configs/topics/{topic}", {"set": {"max.message.bytes": 4321}})

    def described(of):
        url = json.loads(tree.get(f"/brokers/ids/{of}")[0])["kreplica_admin"]
        rows = json.load(urlopen(f"{url}/v1/configs/topics/{topic}"))["configs"]
        return next(row for row in rows if row["name"] == "max.message.bytes")

    wait_until(
        lambda: all(described(of)["value"] == "4321" for of in (1, 2)), "both brokers to return the new value", 10
    )
    assert described(1)["source"] == "dynamic_topic_config"
    assert described(1)["default_value"] == "1048588"
