"""Power loss at every single write: synced records survive, and only written records are read."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from storage_world import SMALL, batch, flush, idempotent, open_log, read_bytes, records_of

from kreplica.errors import ErrorCode, KafkaError
from kreplica.storage.compaction.compaction import Compaction, plan_compaction
from kreplica.storage.log.appending import append_as_leader
from kreplica.storage.log.retention import delete_expired
from kreplica.storage.log.segment_replacement import replace_segments
from kreplica.testing.simulator.disk import MemoryDisk

PATH = "/data/orders-0"
TINY = replace(SMALL, segment_bytes=300, index_interval_bytes=80)
COMPACTED = replace(SMALL, cleanup_policy=frozenset({"compact"}), segment_bytes=600)


class PowerCut(BaseException):
    """The simulated machine lost power."""


class DyingDisk(MemoryDisk):
    """Disk that loses power at its n-th change."""

    def __init__(self):
        super().__init__(directories=["/data"])
        self.changes_left = None
        self.changes = 0

    def _change(self):
        self.changes += 1
        if self.changes_left is not None:
            self.changes_left -= 1
            if self.changes_left < 0:
                raise PowerCut

    def write(self, content, path, position, piece):
        self._change()
        super().write(content, path, position, piece)

    def resize(self, content, path, size):
        self._change()
        super().resize(content, path, size)

    def rename(self, old, new):
        self._change()
        super().rename(old, new)

    def remove(self, path):
        self._change()
        super().remove(path)


def everything(log, done):
    """Append records of two producers, sync, roll and truncate; record which offsets are durable."""
    for number in range(14):
        append_as_leader(log, idempotent(number), number // 5, now_ms=1)
        done["written"] = number + 1
        if number % 3 == 0:
            flush(log)
            done["synced"] = log.durability.recovery_point
        if number == 9:
            done["synced"] = min(done["synced"], 8)
            done["written"] = 10
            log.truncate_to(8)
            log.producers.clear()
            done["truncated"] = True
            for again in range(8, 10):
                append_as_leader(log, batch(f"again {again}"), 2, now_ms=1)
    log.close()
    done["synced"] = log.durability.recovery_point


def test_appends_survive_power_loss_at_every_write():
    """Whichever write is interrupted, the log can be opened, has all synced records, and accepts appends."""
    reference = DyingDisk()
    everything(open_log(PATH, TINY, reference), {"synced": 0, "written": 0})
    assert reference.changes > 50
    for cut in range(reference.changes):
        for seed in range(4):
            lose_power_at(cut, Random(cut * 10 + seed))


def lose_power_at(cut, random):
    disk = DyingDisk()
    done = {"synced": 0, "written": 0}
    disk.changes_left = cut
    with pytest.raises(PowerCut):
        everything(open_log(PATH, TINY, disk), done)
    disk.changes_left = None
    disk.power_loss(random)
    log = open_log(PATH, TINY, disk, recovery_point=done["synced"])
    found = records_of(read_bytes(log))
    assert [record.offset for record in found] == list(range(log.log_end_offset))
    assert log.log_end_offset >= done["synced"]
    for record in found:
        again = record.offset in (8, 9) and "truncated" in done
        allowed = {f"7/0/{record.offset}".encode()} | ({f"again {record.offset}".encode()} if again else set())
        assert record.value in allowed
    append_as_leader(log, batch("carries on"), 9, now_ms=1)
    log.close()
    again = open_log(PATH, TINY, disk, clean_shutdown=True)
    assert records_of(read_bytes(again))[-1].value == b"carries on"


def compact(log, disk):
    plan = plan_compaction(log, 0, log.log_end_offset, 5000)
    compaction = Compaction(plan, disk, 5000, 2**20)
    compaction.read_keys()
    for group in compaction.groups():
        target = compaction.write_group(group)
        assert replace_segments(log, [source.segment for source in group], target)


def test_compaction_survives_power_loss_at_every_write():
    """Whichever step of a compaction is interrupted, every key has its last value at its offset."""

    def written(disk):
        log = open_log(PATH, COMPACTED, disk)
        for number in range(40):
            append_as_leader(log, batch((f"key {number % 4}", f"value {number}")), 0, now_ms=1)
        flush(log)
        disk.write_back()
        return log

    reference = DyingDisk()
    log = written(reference)
    before = {record.offset: record for record in records_of(read_bytes(log))}
    last = {record.key: record for record in before.values()}
    changes = reference.changes
    compact(log, reference)
    steps = reference.changes - changes
    assert steps > 20
    for cut in range(steps):
        disk = DyingDisk()
        log = written(disk)
        disk.changes_left = cut
        with pytest.raises(PowerCut):
            compact(log, disk)
        disk.changes_left = None
        disk.power_loss(Random(cut))
        log = open_log(PATH, COMPACTED, disk, recovery_point=40)
        found = records_of(read_bytes(log))
        assert [record.offset for record in found] == sorted({record.offset for record in found})
        assert all(before[record.offset] == record for record in found)
        assert {record.key: record for record in found} == last
        assert not [name for name in disk.list_directory(PATH) if name.endswith((".cleaned", ".swap", ".deleted"))]


def test_full_disk_refuses_appends_and_recovers():
    """An append that does not fit is undone completely; once space is free, the log continues at its end."""
    disk = MemoryDisk(directories=["/data"])
    log = open_log(PATH, SMALL, disk)
    append_as_leader(log, batch("first"), 0, now_ms=1)
    total, free = disk.usage("/data")
    used = total - free
    for spare in range(0, 200, 7):
        disk.capacity_bytes = used + spare
        with pytest.raises(KafkaError) as caught:
            append_as_leader(log, batch("x" * 300), 0, now_ms=1)
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert (log.log_end_offset, log.failure) == (1, None)
        assert disk.open(f"{PATH}/00000000000000000000.log").size() == log.segments.size_bytes
    disk.capacity_bytes = 1 << 40
    assert append_as_leader(log, batch("second"), 0, now_ms=1).base_offset == 1
    assert [record.value for record in records_of(read_bytes(open_log(PATH, SMALL, disk)))] == [b"first", b"second"]


def test_retention_frees_space_on_a_full_disk():
    """A log on a full disk still removes old segments, and then accepts records again."""
    disk = MemoryDisk(directories=["/data"])
    log = open_log(PATH, replace(SMALL, retention_ms=100), disk)
    for number in range(20):
        append_as_leader(log, batch(str(number).ljust(100)), 0, now_ms=1)
    total, free = disk.usage("/data")
    disk.capacity_bytes = total - free
    assert delete_expired(log, 10_000, 20) > 0
    assert log.failure is None
    assert append_as_leader(log, batch("space is free"), 0, now_ms=1).base_offset == 20


def test_failing_device_takes_the_log_offline():
    """After an I/O error, the state of the file is unknown, so no append is accepted."""
    disk = MemoryDisk(directories=["/data"])
    log = open_log(PATH, SMALL, disk)
    disk.fail("write", "*.log", times=2)
    for _ in range(2):
        with pytest.raises(KafkaError) as caught:
            append_as_leader(log, batch("a"), 0, now_ms=1)
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert "orders-0" in str(log.failure)
