"""Profiles of brokers and of files in real Spark."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from archives import unpack
from pyspark.errors import PythonException

from kreplica.blocking import Cluster, Codec, Producer, ProducerOptions
from kreplica.cli.pipelines.pipeline_session import python_cause
from kreplica.spark.pipelines.profile.profile import profile
from kreplica.spark.pipelines.progress import Progress
from kreplica.testing.fixtures.kafka_cluster import KafkaCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT = 3000
ARCHIVE = Path(__file__).parents[1] / "storage" / "written_by_kafka" / "kafka-3.9-killed.tar.xz"


@pytest.fixture(scope="module")
def topic(brokers: KafkaCluster) -> str:
    """A topic with three codecs and two partitions; one has twice as many records as the other."""
    brokers.create_topic("profiled", partitions=2)
    with Cluster(brokers.bootstrap_servers) as cluster:
        for codec, partition, count in ((Codec.NONE, 0, COUNT), (Codec.ZSTD, 0, COUNT), (Codec.LZ4, 1, COUNT)):
            with Producer(cluster, ProducerOptions(codec=codec)) as producer:
                for number in range(count):
                    producer.send("profiled", b"value %d" % number, key=b"key-%d" % (number % 7), partition=partition)
    return "profiled"


def test_profile_of_brokers(spark: SparkSession, brokers: KafkaCluster, topic: str) -> None:
    """Each slice is a task; the results of tasks are added up, and progress is reported."""
    notes: list[Progress] = []
    options = {
        "kafka.bootstrap.servers": brokers.bootstrap_servers,
        "subscribe": topic,
        "maxRecordsPerPartition": "2000",
    }
    report = profile(spark, options, top=3, report=notes.append)
    (statistics,) = report.topics
    assert statistics.records == statistics.opened == 3 * COUNT
    assert [each.records for each in statistics.partitions] == [2 * COUNT, COUNT]
    assert {each.codec: each.records for each in statistics.codecs} == {"none": COUNT, "lz4": COUNT, "zstd": COUNT}
    assert statistics.keys.distinct == 7
    assert statistics.keys.superseded == 3 * COUNT - 2 * 7
    assert len(statistics.keys.top) == 3
    assert (notes[0].done, notes[-1].done, notes[-1].total) == (0, 3 * COUNT, 3 * COUNT)
    assert len(notes) == 1 + 3 + 2


def test_profile_of_files(spark: SparkSession, tmp_path: Path) -> None:
    """A sample of files can be profiled; the error of a damaged batch is available without Java's stack traces."""
    with tarfile.open(ARCHIVE) as packed:
        unpack(packed, tmp_path)
    options = {"kreplica.source": "segments", "kreplica.log.dirs": str(tmp_path), "subscribePattern": ".*"}
    report = profile(spark, options, sample=0.5)
    assert {each.topic for each in report.topics} >= {"codecs", "transactions"}
    path = tmp_path / "codecs-0" / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    with pytest.raises(PythonException) as caught:
        profile(spark, options)
    assert python_cause(caught.value) == "codecs-0: the batch at offset 0 is damaged"


def test_invalid_arguments(spark: SparkSession, brokers: KafkaCluster) -> None:
    """A missing topic or a sample of 0 is an error."""
    options = {"kafka.bootstrap.servers": brokers.bootstrap_servers, "subscribe": "nowhere"}
    with pytest.raises(ValueError, match="no partition matches"):
        profile(spark, options)
    with pytest.raises(ValueError, match="the sample 0 is not a fraction"):
        profile(spark, options, sample=0)
