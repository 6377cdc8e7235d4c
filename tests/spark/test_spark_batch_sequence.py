"""Batches that a driver numbers: a restarted driver commits decided batches, and continues after them."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from kreplica.blocking import Cluster, Isolation
from kreplica.blocking.offsets import end_offsets
from kreplica.blocking.reader import Reader, ReaderOptions
from kreplica.client_core.errors import LeaderUnknown
from kreplica.model import TopicPartition
from kreplica.spark.sink import exactly_once
from kreplica.spark.sink.batch_sequence import BatchSequence, SinkIdInUse
from kreplica.spark.sink.exactly_once import ConcurrentRun, PreparedTask, Task, commit_prepared, prepare_rows
from kreplica.spark.sink.options import SinkOptions, sink_options
from kreplica.spark.source import range_reading
from kreplica.testing.fixtures.kafka_cluster import KafkaCluster

TOPICS = ("dies", "ahead", "two-runs", "other")
LANES = 2


@pytest.fixture(scope="module")
def brokers() -> Iterator[KafkaCluster]:
    settings = {"transaction.two.phase.commit.enable": True}
    with KafkaCluster(1, topics=dict.fromkeys(TOPICS, 1), settings=settings) as cluster:
        yield cluster
        range_reading.close_clusters()


@pytest.fixture
def client(brokers: KafkaCluster) -> Iterator[Cluster]:
    with Cluster(brokers.bootstrap_servers) as cluster:
        yield cluster


def prepare(brokers: KafkaCluster, topic: str, number: int, after: int) -> tuple[list[PreparedTask], SinkOptions]:
    """Run one task per lane; each writes a row with the batch's number."""
    values = {"kafka.bootstrap.servers": brokers.bootstrap_servers, "topic": topic, "kreplica.exactly.once": "many",
             "kreplica.batch.id": str(number), "kreplica.batch.after": str(after)}  # fmt: skip
    options = sink_options(values)
    row = pa.RecordBatch.from_pydict({"value": pa.array([str(number)])})
    return [prepare_rows(iter([row]), options, Task(topic, number, lane)) for lane in range(LANES)], options


def visible_values(client: Cluster, topic: str) -> list[str]:
    """Return the sorted values that read_committed consumers see once no transaction is open."""
    partition = TopicPartition(topic, 0)

    def end_without_open_transactions() -> dict[TopicPartition, int]:
        committed = end_offsets(client, [partition], Isolation.READ_COMMITTED)
        if committed != end_offsets(client, [partition]):
            raise LeaderUnknown("a transaction is open")
        return committed

    options = ReaderOptions(isolation=Isolation.READ_COMMITTED)
    with Reader(
        client, {partition: 0}, ends=client.retrying(end_without_open_transactions, 20.0), options=options
    ) as reader:
        return sorted((record.value or b"").decode() for record in reader.records())


def test_driver_dies_between_decision_and_commit(
    brokers: KafkaCluster, client: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``last_decided`` returns the decided batch, and each restarted driver finds it committed once."""
    assert BatchSequence(client, "dies", "a test").begin() == -1
    prepared, options = prepare(brokers, "dies", 7, -1)
    with monkeypatch.context() as patched:
        patched.setattr(exactly_once, "_commit_transaction", _kill_driver)
        with pytest.raises(KeyboardInterrupt):
            commit_prepared(prepared, options)
    assert BatchSequence(client, "dies", "a test").last_decided() == 7
    for _ in range(2):
        assert BatchSequence(client, "dies", "a test").begin() == 7
        assert visible_values(client, "dies") == ["7"] * LANES


def _kill_driver(*_: object) -> None:
    raise KeyboardInterrupt


def test_driver_dies_during_the_next_batch(brokers: KafkaCluster, client: Cluster) -> None:
    """If tasks of the next batch have already taken over the lanes, no row is lost, and no loss is reported."""
    sequence = BatchSequence(client, "ahead", "a test")
    sequence.begin()
    commit_prepared(*prepare(brokers, "ahead", 1, -1))
    sequence.mark_settled(1)
    prepare(brokers, "ahead", 2, 1)
    assert BatchSequence(client, "ahead", "a test").begin() == 1
    commit_prepared(*prepare(brokers, "ahead", 5, 1))
    assert visible_values(client, "ahead") == ["1"] * LANES + ["5"] * LANES


def test_two_drivers_at_the_same_time(brokers: KafkaCluster, client: Cluster) -> None:
    """A driver that planned a batch before another driver's decision does not write it."""
    BatchSequence(client, "two-runs", "a test").begin()
    commit_prepared(*prepare(brokers, "two-runs", 10, -1))
    with pytest.raises(ConcurrentRun, match="must follow batch -1, but the last decided batch is 10"):
        prepare(brokers, "two-runs", 15, -1)
    with pytest.raises(ConcurrentRun, match="10 is already decided"):
        prepare(brokers, "two-runs", 9, -1)
    assert visible_values(client, "two-runs") == ["10"] * LANES


def test_name_used_by_another_source(client: Cluster) -> None:
    """A sequence that belongs to another source is not continued."""
    BatchSequence(client, "other", "orders").begin()
    sequence = BatchSequence(client, "other", "payments")
    for call in (sequence.begin, sequence.last_decided):
        with pytest.raises(SinkIdInUse, match="is already used for orders, not for payments"):
            call()
    assert BatchSequence(client, "other", "orders").last_decided() == -1


def test_invalid_batch_number() -> None:
    """A batch number that does not increase is refused when the options are parsed."""
    values = {"kafka.bootstrap.servers": "a:1", "topic": "t", "kreplica.batch.id": "3", "kreplica.batch.after": "3"}
    with pytest.raises(ValueError, match=r"'kreplica.batch.after': kreplica.batch.id must be set to a larger number"):
        sink_options(values)
