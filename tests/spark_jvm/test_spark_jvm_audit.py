"""Audits of real brokers in real Spark: directories of running and stopped brokers, and fetched records."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from kreplica.blocking import Cluster, Codec, Producer, ProducerOptions
from kreplica.blocking.admin import create_topic
from kreplica.errors import StorageError
from kreplica.spark.pipelines.audit.audit import AuditOptions, audit
from kreplica.spark.pipelines.audit.replica_findings import Kind
from kreplica.spark.pipelines.audit.report import AuditReport
from kreplica.spark.pipelines.progress import Progress
from kreplica.wire.batches import iter_headers
from tests.support.standalone import StandaloneProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS = 600


class AuditedBrokers(NamedTuple):
    """Reports of audits while the brokers ran, and the directories of the stopped brokers."""

    by_files: AuditReport
    by_brokers: AuditReport
    log_dirs: tuple[str, ...]


@pytest.fixture(scope="module")
def audited_brokers(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> AuditedBrokers:
    """Reports about three brokers with several codecs, transactions and a compacted topic."""
    process = StandaloneProcess(tmp_path_factory.mktemp("audit"), brokers=3)
    process.start()
    try:
        _write_records(process.bootstrap_servers)
        log_dirs = tuple(sorted(str(each.parent) for each in process.data_directory.rglob("meta.properties")))
        bootstrap = process.bootstrap_servers
        by_files = audit(spark, AuditOptions(log_dirs=log_dirs, bootstrap=bootstrap))
        by_brokers = audit(spark, AuditOptions(via_brokers=True, bootstrap=bootstrap))
        process.stop()
    finally:
        process.kill()
    return AuditedBrokers(by_files, by_brokers, log_dirs)


def _write_records(bootstrap: str) -> None:
    with Cluster(bootstrap) as cluster:
        create_topic(cluster, "plain", 3, 3)
        create_topic(cluster, "keyed", 1, 3, {"cleanup.policy": "compact"})
        for codec in Codec:
            with Producer(cluster, ProducerOptions(codec=codec, batch_size=2000)) as producer:
                for number in range(RECORDS):
                    producer.send("plain", b"value %d" % number, partition=number % 3)
                    producer.send("keyed", b"value %d" % number, key=b"%d" % (number % 7), partition=0)
        for name in ("kept", "dropped"):
            with Producer(cluster, ProducerOptions(transactional_id=name)) as producer:
                producer.begin()
                producer.send("plain", name.encode(), partition=1)
                producer.flush()
                (producer.commit if name == "kept" else producer.abort)()


def test_running_brokers(audited_brokers: AuditedBrokers) -> None:
    """Replicas agree below the high watermark, in files and when fetched; markers and all topics are included."""
    for report in (audited_brokers.by_files, audited_brokers.by_brokers):
        assert (report.verdict, report.agrees) == (report.verdict, True)
        ends = {(each.topic, each.partition): each.high_watermark for each in report.partitions}
        assert [ends["plain", each] for each in range(3)] == [1000, 1004, 1000]
        assert ends["keyed", 0] == RECORDS * len(Codec)
        assert {each.topic for each in report.partitions} >= {"plain", "keyed", "__transaction_state"}
        for each in report.partitions:
            if each.topic == "plain":
                assert [(own.broker, own.start, own.end) for own in each.coverages] == [
                    (broker, 0, each.high_watermark) for broker in (1, 2, 3)
                ]
    assert audited_brokers.by_files.notes == audited_brokers.by_brokers.notes == ()
    assert audited_brokers.by_files.cluster_id == audited_brokers.by_brokers.cluster_id


def test_changed_byte_is_reported(spark: SparkSession, audited_brokers: AuditedBrokers) -> None:
    """Replicas of the stopped brokers agree; after one byte is changed, exactly its batch is reported."""
    assert audit(spark, AuditOptions(log_dirs=audited_brokers.log_dirs)).agrees
    path = Path(audited_brokers.log_dirs[1]) / "plain-2" / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    position, header = list(iter_headers(memoryview(data)))[4]
    data[position + header.size - 2] ^= 1
    path.write_bytes(data)
    report = audit(spark, AuditOptions(log_dirs=audited_brokers.log_dirs))
    assert [(each.topic, each.partition, each.base_offset, each.broker, each.kind) for each in report.differences] == [
        ("plain", 2, header.base_offset, 2, Kind.DAMAGED)
    ]
    assert (report.agrees, report.difference_count) == (False, 1)
    data[position + header.size - 2] ^= 1
    path.write_bytes(data)


def test_interrupted_audit(spark: SparkSession, audited_brokers: AuditedBrokers, tmp_path: Path) -> None:
    """A restarted audit reuses finished work and finally deletes the work file, which another audit rejects."""
    options = AuditOptions(
        log_dirs=audited_brokers.log_dirs, topics=frozenset({"plain", "keyed"}), resume=tmp_path / "work"
    )

    def interrupt(progress: Progress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        audit(spark, options, interrupt)
    with pytest.raises(ValueError, match="is not a work file of this audit"):
        audit(spark, AuditOptions(log_dirs=audited_brokers.log_dirs, resume=tmp_path / "work"))
    report = audit(spark, options)
    assert report.agrees
    assert report.taken_over > 0
    assert report.read_bytes < report.size_bytes
    assert {(each.topic, each.partition) for each in report.partitions} == {
        ("keyed", 0), ("plain", 0), ("plain", 1), ("plain", 2),
    }  # fmt: skip
    assert not (tmp_path / "work").exists()


def test_inaccessible_directory(spark: SparkSession, tmp_path: Path) -> None:
    """The error states that the directory is not accessible."""
    with pytest.raises(StorageError, match="is not a directory that this machine can access"):
        audit(spark, AuditOptions(log_dirs=(str(tmp_path / "nowhere"),)))
