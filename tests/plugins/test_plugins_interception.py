"""Interceptors that refuse or change batches, or fail, and the effects on clients."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from zope.interface import implementer

from kreplica import interfaces
from kreplica.errors import ErrorCode, KafkaError
from kreplica.interfaces import IProduceInterceptor, Principal, RejectBatch, ReplaceRecords
from kreplica.server.produce.interception import Interception, Interceptor
from kreplica.testing.cluster.cluster import LOG_DIRECTORY, SimulatedCluster
from kreplica.wire.batch_building import build_batch
from kreplica.wire.messages import PRODUCE
from kreplica.wire.records import Record

SCHEMAS = f"{LOG_DIRECTORY}-schemas"
SCHEMA = {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}}


def batch_of(*values: bytes | None, **options: int) -> bytes:
    return build_batch([Record(-1, 1000, b"k", value) for value in values], **options)


def produce_batch(cluster: SimulatedCluster, topic: str, batch: bytes, transactional_id: str | None = None):
    """Produce a batch, and return the response for its partition."""
    body = {
        "transactional_id": transactional_id,
        "acks": -1,
        "timeout_ms": 5000,
        "topic_data": [{"name": topic, "partition_data": [{"index": 0, "records": batch}]}],
    }
    answer = cluster.run_until(cluster.client().request(PRODUCE, body, at_most=11))
    return answer["responses"][0]["partition_responses"][0]


@pytest.fixture(scope="module")
def validating() -> Iterator[SimulatedCluster]:
    overrides = ["kreplica.produce.interceptors=json-schema", f"kreplica.plugin.json-schema.directory={SCHEMAS}"]
    cluster = SimulatedCluster(2, overrides=overrides)
    disk = cluster.brokers[1].host.runtime.disk
    disk.make_directories(SCHEMAS)
    disk.write_file(f"{SCHEMAS}/orders.json", json.dumps(SCHEMA).encode())
    cluster.start()
    for topic in ("orders", "others"):
        cluster.run_until(cluster.client().create_topic(topic))
    yield cluster
    cluster.stop()


def test_values_that_match_their_schema(validating):
    """Values that match the schema, and tombstones, are accepted."""
    assert produce_batch(validating, "orders", batch_of(b'{"id": 1}', None))["error_code"] == 0


def test_values_that_do_not_match(validating):
    """A batch with values that do not match is refused, with the reason for each record."""
    row = produce_batch(validating, "orders", batch_of(b'{"id": 1}', b'{"id": "x"}', b"{", b"{}"))
    assert row["error_code"] == 87
    assert row["error_message"] == "json-schema: 3 of 4 records violate the schema"
    texts = {each["batch_index"]: each["batch_index_error_message"] for each in row["record_errors"]}
    assert texts.keys() == {1, 2, 3}
    assert texts[1] == "$.id: 'x' is not of type 'integer'"
    assert texts[3] == "$: 'id' is a required property"


def test_topics_without_a_schema(validating):
    """Topics without a schema accept any value."""
    assert produce_batch(validating, "others", batch_of(b"\xff"))["error_code"] == 0


@implementer(IProduceInterceptor)
class ScriptedInterceptor:
    """An interceptor that calls a function of the test."""

    def __init__(self, intercept: Callable) -> None:
        self.intercept = intercept
        self.notified: list[int] = []

    def appended(self, batch, note_offset):
        self.notified.append(note_offset)


@pytest.fixture
def start_intercepted() -> Iterator[Callable]:
    """Return a function that starts a broker with interceptors made from the given functions."""
    clusters = []

    def make(*functions: Callable) -> tuple[SimulatedCluster, list[ScriptedInterceptor], list[str]]:
        cluster = SimulatedCluster(
            4,
            overrides=[
                "kreplica.produce.interceptors=required-headers",
                "kreplica.plugin.required-headers.headers=x",
                "transaction.partition.verification.enable=false",
            ],
        )
        cluster.start()
        clusters.append(cluster)
        plugins, failures = [ScriptedInterceptor(function) for function in functions], []
        interceptors = [Interceptor(f"by-{n}", plugin, failures.append) for n, plugin in enumerate(plugins)]
        cluster.brokers[1].program.plugins.interception._interceptors = interceptors
        cluster.run_until(cluster.client().create_topic("t"))
        return cluster, plugins, failures

    yield make
    for cluster in clusters:
        cluster.stop()


def values(cluster: SimulatedCluster) -> list[bytes | None]:
    records = cluster.run_until(cluster.client().read_all("t", 0))
    return [record.value for record in records if record.key != b"\0\0kr"]


def test_records_are_changed_and_removed(start_intercepted):
    """Each interceptor gets the result of the previous one; offsets of removed records remain unused."""

    def without_secrets(batch):
        return ReplaceRecords([record for record in batch.records if record.value != b"secret"])

    def upper_case(batch):
        return ReplaceRecords([record._replace(value=record.value.upper()) for record in batch.records])

    cluster, _, _ = start_intercepted(without_secrets, upper_case)
    assert produce_batch(cluster, "t", batch_of(b"a", b"secret", b"b"))["base_offset"] == 0
    assert produce_batch(cluster, "t", batch_of(b"c"))["base_offset"] == 3
    assert values(cluster) == [b"A", b"B", b"C"]


def test_idempotent_producer_continues(start_intercepted):
    """Sequence numbers are recorded even for a batch without remaining records, so that its retry is detected."""
    cluster, _, _ = start_intercepted(lambda batch: ReplaceRecords([]) if batch.records[0].value == b"drop" else None)
    options = {"producer_id": 77, "producer_epoch": 0}
    first = produce_batch(cluster, "t", batch_of(b"drop", b"drop", base_sequence=0, **options))
    again = produce_batch(cluster, "t", batch_of(b"drop", b"drop", base_sequence=0, **options))
    assert (first["error_code"], first["base_offset"]) == (0, 0) == (again["error_code"], again["base_offset"])
    assert produce_batch(cluster, "t", batch_of(b"kept", base_sequence=2, **options))["base_offset"] == 2
    assert produce_batch(cluster, "t", batch_of(b"gap", base_sequence=9, **options))["error_code"] == 45
    assert values(cluster) == [b"kept"]


def test_interceptor_that_raises(start_intercepted):
    """If an interceptor raises, the batch is refused and the error reported; the next batch is intercepted again."""

    def fails(batch):
        if batch.records[0].value == b"boom":
            raise LookupError("no")

    cluster, _, failures = start_intercepted(fails)
    row = produce_batch(cluster, "t", batch_of(b"boom"))
    assert (row["error_code"], row["error_message"]) == (-1, "the interceptor by-0 failed")
    assert failures == ["intercepting a batch for t-0"]
    assert produce_batch(cluster, "t", batch_of(b"fine"))["error_code"] == 0


def test_batches_after_a_refused_one(start_intercepted):
    """After a retriable error, later batches get the same error; after any other error, they are out of order."""
    errors = [KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED), KafkaError(ErrorCode.POLICY_VIOLATION)]

    def refuses(batch):
        if batch.records[0].value == b"refused" and errors:
            raise errors.pop(0)

    def send(sequence, value=b"fine"):
        batch = batch_of(value, base_sequence=sequence, producer_id=77, producer_epoch=0)
        return produce_batch(cluster, "t", batch)["error_code"]

    cluster, _, _ = start_intercepted(refuses)
    assert [send(0), send(1, b"refused"), send(2)] == [0, 89, 89]
    assert [send(1, b"refused"), send(2)] == [44, 45]
    assert [send(1), send(2), send(3)] == [0, 0, 0]


@pytest.mark.parametrize("offsets", [[1, 0], [0, 0], [5], [-1]])
def test_interceptor_with_an_invalid_result(start_intercepted, offsets):
    """A result whose offsets do not increase, or are outside the batch, is an error of the plugin."""
    cluster, _, failures = start_intercepted(
        lambda batch: ReplaceRecords([batch.records[0]._replace(offset=offset) for offset in offsets])
    )
    assert produce_batch(cluster, "t", batch_of(b"a", b"b"))["error_code"] == -1
    assert len(failures) == 1
    assert values(cluster) == []


def test_interceptors_are_notified_of_their_notes(start_intercepted):
    """Interceptors are notified when their notes are in the log; a retry creates no notes."""
    cluster, plugins, _ = start_intercepted(
        lambda batch: ReplaceRecords(batch.records, b"first"), lambda batch: ReplaceRecords(batch.records, b"second")
    )
    batch = batch_of(b"a", producer_id=5, producer_epoch=0, base_sequence=0)
    row = produce_batch(cluster, "t", batch)
    assert produce_batch(cluster, "t", batch)["base_offset"] == row["base_offset"] == 2
    assert [plugin.notified for plugin in plugins] == [[0], [1]]
    assert values(cluster) == [b"a"]


def test_transactional_batches_have_no_notes(start_intercepted):
    """A transactional batch with a note is refused, because the transaction could abort; others are accepted."""
    notes = [None]
    cluster, _, _ = start_intercepted(lambda batch: ReplaceRecords(batch.records, notes[0]))
    options = {"producer_id": 6, "producer_epoch": 0, "transactional": True}
    assert produce_batch(cluster, "t", batch_of(b"a", base_sequence=0, **options), "app")["error_code"] == 0
    notes[0] = b"note"
    row = produce_batch(cluster, "t", batch_of(b"b", base_sequence=1, **options), "app")
    assert row["error_message"] == "records of a transaction cannot be held back"


def test_malformed_batch_is_not_an_error_of_the_plugin():
    """A malformed batch gets its own error, not that of a failing plugin."""

    class Partition:
        topic_partition = None
        log = type("Log", (), {"config": type("Config", (), {"compacted": False})})

    from kreplica.interfaces.authorization import ANONYMOUS
    from kreplica.wire.batch_building import seal
    from kreplica.wire.batches import parse_header

    header = parse_header(batch_of(b"a"))
    malformed = memoryview(bytearray(seal(header, b"\x7f" * 9)))
    failures: list[str] = []
    looking = Interceptor(
        "looks", ScriptedInterceptor(lambda batch: RejectBatch(str(len(batch.records)))), failures.append
    )
    with pytest.raises(KafkaError, match="INVALID_RECORD"):
        Interception([looking]).intercept(Partition(), malformed, Principal(ANONYMOUS, "", "", None), 0)
    assert failures == []


@pytest.mark.parametrize(("name", "current"), [("Instead", ReplaceRecords), ("Refuse", RejectBatch)])
def test_deprecated_names(name, current):
    """The classes' deprecated names work, with a warning that names the current ones."""
    with pytest.warns(DeprecationWarning, match=f"use {current.__name__}"):
        assert getattr(interfaces, name) is current


def test_unknown_name():
    """A name that is neither current nor deprecated raises an error."""
    with pytest.raises(AttributeError, match="'Replace'"):
        interfaces.Replace  # noqa: B018
