"""Records in the admin API of a cluster: read, searched, followed and written through any broker."""

from __future__ import annotations

import base64
import csv
import io
import json
import threading
from collections.abc import Iterator
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.standalone import StandaloneProcess

ORDERS, PAID, EMPTY = "orders", "paid", "empty"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
RECORDS_PER_CODEC = 60
BEGIN_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    with StandaloneProcess(tmp_path_factory.mktemp("messages"), brokers=3) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap_servers})
        topics = [NewTopic(ORDERS, 3, 3), NewTopic(PAID, 1, 1), NewTopic(EMPTY, 2, 1)]
        for future in admin.create_topics(topics).values():
            future.result(20)
        write_orders(running)
        write_paid(running)
        yield running


def write_orders(cluster: StandaloneProcess) -> None:
    """Write records with each codec, one second apart, to three partitions in turn."""
    for index, codec in enumerate(CODECS):
        settings = {"compression.type": codec, "linger.ms": 50}
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, **settings})
        for number in range(RECORDS_PER_CODEC):
            producer.produce(
                ORDERS,
                f"{codec} order {number}",
                f"customer {number}",
                partition=number % 3,
                timestamp=BEGIN_MS + (index * RECORDS_PER_CODEC + number) * 1000,
                headers={"codec": codec},
            )
        assert producer.flush(20) == 0


def write_paid(cluster: StandaloneProcess) -> None:
    """Write transactions, and abort every other one."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "cashier"})
    producer.init_transactions(20)
    for number in range(4):
        producer.begin_transaction()
        producer.produce(PAID, f"{number}")
        producer.flush(20)
        producer.commit_transaction(20) if number % 2 else producer.abort_transaction(20)


def request_json(
    cluster: StandaloneProcess, path: str, method: str = "GET", body: Any = None, url: str = "", **query: Any
) -> Any:
    """Send a request, and return its document or problem."""
    data = None if body is None else json.dumps(body).encode()
    headers = {} if body is None else {"content-type": "application/json"}
    suffix = f"?{urlencode(query)}" if query else ""
    request = Request((url or cluster.admin_url) + path + suffix, data, headers, method=method)
    try:
        with urlopen(request, timeout=30) as answer:
            return json.load(answer)
    except HTTPError as error:
        return json.load(error)


def messages(cluster: StandaloneProcess, topic: str, **query: Any) -> Any:
    return request_json(cluster, f"/v1/topics/{topic}/messages", **query)


def values(page: Any) -> list[str]:
    return [row["value"]["value"] for row in page["messages"]]


def part(value: str) -> Any:
    return {
        "format": "text",
        "value": value,
        "size_bytes": len(value),
        "schema": None,
        "error": None,
        "truncated": False,
    }


ALL = [f"{codec} order {number}" for codec in CODECS for number in range(RECORDS_PER_CODEC)]


# --- read ------------------------------------------------------------------------------------------------------------


def test_pages(cluster: StandaloneProcess) -> None:
    """The pages have all records of all partitions and codecs, once and in order of time; the last one is marked."""
    found, after, pages = [], None, 0
    while True:
        page = messages(cluster, ORDERS, limit=70, **({"after": after} if after else {}))
        assert page["problems"] == []
        found += values(page)
        pages += 1
        after = page["next"]
        if after is None:
            break
    assert pages == 5
    assert sorted(found) == sorted(ALL)
    assert found[:70] == ALL[:70]


def test_every_broker_returns_the_same(cluster: StandaloneProcess) -> None:
    brokers = request_json(cluster, "/v1/brokers")["brokers"]
    pages = [
        request_json(cluster, f"/v1/topics/{ORDERS}/messages", url=row["admin_url"], limit=1000) for row in brokers
    ]
    assert [values(page) for page in pages] == [ALL] * 3


def test_one_partition(cluster: StandaloneProcess) -> None:
    """The records of one partition are returned with all fields."""
    page = messages(cluster, ORDERS, partition=1, limit=2)
    assert page["messages"][0] == {
        "partition": 1,
        "offset": 0,
        "timestamp_ms": BEGIN_MS + 1000,
        "timestamp_type": "create_time",
        "key": part("customer 1"),
        "value": part("none order 1"),
        "headers": [{"key": "codec", "value": "none", "encoding": "utf8"}],
        "size_bytes": 31,
        "control": None,
    }
    assert values(page) == ["none order 1", "none order 4"]
    assert page["scanned"] == 2


BEGINS = [
    ({"from": "latest", "limit": 6}, ALL[-6:]),
    ({"from": "latest", "limit": 2, "partition": 2}, ["zstd order 56", "zstd order 59"]),
    ({"from": "offset:98", "partition": 0}, ["zstd order 54", "zstd order 57"]),
    ({"from": "offset:100"}, []),
    ({"from": "offset:123456"}, []),
    ({"from": f"timestamp:{BEGIN_MS + 297_500}"}, ALL[298:]),
    ({"from": f"timestamp:{BEGIN_MS + 10**9}"}, []),
]


@pytest.mark.parametrize(("query", "expected"), BEGINS, ids=[str(row[0]) for row in BEGINS])
def test_start_position(cluster: StandaloneProcess, query: dict[str, Any], expected: list[str]) -> None:
    """Reading starts at the last records, an offset, or a time; beyond the end, the page is empty."""
    page = messages(cluster, ORDERS, **query)
    assert (values(page), page["next"]) == (expected, None)


SEARCHES = [
    ("LZ4 order 7", ["lz4 order 7"]),
    ("customer 59", [f"{codec} order 59" for codec in CODECS]),
    ("/^zstd order (3|59)$/", ["zstd order 3", "zstd order 59"]),
    ("/snap+y order \\d$/", [f"snappy order {number}" for number in range(10)]),
    ("unknown", []),
]


@pytest.mark.parametrize(("search", "expected"), SEARCHES, ids=[row[0] for row in SEARCHES])
def test_search(cluster: StandaloneProcess, search: str, expected: list[str]) -> None:
    """Keys, values and headers are searched, for every codec."""
    page = messages(cluster, ORDERS, search=search)
    assert (values(page), page["scanned"], page["next"]) == (expected, len(ALL), None)


def test_records_of_next_page(cluster: StandaloneProcess) -> None:
    """Records that are left for the next page are counted when that page has them."""
    for order, start in (("oldest", "earliest"), ("newest", "latest")):
        page = messages(cluster, ORDERS, order=order, limit=2, **{"from": start})
        assert (page["scanned"], page["remaining"]) == (2, len(ALL) - 2)


def test_search_in_steps(cluster: StandaloneProcess) -> None:
    """The number of records scanned per call is limited; further calls continue without a gap."""
    found, after, calls = [], None, 0
    while calls == 0 or after is not None:
        query = {"after": after} if after else {}
        page = messages(cluster, ORDERS, search="/order 5$/", scan_limit=50, **query)
        assert page["scanned"] <= 50 * 3
        found += values(page)
        after, calls = page["next"], calls + 1
    assert sorted(found) == sorted(f"{codec} order 5" for codec in CODECS)
    assert calls > 1


def test_transactions(cluster: StandaloneProcess) -> None:
    """Aborted records are returned only if uncommitted records are requested."""
    assert values(messages(cluster, PAID)) == ["0", "1", "2", "3"]
    assert values(messages(cluster, PAID, isolation="read_uncommitted")) == ["0", "1", "2", "3"]
    page = messages(cluster, PAID, isolation="read_committed")
    assert (values(page), page["scanned"], page["next"]) == (["1", "3"], 2, None)


def test_open_transaction(cluster: StandaloneProcess) -> None:
    """A page of committed records ends before an open transaction."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "slow cashier"})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(EMPTY, "open", partition=0)
    producer.flush(20)
    page = messages(cluster, EMPTY, isolation="read_committed", partition=0)
    assert (values(page), page["next"]) == ([], None)
    assert values(messages(cluster, EMPTY, partition=0)) == ["open"]
    producer.abort_transaction(20)


BAD = [
    ("nothing", {}, 404, "topic 'nothing' does not exist"),
    (ORDERS, {"partition": 3}, 404, "partition 3 of orders does not exist (number of partitions: 3)"),
    (ORDERS, {"after": "zz"}, 400, "the query parameter 'after' is not the `next` of a response for this topic and"),
    (ORDERS, {"filter": "value.x >"}, 400, "the query parameter 'filter': "),
    (ORDERS, {"value_format": "xml"}, 400, "the query parameter 'value_format': unknown format 'xml'"),
    (ORDERS, {"search": "/(/"}, 400, "the query parameter 'search': missing ) of a group, at character 1 of '('"),
]


@pytest.mark.parametrize(("topic", "query", "status", "detail"), BAD, ids=[row[3] for row in BAD])
def test_invalid_reads(cluster: StandaloneProcess, topic: str, query: dict[str, Any], status: int, detail: str) -> None:
    """An invalid read returns a problem with the reason."""
    problem = messages(cluster, topic, **query)
    assert problem["status"] == status
    assert problem["detail"].startswith(detail)


NEWEST = [
    ({"limit": 7}, ALL[:-8:-1]),
    ({"limit": 2, "partition": 2}, ["zstd order 59", "zstd order 56"]),
    ({"from": "offset:1"}, ALL[5::-1]),
    ({"from": f"timestamp:{BEGIN_MS + 2500}"}, ALL[2::-1]),
    ({"from": "earliest"}, []),
    ({"search": "/order 5$/"}, [f"{codec} order 5" for codec in reversed(CODECS)]),
    ({"filter": 'value.startsWith("gzip order 1") && headers.codec == "gzip" && partition == 1'},
     ["gzip order 19", "gzip order 16", "gzip order 13", "gzip order 10", "gzip order 1"]),
]  # fmt: skip


@pytest.mark.parametrize(("query", "expected"), NEWEST, ids=[str(row[0]) for row in NEWEST])
def test_newest_first(cluster: StandaloneProcess, query: dict[str, Any], expected: list[str]) -> None:
    """The newest records of all partitions are returned first, from the end or from a given position."""
    page = messages(cluster, ORDERS, order="newest", **query)
    assert values(page) == expected
    assert (page["problems"], page["filter_errors"]) == ([], 0)


@pytest.mark.parametrize("query", [{}, {"scan_limit": 40}, {"search": "order"}], ids=str)
def test_newest_first_in_pages(cluster: StandaloneProcess, query: dict[str, Any]) -> None:
    """The pages together have every record once and in order; the number of remaining offsets drops to zero."""
    found: list[str] = []
    remaining, after = [len(ALL)], None
    while after is not None or not found:
        more = {} if after is None else {"after": after}
        page = messages(cluster, ORDERS, order="newest", limit=70, **query, **more)
        found += values(page)
        after = page["next"]
        remaining.append(page["remaining"])
    assert found == ALL[::-1]
    assert remaining == sorted(remaining, reverse=True)
    assert remaining[-1] == 0


def test_control_records(cluster: StandaloneProcess) -> None:
    """Transaction markers are included on request; records of internal topics are decoded."""
    rows = messages(cluster, PAID, control_records="true")["messages"]
    assert [row["control"] and row["control"]["type"] for row in rows] == [None, "abort", None, "commit"] * 2
    states = messages(cluster, "__transaction_state", limit=1000)["messages"]
    of_cashier = [row["value"]["value"] for row in states if row["key"]["value"] == {"transactional_id": "cashier"}]
    assert {row["value"]["format"] for row in states} == {"transaction-record"}
    assert of_cashier[-1]["state"] == "complete_commit"


def test_formats(cluster: StandaloneProcess) -> None:
    """Records are written and read in all listed formats; one that cannot be decoded has a reason and hex digits."""
    names = [row["name"] for row in request_json(cluster, "/v1/formats")["formats"] if row["can_encode"]]
    assert names == ["avro", "protobuf", "json-schema", "json", "cbor", "msgpack", "text", "hex"]
    document = {"total": 2**60, "items": ["coffee", None, 1.5], "image": {"$base64": "AP8="}}
    path = f"/v1/topics/{EMPTY}/messages"
    for name in ("json", "cbor", "msgpack"):
        done = request_json(cluster, path, "POST", {"partition": 1, "value": document, "value_format": name})
        where = {"partition": 1, "from": f"offset:{done['offset']}", "raw": "true"}
        (row,) = messages(cluster, EMPTY, value_format=name, **where)["messages"]
        assert (row["value"]["format"], row["value"]["value"], row["value"]["error"]) == (name, document, None)
        (row,) = messages(cluster, EMPTY, value_format="avro", **where)["messages"]
        content = base64.b64decode(row["value"]["base64"])
        assert (row["value"]["format"], row["value"]["value"]) == ("hex", content.hex())
        assert row["value"]["error"].startswith("avro: does not start with")


def test_download(cluster: StandaloneProcess) -> None:
    """A download has all matching records, as JSON lines or CSV rows."""
    url = f"{cluster.admin_url}/v1/topics/{ORDERS}/messages/download"
    with urlopen(f"{url}?limit=700&order=newest", timeout=30) as answer:
        assert answer.headers["content-disposition"] == 'attachment; filename="orders.ndjson"'
        assert [json.loads(line)["value"]["value"] for line in answer] == ALL[::-1]
    with urlopen(f"{url}?as=csv&limit=2&filter=partition+%3D%3D+1", timeout=30) as answer:
        assert answer.headers["content-type"] == "text/csv; charset=utf-8"
        rows = list(csv.reader(io.StringIO(answer.read().decode(), newline="")))
    assert rows == [
        ["partition", "offset", "timestamp_ms", "key", "value", "headers"],
        ["1", "0", str(BEGIN_MS + 1000), "customer 1", "none order 1", '{"codec":"none"}'],
        ["1", "1", str(BEGIN_MS + 4000), "customer 4", "none order 4", '{"codec":"none"}'],
    ]
    assert request_json(cluster, f"/v1/topics/{ORDERS}/messages/download", partition=9)["status"] == 404


# --- write -----------------------------------------------------------------------------------------------------------


def test_written_records_can_be_read(cluster: StandaloneProcess) -> None:
    """Clients read the written texts, bytes and headers unchanged; keys go to the partitions that clients expect."""
    body = {
        "key": "42",
        "value": base64.b64encode(b"\x00\xff").decode(),
        "value_format": "base64",
        "headers": [{"key": "h", "value": "ü"}, {"key": "none"}, {"key": "b", "value": "/w==", "encoding": "base64"}],
    }
    path = f"/v1/topics/{EMPTY}/messages"
    tried = request_json(cluster, path, "POST", body, dry_run="true")
    assert (tried["offset"], tried["dry_run"], tried["znodes"]) == (None, True, [])
    done = request_json(cluster, path, "POST", body)
    assert done["partition"] == tried["partition"]
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "partitioner": "murmur2_random"})
    delivered: list[int] = []
    producer.produce(EMPTY, b"again", b"42", on_delivery=lambda _, message: delivered.append(message.partition()))
    producer.flush(20)
    assert delivered == [done["partition"]]
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "none"})
    consumer.assign([TopicPartition(EMPTY, done["partition"], done["offset"])])
    (message,) = consumer.consume(1, 20)
    consumer.close()
    assert (message.key(), message.value(), message.timestamp()[1]) == (b"42", b"\x00\xff", done["timestamp_ms"])
    assert message.headers() == [("h", "ü".encode()), ("none", None), ("b", b"\xff")]


def test_empty_record(cluster: StandaloneProcess) -> None:
    """A record needs neither key nor value, and the request may choose the partition."""
    done = request_json(cluster, f"/v1/topics/{EMPTY}/messages", "POST", {"partition": 1})
    page = messages(cluster, EMPTY, partition=1, **{"from": f"offset:{done['offset']}"})
    (row,) = page["messages"]
    assert (row["key"]["format"], row["key"]["value"], row["value"]["format"]) == ("null", None, "null")


BAD_BODIES = [
    (EMPTY, {"partition": 2}, 404, "partition 2 of empty does not exist (number of partitions: 2)"),
    (EMPTY, {"value": "é", "value_format": "base64"}, 400, "body.value is not valid base64"),
    ("nothing", {}, 404, "topic 'nothing' does not exist"),
    ("__transaction_state", {}, 403, "only coordinators can write to __transaction_state"),
]


@pytest.mark.parametrize(("topic", "body", "status", "detail"), BAD_BODIES, ids=[row[3] for row in BAD_BODIES])
def test_invalid_writes(cluster: StandaloneProcess, topic: str, body: Any, status: int, detail: str) -> None:
    """An invalid write returns a problem with the reason, and nothing is written."""
    problem = request_json(cluster, f"/v1/topics/{topic}/messages", "POST", body)
    assert problem["status"] == status
    assert problem["detail"].startswith(detail)


def test_record_that_the_topic_refuses(cluster: StandaloneProcess) -> None:
    """If the leader rejects a record, the problem has the leader's message."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    for future in admin.create_topics([NewTopic("small", 1, 1, config={"max.message.bytes": "200"})]).values():
        future.result(20)
    problem = request_json(cluster, "/v1/topics/small/messages", "POST", {"value": "x" * 300})
    assert (problem["status"], problem["title"]) == (413, "MESSAGE_TOO_LARGE")


# --- follow ----------------------------------------------------------------------------------------------------------


class Tail:
    """The events of a stream, read in a thread until it ends."""

    def __init__(self, url: str) -> None:
        self.events: list[tuple[str, Any]] = []
        self._came = threading.Condition()
        self._answer = urlopen(url, timeout=60)
        assert self._answer.readline() == b": kreplica\n"
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        name = ""
        for line in self._answer:
            field, _, text = line.decode().rstrip("\n").partition(": ")
            if field == "event":
                name = text
            elif field == "data":
                with self._came:
                    self.events.append((name, json.loads(text)))
                    self._came.notify_all()

    def wait_for(self, count: int) -> list[tuple[str, Any]]:
        with self._came:
            assert self._came.wait_for(lambda: len(self.events) >= count, 20), self.events
            return list(self.events)


def test_follow(cluster: StandaloneProcess) -> None:
    """A follower of a topic receives matching records as they are written, but no earlier ones."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    for future in admin.create_topics([NewTopic("followed", 2, 3)]).values():
        future.result(20)
    path = "/v1/topics/followed/messages"
    request_json(cluster, path, "POST", {"value": "before", "partition": 0})
    tail = Tail(f"{cluster.admin_url}{path}/tail?search=tea")
    for number in range(6):
        what = "tea" if number % 2 else "coffee"
        request_json(cluster, path, "POST", {"value": f"{what} {number}", "partition": number % 2})
    # The start offset is looked up after the response has started, so the first records may precede it.
    events = tail.wait_for(1)
    request_json(cluster, path, "POST", {"value": "the last tea", "partition": 0})
    while events[-1][1].get("value", {}).get("value") != "the last tea":
        events = tail.wait_for(len(events) + 1)
    assert {name for name, _ in events} <= {"message", "progress"}, events
    seen = [document["value"]["value"] for name, document in events if name == "message"]
    assert seen == [f"tea {number}" for number in (1, 3, 5) if f"tea {number}" in seen] + ["the last tea"]


def test_follow_a_missing_topic(cluster: StandaloneProcess) -> None:
    """Following a missing topic returns a problem, not a stream."""
    problem = request_json(cluster, f"/v1/topics/{ORDERS}/messages/tail", partition=9)
    assert (problem["status"], problem["detail"]) == (404, "partition 9 of orders does not exist")


# --- deletion --------------------------------------------------------------------------------------------------------


def test_delete(cluster: StandaloneProcess) -> None:
    """Records before an offset, a time or the end are deleted; a dry run returns the offsets and deletes nothing."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    for future in admin.create_topics([NewTopic("emptied", 2, 2)]).values():
        future.result(20)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for number in range(20):
        producer.produce("emptied", f"{number}", partition=number % 2, timestamp=BEGIN_MS + number * 1000)
    assert producer.flush(20) == 0

    def delete(**query: Any) -> list[tuple[int, int]]:
        document = request_json(cluster, "/v1/topics/emptied/messages", "DELETE", **query)
        return [(row["before"], row["after"]) for row in document["partitions"]]

    assert delete(before="latest", dry_run="true") == [(0, 10), (0, 10)]
    assert delete(before="offset:3", partition=1) == [(0, 3)]
    assert delete(before="offset:99", partition=1, dry_run="true") == [(3, 10)]
    assert values(messages(cluster, "emptied", partition=1))[0] == "7"
    assert delete(before=f"timestamp:{BEGIN_MS + 10_000}") == [(0, 5), (3, 5)]
    assert delete(before="offset:1") == [(5, 5), (5, 5)]
    assert values(messages(cluster, "emptied")) == [str(number) for number in range(10, 20)]
    assert delete(before="latest") == [(5, 10), (5, 10)]
    assert values(messages(cluster, "emptied")) == []


@pytest.mark.parametrize(
    ("topic", "query", "status", "detail"),
    [
        (ORDERS, {}, 400, "the query parameter 'before' is missing"),
        (ORDERS, {"before": "latest", "partition": 9}, 404, "partition 9 of orders does not exist (number of "
                                                            "partitions: 3)"),
        ("nosuch", {"before": "latest"}, 404, "topic 'nosuch' does not exist"),
        ("compacted", {"before": "latest"}, 403, "records of compacted cannot be deleted: cleanup.policy is compact "
                                                 "and does not include delete"),
        ("__transaction_state", {"before": "latest"}, 400, "only coordinators can delete records of "
                                                           "__transaction_state"),
    ],
)  # fmt: skip
def test_refused_deletion(
    cluster: StandaloneProcess, topic: str, query: dict[str, Any], status: int, detail: str
) -> None:
    """A refused deletion returns a problem with the reason, in a dry run too."""
    if topic == "compacted":
        request_json(cluster, "/v1/topics", "POST", {"name": topic, "configs": {"cleanup.policy": "compact"}})
    problem = request_json(cluster, f"/v1/topics/{topic}/messages", "DELETE", **query, dry_run="true")
    assert (problem["status"], problem["detail"]) == (status, detail)


# --- missing brokers -------------------------------------------------------------------------------------------------


def test_partitions_without_a_leader(cluster: StandaloneProcess) -> None:
    """Partitions without a leader are named and read later, once they have one; other partitions are read now."""
    rows = request_json(cluster, f"/v1/topics/{EMPTY}/partitions")["partitions"]
    leaders = {row["partition"]: row["leader"] for row in rows}
    lost = leaders[0]
    for partition in leaders:
        request_json(cluster, f"/v1/topics/{EMPTY}/messages", "POST", {"partition": partition, "value": "kept"})
    request_json(cluster, f"/v1/standalone/brokers/{lost}/kill", "POST")
    try:
        page = messages(cluster, EMPTY, partition=0)
        assert (page["status"], page["title"]) == (503, "LEADER_NOT_AVAILABLE")
        assert f"broker {lost}" in page["detail"] or "has no leader" in page["detail"]
        if leaders[1] != lost:
            assert values(messages(cluster, EMPTY)) != []
    finally:
        request_json(cluster, f"/v1/standalone/brokers/{lost}/start", "POST")
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "none"})
    consumer.assign([TopicPartition(EMPTY, 0, OFFSET_BEGINNING)])
    assert consumer.consume(1, 20) != []
    consumer.close()
    assert messages(cluster, EMPTY, partition=0)["problems"] == []
