"""Transient lack of file descriptors or memory fails a single operation; the log directory stays online."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import replace
from uuid import UUID

import pytest
from storage_world import SMALL, batch, fill, flush, idempotent, marker, read_bytes, records_of
from twisted.internet.defer import Deferred
from twisted.logger import LogEvent, LogLevel, formatEvent, globalLogPublisher

from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import TopicPartition
from kreplica.storage import Log, LogConfig, LogDirectories, Origin
from kreplica.storage.durability.failed_syncs import has_marker
from kreplica.storage.formats.checkpoints import RECOVERY_POINTS, read_offsets
from kreplica.storage.log.appending import append_as_leader
from kreplica.testing.simulator.simulation import Simulation

KEY = TopicPartition("orders", 0)
PASSING = [errno.EMFILE, errno.ENFILE, errno.ENOMEM]
SYNCED = replace(SMALL, flush_messages=1)


class World:
    """One broker's log directory on a simulated host."""

    def __init__(self, config: LogConfig) -> None:
        self.simulation = Simulation(1)
        self.host = self.simulation.host("broker")
        self.disk = self.host.disk
        self.config = config
        self.start()

    def start(self) -> None:
        self.directories = LogDirectories(self.host.runtime, ["/data"])
        opening = self.directories.open("cluster", 1, lambda _: self.config)
        self.simulation.run_until(Deferred.fromCoroutine(opening))
        self.directories.start(lambda: {key: log.log_end_offset for key, log in self.directories.logs.items()})

    @property
    def log(self) -> Log:
        return self.directories.logs.get(KEY) or self.directories.create(KEY, UUID(int=7), self.config)

    @property
    def is_offline(self) -> bool:
        return self.directories.directories[0].offline is not None


@pytest.fixture
def warnings() -> Iterator[list[str]]:
    logged: list[str] = []

    def observe(event: LogEvent) -> None:
        if event["log_level"] >= LogLevel.warn:
            logged.append(formatEvent(event))

    globalLogPublisher.addObserver(observe)
    yield logged
    globalLogPublisher.removeObserver(observe)


@pytest.mark.parametrize("number", PASSING)
def test_failed_checkpoint_is_retried(number: int, warnings: list[str]) -> None:
    """The failure is logged once, and the logs in the directory stay usable."""
    world = World(SMALL)
    fill(world.log, 5)
    flush(world.log)
    repair = world.disk.fail("open", "/data/recovery-point*", number)
    for _ in range(3):
        world.directories.directories[0].checkpoints.request()
        world.simulation.run(61)
    assert not world.is_offline
    assert [RECOVERY_POINTS in text for text in warnings] == [True]
    repair()
    world.simulation.run(61)
    assert read_offsets(world.disk, f"/data/{RECOVERY_POINTS}") == {KEY: 5}


@pytest.mark.parametrize("number", PASSING)
def test_segment_that_cannot_be_created(number: int) -> None:
    """The append that needs the segment fails with a retriable error; nothing else is affected."""
    for failing in range(1, 7):
        world = World(SMALL)
        log = world.log
        count = 0
        while log.segments.size_bytes + 180 < SMALL.segment_bytes:
            fill(log, 1, first=count)
            count += 1
        repair = world.disk.fail("open", "/data/orders-0/*", number, times=failing)
        refused: list[ErrorCode] = []
        for _ in range(8):
            try:
                append_as_leader(log, batch("x" * 300), 0, now_ms=1)
            except KafkaError as error:
                refused.append(error.code)
        repair()
        assert 1 <= len(refused) <= failing
        assert set(refused) == {ErrorCode.KAFKA_STORAGE_ERROR}
        assert not world.is_offline
        assert log.failure is None
        offsets = [record.offset for record in records_of(read_bytes(log))]
        assert offsets == list(range(count + 8 - len(refused)))
        world.host.kill()
        world.start()
        assert [record.offset for record in records_of(read_bytes(world.log))] == offsets


@pytest.mark.parametrize("number", [*PASSING, errno.ENOSPC])
def test_aborted_transaction_that_cannot_be_indexed(number: int) -> None:
    """The marker is in the log and applies to readers of committed records; it is indexed with the segment's other
    indexes."""
    world = World(SMALL)
    log = world.log
    append_as_leader(log, idempotent(0, transactional=True), 0, now_ms=1)
    repair = world.disk.fail("open", "/data/orders-0/*.txnindex", number)
    append_as_leader(log, marker(7, committed=False), 0, now_ms=1, origin=Origin.COORDINATOR)
    assert log.log_end_offset == 2
    assert [each.producer_id for each in log.segments.aborted_transactions(0, 2)] == [7]
    repair()
    fill(log, 20)
    assert not world.is_offline
    flush(log)
    world.simulation.run(61)
    world.host.power_loss()
    world.start()
    assert [each.producer_id for each in world.log.segments.aborted_transactions(0, 2)] == [7]


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_file_that_cannot_be_opened_for_a_sync(number: int) -> None:
    """The sync itself did not fail, so it is retried, and then all records are durable."""
    for failing in range(1, 10):
        world = World(SYNCED)
        fill(world.log, 3)
        world.simulation.run(0.1)
        world.disk.fail("open", "/data/orders-0/*", number, times=failing)
        for number_of in range(10):
            try:
                fill(world.log, 1, first=number_of, size=300)
            except KafkaError:
                continue
        world.simulation.run(30)
        assert not world.is_offline
        assert not has_marker(world.disk, "/data")
        assert world.log.durability.recovery_point == world.log.log_end_offset
        before = read_bytes(world.log)
        world.host.power_loss()
        world.start()
        assert read_bytes(world.log) == before


@pytest.mark.parametrize("number", [errno.ENOMEM, errno.ENOSPC, errno.EIO])
def test_failed_sync_is_never_retried(number: int) -> None:
    """After any error, the state of the written data is unknown, so the directory goes offline."""
    world = World(SYNCED)
    world.disk.fail("sync", "/data/orders-0/*", number, times=1)
    fill(world.log, 1)
    world.simulation.run(1)
    assert world.is_offline
    assert has_marker(world.disk, "/data")


def test_directory_closed_during_a_failure() -> None:
    """No clean-shutdown marker is written, nothing runs afterwards, and the next start finds all records."""
    world = World(SYNCED)
    fill(world.log, 20)
    world.simulation.run(61)
    world.log.truncate_to(15)
    world.disk.fail("open", "/data/*", errno.EMFILE)
    world.simulation.run_until(Deferred.fromCoroutine(world.directories.close(5)))
    assert not world.is_offline
    assert [call for call in world.host.reactor.getDelayedCalls() if call.active()] == []
    world.disk.clear_faults()
    world.host.kill()
    world.start()
    assert world.directories.clean_broker_epoch is None
    assert len(records_of(read_bytes(world.log))) == 15


@pytest.mark.parametrize("offset", [0, 1, 7, 15, 29])
def test_log_truncated_during_a_failure(offset: int) -> None:
    """The log ends at the truncation offset, at the latest after another truncation, and accepts only appends at this
    offset."""
    for failing in range(1, 9):
        world = World(SMALL)
        fill(world.log, 20)
        fill(world.log, 10, epoch=1, first=20)
        flush(world.log)
        world.disk.fail("open", "/data/orders-0/*", errno.EMFILE, times=failing)
        for _ in range(failing + 1):
            try:
                world.log.truncate_to(offset)
            except OSError:
                assert world.log.log_end_offset > offset
                continue
            break
        world.simulation.run(10)
        for _ in range(failing + 1):
            try:
                append_as_leader(world.log, batch("after"), 2, now_ms=1)
            except KafkaError:
                continue
            break
        assert not world.is_offline
        world.disk.clear_faults()
        assert world.log.log_end_offset == offset + 1
        world.simulation.run(10)
        world.host.kill()
        world.start()
        assert [record.offset for record in records_of(read_bytes(world.log))] == list(range(offset + 1))
        assert world.log.leader_epochs.latest == 2


@pytest.mark.parametrize("number", [*PASSING, errno.ENOSPC])
@pytest.mark.parametrize("beforehand", [False, True])
def test_failed_creation_of_a_log_leaves_nothing(number: int, beforehand: bool) -> None:
    """Otherwise, if the partition were deleted before space is available, its directory would never be removed."""
    world = World(SMALL)
    repair = world.disk.fail("open", "/data/orders-0/partition.metadata.tmp", number)
    if beforehand:
        making = world.directories.create_directories([(KEY, UUID(int=7))])
        world.simulation.run_until(Deferred.fromCoroutine(making))
    with pytest.raises(OSError, match=r"partition\.metadata"):
        world.directories.create(KEY, UUID(int=7), SMALL)
    assert not world.disk.exists("/data/orders-0")
    repair()
    fill(world.log, 3)
    assert world.log.log_end_offset == 3
