"""Helpers for tests of the source and the sink."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kreplica.blocking import Cluster, Producer, ProducerOptions
from kreplica.testing.fixtures.kafka_cluster import KafkaCluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

WAIT_S_MAX = 120.0


def produce(brokers: KafkaCluster, topic: str, values: list[str], partition: int = 0, **options: Any) -> None:
    with Cluster(brokers.bootstrap_servers) as cluster, Producer(cluster, ProducerOptions(**options)) as producer:
        for number, value in enumerate(values):
            producer.send(topic, value.encode(), partition=partition, timestamp_ms=1000 + number)


def load(spark: SparkSession, brokers: KafkaCluster, **options: str) -> DataFrame:
    source = spark.read.format("kreplica").option("kafka.bootstrap.servers", brokers.bootstrap_servers)
    return source.options(**options).load()


def values(frame: DataFrame) -> list[str]:
    return [bytes(row.value).decode() for row in frame.select("value").collect()]


def load_stream(spark: SparkSession, brokers: KafkaCluster, **options: str) -> DataFrame:
    source = spark.readStream.format("kreplica").option("kafka.bootstrap.servers", brokers.bootstrap_servers)
    return source.options(**options).load()


def start_query(
    frame: DataFrame, brokers: KafkaCluster, topic: str, checkpoint: Path, mode: str = "append", **trigger: Any
) -> StreamingQuery:
    """Start a query that copies rows to a topic."""
    sink = frame.select("key", "value").writeStream.format("kreplica").outputMode(mode)
    if trigger:
        sink = sink.trigger(**trigger)
    options = {"kafka.bootstrap.servers": brokers.bootstrap_servers, "checkpointLocation": str(checkpoint)}
    return sink.options(**options, topic=topic).start()


def count_values(brokers: KafkaCluster, topic: str) -> Counter[str]:
    return Counter((each.value or b"").decode() for each in brokers.records(topic))


def wait_until(condition: Callable[[], object], query: StreamingQuery | None = None) -> None:
    deadline_s = time.monotonic() + WAIT_S_MAX
    while not condition():
        assert time.monotonic() < deadline_s, "the condition did not become true in time"
        if query is not None and query.exception() is not None:
            raise query.exception()
        time.sleep(0.02)
