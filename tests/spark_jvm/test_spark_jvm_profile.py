"""A profile in real Spark of brokers and files, and the output of the command."""

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
    """A topic of two partitions with two codecs, one with twice the records of the other."""
    brokers.create_topic("profiled", partitions=2)
    with Cluster(brokers.bootstrap_servers) as cluster:
        for codec, partition, count in ((Codec.NONE, 0, COUNT), (Codec.ZSTD, 0, COUNT), (Codec.LZ4, 1, COUNT)):
            with Producer(cluster, ProducerOptions(codec=codec)) as producer:
                for number in range(count):
                    producer.send("profiled", b"value %d" % number, key=b"key-%d" % (number % 7), partition=partition)
    return "profiled"


def test_of_brokers(spark: SparkSession, brokers: KafkaCluster, topic: str) -> None:
    """Every slice is a task; results are added, and reported as they arrive."""
    notes: list[Progress] = []
    given = {"kafka.bootstrap.servers": brokers.bootstrap_servers, "subscribe": topic, "maxRecordsPerPartition": "2000"}
    report = profile(spark, given, top=3, report=notes.append)
    (figures,) = report.topics
    assert figures.records == figures.opened == 3 * COUNT
    assert [each.records for each in figures.partitions] == [2 * COUNT, COUNT]
    assert {each.codec: each.records for each in figures.codecs} == {"none": COUNT, "lz4": COUNT, "zstd": COUNT}
    assert figures.keys.distinct == 7
    assert figures.keys.superseded == 3 * COUNT - 2 * 7
    assert len(figures.keys.top) == 3
    assert (notes[0].done, notes[-1].done, notes[-1].total) == (0, 3 * COUNT, 3 * COUNT)
    assert len(notes) == 1 + 3 + 2


def test_of_files_and_the_error_of_a_task(spark: SparkSession, tmp_path: Path) -> None:
    """A damaged batch is reported by the message of the original error, without Java's stack traces."""
    with tarfile.open(ARCHIVE) as packed:
        unpack(packed, tmp_path)
    given = {"kreplica.source": "segments", "kreplica.log.dirs": str(tmp_path), "subscribePattern": ".*"}
    report = profile(spark, given, sample=0.5)
    assert {each.topic for each in report.topics} >= {"codecs", "transactions"}
    path = tmp_path / "codecs-0" / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    with pytest.raises(PythonException) as caught:
        profile(spark, given)
    assert python_cause(caught.value) == "codecs-0: the batch at offset 0 is damaged"


def test_errors_of_arguments(spark: SparkSession, brokers: KafkaCluster) -> None:
    """A missing topic is an error, and so is a sample of 0."""
    given = {"kafka.bootstrap.servers": brokers.bootstrap_servers, "subscribe": "nowhere"}
    with pytest.raises(ValueError, match="no partition matches"):
        profile(spark, given)
    with pytest.raises(ValueError, match="sample of 0"):
        profile(spark, given, sample=0)
