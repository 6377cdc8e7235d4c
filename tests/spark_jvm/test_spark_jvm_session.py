"""The minimal example of source and sink in real Spark processes, and settings that depend on Spark's classes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kreplica.spark.session import CHECKPOINT_MANAGER, CHECKPOINT_MANAGER_CLASS, _choose_checkpoint_manager

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kreplica.testing.fixtures.kafka_cluster import KafkaCluster


def test_written_rows_are_read(spark: SparkSession, brokers: KafkaCluster) -> None:
    """Rows written to a topic can be read, and the source needs no registration."""
    brokers.create_topic("there-and-back", 2)
    options = {"kafka.bootstrap.servers": brokers.bootstrap_servers}
    rows = [(f"key-{number}", f"value-{number}") for number in range(100)]
    frame = spark.createDataFrame(rows, "key string, value string")
    frame.write.format("kreplica").options(**options, topic="there-and-back").mode("append").save()
    read = spark.read.format("kreplica").options(**options, subscribe="there-and-back").load()
    found = sorted((bytes(row.key).decode(), bytes(row.value).decode()) for row in read.collect())
    assert found == sorted(rows)


def test_local_sessions_choose_the_checkpoint_class(spark: SparkSession) -> None:
    """Local sessions use the class that starts fewer processes, unless another one is set."""
    assert spark.conf.get(CHECKPOINT_MANAGER) == CHECKPOINT_MANAGER_CLASS
    other = spark.newSession()
    other.conf.set(CHECKPOINT_MANAGER, "of.the.User")
    _choose_checkpoint_manager(other)
    assert other.conf.get(CHECKPOINT_MANAGER) == "of.the.User"
