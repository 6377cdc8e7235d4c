"""After a kill on a machine that stays up, the next process reads only the batches after the last snapshot."""

from __future__ import annotations

import dataclasses

import pytest
from storage_world import SMALL, batch, idempotent, marker, open_log, read_bytes, records_of

from kreplica.storage.log import derived_state
from kreplica.storage.log import log as log_module
from kreplica.storage.log.appending import append_as_leader
from kreplica.storage.producers.producer_state import Origin
from kreplica.storage.recovery import loading, resume_points
from kreplica.storage.segments.segment import Segment
from kreplica.testing.simulator.disk import MemoryDisk

PATH = "/data/orders-0"
CONFIG = dataclasses.replace(SMALL, segment_bytes=2500, index_interval_bytes=80)


class Killed(BaseException):
    """The process ended during a system call."""


class KillingDisk(MemoryDisk):
    """Disk that kills the process at the n-th change; only the first part of a write is kept."""

    def __init__(self, changes_left: int | None = None, keep: float = 0.0) -> None:
        super().__init__(directories=["/data"])
        self.changes_left = changes_left
        self.keep = keep
        self.changes = 0

    def _change(self) -> bool:
        self.changes += 1
        if self.changes_left is None:
            return False
        self.changes_left -= 1
        return self.changes_left < 0

    def write(self, content, path, position, piece):
        if self._change():
            super().write(content, path, position, bytes(piece)[: int(len(piece) * self.keep)])
            raise Killed
        super().write(content, path, position, piece)

    def resize(self, content, path, size):
        if self._change():
            raise Killed
        super().resize(content, path, size)

    def rename(self, old, new):
        if self._change():
            raise Killed
        super().rename(old, new)

    def remove(self, path):
        if self._change():
            raise Killed
        super().remove(path)


@pytest.fixture(autouse=True)
def often(monkeypatch):
    """Write a resume point after every three index entries."""
    monkeypatch.setattr(log_module, "_UNWRITTEN_ENTRIES_MAX", 3)


def write(log, done, count=60):
    """Append batches of two producers with increasing epochs, some in transactions, with one truncation.

    ``done`` records the log end offset.
    """
    for number in range(count):
        epoch = number // 15
        now_ms = 1000 + number
        if number % 12 == 11:
            end = marker(9, committed=number % 24 == 11)
            append_as_leader(log, end, epoch, now_ms=now_ms, origin=Origin.COORDINATOR)
        elif number % 3 == 2:
            data = idempotent(done.setdefault("sequence", 0), producer_id=9, transactional=True, timestamp_ms=now_ms)
            append_as_leader(log, data, epoch, now_ms=now_ms)
            done["sequence"] += 1
        else:
            append_as_leader(log, batch(f"{number}".ljust(90), timestamp_ms=now_ms), epoch, now_ms=now_ms)
        done["end"] = log.log_end_offset
        if number == 40:
            done["end"] = 35
            log.truncate_to(35)
            done["sequence"] = log.producers.get(9).batches[-1].last_sequence + 1
    log.close()


def state(log):
    """Return the log's state that is derived from its batches."""
    return (
        log.log_end_offset,
        read_bytes(log),
        log.leader_epochs.entries,
        sorted(map(producer, log.producers.entries)),
        list(log.segments.aborted_transactions(0, log.log_end_offset)),
    )


def producer(entry):
    """Return the relevant producer state; a snapshot has a single timestamp for the last batch and a marker after
    it."""
    batches = [(batch.last_sequence, batch.last_offset, batch.offset_delta) for batch in entry.batches]
    return entry.producer_id, entry.epoch, entry.coordinator_epoch, entry.transaction_first_offset, batches


def kill_at(change, keep):
    """Kill the process at one change; compare the resumed log with one that reads every batch."""
    disk = KillingDisk(change, keep)
    done = {"end": 0}
    with pytest.raises(Killed):
        write(open_log(PATH, CONFIG, disk), done)
    disk.changes_left = None
    disk.kill()
    log = open_log(PATH, CONFIG, disk, is_intact=True)
    resumed = state(log)
    assert log.log_end_offset >= done["end"]
    log.segments.release()
    again = open_log(PATH, CONFIG, disk)
    assert state(again) == resumed
    for number in range(20):
        append_as_leader(again, batch(f"more {number}".ljust(90), timestamp_ms=5000 + number), 9, now_ms=1)
    before = state(again)
    disk.kill()
    third = open_log(PATH, CONFIG, disk, is_intact=True)
    assert state(third) == before
    assert [record.offset for record in records_of(read_bytes(third))] == list(range(third.log_end_offset))


@pytest.mark.parametrize("keep", [0.0, 0.4, 0.99])
def test_kill_during_any_write_loses_nothing(keep):
    """Whichever call is interrupted, the log has all appended records, and the same state as after a full read."""
    disk = KillingDisk()
    write(open_log(PATH, CONFIG, disk), {})
    assert disk.changes > 150
    for change in range(disk.changes):
        kill_at(change, keep)


def test_only_batches_behind_the_snapshot_are_read(monkeypatch):
    """The duration of a start does not grow with the segment."""
    disk = MemoryDisk(directories=["/data"])
    config = dataclasses.replace(CONFIG, segment_bytes=10**9)
    log = open_log(PATH, config, disk)
    for number in range(2000):
        append_as_leader(log, idempotent(number, timestamp_ms=1000 + number), number // 500, now_ms=1)
    before = state(log)
    disk.kill()
    added = []
    original = Segment.add_batch
    monkeypatch.setattr(Segment, "add_batch", lambda *args: added.append(args) or original(*args))
    monkeypatch.setattr(Segment, "reset", lambda self: pytest.fail("the whole segment was read"))
    log = open_log(PATH, config, disk, is_intact=True)
    assert state(log) == before
    assert 0 < len(added) < 20
    assert len([name for name in disk.list_directory(PATH) if name.endswith(".snapshot")]) == 1


def test_start_with_a_long_read_writes_a_resume_point(monkeypatch):
    """A broker that is soon killed again, or was upgraded, reads its logs only once."""
    monkeypatch.setattr(loading, "_SCANNED_BYTES_MIN", 100)
    monkeypatch.setattr(log_module, "_UNWRITTEN_ENTRIES_MAX", 10**6)
    disk = MemoryDisk(directories=["/data"])
    log = open_log(PATH, CONFIG, disk)
    for number in range(12):
        append_as_leader(log, idempotent(number, timestamp_ms=1000 + number), 0, now_ms=1)
    before = state(log)
    disk.kill()
    assert state(open_log(PATH, CONFIG, disk)) == before
    disk.kill()
    monkeypatch.setattr(Segment, "reset", lambda self: pytest.fail("the whole segment was read"))
    assert state(open_log(PATH, CONFIG, disk, is_intact=True)) == before


def test_without_the_promise_every_batch_is_read():
    """After a power loss, a snapshot does not prove that the batches before it are on disk."""
    disk, end = damaged_below_the_snapshot()
    assert open_log(PATH, CONFIG, disk).log_end_offset < end


def test_damage_below_the_snapshot_is_left_to_the_scrubber():
    """The damage is not a torn write, so the log is not truncated there."""
    disk, end = damaged_below_the_snapshot()
    assert open_log(PATH, CONFIG, disk, is_intact=True).log_end_offset == end


def damaged_below_the_snapshot():
    disk = MemoryDisk(directories=["/data"])
    log = open_log(PATH, CONFIG, disk)
    for number in range(10):
        append_as_leader(log, batch(f"{number}".ljust(90), timestamp_ms=1000 + number), 0, now_ms=1)
    end = log.log_end_offset
    disk.kill()
    disk.flip_bit(log.segments.first.path(), 100)
    return disk, end


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".snapshot", ".txnindex"])
@pytest.mark.parametrize("how", ["missing", "short", "noise"])
def test_inconsistent_files_are_rebuilt(suffix, how):
    """The snapshot and the indexes are used only if they agree with the batches."""
    disk = MemoryDisk(directories=["/data"])
    log = open_log(PATH, dataclasses.replace(CONFIG, segment_bytes=10**9), disk)
    for number in range(60):
        append_as_leader(log, idempotent(number, producer_id=9, transactional=True, timestamp_ms=number), 0, now_ms=1)
    append_as_leader(log, marker(9, committed=False), 0, now_ms=61, origin=Origin.COORDINATOR)
    for number in range(60):
        append_as_leader(log, batch(f"{number}".ljust(90), timestamp_ms=100 + number), 0, now_ms=1)
    expected = state(log)
    disk.kill()
    for name in disk.list_directory(PATH):
        if name.endswith(suffix):
            path = f"{PATH}/{name}"
            data = disk.read_file(path)
            assert data
            if how == "missing":
                disk.remove(path)
            else:
                disk.write_file(path, data[: len(data) - 5] if how == "short" else bytes([1]) * len(data))
    log = open_log(PATH, CONFIG, disk, is_intact=True)
    assert state(log) == expected


def test_log_of_many_producers_writes_no_resume_point(monkeypatch):
    """Encoding them would block the event loop; such a log is read from the start of its segment."""
    monkeypatch.setattr(derived_state, "_SNAPSHOT_PRODUCERS_MAX", 2)
    disk = MemoryDisk(directories=["/data"])
    log = open_log(PATH, CONFIG, disk)
    for number in range(12):
        append_as_leader(log, idempotent(0, producer_id=number, timestamp_ms=number), 0, now_ms=1)
    before = state(log)
    disk.kill()
    derived = log.derived_state
    assert resume_points.find_resume_point(log.segments.active, derived._snapshots, derived._aborted_checkpoint) is None
    assert state(open_log(PATH, CONFIG, disk, is_intact=True)) == before
