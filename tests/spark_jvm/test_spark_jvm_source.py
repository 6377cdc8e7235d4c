"""The source in real Spark: rows, ranges, and error messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from jvm_tables import PATIENCE_S, loaded, put, streamed, until, values

from kreplica.blocking import Cluster, Codec, Producer, ProducerOptions
from kreplica.testing.fixtures.kafka_cluster import KafkaCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = (
    "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int,"
    "headers:array<struct<key:string,value:binary>>>"
)


def test_every_codec_with_headers_in_sql(spark: SparkSession, brokers: KafkaCluster) -> None:
    """A view has all columns of Spark's own Kafka source, and its rows are the written ones."""
    brokers.create_topic("jvm-codecs", 2)
    with Cluster(brokers.bootstrap_servers) as cluster:
        for codec in Codec:
            with Producer(cluster, ProducerOptions(codec=codec)) as producer:
                for number in range(20):
                    headers = (("codec", codec.name.encode()), ("none", None)) if number % 2 else ()
                    producer.send("jvm-codecs", b"v%d" % number, partition=number % 2, key=b"k", headers=headers)
    spark.sql(
        f"""CREATE TEMP VIEW jvm_codecs USING kreplica OPTIONS (
            `kafka.bootstrap.servers` '{brokers.bootstrap_servers}', subscribe 'jvm-codecs', includeHeaders 'true',
            minPartitions '6')"""
    )
    assert spark.table("jvm_codecs").schema.simpleString() == SCHEMA
    for pushdown in ("true", "false"):
        spark.conf.set("spark.sql.python.filterPushdown.enabled", pushdown)
        (row,) = spark.sql(
            """SELECT count(*) rows, count(DISTINCT offset) offsets, count(DISTINCT task) tasks,
                count(headers) headed, collect_set(string(headers[0].value)) codecs,
                count(headers[1].key) second, count(headers[1].value) valued, max(length(value)) longest
            FROM (SELECT *, spark_partition_id() task FROM jvm_codecs)
            WHERE partition = 1 AND topic = 'jvm-codecs' AND timestampType = 0"""
        ).collect()
        assert (row.rows, row.offsets, row.headed, row.second, row.valued, row.longest) == (50, 50, 50, 50, 0, 3)
        assert sorted(row.codecs) == sorted(codec.name for codec in Codec)
        assert row.tasks == 3
    narrow = loaded(spark, brokers, subscribe="jvm-codecs", **{"kreplica.columns": "value"})
    assert narrow.columns == ["value"]


def test_error_messages(spark: SparkSession, brokers: KafkaCluster) -> None:
    """Spark's error ends with one line of the source that names the option."""
    brokers.create_topic("jvm-errors", 2)
    reader = spark.read.format("kreplica").option("kafka.bootstrap.servers", brokers.bootstrap_servers)

    def error_of(act: Callable[[], object]) -> str:
        with pytest.raises(Exception, match="PYTHON_DATA_SOURCE_ERROR") as caught:
            act()
        return str(caught.value)

    subscribed = reader.option("subscribe", "jvm-errors")
    assert "fixed schema and accepts no other: struct<key:binary" in error_of(
        lambda: subscribed.schema("value string").load().collect()
    )
    assert "ValueError: option 'kafka.auto.offset.reset' is not supported: use the option startingOffsets" in error_of(
        lambda: loaded(spark, brokers, subscribe="jvm-errors", **{"kafka.auto.offset.reset": "latest"}).collect()
    )
    assert "startingOffsets must contain each partition that is read; jvm-errors-1 is missing" in error_of(
        lambda: loaded(spark, brokers, subscribe="jvm-errors", startingOffsets='{"jvm-errors":{"0":0}}').collect()
    )
    frame = streamed(spark, brokers, subscribe="jvm-errors", endingOffsets="latest")
    with pytest.raises(Exception, match="'endingOffsets' is not valid in streaming queries"):
        frame.writeStream.format("noop").start().awaitTermination(PATIENCE_S)


def test_offsets_times_and_transactions(spark: SparkSession, brokers: KafkaCluster) -> None:
    """A batch between offsets, or between timestamps; aborted records only on request."""
    brokers.create_topic("jvm-ranges", 1)
    put(brokers, "jvm-ranges", [str(number) for number in range(100)])
    between = {"startingOffsets": '{"jvm-ranges":{"0":40}}', "endingOffsets": '{"jvm-ranges":{"0":60}}'}
    by_offset = loaded(spark, brokers, subscribe="jvm-ranges", **between)
    assert values(by_offset) == [str(number) for number in range(40, 60)]
    times = {"startingTimestamp": "1010", "endingOffsetsByTimestamp": '{"jvm-ranges":{"0":1015}}'}
    by_time = loaded(spark, brokers, subscribePattern="jvm-ran.*", maxRecordsPerPartition="2", **times)
    assert sorted(values(by_time)) == ["10", "11", "12", "13", "14"]

    options = ProducerOptions(transactional_id="jvm-ranges")
    with Cluster(brokers.bootstrap_servers) as cluster, Producer(cluster, options) as producer:
        for value, ends in ((b"good", producer.commit), (b"bad", producer.abort), (b"fine", producer.commit)):
            producer.begin()
            producer.send("jvm-ranges", value, partition=0)
            producer.flush()
            ends()
    until(lambda: brokers.end_offsets("jvm-ranges") == {0: 106})
    late = {"assign": '{"jvm-ranges":[0]}', "startingOffsets": '{"jvm-ranges":{"0":100}}'}
    assert values(loaded(spark, brokers, **late, **{"kafka.isolation.level": "read_committed"})) == ["good", "fine"]
    assert values(loaded(spark, brokers, **late)) == ["good", "bad", "fine"]
