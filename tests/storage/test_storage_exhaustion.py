"""Descriptors and memory run out for a moment: that one operation fails, and the log directory goes on."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import replace
from uuid import UUID

import pytest
from storage_world import SMALL, batch, fill, idempotent, marker, read_bytes, records_of
from twisted.internet.defer import Deferred
from twisted.logger import LogEvent, LogLevel, formatEvent, globalLogPublisher

from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import TopicPartition
from kreplica.storage import Log, LogConfig, LogDirectories, Origin
from kreplica.storage.durability.failed_syncs import is_marked
from kreplica.storage.formats.checkpoints import RECOVERY_POINTS, read_offsets
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
    told: list[str] = []

    def observe(event: LogEvent) -> None:
        if event["log_level"] >= LogLevel.warn:
            told.append(formatEvent(event))

    globalLogPublisher.addObserver(observe)
    yield told
    globalLogPublisher.removeObserver(observe)


@pytest.mark.parametrize("number", PASSING)
def test_a_checkpoint_is_written_later(number: int, warnings: list[str]) -> None:
    """It is told once, however often it is tried, and the logs of the directory are used all the time."""
    world = World(SMALL)
    fill(world.log, 5)
    world.log.flush()
    mend = world.disk.fail("open", "/data/recovery-point*", number)
    for _ in range(3):
        world.directories.directories[0].checkpoint()
        world.simulation.run(61)
    assert not world.is_offline
    assert [RECOVERY_POINTS in text for text in warnings] == [True]
    mend()
    world.simulation.run(61)
    assert read_offsets(world.disk, f"/data/{RECOVERY_POINTS}") == {KEY: 5}


@pytest.mark.parametrize("number", PASSING)
def test_a_segment_that_cannot_be_started(number: int) -> None:
    """The append that needs it is refused as one that may be tried again; nothing else suffers."""
    for failing in range(1, 7):
        world = World(SMALL)
        log = world.log
        count = 0
        while log.size_bytes + 180 < SMALL.segment_bytes:
            fill(log, 1, first=count)
            count += 1
        mend = world.disk.fail("open", "/data/orders-0/*", number, times=failing)
        refused: list[ErrorCode] = []
        for _ in range(8):
            try:
                log.append_as_leader(batch("x" * 300), 0, now_ms=1)
            except KafkaError as error:
                refused.append(error.code)
        mend()
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
def test_an_aborted_transaction_that_cannot_be_noted(number: int) -> None:
    """The marker is in the log, and readers of committed records hear of it; it is noted with the segment's indexes."""
    world = World(SMALL)
    log = world.log
    log.append_as_leader(idempotent(0, transactional=True), 0, now_ms=1)
    mend = world.disk.fail("open", "/data/orders-0/*.txnindex", number)
    log.append_as_leader(marker(7, committed=False), 0, now_ms=1, origin=Origin.COORDINATOR)
    assert log.log_end_offset == 2
    assert [each.producer_id for each in log.aborted_transactions(0, 2)] == [7]
    mend()
    fill(log, 20)
    assert not world.is_offline
    log.flush()
    world.simulation.run(61)
    world.host.power_loss()
    world.start()
    assert [each.producer_id for each in world.log.aborted_transactions(0, 2)] == [7]


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_what_cannot_be_opened_to_be_synced(number: int) -> None:
    """No sync has failed: it is tried again by itself, and then all is durable."""
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
        assert not is_marked(world.disk, "/data")
        assert world.log.recovery_point == world.log.log_end_offset
        before = read_bytes(world.log)
        world.host.power_loss()
        world.start()
        assert read_bytes(world.log) == before


@pytest.mark.parametrize("number", [errno.ENOMEM, errno.ENOSPC, errno.EIO])
def test_a_sync_that_fails_is_never_tried_again(number: int) -> None:
    """Whatever it failed with, nothing is known of what was written: the directory is offline."""
    world = World(SYNCED)
    world.disk.fail("sync", "/data/orders-0/*", number, times=1)
    fill(world.log, 1)
    world.simulation.run(1)
    assert world.is_offline
    assert is_marked(world.disk, "/data")


def test_a_directory_that_is_closed_meanwhile() -> None:
    """It is not marked as closed in order, nothing goes on after that, and the next start has all of it."""
    world = World(SYNCED)
    fill(world.log, 20)
    world.simulation.run(61)
    world.log.truncate_to(15)
    world.disk.fail("open", "/data/*", errno.EMFILE)
    world.simulation.run_until(Deferred.fromCoroutine(world.directories.close(5)))
    assert not world.is_offline
    assert [call for call in world.host.reactor.getDelayedCalls() if call.active()] == []
    world.disk.mend()
    world.host.kill()
    world.start()
    assert world.directories.clean_broker_epoch is None
    assert len(records_of(read_bytes(world.log))) == 15


@pytest.mark.parametrize("offset", [0, 1, 7, 15, 29])
def test_a_log_that_is_cut_meanwhile(offset: int) -> None:
    """It ends where it was cut, at the latest when it is cut again, and takes only what follows there."""
    for failing in range(1, 9):
        world = World(SMALL)
        fill(world.log, 20)
        fill(world.log, 10, epoch=1, first=20)
        world.log.flush()
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
                world.log.append_as_leader(batch("after"), 2, now_ms=1)
            except KafkaError:
                continue
            break
        assert not world.is_offline
        world.disk.mend()
        assert world.log.log_end_offset == offset + 1
        world.simulation.run(10)
        world.host.kill()
        world.start()
        assert [record.offset for record in records_of(read_bytes(world.log))] == list(range(offset + 1))
        assert world.log.leader_epochs.latest == 2


@pytest.mark.parametrize("number", [*PASSING, errno.ENOSPC])
@pytest.mark.parametrize("beforehand", [False, True])
def test_a_log_that_cannot_be_made_leaves_nothing(number: int, beforehand: bool) -> None:
    """Else a partition that is deleted before there is room again would leave a directory that nobody deletes."""
    world = World(SMALL)
    mend = world.disk.fail("open", "/data/orders-0/partition.metadata.tmp", number)
    if beforehand:
        making = world.directories.make([(KEY, UUID(int=7))])
        world.simulation.run_until(Deferred.fromCoroutine(making))
    with pytest.raises(OSError, match=r"partition\.metadata"):
        world.directories.create(KEY, UUID(int=7), SMALL)
    assert not world.disk.exists("/data/orders-0")
    mend()
    fill(world.log, 3)
    assert world.log.log_end_offset == 3
