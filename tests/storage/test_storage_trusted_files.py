"""Small files below the recovery point that are damaged or missing are repaired at start and by the scrubber."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from storage_world import batch, idempotent, marker, open_log, read_bytes
from twisted.internet.defer import Deferred
from twisted.logger import globalLogPublisher

from kreplica.model import ZERO_UUID, TopicPartition
from kreplica.storage import LogDirectories, StorageConfig
from kreplica.storage.directories.scrubbing import PASS_STEPS_MIN
from kreplica.storage.formats.leader_epochs import FILE_NAME as LEADER_EPOCHS
from kreplica.storage.log.appending import append_as_leader
from kreplica.storage.log.checks import indexes_to_check
from kreplica.storage.log.log import Log
from kreplica.storage.log.timestamp_search import offset_for_timestamp
from kreplica.storage.log_config import LogConfig
from kreplica.storage.producers.producer_state import Origin
from kreplica.storage.recovery.aborted_checkpoint import FILE_NAME as ABORTED_CHECKPOINT
from kreplica.testing.simulator.disk import MemoryDisk
from kreplica.testing.simulator.simulation import Simulation
from kreplica.wire.batches import iter_headers

CONFIG = LogConfig(segment_bytes=1500, index_interval_bytes=100, retention_ms=1_000_000)
PATH = "/data/orders-0"
KEY = TopicPartition("orders", 0)
PRODUCERS = (7, 8, 9)
START_MS = 10_000

Damage = Callable[[MemoryDisk, str], None]


def append_transactions(log: Log) -> None:
    """Append overlapping transactions of three producers across segments; every other transaction is aborted."""
    sequences = dict.fromkeys(PRODUCERS, 0)
    for turn in range(60):
        producer_id = PRODUCERS[turn % 3]
        if turn % 15 == 0:
            log.begin_leader_epoch(turn // 15)
        epoch = log.leader_epochs.latest
        records = idempotent(
            sequences[producer_id], producer_id=producer_id, transactional=True, timestamp_ms=START_MS + 10 * turn
        )
        append_as_leader(log, records, epoch, now_ms=START_MS, origin=Origin.REPLICATION)
        sequences[producer_id] += 1
        if turn % 4 == 3:
            ended = marker(producer_id, committed=turn % 8 == 3)
            append_as_leader(log, ended, epoch, now_ms=START_MS, origin=Origin.COORDINATOR)
    append_as_leader(log, batch("last", timestamp_ms=START_MS + 700), epoch, now_ms=START_MS)


def written(disk: MemoryDisk, directory: str = PATH) -> Log:
    log = open_log(directory, CONFIG, disk)
    append_transactions(log)
    log.close()
    assert len(log.segments) >= 4
    return log


def view(log: Log) -> dict[str, Any]:
    """Return the state of a log that clients, followers and retention can see."""
    end = log.log_end_offset
    times = range(START_MS - 10, START_MS + 720, 10)
    return {
        "first of a read": [
            next(header.base_offset for _, header in iter_headers(read_bytes(log, offset))) for offset in range(end)
        ],
        "aborted": [log.segments.aborted_transactions(offset, end) for offset in range(end)],
        "times": [offset_for_timestamp(log, each, end) for each in times],
        "largest": [segment.largest[0] for segment in log.segments],
        "epochs": log.leader_epochs.entries,
        "producers": sorted(
            (entry.producer_id, entry.epoch, entry.transaction_first_offset, [batch[:3] for batch in entry.batches])
            for entry in log.producers.entries
        ),
        "stable": log.last_stable_offset(end),
    }


def cut_short(disk: MemoryDisk, path: str) -> None:
    file = disk.open(path)
    file.truncate(max(file.size() - 34, file.size() // 2))


def emptied(disk: MemoryDisk, path: str) -> None:
    disk.open(path).truncate(0)


def zeroed(disk: MemoryDisk, path: str) -> None:
    file = disk.open(path)
    file.write_at(0, [bytes(file.size())])


def missing(disk: MemoryDisk, path: str) -> None:
    disk.remove(path)


def flipped(position: int, bit: int) -> Damage:
    def flip(disk: MemoryDisk, path: str) -> None:
        disk.flip_bit(path, position, bit)

    return flip


def paths(log: Log, suffix: str) -> list[str]:
    """Return the files of closed segments, or the single file of the log."""
    if not suffix.startswith("."):
        return [f"{PATH}/{suffix}"]
    return [segment.path(suffix) for segment in log.segments.closed]


def every_flip(size: int) -> Iterator[Damage]:
    for position in range(size):
        yield flipped(position, position * 5 % 8)


def opened(disk: MemoryDisk, end: int, *, clean: bool) -> Log:
    return open_log(PATH, CONFIG, disk, recovery_point=end, clean_shutdown=clean)


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("harm", [cut_short, emptied, zeroed, missing])
@pytest.mark.parametrize("suffix", [".txnindex", ".index", ".timeindex", ".snapshot", LEADER_EPOCHS])
def test_start_detects_lost_files(suffix: str, harm: Damage, clean: bool) -> None:
    """After the loss of any file other than the batches, clients see the same data as before."""
    count = len(paths(written(MemoryDisk(directories=[PATH])), suffix))
    harmed = 0
    for number in range(count):
        disk = MemoryDisk(directories=[PATH])
        log = written(disk)
        before = view(opened(disk, log.log_end_offset, clean=True))
        path = paths(log, suffix)[number]
        if disk.exists(path) and disk.read_file(path):
            harm(disk, path)
            harmed += 1
        assert view(opened(disk, log.log_end_offset, clean=clean)) == before, path
    assert harmed


@pytest.mark.parametrize("suffix", [".txnindex", ".index", ".snapshot"])
def test_start_detects_every_flipped_byte(suffix: str) -> None:
    """With a flipped bit in any byte of these files, clients see the same data as before."""
    original = MemoryDisk(directories=[PATH])
    path = next(path for path in paths(written(original), suffix) if original.exists(path) and original.read_file(path))
    for harm in every_flip(len(original.read_file(path))):
        disk = MemoryDisk(directories=[PATH])
        log = written(disk)
        before = view(opened(disk, log.log_end_offset, clean=True))
        harm(disk, path)
        assert view(opened(disk, log.log_end_offset, clean=True)) == before


def test_repair_at_a_start_is_durable() -> None:
    """At the next start, there is nothing to repair, even after a power loss."""
    disk = MemoryDisk(directories=[PATH])
    log = written(disk)
    missing(disk, next(path for path in paths(log, ".txnindex") if disk.exists(path)))
    logged: list[str] = []

    def observe(event: Any) -> None:
        if "aborted transactions of segment" in event["log_format"]:
            logged.append(event["log_format"])

    globalLogPublisher.addObserver(observe)
    try:
        for _ in range(2):
            opened(disk, log.log_end_offset, clean=True).close()
    finally:
        globalLogPublisher.removeObserver(observe)
    assert len(logged) == 1


class Scrubbed:
    """A broker's log directory with the scrubber running."""

    def __init__(self) -> None:
        self.simulation = Simulation(1)
        self.host = self.simulation.host("broker")
        self.disk: MemoryDisk = self.host.disk
        self.found: list[Any] = []
        self.directories = LogDirectories(
            self.host.runtime, ["/data/logs"], StorageConfig(scrub_bytes_per_second=1 << 20)
        )
        opening = self.directories.open("cluster", 1, lambda _: CONFIG)
        self.simulation.run_until(Deferred.fromCoroutine(opening))
        self.directories.on_damage(lambda _, damage: self.found.append(damage))
        self.directories.start(lambda: {key: log.log_end_offset for key, log in self.directories.logs.items()})
        self.log = self.directories.create(KEY, ZERO_UUID, CONFIG)
        append_transactions(self.log)


@pytest.mark.parametrize("harm", [cut_short, emptied, zeroed, flipped(3, 1), flipped(9, 2), flipped(33, 0)])
@pytest.mark.parametrize("suffix", [".txnindex", ".index", ".timeindex"])
@pytest.mark.parametrize("noted", [True, False])
def test_scrubber_repairs_indexes(suffix: str, harm: Damage, noted: bool) -> None:
    """The files are restored within one pass, with or without a recorded digest."""
    world = Scrubbed()
    log = world.log
    for segment in log.segments.closed:
        path = segment.path(suffix)
        if not world.disk.exists(path) or len(world.disk.read_file(path)) < 34:
            continue
        before, entries = world.disk.read_file(path), list(segment.aborted)
        harm(world.disk, path)
        segment.release()
        if not noted:
            log.derived_state._aborted_checkpoint._rows.clear()
        world.simulation.run(2 * PASS_STEPS_MIN)
        if suffix == ".txnindex":
            assert list(segment.aborted) == entries
            assert world.disk.read_file(path) == before
        segment.release()
        wrong = indexes_to_check(log, segment).check()
        assert wrong.reasons == []
    assert world.found == []


def test_scrubber_rebuilds_a_long_index_that_was_emptied() -> None:
    """Lookups are fast again; a small index with fewer entries than a rebuilt one would have is left alone."""
    world = Scrubbed()
    config = LogConfig(segment_bytes=4500, index_interval_bytes=100)
    log = world.directories.create(TopicPartition("long", 0), ZERO_UUID, config)
    append_transactions(log)
    segment = log.segments.closed[0]
    entries = len(segment.offset_index)
    assert entries >= 16
    emptied(world.disk, segment.path(".index"))
    segment.offset_index = type(segment.offset_index)(segment.path(".index"), segment.base_offset, world.disk)
    assert len(segment.offset_index) == 0
    world.simulation.run(2 * PASS_STEPS_MIN)
    assert len(segment.offset_index) == entries
    small = world.log.segments.closed[0]
    small.offset_index.truncate_to(small.base_offset)
    assert indexes_to_check(world.log, small).check().reasons == []


def test_scrubber_finds_a_changed_leader_epoch() -> None:
    """An epoch that disagrees with the batches is reported as damage, and the replica is fetched again."""
    world = Scrubbed()
    entries = list(world.log.leader_epochs.entries)
    world.log.leader_epochs._set_entries([entries[0]._replace(epoch=entries[0].epoch), entries[1]._replace(epoch=9)])
    world.simulation.run(2 * PASS_STEPS_MIN)
    assert world.found


def test_healthy_log_is_not_rewritten() -> None:
    """The scrubber reports nothing for rolled, truncated and compacted segments."""
    world = Scrubbed()
    logged: list[str] = []

    def observe(event: Any) -> None:
        if "rebuilt" in event["log_format"] or "rebuilding" in event["log_format"]:
            logged.append(event["log_format"].format(**event))

    globalLogPublisher.addObserver(observe)
    try:
        for turn in range(6):
            world.log.truncate_to(world.log.log_end_offset - 7 * turn)
            world.simulation.run(2)  # the truncation is recorded durably before any append
            append_transactions(world.log)
            world.simulation.run(2 * PASS_STEPS_MIN)
    finally:
        globalLogPublisher.removeObserver(observe)
    assert logged == []
    assert world.found == []
    assert world.disk.exists(f"/data/logs/orders-0/{ABORTED_CHECKPOINT}")
