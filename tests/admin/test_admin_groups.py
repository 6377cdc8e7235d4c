"""Groups in the admin API of a cluster, through any broker and for any coordinator."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.standalone import StandaloneProcess

TOPIC, OTHER = "read", "unread"
GROUP = "readers/of é?"
BEGIN_MS = 1_700_000_000_000
RECORDS = 10
"""Number of records per partition, one second apart."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    with StandaloneProcess(tmp_path_factory.mktemp("groups"), brokers=3) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap_servers})
        for future in admin.create_topics([NewTopic(TOPIC, 3, 3), NewTopic(OTHER, 1, 1)]).values():
            future.result(20)
        producer = Producer({"bootstrap.servers": running.bootstrap_servers})
        for number in range(3 * RECORDS):
            at_ms = BEGIN_MS + number // 3 * 1000
            producer.produce(TOPIC, str(number), partition=number % 3, timestamp=at_ms)
        assert producer.flush(20) == 0
        yield running


def request_json(cluster: StandaloneProcess, path: str, method: str = "GET", body: Any = None, url: str = "") -> Any:
    """Send a request, and return its document or problem."""
    headers = {"content-type": "application/json"} if body is not None else {}
    data = None if body is None else json.dumps(body).encode()
    request = Request((url or cluster.admin_url) + path, data, headers, method=method)
    try:
        with urlopen(request, timeout=30) as answer:
            return json.load(answer)
    except HTTPError as error:
        return json.load(error)


def group_path(group: str) -> str:
    return f"/v1/groups/{quote(group, safe='')}"


def commit_offsets(cluster: StandaloneProcess, group: str, offsets: dict[int, int]) -> None:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": group})
    positions = [TopicPartition(TOPIC, partition, offset) for partition, offset in offsets.items()]
    consumer.commit(offsets=positions, asynchronous=False)
    consumer.close()


def join_and_read(cluster: StandaloneProcess, group: str, protocol: str) -> Consumer:
    """Create a member, and let it read and commit everything."""
    settings = {"group.protocol": protocol, "auto.offset.reset": "earliest", "client.id": "a-reader"}
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": group, **settings})
    consumer.subscribe([TOPIC])
    deadline_s, count = time.monotonic() + 30, 0
    while count < 3 * RECORDS:
        assert time.monotonic() < deadline_s, f"{count} records were read"
        message = consumer.poll(1.0)
        count += message is not None and message.error() is None
    consumer.commit(asynchronous=False)
    return consumer


# --- reads -----------------------------------------------------------------------------------------------------------


def test_list_has_the_groups_of_all_brokers(cluster: StandaloneProcess) -> None:
    """The list has pages with the groups of every coordinator, and its search ignores case."""
    names = [f"listed-{number}" for number in range(12)]
    for name in names:
        commit_offsets(cluster, name, {0: 1})
    found = request_json(cluster, "/v1/groups?search=LISTED-")
    assert (found["next"], found["is_complete"], found["problems"]) == (None, True, [])
    assert [row["group"] for row in found["groups"]] == sorted(names)
    assert {row["coordinator"] for row in found["groups"]} == {1, 2, 3}
    assert {(row["type"], row["state"], row["members"]) for row in found["groups"]} == {("classic", "Empty", 0)}
    first = request_json(cluster, "/v1/groups?search=listed&limit=7")
    rest = request_json(cluster, f"/v1/groups?search=listed&limit=7&after={first['next']}")
    assert first["groups"] + rest["groups"] == found["groups"]
    assert rest["next"] is None


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_group_with_a_member(cluster: StandaloneProcess, protocol: str) -> None:
    """With both protocols, a group shows its member with partitions and offsets, and refuses harmful operations."""
    group = f"used-{protocol}"
    consumer = join_and_read(cluster, group, protocol)
    found = request_json(cluster, group_path(group))
    assert (found["type"], found["state"], found["protocol_type"]) == (protocol, "Stable", "consumer")
    (member,) = found["members"]
    assert (member["client_id"], member["topics"]) == ("a-reader", [TOPIC])
    assert member["assignment"] == [{"topic": TOPIC, "partitions": [0, 1, 2]}]
    assert [(row["topic"], row["partition"], row["offset"]) for row in found["offsets"]] == [
        (TOPIC, partition, RECORDS) for partition in range(3)
    ]
    refused = [
        request_json(cluster, group_path(group), "DELETE"),
        request_json(cluster, f"{group_path(group)}?dry_run=true", "DELETE"),
        request_json(cluster, f"{group_path(group)}/offsets", "POST", {"to": {"kind": "earliest"}}),
    ]
    assert [(problem["status"], problem["title"]) for problem in refused] == [(409, "NON_EMPTY_GROUP")] * 3
    assert refused[0]["detail"] == f"the group '{group}' is in use: it has 1 member: a-reader"
    for suffix in ("", "&dry_run=true"):
        problem = request_json(cluster, f"{group_path(group)}/offsets?topic={TOPIC}{suffix}", "DELETE")
        assert (problem["status"], problem["title"]) == (409, "GROUP_SUBSCRIBED_TO_TOPIC")
    consumer.close()
    assert request_json(cluster, group_path(group), "DELETE") == {"group": group, "dry_run": False, "znodes": []}
    assert request_json(cluster, group_path(group))["status"] == 404


def test_lag_of_a_group(cluster: StandaloneProcess) -> None:
    """Any broker returns the lag of a group; without a commit, it includes all records of a partition."""
    commit_offsets(cluster, GROUP, {0: 2, 1: RECORDS})
    urls = [broker["admin_url"] for broker in request_json(cluster, "/v1/brokers")["brokers"]]
    assert len(set(urls)) == 3
    for url in urls:
        found = request_json(cluster, f"{group_path(GROUP)}/lag", url=url)
        assert (found["group"], found["state"], found["lag"], found["status"]) == (
            GROUP,
            "Empty",
            RECORDS - 2 + RECORDS,
            "STOPPED",
        )
        assert (found["partitions_without_commit"], found["lag_without_commit"]) == (1, RECORDS)
        rows = found["partitions"]
        assert [(row["topic"], row["partition"]) for row in rows] == [(TOPIC, 0), (TOPIC, 1), (TOPIC, 2)]
        expected = [(2, RECORDS, RECORDS - 2), (RECORDS, RECORDS, 0), (None, RECORDS, RECORDS)]
        assert [(row["committed_offset"], row["log_end_offset"], row["lag"]) for row in rows] == expected
        assert all(row["committed_at_ms"] > 1_600_000_000_000 for row in rows[:2])
        assert found["no_commit_since_ms"] >= rows[0]["committed_at_ms"]


@pytest.mark.parametrize("path", ["", "/lag"])
def test_missing_group(cluster: StandaloneProcess, path: str) -> None:
    """Every operation on a missing group returns a problem with advice."""
    problem = request_json(cluster, f"/v1/groups/unknown{path}")
    assert (problem["status"], problem["title"]) == (404, "GROUP_ID_NOT_FOUND")
    assert problem["instance"] == f"/v1/groups/unknown{path}"
    assert "GET /v1/groups" in problem["what_to_do"]


# --- writes ----------------------------------------------------------------------------------------------------------


RESETS = [
    ({"kind": "earliest"}, {0: 0, 1: 0, 2: 0}),
    ({"kind": "latest"}, {0: 10, 1: 10, 2: 10}),
    ({"kind": "offset", "value": 7}, {0: 7, 1: 7, 2: 7}),
    ({"kind": "offset", "value": 700}, {0: 10, 1: 10, 2: 10}),
    ({"kind": "shift", "value": -3}, {0: 0, 1: 5}),
    ({"kind": "shift", "value": 3}, {0: 5, 1: 10}),
    ({"kind": "timestamp", "value": BEGIN_MS + 3500}, {0: 4, 1: 4, 2: 4}),
    ({"kind": "timestamp", "value": BEGIN_MS + 3_600_000}, {0: 10, 1: 10, 2: 10}),
    ({"kind": "duration", "value": 1000}, {0: 10, 1: 10, 2: 10}),
    ({"kind": "duration", "value": 2**50}, {0: 0, 1: 0, 2: 0}),
]


@pytest.mark.parametrize(("to", "after"), RESETS, ids=[str(row[0]) for row in RESETS])
def test_offset_reset(cluster: StandaloneProcess, to: Any, after: dict[int, int]) -> None:
    """A reset is limited to the offsets in the log and has a dry run; it covers all partitions of committed topics.

    A shift covers only the partitions with a committed offset.
    """
    group = f"reset {to}"
    commit_offsets(cluster, group, {0: 2, 1: 8})
    before = {0: 2, 1: 8, 2: None}
    rows = [
        {"topic": TOPIC, "partition": partition, "before": before[partition], "after": offset}
        for partition, offset in after.items()
    ]
    tried = request_json(cluster, f"{group_path(group)}/offsets?dry_run=true", "POST", {"to": to})
    assert tried == {"group": group, "offsets": rows, "dry_run": True, "znodes": []}
    assert [row["offset"] for row in request_json(cluster, group_path(group))["offsets"]] == [2, 8]
    done = request_json(cluster, f"{group_path(group)}/offsets", "POST", {"to": to})
    assert done == {"group": group, "offsets": rows, "dry_run": False, "znodes": []}
    assert [row["offset"] for row in request_json(cluster, group_path(group))["offsets"]] == list(after.values())
    if to["kind"] != "shift":
        body = {"to": to, "topics": {TOPIC: None}}
        named = request_json(cluster, f"{group_path(group)}/offsets?dry_run=true", "POST", body)
        assert [row["partition"] for row in named["offsets"]] == list(after)


def test_offset_reset_creates_a_group(cluster: StandaloneProcess) -> None:
    """Resetting offsets of a missing group creates the group with offsets for the given partitions."""
    body = {"to": {"kind": "latest"}, "topics": {TOPIC: [1, 2], OTHER: None}}
    done = request_json(cluster, f"{group_path('to come')}/offsets", "POST", body)
    rows = [(row["topic"], row["partition"], row["before"], row["after"]) for row in done["offsets"]]
    assert rows == [(TOPIC, 1, None, 10), (TOPIC, 2, None, 10), (OTHER, 0, None, 0)]
    forgotten = request_json(cluster, f"{group_path('to come')}/offsets?topic={TOPIC}", "DELETE")
    assert [(row["partition"], row["before"]) for row in forgotten["offsets"]] == [(1, 10), (2, 10)]
    assert [row["topic"] for row in request_json(cluster, group_path("to come"))["offsets"]] == [OTHER]


BAD = [
    ({"to": {"kind": "offset"}}, 400, "body.to: offset requires a value"),
    ({"to": {"kind": "latest", "value": 1}}, 400, "body.to: latest takes no value"),
    ({"to": {"kind": "latest"}, "topics": {"nothing": None}}, 404, "topic 'nothing' does not exist"),
    (
        {"to": {"kind": "latest"}, "topics": {TOPIC: [3]}},
        404,
        f"partition 3 of {TOPIC} does not exist (number of partitions: 3)",
    ),
    (
        {"to": {"kind": "shift", "value": 1}, "topics": {OTHER: None}},
        409,
        f"no offset to shift: the group has no committed offset for {OTHER}-0",
    ),
]


@pytest.mark.parametrize(("body", "status", "detail"), BAD, ids=[row[2] for row in BAD])
def test_invalid_resets(cluster: StandaloneProcess, body: Any, status: int, detail: str) -> None:
    """An invalid reset is refused with a reason, and commits nothing."""
    commit_offsets(cluster, GROUP, {0: 2})
    before = request_json(cluster, group_path(GROUP))["offsets"]
    problem = request_json(cluster, f"{group_path(GROUP)}/offsets", "POST", body)
    assert (problem["status"], problem["detail"]) == (status, detail)
    assert request_json(cluster, group_path(GROUP))["offsets"] == before


def test_required_topics(cluster: StandaloneProcess) -> None:
    """Topics are required to reset a missing group, and to delete offsets."""
    problem = request_json(cluster, "/v1/groups/unknown/offsets", "POST", {"to": {"kind": "latest"}})
    assert (problem["status"], problem["title"]) == (404, "GROUP_ID_NOT_FOUND")
    problem = request_json(cluster, f"{group_path(GROUP)}/offsets", "DELETE")
    assert (problem["status"], "?topic=" in problem["what_to_do"]) == (400, True)


# --- missing brokers -------------------------------------------------------------------------------------------------


def test_unresponsive_broker_is_named(cluster: StandaloneProcess) -> None:
    """If a broker does not respond, the list has the other brokers' groups and a notice, until the broker is back."""
    request_json(cluster, "/v1/standalone/brokers/2/pause", "POST")
    try:
        found = request_json(cluster, "/v1/groups")
        assert not found["is_complete"]
        assert len(found["problems"]) == 1
        assert found["problems"][0].startswith("broker 2 did not list its groups: ")
        assert {row["coordinator"] for row in found["groups"]} <= {1, 3}
    finally:
        request_json(cluster, "/v1/standalone/brokers/2/resume", "POST")
    deadline_s = time.monotonic() + 20
    while not request_json(cluster, "/v1/groups")["is_complete"]:
        assert time.monotonic() < deadline_s
        time.sleep(0.1)
