"""The sink in real Spark: target partitions, columns and errors."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from jvm_tables import WAIT_S_MAX, count_values, load_stream, produce, start_query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kreplica.testing.fixtures.kafka_cluster import KafkaCluster

COLUMNS = (
    "key string, value binary, topic string, partition int, timestamp timestamp, "
    "headers array<struct<key:string,value:binary>>, note string"
)


def append(frame: DataFrame, brokers: KafkaCluster, **options: str) -> None:
    sink = frame.write.format("kreplica").option("kafka.bootstrap.servers", brokers.bootstrap_servers)
    sink.options(**options).mode("append").save()


def test_columns_of_rows(spark: SparkSession, brokers: KafkaCluster) -> None:
    """Nulls are allowed except as topic, unknown columns are ignored, and keys choose partitions as usual."""
    brokers.create_topic("jvm-sink-a", 4)
    brokers.create_topic("jvm-sink-b", 4)
    moment = datetime(2024, 2, 29, 12, 30, 15, 250_000, tzinfo=UTC)
    headers = [("trace", b"\x01"), ("empty", None)]
    rows = [
        ("k", b"all", "jvm-sink-a", 3, moment, headers, "x"),
        (None, None, "jvm-sink-b", 2, None, None, None),
        ("key", b"by key", "jvm-sink-b", None, moment, [], None),
    ]
    frame = spark.createDataFrame(rows, COLUMNS).coalesce(1)
    append(frame, brokers, **{"kafka.compression.type": "lz4"})
    (record,) = brokers.records("jvm-sink-a")
    assert (record.partition, record.key, record.value) == (3, b"k", b"all")
    assert record.timestamp_ms == int(moment.timestamp() * 1000)
    assert record.headers == (("trace", b"\x01"), ("empty", None))
    by_key, empty = sorted(brokers.records("jvm-sink-b"), key=lambda each: each.value is None)
    assert (empty.partition, empty.key, empty.value, empty.headers) == (2, None, None, ())
    expected_partition = partition_of(brokers, "jvm-sink-b", b"key")
    assert (by_key.partition, by_key.value) == (expected_partition, b"by key")

    append(frame.select("key", "value", "topic"), brokers, topic="jvm-sink-a")
    assert count_values(brokers, "jvm-sink-a") == Counter({"all": 2, "by key": 1, "": 1})


def partition_of(brokers: KafkaCluster, topic: str, key: bytes) -> int:
    """Return the partition that another client chooses for a key."""
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=brokers.bootstrap_servers)
    try:
        partition: int = producer.send(topic, b"by a client", key=key).get(WAIT_S_MAX).partition
    finally:
        producer.close()
    return partition


def test_rejected_rows(spark: SparkSession, brokers: KafkaCluster) -> None:
    """The error names the column or the option, and existing records are never overwritten."""
    brokers.create_topic("jvm-sink-errors", 2)
    text = spark.createDataFrame([("v", None)], "value string, topic string")
    cases = [
        (text.selectExpr("value key"), {"topic": "jvm-sink-errors"}, "ValueError: the column 'value' is missing"),
        (text.selectExpr("1 value"), {"topic": "jvm-sink-errors"}, "ValueError: the column 'value' has type int, but"),
        (text.select("value"), {}, "set the option 'topic' or add a column 'topic'"),
        (text, {}, "InvalidRows: a row has no topic: the column 'topic' is null"),
        (text.selectExpr("value", "7 partition"), {"topic": "jvm-sink-errors"}, "partition 7 of topic 'jvm-sink-err"),
        (text, {"kafka.value.serializer": "x"}, "'kafka.value.serializer' is not supported"),
    ]
    for frame, options, message in cases:
        with pytest.raises(Exception, match=message):
            append(frame, brokers, **options)
    sink = text.select("value").write.format("kreplica").option("kafka.bootstrap.servers", brokers.bootstrap_servers)
    with pytest.raises(Exception, match="UNSUPPORTED_DATA_SOURCE_SAVE_MODE"):
        sink.option("topic", "jvm-sink-errors").save()
    with pytest.raises(Exception, match="topics cannot be overwritten"):
        sink.option("topic", "jvm-sink-errors").mode("overwrite").save()
    assert count_values(brokers, "jvm-sink-errors") == Counter()


def test_output_modes(spark: SparkSession, brokers: KafkaCluster, tmp_path: Path) -> None:
    """Mode ``complete`` writes the whole result each time; Spark rejects ``update``. Other tests use ``append``."""
    brokers.create_topic("jvm-sink-words", 1)
    brokers.create_topic("jvm-sink-counts", 1)
    produce(brokers, "jvm-sink-words", ["a", "b", "a", "b", "b"])
    options = {"subscribe": "jvm-sink-words", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "3"}
    words = load_stream(spark, brokers, **options).groupBy("value").count()
    counts = words.selectExpr("value key", "string(count) value")
    query = start_query(counts, brokers, "jvm-sink-counts", tmp_path, mode="complete", availableNow=True)
    assert query.awaitTermination(WAIT_S_MAX)
    pairs = [((each.key or b"").decode(), (each.value or b"").decode()) for each in brokers.records("jvm-sink-counts")]
    assert Counter(pairs) == Counter([("a", "2"), ("b", "1"), ("a", "2"), ("b", "3")])
    with pytest.raises(Exception, match="kreplica does not support Update mode"):
        start_query(counts, brokers, "jvm-sink-counts", tmp_path / "update", mode="update").awaitTermination(WAIT_S_MAX)
