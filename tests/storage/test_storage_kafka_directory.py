"""Directories written by Apache Kafka 3.9 (see ``written_by_kafka/make_kafka_directory.py``) can be opened."""

from __future__ import annotations

import json
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
from archives import unpack
from storage_world import bases_of, batch, read_bytes, records_of
from twisted.internet.defer import Deferred

from kreplica.model import TopicPartition
from kreplica.runtime.os_disk import OsDisk
from kreplica.storage import LogConfig, LogDirectories
from kreplica.storage.formats.checkpoints import (
    CLEAN_SHUTDOWN,
    META_PROPERTIES,
    read_clean_shutdown,
    read_meta_properties,
)
from kreplica.storage.log.appending import append_as_leader
from kreplica.storage.log.timestamp_search import offset_for_timestamp
from kreplica.testing.simulator.simulation import Simulation
from kreplica.wire.batches import iter_headers

ARCHIVES = Path(__file__).resolve().parent / "written_by_kafka"
CODECS = TopicPartition("codecs", 0)
ROLLED = TopicPartition("rolled.small-segments", 0)
COMPACTED = TopicPartition("compacted_topic", 0)
TRANSACTIONS = TopicPartition("transactions", 0)


class Opened:
    def __init__(self, path: Path) -> None:
        self.disk = OsDisk()
        self.meta = read_meta_properties(self.disk, str(path / META_PROPERTIES))
        self.clean_epoch = read_clean_shutdown(self.disk, str(path / CLEAN_SHUTDOWN))
        self.simulation = Simulation(1)
        runtime = self.simulation.host("broker").runtime
        self.directories = LogDirectories(replace(runtime, disk=self.disk), [str(path)])
        self.run(self.directories.open(self.meta.cluster_id, self.meta.broker_id, lambda topic: LogConfig()))

    def run(self, coroutine):
        return self.simulation.run_until(Deferred.fromCoroutine(coroutine))


@pytest.fixture(params=["clean", "killed"])
def opened(request, tmp_path):
    with tarfile.open(ARCHIVES / f"kafka-3.9-{request.param}.tar.xz") as archive:
        unpack(archive, tmp_path)
    directory = Opened(tmp_path)
    directory.killed = request.param == "killed"
    directory.path = tmp_path
    return directory


def test_all_logs_open_with_their_offsets_epochs_and_ids(opened):
    """The cluster ID, topic IDs, offsets and leader epochs of Kafka's directory are kept, even after kill -9."""
    logs = opened.directories.logs
    assert {str(key): log.log_end_offset for key, log in logs.items()} == {
        "codecs-0": 100 if opened.killed else 50,
        "rolled.small-segments-0": 200,
        "compacted_topic-0": 603,
        "transactions-0": 17,
    }
    assert all(opened.directories.topic_id(key) for key in logs)
    assert logs[CODECS].leader_epochs.entries == ((0, 0),)
    assert len(opened.meta.cluster_id) == 22
    assert (opened.clean_epoch is None) == opened.killed
    assert opened.directories.high_watermark(ROLLED) == 200
    assert not opened.directories.directories[0].strays
    assert not opened.directories.directories[0].failed_logs


def test_records_of_every_codec_are_read(opened):
    """Keys, headers, timestamps and values in all five codecs are as librdkafka wrote them."""
    found = [record for record in records_of(read_bytes(opened.directories.logs[CODECS])) if record.offset < 50]
    assert [record.offset for record in found] == list(range(50))
    for record in found:
        codec = ("none", "gzip", "snappy", "lz4", "zstd")[record.offset // 10]
        index = record.offset % 10
        assert record.value == f"{codec} value {index} ".encode() * 5
        assert record.key == (f"key {index}".encode() if index % 2 else None)
        assert record.headers == (("codec", codec.encode()), ("empty", None))
        assert record.timestamp_ms == 1_700_000_000_000 + record.offset // 10 * 100 + index


def test_every_offset_is_found_with_kafkas_indexes(opened):
    """A fetch from any offset starts with the batch that contains it, in every segment."""
    log = opened.directories.logs[ROLLED]
    assert len(bases_of(log)) > 5
    for offset in range(200):
        part = log.read(offset, size_max=10_000, offset_max=200)
        ((_, header), *_) = iter_headers(part.ranges[0].read())
        assert header.base_offset <= offset <= header.last_offset
        found = offset_for_timestamp(log, 1_700_000_000_000 + offset, 200)
        assert (found.offset, found.timestamp_ms) == (offset, 1_700_000_000_000 + offset)


def test_log_compacted_by_kafka_is_read_across_its_gaps(opened):
    """The last value of every key is present, deleted keys have tombstones, and offsets are unchanged."""
    found = {record.key: record for record in records_of(read_bytes(opened.directories.logs[COMPACTED]))}
    assert sorted(found) == sorted([*(f"key {index}".encode() for index in range(20)), b"another key"])
    assert found[b"key 3"].value is found[b"key 7"].value is None
    assert found[b"key 19"].value.rstrip() == b"value 599"
    assert found[b"key 19"].offset == 599


def test_transactions_and_idempotent_producers_are_restored(opened):
    """This includes open and aborted transactions, and the producers' last sequence numbers."""
    log = opened.directories.logs[TRANSACTIONS]
    (aborted,) = log.segments.aborted_transactions(0, 17)
    assert (aborted.first_offset, aborted.last_offset) == (6, 11)
    assert log.last_stable_offset(17) == 12
    (producer,) = opened.directories.logs[ROLLED].producers.entries
    assert producer.last_sequence == 199


def test_appending_to_kafkas_log(opened):
    """Records are appended after Kafka's, and after a clean stop, the directory is opened without a scan."""
    log = opened.directories.logs[ROLLED]
    (producer,) = log.producers.entries
    retry = batch("again", producer_id=producer.producer_id, producer_epoch=producer.epoch, base_sequence=200)
    assert append_as_leader(log, retry, 5, now_ms=1).base_offset == 200
    before = read_bytes(log)
    opened.run(opened.directories.close(9))
    again = Opened(opened.path)
    log = again.directories.logs[ROLLED]
    assert read_bytes(log) == before
    assert log.durability.recovery_point == 201
    assert again.clean_epoch == 9


def test_batches_equal_the_output_of_kafkas_dump_tool(opened):
    """The offset, position, size and CRC of every batch agree with Kafka's DumpLogSegments."""
    if not opened.killed:
        return
    dumps = json.loads((ARCHIVES / "kafka-3.9-killed-dump.json").read_text())
    checked = 0
    for name, lines in dumps.items():
        data = (opened.path / name).read_bytes()
        shown = [line.split() for line in lines if line.startswith("baseOffset")]
        for words, (position, header) in zip(shown, iter_headers(data), strict=True):
            fields = dict(zip([word.rstrip(":") for word in words[0::2]], words[1::2], strict=False))
            assert int(fields["baseOffset"]) == header.base_offset
            assert int(fields["lastOffset"]) == header.last_offset
            assert int(fields["position"]) == position
            assert int(fields["size"]) == header.size
            assert int(fields["crc"]) == header.crc
            checked += 1
    assert checked > 60
