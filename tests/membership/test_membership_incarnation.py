"""Detection of lost log data across restarts."""

from __future__ import annotations

import errno
from typing import Any, Literal
from uuid import UUID

import pytest

from kreplica.membership.incarnation import FILE_NAME, Incarnations, Note, intact_since
from kreplica.model import NO_BROKER_EPOCH, BrokerRegistration, TopicPartition
from kreplica.storage.directories.log_directories import LogDirectories
from kreplica.storage.log_config import LogConfig
from kreplica.testing.simulator.simulation import Simulation

TOPIC_ID = UUID(int=7)
NOTE = Note(broker_epoch=70, intact_since=50, boot_id="up", directories_count=2)
OLDER = Note(broker_epoch=60, intact_since=50, boot_id="up", directories_count=2)


@pytest.mark.parametrize(
    ("notes", "boot_id", "clean_epoch", "logs_missing", "expected"),
    [
        pytest.param([NOTE, NOTE], "up", None, False, 50, id="killed, and the machine stayed up"),
        pytest.param([NOTE, NOTE], "up", 70, False, 50, id="stopped cleanly"),
        pytest.param([NOTE, NOTE], "another", 70, False, 50, id="stopped cleanly, then the machine was restarted"),
        pytest.param([NOTE, NOTE], "", 70, False, 50, id="stopped cleanly, boot ID unknown"),
        pytest.param([NOTE, NOTE], "another", None, False, -1, id="the machine went down"),
        pytest.param([NOTE, NOTE], "", None, False, -1, id="killed, boot ID unknown"),
        pytest.param([NOTE, NOTE], "another", 69, False, -1, id="the marker belongs to another incarnation"),
        pytest.param([NOTE, NOTE], "another", -1, False, -1, id="the marker has no epoch"),
        pytest.param([NOTE, None], "up", None, False, -1, id="a directory was wiped or added"),
        pytest.param([NOTE], "up", 70, False, -1, id="a directory was removed"),
        pytest.param([NOTE, OLDER], "up", None, False, -1, id="a directory is an older copy"),
        pytest.param([NOTE, NOTE], "up", 70, True, -1, id="a log was removed"),
        pytest.param([None, None], "up", None, False, -1, id="the first start"),
        pytest.param([], "up", None, False, -1, id="no directories"),
    ],
)
def test_intact_since_at_a_start(
    notes: list[Note | None], boot_id: str, clean_epoch: int | None, logs_missing: bool, expected: int
) -> None:
    """Logs are intact after a clean stop or without a reboot, if all directories agree."""
    found = intact_since(notes, boot_id=boot_id, clean_epoch=clean_epoch, logs_missing=logs_missing)
    assert found == expected


class World:
    """A machine with two log directories, and successive broker processes."""

    def __init__(self) -> None:
        self.simulation = Simulation(1)
        self.host = self.simulation.host("machine")
        self.paths = ["/data/one", "/data/two"]
        self.directories: LogDirectories
        self.incarnations: Incarnations

    def start(self, *, paths: list[str] | None = None) -> int:
        """Start a process; return the ``intact_since`` of its registration."""
        runtime = self.host.runtime
        self.directories = LogDirectories(runtime, paths or self.paths)
        self.incarnations = Incarnations(runtime, self.directories)
        self.simulation.run_until(self.directories.open("cluster", 1, lambda _: LogConfig()))
        self.incarnations.begin()
        return self.incarnations.intact_since

    def register(self, epoch: int) -> None:
        self.incarnations.registered(BrokerRegistration(1, (), epoch=epoch))

    def stop(self, epoch: int) -> None:
        self.simulation.run_until(self.directories.close(epoch))
        self.host.kill()

    def kill(self) -> None:
        self.host.kill()

    def power_loss(self) -> None:
        self.host.power_loss()


@pytest.fixture
def world() -> World:
    return World()


def test_chain_of_kills_and_clean_stops(world: World) -> None:
    """Across kills and clean stops, logs are intact since the first registration."""
    assert world.start() == NO_BROKER_EPOCH
    world.register(10)
    world.kill()
    assert world.start() == 10
    world.register(20)
    world.stop(20)
    assert world.start() == 10
    world.register(30)
    world.register(40)  # registered again after losing its session
    world.kill()
    assert world.start() == 10


def test_power_loss_ends_the_chain(world: World) -> None:
    """After a power loss, the next registration starts a new incarnation."""
    world.start()
    world.register(10)
    world.power_loss()
    assert world.start() == NO_BROKER_EPOCH
    world.register(20)
    world.kill()
    assert world.start() == 20


def test_power_loss_after_a_clean_stop(world: World) -> None:
    """A clean stop syncs all data, its marker and the notes, so a later power loss loses nothing."""
    world.start()
    world.register(10)
    world.stop(10)
    world.power_loss()
    assert world.start() == 10


def test_kill_before_the_loss_is_recorded(world: World) -> None:
    """If a broker detects a loss and is killed before it registers, its next start detects the loss again."""
    world.start()
    world.register(10)
    world.kill()
    world.host.disk.remove_tree("/data/two")
    assert world.start() == NO_BROKER_EPOCH
    world.kill()
    assert world.start() == NO_BROKER_EPOCH


def test_omitted_directory(world: World) -> None:
    """A start without one of the directories is treated as a loss."""
    world.start()
    world.register(10)
    world.stop(10)
    assert world.start(paths=["/data/one"]) == NO_BROKER_EPOCH


def test_removed_log(world: World) -> None:
    """The manual removal of a log is treated as a loss, so the log is copied from the leader."""
    world.start()
    world.directories.create(TopicPartition("orders", 0), TOPIC_ID, LogConfig())
    world.register(10)
    world.stop(10)
    directory = next(path for path in world.paths if world.host.disk.exists(f"{path}/orders-0"))
    world.host.disk.remove_tree(f"{directory}/orders-0")
    assert world.start() == NO_BROKER_EPOCH


def test_failed_directory(world: World) -> None:
    """After a device error, the next start is treated as a loss."""
    world.start()
    log = world.directories.create(TopicPartition("orders", 0), TOPIC_ID, LogConfig())
    world.register(10)
    log.fail(OSError(errno.EIO, "the device is broken"))
    world.register(20)
    world.kill()
    assert world.start() == NO_BROKER_EPOCH


def test_only_directory_failed(world: World) -> None:
    """If the only directory fails, the next start is treated as a loss."""
    world.start(paths=["/data/one"])
    log = world.directories.create(TopicPartition("orders", 0), TOPIC_ID, LogConfig())
    world.register(10)
    log.fail(OSError(errno.EIO, "the device is broken"))
    world.kill()
    assert world.start(paths=["/data/one"]) == NO_BROKER_EPOCH


@pytest.mark.parametrize("operation", ["open", "read"])
def test_directory_on_a_dead_device_at_the_start(world: World, operation: Literal["open", "read"]) -> None:
    """A broker with a dead device starts with its other directory, and its logs are treated as incomplete."""
    world.start()
    world.register(10)
    world.kill()
    world.host.disk.fail(operation, "/data/two/*", errno.EIO)
    world.host.disk.fail("remove", "/data/two/*", errno.EIO)
    assert world.start() == NO_BROKER_EPOCH
    world.register(20)
    world.stop(20)
    world.host.disk.clear_faults()
    assert world.start() == NO_BROKER_EPOCH


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"broker_epoch":"x"}'])
def test_damaged_note(world: World, data: bytes) -> None:
    """A damaged note is treated as missing."""
    world.start()
    world.register(10)
    world.host.disk.write_file(f"/data/one/{FILE_NAME}", data)
    world.kill()
    assert world.start() == NO_BROKER_EPOCH


def test_full_disk_prevents_a_note(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a full disk the broker still registers, but its next start is treated as a loss."""

    def fail_write(path: str, data: bytes, **_: Any) -> None:
        raise OSError(errno.ENOSPC, "full")

    world.start()
    monkeypatch.setattr(world.host.disk, "write_file", fail_write)
    world.register(10)
    assert world.incarnations.intact_since == 10
    monkeypatch.undo()
    world.kill()
    assert world.start() == NO_BROKER_EPOCH


def test_directory_is_intact_without_a_reboot(world: World) -> None:
    """After a kill, recovery may trust written data; after a power loss it reads everything."""
    directory = world.paths[0]
    world.start()
    assert not world.incarnations.is_intact(directory)
    world.register(10)
    world.kill()
    world.start()
    assert world.incarnations.is_intact(directory)
    world.power_loss()
    world.start()
    assert not world.incarnations.is_intact(directory)
    world.kill()
    world.start()
    assert not world.incarnations.is_intact(directory)  # the previous process was killed before it registered
