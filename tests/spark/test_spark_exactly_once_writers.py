"""Exactly-once writers, called as Spark calls them."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from kreplica.blocking import Cluster, Isolation
from kreplica.blocking.offsets import end_offsets, topic_partitions
from kreplica.blocking.reader import Reader, ReaderOptions
from kreplica.client_core.offsets import EARLIEST
from kreplica.model import TopicPartition
from kreplica.spark.data_source import KreplicaDataSource
from kreplica.spark.sink import writers
from kreplica.spark.sink.task_transactions import PreparedTask
from kreplica.spark.sink.write_decision import ConcurrentRun, SinkOfOtherQuery
from kreplica.spark.sink.writers import ExactlyOnceBatchWriter, ExactlyOnceWriter
from kreplica.spark.source import range_reading
from kreplica.testing.fixtures.kafka_cluster import KafkaCluster

SCHEMA = StructType().add("value", "string")
QUERY = {"sql.streaming.queryId": "query-1", "streaming.sql.batchId": "0", "spark.jobGroup.id": "run-1"}

Enter = Callable[..., None]


class Context:
    """Fake of Spark's task context."""

    def __init__(self, partition: int, attempt: int, properties: dict[str, str]) -> None:
        self.partition, self.attempt, self.properties = partition, attempt, properties

    def partitionId(self) -> int:
        return self.partition

    def attemptNumber(self) -> int:
        return self.attempt

    def getLocalProperty(self, key: str) -> str | None:
        return self.properties.get(key)


@pytest.fixture
def enter(monkeypatch: pytest.MonkeyPatch) -> Enter:
    """A function that sets the task context of the test."""

    def set_context(partition: int, attempt: int = 0, **properties: str) -> None:
        context = Context(partition, attempt, {name.replace("_", "."): value for name, value in properties.items()})
        monkeypatch.setattr(writers, "TaskContext", type("TaskContext", (), {"get": staticmethod(lambda: context)}))

    return set_context


@pytest.fixture(scope="module")
def brokers() -> Iterator[KafkaCluster]:
    topics = dict.fromkeys(("batches", "tried", "failed", "twice", "streamed", "nested"), 1)
    with KafkaCluster(1, topics=topics) as cluster:
        yield cluster
        range_reading.close_clusters()


def batch_writer(brokers: KafkaCluster, topic: str, batch_id: int, **more: str) -> ExactlyOnceBatchWriter:
    options = {"kafka.bootstrap.servers": brokers.bootstrap_servers, "topic": topic, "kreplica.exactly.once": "many",
             "kreplica.sink.id": f"sink-{topic}", "kreplica.batch.id": str(batch_id)} | more  # fmt: skip
    writer = KreplicaDataSource(options).writer(SCHEMA, overwrite=False)
    assert isinstance(writer, ExactlyOnceBatchWriter)
    return writer


def row(value: str) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"value": pa.array([value])})


def run_job(writer: ExactlyOnceBatchWriter, enter: Enter, *values: str) -> list[PreparedTask]:
    """Run one task per value, each with an unpickled copy of the writer."""
    messages = []
    for partition, value in enumerate(values):
        enter(partition)
        message = pickle.loads(pickle.dumps(writer)).write(row(value))
        assert isinstance(message, PreparedTask)
        messages.append(pickle.loads(pickle.dumps(message)))
    return messages


def visible_values(brokers: KafkaCluster, topic: str) -> list[str]:
    with Cluster(brokers.bootstrap_servers) as cluster:
        starts = dict.fromkeys(topic_partitions(cluster, topic), EARLIEST)
        options = ReaderOptions(isolation=Isolation.READ_COMMITTED)
        with Reader(cluster, starts, ends=cluster_ends(cluster, topic), options=options) as reader:
            return sorted((record.value or b"").decode() for record in reader.records())


def cluster_ends(cluster: Cluster, topic: str) -> dict[TopicPartition, int]:
    return end_offsets(cluster, topic_partitions(cluster, topic))


def test_consecutive_batches(brokers: KafkaCluster, enter: Enter) -> None:
    """Each batch is written once, whatever its number of tasks; commit and abort accept missing messages."""
    for batch_id, values in enumerate((("a", "b"), ("c",), ("d", "e", "f"))):
        writer = batch_writer(brokers, "batches", batch_id)
        writer.commit(list(run_job(writer, enter, *values)))
    batch_writer(brokers, "batches", 3).commit([])
    batch_writer(brokers, "batches", 3).abort([None])
    assert visible_values(brokers, "batches") == list("abcdef")


def test_retried_batch(brokers: KafkaCluster, enter: Enter) -> None:
    """A retry with the same number writes nothing; an older number is rejected, because its rows may differ."""
    writer = batch_writer(brokers, "tried", 7)
    writer.commit(list(run_job(writer, enter, "a", "b")))
    retried_writer = batch_writer(brokers, "tried", 7)
    messages = run_job(retried_writer, enter, "a", "b", "c")
    assert [each.was_decided for each in messages] == [True] * 3
    retried_writer.commit(list(messages))
    retried_writer.abort(list(messages))
    assert visible_values(brokers, "tried") == ["a", "b"]
    with pytest.raises(ConcurrentRun, match="batch 6 of sink sink-tried: batch 7 is already decided"):
        run_job(batch_writer(brokers, "tried", 6), enter, "x")


def test_failed_batch(brokers: KafkaCluster, enter: Enter) -> None:
    """The rows of a failed batch are aborted and block no reader; then the same number can be written."""
    writer = batch_writer(brokers, "failed", 0)
    writer.abort([*run_job(writer, enter, "a", "b"), None])
    retried_writer = batch_writer(brokers, "failed", 0)
    retried_writer.commit(list(run_job(retried_writer, enter, "a")))
    assert visible_values(brokers, "failed") == ["a"]


def test_two_writes_with_one_name(brokers: KafkaCluster, enter: Enter) -> None:
    """A second write with the same name and number, but another target, is rejected."""
    writer = batch_writer(brokers, "twice", 0)
    writer.commit(list(run_job(writer, enter, "a")))
    with pytest.raises(SinkOfOtherQuery, match="written to topic twice, but this write is to topic batches"):
        run_job(batch_writer(brokers, "batches", 0, **{"kreplica.sink.id": "sink-twice"}), enter, "a")


def test_runs_differ_between_processes(brokers: KafkaCluster, enter: Enter) -> None:
    """Writers planned in different processes have different runs, so drivers do not share lanes."""
    writer = batch_writer(brokers, "batches", 9)
    enter(3, attempt=2)
    task = writer._task()
    assert (task.lane, task.attempt) == (3, 2)
    assert batch_writer(brokers, "batches", 10)._task().run == task.run
    reading, writing = os.pipe()
    child = os.fork()
    if not child:  # pragma: no cover
        os.write(writing, batch_writer(brokers, "batches", 9)._task().run.encode())
        os._exit(0)
    os.waitpid(child, 0)
    run_of_child = os.read(reading, 100).decode()
    os.close(reading)
    os.close(writing)
    assert run_of_child
    assert run_of_child != task.run


def test_batch_within_a_stream(brokers: KafkaCluster, enter: Enter) -> None:
    """In ``foreachBatch``, batches of different queries are distinguished."""
    properties = {name.replace(".", "_"): value for name, value in QUERY.items()}
    enter(0, **properties)
    writer = batch_writer(brokers, "nested", 0)
    writer.commit([writer.write(row("a"))])
    enter(0, **(properties | {"sql_streaming_queryId": "query-2"}))
    with pytest.raises(SinkOfOtherQuery, match=r"is used by query query-1 .*, but this is batch 0 of query query-2"):
        batch_writer(brokers, "nested", 0).write(row("b"))
    assert visible_values(brokers, "nested") == ["a"]


def test_stream(brokers: KafkaCluster, enter: Enter) -> None:
    """The sink's ID and batch number come from Spark; a task without them is rejected."""
    options = {
        "kafka.bootstrap.servers": brokers.bootstrap_servers,
        "topic": "streamed",
        "kreplica.exactly.once": "many",
    }
    writer = KreplicaDataSource(options).streamWriter(SCHEMA, overwrite=False)
    assert isinstance(writer, ExactlyOnceWriter)
    enter(0, **{name.replace(".", "_"): value for name, value in QUERY.items()})
    task = writer._task()
    assert (task.sink_id, task.query, task.batch_id, task.is_stream) == ("query-1", "query-1", 0, True)
    writer.commit([writer.write(row("a"))], 0)
    assert visible_values(brokers, "streamed") == ["a"]
    enter(0)
    with pytest.raises(RuntimeError, match="did not set the IDs"):
        writer.write(row("b"))


def test_required_options_of_a_batch(brokers: KafkaCluster) -> None:
    """A batch write requires a name and a number, which identify a retry; a stream does not accept a number."""
    options = {"kafka.bootstrap.servers": brokers.bootstrap_servers, "topic": "t", "kreplica.exactly.once": "one"}
    with pytest.raises(ValueError, match=r"requires kreplica\.sink\.id and kreplica\.batch\.id"):
        KreplicaDataSource(options | {"kreplica.sink.id": "s"}).writer(SCHEMA, overwrite=False)
    with pytest.raises(ValueError, match=r"'kreplica\.batch\.id' is not valid for streams"):
        KreplicaDataSource(options | {"kreplica.batch.id": "1"}).streamWriter(SCHEMA, overwrite=False)
