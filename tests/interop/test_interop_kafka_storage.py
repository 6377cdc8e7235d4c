"""Apache Kafka's tools and broker with kreplica's directories; needs Java and Maven, so it is part of the soak."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import apache_kafka
import pytest

from kreplica.model import TopicPartition
from kreplica.runtime.os_disk import OsDisk
from kreplica.storage import Log, LogConfig, Origin
from kreplica.storage.compaction.compaction import Compaction, plan_compaction
from kreplica.storage.directories.opening import LogToOpen
from kreplica.storage.log.appending import append_as_leader
from kreplica.storage.log.segment_replacement import replace_segments
from kreplica.wire.batch_building import NEXT_OFFSET, build_batch
from kreplica.wire.compression import Codec
from kreplica.wire.control_records import EndMarker, build_end_marker
from kreplica.wire.records import Record

pytestmark = pytest.mark.soak
CONFIG = LogConfig(segment_bytes=2000, index_interval_bytes=200, cleanup_policy=frozenset({"compact"}))


@pytest.fixture(scope="module", autouse=True)
def _kafka() -> None:
    try:
        apache_kafka.class_path()
    except apache_kafka.NoKafka as missing:
        pytest.skip(f"not compared with Apache Kafka: {missing}")


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A log with every codec, transactions and an idempotent producer, rolled and partly compacted."""
    path = tmp_path / "orders-0"
    log = LogToOpen(str(path), TopicPartition("orders", 0), CONFIG, OsDisk(), lambda: 10_000).open()[0]
    sequence = 0
    for number, codec in enumerate(list(Codec) * 12):
        records = [Record(NEXT_OFFSET, 1000 + number, f"key {number % 7}".encode(), b"v" * 60) for _ in range(2)]
        if number % 11 == 0:
            records[0] = Record(NEXT_OFFSET, 1000 + number, b"deleted", None)
        options = {"producer_id": 5, "producer_epoch": 0, "base_sequence": sequence, "transactional": number % 2 == 0}
        append_as_leader(log, build_batch(records, codec=codec, **options), 1 + number // 30, now_ms=1)
        sequence += 2
        if number % 2 == 0:
            marker = build_end_marker(EndMarker(number % 4 == 0, 3), 5, 0, 2000)
            append_as_leader(log, marker, 1 + number // 30, now_ms=1, origin=Origin.COORDINATOR)
    compact(log)
    for number in range(20):
        append_as_leader(log, build_batch([Record(0, 3000 + number, b"k", b"v" * 80)]), 9, now_ms=1)
    log.close()
    return path


def compact(log: Log) -> None:
    compaction = Compaction(plan_compaction(log, 0, log.log_end_offset, 10_000), OsDisk(), 10_000, 2**20)
    compaction.read_keys()
    for group in compaction.groups():
        replace_segments(log, [source.segment for source in group], compaction.write_group(group))


def paths(directory: Path, *suffixes: str) -> str:
    return ",".join(str(path) for path in sorted(directory.iterdir()) if path.suffix in suffixes)


def test_kafka_dumps_every_record(written: Path) -> None:
    """DumpLogSegments opens every batch, accepts every CRC, and reads every record."""
    output = apache_kafka.dump_log("--deep-iteration", "--print-data-log", "--files", paths(written, ".log"))
    to_open = LogToOpen(str(written), TopicPartition("orders", 0), CONFIG, OsDisk(), lambda: 1, clean_shutdown=True)
    reopened, _ = to_open.open()
    expected = sum(header.record_count for segment in reopened.segments for _, header in segment.headers())
    assert len(re.findall(r"^\| offset:", output, re.MULTILINE)) == expected >= 60
    assert "isvalid: false" not in output
    assert output.count("isvalid: true") == sum(1 for segment in reopened.segments for _ in segment.headers())
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        assert f"compresscodec: {codec}" in output
    assert "endTxnMarker: COMMIT" in output


def test_kafka_accepts_kreplicas_indexes(written: Path) -> None:
    """Kafka's sanity checks pass, and no entry disagrees with the segment."""
    for suffix in (".index", ".timeindex"):
        sanity_check = apache_kafka.dump_log("--index-sanity-check", "--files", paths(written, suffix))
        assert sanity_check.count("passed sanity check") == len(list(written.glob(f"*{suffix}")))
        output = apache_kafka.dump_log("--verify-index-only", "--files", paths(written, suffix))
        assert "ismatch" not in output.lower()
        assert "Found timestamp" not in output
        assert "out of order" not in output


def test_kafka_reads_kreplicas_producers_and_transactions(written: Path) -> None:
    """Producer snapshots and transaction indexes have Kafka's format."""
    output = apache_kafka.dump_log("--files", paths(written, ".snapshot", ".txnindex"))
    assert "producerId: 5 producerEpoch: 0" in output
    assert "lastSequence: 119" in output


def test_kafka_serves_kreplicas_directory(tmp_path: Path) -> None:
    """A Kafka broker started with kreplica's log directory accepts it, and consumers read the records."""
    from confluent_kafka import Consumer, Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    logs = tmp_path / "logs"
    with apache_kafka.zookeeper(tmp_path) as zookeeper:
        with apache_kafka.broker(tmp_path, zookeeper, logs) as broker:
            admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
            admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(30)
            producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
            producer.produce("orders", "by Kafka")
            producer.flush(30)
            broker.stop()
        (logs / ".kafka_cleanshutdown").unlink()
        config = replace(CONFIG, cleanup_policy=frozenset({"delete"}))
        log = LogToOpen(str(logs / "orders-0"), TopicPartition("orders", 0), config, OsDisk(), lambda: 1).open()[0]
        for number in range(50):
            append_as_leader(log, build_batch([Record(0, 5, b"k", f"by us {number}".encode())]), 7, now_ms=1)
        log.close()
        with apache_kafka.broker(tmp_path, zookeeper, logs) as broker:
            consumer = Consumer(
                {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
            )
            consumer.subscribe(["orders"])
            values = []
            for _ in range(60):
                message = consumer.poll(1)
                if message is not None and message.error() is None:
                    values.append(message.value().decode())
                if len(values) == 51:
                    break
            consumer.close()
            broker.stop()
    assert values == ["by Kafka", *(f"by us {number}" for number in range(50))]
