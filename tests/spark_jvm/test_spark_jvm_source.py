"""The source in real Spark: rows, ranges, and error messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from jvm_tables import WAIT_S_MAX, load, load_stream, produce, values, wait_until

from kreplica.blocking import Cluster, Codec, Producer, ProducerOptions
from kreplica.testing.fixtures.kafka_cluster import KafkaCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = (
    "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int,"
    "headers:array<struct<key:string,value:binary>>>"
)


def test_sql_view_with_headers_and_every_codec(spark: SparkSession, brokers: KafkaCluster) -> None:
    """An SQL view has the columns of Spark's own Kafka source, and its rows are the written records."""
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
    narrow = load(spark, brokers, subscribe="jvm-codecs", **{"kreplica.columns": "value"})
    assert narrow.columns == ["value"]


def test_error_messages(spark: SparkSession, brokers: KafkaCluster) -> None:
    """Spark's error contains the source's message, which names the option."""
    brokers.create_topic("jvm-errors", 2)
    reader = spark.read.format("kreplica").option("kafka.bootstrap.servers", brokers.bootstrap_servers)

    def error_of(action: Callable[[], object]) -> str:
        with pytest.raises(Exception, match="PYTHON_DATA_SOURCE_ERROR") as caught:
            action()
        return str(caught.value)

    subscribed = reader.option("subscribe", "jvm-errors")
    assert "fixed schema and accepts no other: struct<key:binary" in error_of(
        lambda: subscribed.schema("value string").load().collect()
    )
    assert "ValueError: option 'kafka.auto.offset.reset' is not supported: use the option startingOffsets" in error_of(
        lambda: load(spark, brokers, subscribe="jvm-errors", **{"kafka.auto.offset.reset": "latest"}).collect()
    )
    assert "startingOffsets must contain each partition that is read; jvm-errors-1 is missing" in error_of(
        lambda: load(spark, brokers, subscribe="jvm-errors", startingOffsets='{"jvm-errors":{"0":0}}').collect()
    )
    frame = load_stream(spark, brokers, subscribe="jvm-errors", endingOffsets="latest")
    with pytest.raises(Exception, match="'endingOffsets' is not valid in streaming queries"):
        frame.writeStream.format("noop").start().awaitTermination(WAIT_S_MAX)


def test_offsets_times_and_transactions(spark: SparkSession, brokers: KafkaCluster) -> None:
    """A batch can be limited by offsets or by times, and contains aborted records unless read_committed is set."""
    brokers.create_topic("jvm-ranges", 1)
    produce(brokers, "jvm-ranges", [str(number) for number in range(100)])
    between = {"startingOffsets": '{"jvm-ranges":{"0":40}}', "endingOffsets": '{"jvm-ranges":{"0":60}}'}
    by_offset = load(spark, brokers, subscribe="jvm-ranges", **between)
    assert values(by_offset) == [str(number) for number in range(40, 60)]
    times = {"startingTimestamp": "1010", "endingOffsetsByTimestamp": '{"jvm-ranges":{"0":1015}}'}
    by_time = load(spark, brokers, subscribePattern="jvm-ran.*", maxRecordsPerPartition="2", **times)
    assert sorted(values(by_time)) == ["10", "11", "12", "13", "14"]

    options = ProducerOptions(transactional_id="jvm-ranges")
    with Cluster(brokers.bootstrap_servers) as cluster, Producer(cluster, options) as producer:
        for value, end in ((b"good", producer.commit), (b"bad", producer.abort), (b"fine", producer.commit)):
            producer.begin()
            producer.send("jvm-ranges", value, partition=0)
            producer.flush()
            end()
    wait_until(lambda: brokers.end_offsets("jvm-ranges") == {0: 106})
    late = {"assign": '{"jvm-ranges":[0]}', "startingOffsets": '{"jvm-ranges":{"0":100}}'}
    assert values(load(spark, brokers, **late, **{"kafka.isolation.level": "read_committed"})) == ["good", "fine"]
    assert values(load(spark, brokers, **late)) == ["good", "bad", "fine"]
