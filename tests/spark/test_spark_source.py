"""The data source, called as Spark calls it but without Spark's processes, with three real brokers."""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator

import pyarrow as pa
import pytest
from kafka import KafkaAdminClient
from kafka import TopicPartition as KafkaPartition
from kafka.admin import NewPartitions
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from kreplica.blocking import Cluster, Codec, Producer, ProducerOptions
from kreplica.client_core.errors import GaveUp
from kreplica.spark.sink import task_writing
from kreplica.spark.sink.row_columns import InvalidRows
from kreplica.spark.source import offset_lookup, range_reading, stream_read
from kreplica.spark.source.range_reading import DataLoss
from kreplica.testing.fixtures.kafka_cluster import KafkaCluster
from pyspark_kreplica import DefaultSource

TEXT = StructType([StructField("value", StringType())])


@pytest.fixture(scope="module")
def brokers() -> Iterator[KafkaCluster]:
    names = ("codecs", "short", "aborted", "grows", "back", "slow", "large", "open")
    topics = {"t": 3, "u": 2, **dict.fromkeys(names, 1)}
    settings = {"log.cleaner.backoff.ms": 100}
    cluster = KafkaCluster(
        3, topics=topics, settings=settings, session_timeout_ms=5000
    )  # no broker dies in these tests
    yield cluster
    range_reading.close_clusters()
    cluster.close()


def source(brokers: KafkaCluster, **options: str) -> DefaultSource:
    return DefaultSource({"kafka.bootstrap.servers": brokers.bootstrap_servers, **options})


def rows(reader, tasks) -> list[dict]:
    found = []
    for task in tasks:
        for batch in reader.read(pickle.loads(pickle.dumps(task))):
            assert batch.schema == pa.schema(batch.schema)
            found += batch.to_pylist()
    return found


def read(brokers: KafkaCluster, **options: str) -> list[dict]:
    data_source = source(brokers, **options)
    reader = pickle.loads(pickle.dumps(data_source.reader(schema=data_source.schema())))
    return rows(reader, reader.partitions())


def write(brokers: KafkaCluster, topic: str, values: list[bytes], **options) -> None:
    with Cluster(brokers.bootstrap_servers) as cluster, Producer(cluster, ProducerOptions(**options)) as producer:
        for number, value in enumerate(values):
            producer.send(
                topic, value, key=b"k%d" % number, partition=0, timestamp_ms=1000 + number, headers=(("h", b"x"),)
            )


def headers_of(number: int) -> list[dict] | None:
    return [{"key": "n", "value": b"%d" % number}] if number % 3 == 0 else None


def test_columns_for_every_codec(brokers: KafkaCluster) -> None:
    """Rows have all columns, headers on request, or a subset of columns, and can be selected by offset or time."""
    for number, codec in enumerate(Codec):
        write(brokers, "codecs", [b"%d-%d" % (number, each) for each in range(50)], codec=codec)
    found = read(brokers, subscribe="codecs", includeHeaders="true")
    assert [row["value"] for row in found] == [b"%d-%d" % (number, each) for number in range(5) for each in range(50)]
    assert [row["offset"] for row in found] == list(range(250))
    first = found[0]
    assert (first["key"], first["topic"], first["partition"], first["timestampType"]) == (b"k0", "codecs", 0, 0)
    assert first["timestamp"].timestamp() == 1.0
    assert first["headers"] == [{"key": "h", "value": b"x"}]
    assert read(brokers, subscribe="codecs", **{"kreplica.columns": "offset"})[7] == {"offset": 7}
    part = read(brokers, subscribe="codecs", startingOffsets='{"codecs":{"0":40}}', endingOffsets='{"codecs":{"0":60}}')
    assert [row["offset"] for row in part] == list(range(40, 60))
    since = read(brokers, subscribe="codecs", startingTimestamp="1045", endingTimestamp="1048")
    assert [row["offset"] for row in since] == [45, 46, 47]


def test_written_rows_are_read(brokers: KafkaCluster) -> None:
    """Rows are written to topics and partitions by their columns, with timestamps and headers, in order."""
    header = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    batch = pa.RecordBatch.from_pydict(
        {
            "key": pa.array([None if number % 5 == 0 else f"k{number % 7}" for number in range(500)]),
            "value": pa.array([f"{number}" for number in range(500)]),
            "topic": pa.array(["t" if number % 2 else "u" for number in range(500)]),
            "partition": pa.array([1 if number % 10 == 0 else None for number in range(500)], pa.int32()),
            "timestamp": pa.array([number * 1000 for number in range(500)], pa.timestamp("us", tz="UTC")),
            "headers": pa.array([headers_of(number) for number in range(500)], header),
        }
    )  # fmt: skip
    schema = StructType.fromJson(
        {"type": "struct", "fields": [
            {"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in (
                ("key", "string"), ("value", "string"), ("topic", "string"), ("partition", "integer"),
                ("timestamp", "timestamp"))]}
    )  # fmt: skip
    writer = pickle.loads(
        pickle.dumps(source(brokers, **{"kafka.compression.type": "zstd"}).writer(schema, overwrite=False))
    )
    message = writer.write(iter([batch.slice(0, 200), batch.slice(200)]))
    writer.commit([message])
    assert message.records == 500
    found = read(brokers, subscribe="t,u", includeHeaders="true")
    assert sorted(int(row["value"]) for row in found) == list(range(500))
    for row in found:
        number = int(row["value"])
        assert row["topic"] == ("t" if number % 2 else "u")
        assert row["key"] == (None if number % 5 == 0 else b"k%d" % (number % 7))
        assert row["timestamp"].timestamp() == number / 1000
        assert row["headers"] == headers_of(number)
        if number % 10 == 0:
            assert row["partition"] == 1
    for topic, partition in {(row["topic"], row["partition"]) for row in found}:
        order = [int(row["value"]) for row in found if (row["topic"], row["partition"]) == (topic, partition)]
        assert order == sorted(order)
    keyed = {(row["key"], row["partition"]) for row in found if row["topic"] == "t" and row["key"]}
    assert len(keyed) == 7


def test_large_rows_are_written_in_small_chunks(brokers: KafkaCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows stay in order, whatever the size of Spark's batches."""
    monkeypatch.setattr(task_writing, "CHUNK_SIZE_MAX", 5000)
    values = [b"%d" % number * 300 for number in range(100)]
    chunk_sizes: list[int] = []
    encode = task_writing.encode
    monkeypatch.setattr(
        task_writing, "encode", lambda rows, **to: chunk_sizes.append(len(rows.values)) or encode(rows, **to)
    )
    batch = pa.RecordBatch.from_pydict({"value": pa.array([b"before", *values]), "key": pa.array(["k"] * 101)})
    source(brokers, topic="large").writer(TEXT, overwrite=False).write(iter([batch.slice(1), batch.slice(0, 0)]))
    assert [row["value"] for row in read(brokers, subscribe="large")] == values
    assert sum(chunk_sizes) == 100
    assert 5 < max(chunk_sizes) <= 10


def test_rows_that_cannot_be_written(brokers: KafkaCluster) -> None:
    """The error names the column or option, and the reason."""
    data_source = source(brokers, topic="t")
    with pytest.raises(ValueError, match="'value' is missing"):
        data_source.writer(StructType([StructField("key", StringType())]), overwrite=False)
    with pytest.raises(ValueError, match="'value' has type int, but must be string or binary"):
        data_source.writer(StructType([StructField("value", IntegerType())]), overwrite=False)
    with pytest.raises(ValueError, match="option 'topic' or add a column"):
        source(brokers).writer(TEXT, overwrite=False)
    with pytest.raises(ValueError, match="cannot be overwritten"):
        data_source.writer(TEXT, overwrite=True)
    invalid = pa.RecordBatch.from_pydict({"value": pa.array(["x"]), "partition": pa.array([9], pa.int32())})
    with pytest.raises(InvalidRows, match="partition 9 of topic 't' does not exist"):
        data_source.writer(TEXT, overwrite=False).write(iter([invalid]))
    with pytest.raises(InvalidRows, match="topic 'tee' does not exist"):
        source(brokers, topic="tee").writer(TEXT, overwrite=False).write(iter([invalid]))
    without_topic = pa.RecordBatch.from_pydict({"value": pa.array(["x"]), "topic": pa.array([None], pa.string())})
    schema = StructType([*TEXT.fields, StructField("topic", StringType())])
    with pytest.raises(InvalidRows, match="a row has no topic"):
        source(brokers).writer(schema, overwrite=False).write(iter([without_topic]))


def test_lost_data(brokers: KafkaCluster) -> None:
    """Deleted records are an error, unless ``failOnDataLoss`` is false."""
    write(brokers, "short", [b"%d" % number for number in range(100)])
    planned = source(brokers, subscribe="short")
    reader = planned.reader(schema=planned.schema())
    tasks = reader.partitions()
    admin = KafkaAdminClient(bootstrap_servers=brokers.bootstrap_servers)
    admin.delete_records({KafkaPartition("short", 0): 60})
    admin.close()
    with pytest.raises(DataLoss, match="failOnDataLoss"):
        rows(reader, tasks)
    lenient = source(brokers, subscribe="short", failOnDataLoss="false")
    assert [row["offset"] for row in rows(lenient.reader(schema=lenient.schema()), tasks)] == list(range(60, 100))
    with pytest.raises(ValueError, match="short-0 has no record"):
        read(brokers, subscribe="short", startingTimestamp="99999999999999")
    late = {"startingTimestamp": "99999999999999", "startingOffsetsByTimestampStrategy": "latest"}
    assert read(brokers, subscribe="short", **late) == []
    with pytest.raises(ValueError, match="t-1 is missing"):
        read(brokers, subscribe="t", startingOffsets='{"t":{"0":0}}')


def test_missing_records(brokers: KafkaCluster) -> None:
    """Records beyond the log end are lost; records of an open transaction are waited for and never skipped."""
    options = ProducerOptions(transactional_id="open")
    read_options = {
        "subscribe": "open",
        "kafka.isolation.level": "read_committed",
        "kafkaConsumer.pollTimeoutMs": "300",
    }
    lenient = {**read_options, "failOnDataLoss": "false"}
    until = '{"open":{"0":%d}}'
    with Cluster(brokers.bootstrap_servers) as cluster, Producer(cluster, options) as producer:
        write(brokers, "open", [b"before"])
        producer.begin()
        producer.send("open", b"open", partition=0)
        producer.flush()
        for option_values in (read_options, lenient):
            with pytest.raises(GaveUp, match=r"open-0: no records from offset 1 were received in 0\.3 s"):
                read(brokers, **option_values, endingOffsets=until % 2)
        producer.commit()
    assert len(read(brokers, **read_options, endingOffsets=until % 3)) == 2
    with pytest.raises(DataLoss, match="open-0: offsets 3 to 9 were deleted"):
        read(brokers, **read_options, endingOffsets=until % 9)
    assert len(read(brokers, **lenient, endingOffsets=until % 9)) == 2


def test_aborted_records_are_gaps(brokers: KafkaCluster) -> None:
    """With read_committed, aborted records are skipped; otherwise, they are rows."""
    options = ProducerOptions(transactional_id="spark")
    with Cluster(brokers.bootstrap_servers) as cluster, Producer(cluster, options) as producer:
        for value in (b"good", b"bad", b"fine"):
            producer.begin()
            producer.send("aborted", value, partition=0)
            if value == b"bad":
                producer.flush()
                producer.abort()
            else:
                producer.commit()
    committed: list[dict] = []
    while len(committed) < 2:  # markers arrive after the coordinator's response
        committed = read(brokers, subscribe="aborted", **{"kafka.isolation.level": "read_committed"})
    assert [row["value"] for row in committed] == [b"good", b"fine"]
    assert [row["value"] for row in read(brokers, subscribePattern="abor.*")] == [b"good", b"bad", b"fine"]


def test_compacted_records_are_gaps(brokers: KafkaCluster) -> None:
    """After compaction, rows are the remaining records, whatever the ranges of the tasks."""
    configs = {"cleanup_policy": "compact", "segment_bytes": 2000, "min_cleanable_dirty_ratio": 0.01}
    brokers.create_topic("compacted", 1, **configs)
    with Cluster(brokers.bootstrap_servers) as cluster, Producer(cluster, ProducerOptions(linger_s=0.0)) as producer:
        for number in range(200):
            producer.send("compacted", b"%d" % number, key=b"%d" % (number % 7))
            producer.flush()
    deadline_s = time.monotonic() + 60
    while len(remaining := [each.offset for each in brokers.records("compacted")]) > 100:
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
    for read_options in ({}, {"maxRecordsPerPartition": "9"}):
        found = [row["offset"] for row in read(brokers, subscribe="compacted", **read_options)]
        still_remaining = [each.offset for each in brokers.records("compacted")]
        assert set(still_remaining) <= set(found) <= set(remaining)
        assert found == sorted(found)


def test_stream(brokers: KafkaCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Micro-batches are limited, new partitions start at offset 0, and offsets have the JVM source's format."""
    monkeypatch.setattr(stream_read, "DISCOVERY_S", 0.0)
    monkeypatch.setattr(stream_read, "LOSS_CHECK_S", 0.5)
    write(brokers, "grows", [b"%d" % number for number in range(100)])
    data_source = source(brokers, subscribe="grows", startingOffsets="earliest", maxOffsetsPerTrigger="30")
    planner = data_source.streamReader(schema=data_source.schema())
    tasks_reader = pickle.loads(pickle.dumps(data_source.streamReader(schema=data_source.schema())))
    offset = planner.initialOffset()
    assert offset == planner.initialOffset() == {"grows": {"0": 0}}
    limit = planner.getDefaultReadLimit()
    assert limit == ReadMaxRows(30)
    found: list[bytes] = []
    while (end := planner.latestOffset(offset, limit)) != offset:
        batch = [row["value"] for row in rows(tasks_reader, planner.partitions(offset, end))]
        assert 0 < len(batch) <= 30
        found += batch
        planner.commit(end)
        offset = end
    assert found == [b"%d" % number for number in range(100)]
    assert planner.reportLatestOffset() == offset == {"grows": {"0": 100}}

    admin = KafkaAdminClient(bootstrap_servers=brokers.bootstrap_servers)
    admin.create_partitions({"grows": NewPartitions(2)})
    admin.close()
    with Cluster(brokers.bootstrap_servers) as cluster, Producer(cluster) as producer:
        producer.send("grows", b"new", partition=1)
    end = offset
    while "1" not in end["grows"]:  # brokers learn of the change one after another
        end = planner.latestOffset(offset, ReadAllAvailable())
    assert end == {"grows": {"0": 100, "1": 1}}
    assert [row["value"] for row in rows(tasks_reader, planner.partitions(offset, end))] == [b"new"]
    planner.prepareForTriggerAvailableNow()
    write(brokers, "grows", [b"later"])
    assert planner.latestOffset(end, ReadAllAvailable()) == end
    with pytest.raises(DataLoss, match="the partition was deleted"):
        planner.latestOffset({"grows": {"0": 100, "1": 1, "2": 7}}, ReadAllAvailable())
    with pytest.raises(DataLoss, match="grows-1 ends at 1, before offset 9"):
        planner.latestOffset({"grows": {"0": 100, "1": 9}}, ReadAllAvailable())


def test_stream_that_allows_data_loss(brokers: KafkaCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream continues with the remaining records, and drops deleted partitions."""
    monkeypatch.setattr(stream_read, "LOSS_CHECK_S", 0.0)
    write(brokers, "back", [b"%d" % number for number in range(5)])
    data_source = source(brokers, subscribe="back", failOnDataLoss="false")
    planner = data_source.streamReader(schema=data_source.schema())
    start = {"back": {"0": 9, "1": 4}}
    for limit in (ReadAllAvailable(), ReadMaxRows(2)):
        end = planner.latestOffset(start, limit)
        assert end == {"back": {"0": 5}}
        assert planner.partitions(start, end) == []


def test_stream_with_a_minimum_of_records(brokers: KafkaCluster) -> None:
    """The first micro-batch is exempt; later ones wait until the minimum is available."""
    write(brokers, "slow", [b"first"])
    read_options = {"minOffsetsPerTrigger": "3", "maxTriggerDelay": "600s"}
    data_source = source(brokers, subscribe="slow", startingOffsets="earliest", **read_options)
    planner = data_source.streamReader(schema=data_source.schema())
    limit = planner.getDefaultReadLimit()
    first = planner.latestOffset(planner.initialOffset(), limit)
    assert first == {"slow": {"0": 1}}
    write(brokers, "slow", [b"second", b"third"])
    assert planner.latestOffset(first, limit) is first
    write(brokers, "slow", [b"fourth"])
    assert planner.latestOffset(first, limit) == {"slow": {"0": 4}}


def test_named_topics_must_exist(brokers: KafkaCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistyped name is an error, not an empty table; a pattern may match nothing."""
    monkeypatch.setattr(offset_lookup, "NEW_TOPIC_WAIT_S", 0.0)
    with pytest.raises(ValueError, match="'subscribe': topic 'tee' does not exist"):
        read(brokers, subscribe="t,tee")
    with pytest.raises(ValueError, match="'assign': partition t-3 does not exist"):
        read(brokers, assign='{"t": [0, 3]}')
    data_source = source(brokers, subscribe="tee")
    with pytest.raises(ValueError, match="topic 'tee' does not exist"):
        data_source.streamReader(schema=data_source.schema()).initialOffset()
    assert read(brokers, subscribePattern="tee+") == []


def test_user_schema_is_rejected(brokers: KafkaCluster) -> None:
    """A user's schema, which Spark passes like the source's own, is an error."""
    with pytest.raises(ValueError, match="fixed schema"):
        source(brokers, subscribe="t").reader(schema=TEXT)


def test_topic_deleted_during_a_stream(brokers: KafkaCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream fails soon; without ``failOnDataLoss``, it continues with the other topics."""
    monkeypatch.setattr(stream_read, "LEADERS_TIMEOUT_S", 0.3)
    monkeypatch.setattr(stream_read, "LOSS_CHECK_S", 0.5)
    for topic in ("stays", "goes"):
        brokers.create_topic(topic, 1)
        write(brokers, topic, [b"here"])
    planners = []
    for fail_on_data_loss in ("true", "false"):
        data_source = source(
            brokers, subscribe="goes,stays", startingOffsets="earliest", failOnDataLoss=fail_on_data_loss
        )
        planner = data_source.streamReader(schema=data_source.schema())
        first = planner.latestOffset(planner.initialOffset(), ReadAllAvailable())
        assert first == {"goes": {"0": 1}, "stays": {"0": 1}}
        planners.append(planner)
    admin = KafkaAdminClient(bootstrap_servers=brokers.bootstrap_servers)
    admin.delete_topics(["goes"])
    admin.close()
    write(brokers, "stays", [b"more"])
    deadline_s = time.monotonic() + 60

    def wait_for_deletion(planner) -> dict:
        end = first
        while "goes" in end:  # brokers learn of the change one after another
            assert time.monotonic() < deadline_s
            end = planner.latestOffset(first, ReadAllAvailable())
        return end

    strict, lenient = planners
    with pytest.raises(DataLoss, match="goes-0: the partition was deleted"):
        wait_for_deletion(strict)
    assert wait_for_deletion(lenient) == {"stays": {"0": 2}}
