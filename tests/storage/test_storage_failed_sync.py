"""After a failed sync, pages may exist only in memory, although the kernel considers them clean."""

from __future__ import annotations

import errno
from dataclasses import replace
from random import Random
from uuid import UUID

import pytest
from storage_world import batch, fill, flush, read_bytes
from twisted.internet.defer import Deferred
from twisted.logger import LogEvent, formatEvent, globalLogPublisher

from kreplica.model import TopicPartition
from kreplica.storage import LogConfig, LogDirectories
from kreplica.storage.durability.failed_syncs import FILE_NAME, has_marker, write_marker
from kreplica.storage.log.appending import append_as_leader
from kreplica.storage.log.log import Log
from kreplica.testing.simulator.disk import MemoryDisk
from kreplica.testing.simulator.simulation import Simulation

TOPIC_ID = UUID(int=77)
KEYS = [TopicPartition("orders", partition) for partition in range(3)]
SYNCED = LogConfig(segment_bytes=1000, index_interval_bytes=150, flush_messages=1)


class World:
    """One broker's log directory on a simulated host, with random records."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.simulation = Simulation(seed)
        self.host = self.simulation.host("broker")
        self.disk: MemoryDisk = self.host.disk
        self.directories: LogDirectories
        self._count = 0

    def start(self) -> None:
        self.directories = LogDirectories(self.host.runtime, ["/data/logs"])
        opening = self.directories.open("cluster", 1, lambda _: SYNCED)
        self.simulation.run_until(Deferred.fromCoroutine(opening))
        self.directories.start(lambda: {key: log.log_end_offset for key, log in self.logs.items()})

    @property
    def logs(self) -> dict[TopicPartition, Log]:
        return dict(self.directories.logs)

    @property
    def is_offline(self) -> bool:
        return self.directories.directories[0].offline is not None

    def write(self, count: int) -> None:
        """Write records with increasing leader epochs, a few at a time, until the directory is offline."""
        for _ in range(count):
            for log in self.directories.logs.values():
                self._count += 1
                value = f"{self._count}".ljust(self.random.randrange(1, 300))
                append_as_leader(log, batch(value), self._count // 20, now_ms=1)
            self.simulation.run(self.random.choice((0.0, 0.0, 0.001)))
            if self.is_offline:
                return

    def promised(self) -> dict[TopicPartition, tuple[bytes, object, UUID | None]]:
        """Return all records that were reported as durable."""
        found = {}
        for key, log in self.logs.items():
            end_offset = log.durability.recovery_point
            epochs = [entry for entry in log.leader_epochs.entries if entry.start_offset < end_offset]
            found[key] = read_bytes(log, offset_max=end_offset), epochs, self.directories.topic_id(key)
        return found

    def check(self, promised: dict[TopicPartition, tuple[bytes, object, UUID | None]]) -> None:
        for key, (data, epochs, topic_id) in promised.items():
            log = self.directories.logs[key]
            assert read_bytes(log)[: len(data)] == data
            assert list(log.leader_epochs.entries)[: len(epochs)] == epochs
            assert self.directories.topic_id(key) == topic_id


@pytest.mark.parametrize("seed", range(60))
def test_records_synced_after_a_restart_survive_a_power_loss(seed: int) -> None:
    """A broker that is restarted with this device continues, and records that it reports as durable are durable."""
    world = World(seed)
    world.start()
    for key in KEYS:
        world.directories.create(key, TOPIC_ID, SYNCED)
    world.write(world.random.randrange(20))
    world.disk.fail("sync", "/data/logs/*", errno.EIO, times=world.random.randrange(1, 3))
    world.write(20)
    world.simulation.run(1)
    assert world.is_offline
    world.disk.clear_faults()
    world.host.kill()
    if seed % 2:
        world.disk.drop_caches(world.random)
    world.start()
    if seed % 3:
        world.write(world.random.randrange(20))
        world.simulation.run(world.random.choice((1, 100)))
    else:
        for log in world.logs.values():
            flush(log)
    promised = world.promised()
    world.host.power_loss()
    world.start()
    world.check(promised)


def test_records_after_a_truncation_are_rewritten() -> None:
    """A log truncated below its recovery point is durable up to the truncation, whatever the checkpoint contains."""
    lost = 0
    for seed in range(40):
        world = World(seed)
        world.start()
        log = world.directories.create(KEYS[0], TOPIC_ID, replace(SYNCED, flush_messages=1000))
        fill(log, 20)
        flush(log)
        world.simulation.run(100)
        log.truncate_to(3)
        world.simulation.run(1)
        fill(log, 16, epoch=1, first=3)
        world.disk.fail("sync", "/data/logs/orders-0/*", errno.EIO)
        with pytest.raises(OSError, match="Input/output"):
            flush(log)
        world.disk.clear_faults()
        world.host.kill()
        world.start()
        again = world.directories.logs[KEYS[0]]
        assert again.durability.recovery_point == 3
        flush(again)
        before = read_bytes(again)
        world.simulation.run(100)
        world.host.power_loss()
        world.start()
        lost += read_bytes(world.directories.logs[KEYS[0]]) != before
    assert lost == 0


def test_failed_device_is_not_accessed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The device might block, so nothing is written to it while other work waits; the next start already has everything
    it needs."""
    world = World(1)
    world.start()
    log = world.directories.create(KEYS[0], TOPIC_ID, replace(SYNCED, flush_messages=1000))
    fill(log, 20)
    flush(log)
    world.simulation.run(100)
    log.truncate_to(3)
    world.simulation.run(1)
    fill(log, 5, epoch=1, first=3)

    def hang(path: str, data: bytes, **_: object) -> None:
        raise AssertionError(f"{path} is written on the reactor's thread")

    monkeypatch.setattr(world.disk, "write_file", hang)
    log.fail(OSError(errno.EIO, "the device is broken"))
    world.simulation.run(1)
    monkeypatch.undo()
    assert world.is_offline
    world.host.kill()
    world.start()
    assert world.directories.logs[KEYS[0]].durability.recovery_point == 3


def test_files_are_rewritten_once() -> None:
    """The start that rewrote them removes the mark; later clean stops are handled as usual."""
    world = World(1)
    world.start()
    world.directories.create(KEYS[0], TOPIC_ID, SYNCED)
    world.disk.fail("sync", "/data/logs/*", errno.EIO, times=1)
    world.write(20)
    assert world.is_offline
    assert world.disk.read_file(f"/data/logs/{FILE_NAME}").startswith(b"[Errno 5]")
    world.host.kill()
    world.start()
    assert not has_marker(world.disk, "/data/logs")
    world.simulation.run_until(Deferred.fromCoroutine(world.directories.close(5)))
    world.host.kill()
    world.start()
    assert world.directories.clean_broker_epoch == 5


def test_kill_while_files_are_rewritten() -> None:
    """The next start rewrites them again: the mark is kept until everything is done."""
    world = World(1)
    world.start()
    world.directories.create(KEYS[0], TOPIC_ID, SYNCED)
    world.disk.fail("sync", "/data/logs/*", errno.EIO, times=1)
    world.write(20)
    world.host.kill()
    directories = LogDirectories(world.host.runtime, ["/data/logs"])
    opening = Deferred.fromCoroutine(directories.open("cluster", 1, lambda _: SYNCED))
    assert not opening.called
    world.host.kill()
    assert has_marker(world.disk, "/data/logs")


def test_device_on_which_no_mark_can_be_written() -> None:
    """A log line names the remedy for the operator."""
    logged: list[str] = []

    def observe(event: LogEvent) -> None:
        logged.append(formatEvent(event))

    disk = MemoryDisk(directories=["/data"])
    disk.fail("open", "/data/*", errno.EROFS)
    globalLogPublisher.addObserver(observe)
    try:
        write_marker(disk, "/data", OSError(errno.EIO, "bad"))
    finally:
        globalLogPublisher.removeObserver(observe)
    assert ["unmount and mount the device again" in text for text in logged] == [True]
