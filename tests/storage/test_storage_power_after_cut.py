"""Power loss after a log was truncated below the recovery point on disk and appended to."""

from __future__ import annotations

import errno
from uuid import UUID

import pytest
from storage_world import SMALL, batch, fill, flush, read_bytes, records_of
from twisted.internet.defer import Deferred

from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import TopicPartition
from kreplica.storage import Log, LogDirectories
from kreplica.storage.formats.checkpoints import RECOVERY_POINTS, read_offsets
from kreplica.storage.log.appending import append_as_leader
from kreplica.testing.simulator.simulation import Simulation

KEY = TopicPartition("orders", 0)
CHECKPOINT = f"/data/{RECOVERY_POINTS}"


class World:
    """A log with 20 durable records, which the checkpoint covers."""

    def __init__(self, seed: int) -> None:
        self.simulation = Simulation(seed)
        self.host = self.simulation.host("broker")
        self.disk = self.host.disk
        self.random = self.simulation.random
        self.start()
        self.directories.create(KEY, UUID(int=7), SMALL)
        fill(self.log, 20)
        flush(self.log)
        self.simulation.run(61)
        assert self.noted() == 20
        self.old = self.values()

    def start(self) -> None:
        self.directories = LogDirectories(self.host.runtime, ["/data"])
        opening = self.directories.open("cluster", 1, lambda _: SMALL)
        self.simulation.run_until(Deferred.fromCoroutine(opening))
        self.directories.start(dict)

    @property
    def log(self) -> Log:
        return self.directories.logs[KEY]

    def values(self) -> list[bytes | None]:
        return [record.value for record in records_of(read_bytes(self.log))]

    def noted(self) -> int:
        return read_offsets(self.disk, CHECKPOINT)[KEY]

    def append(self, value: str) -> bool:
        """Append a record; return True if it was accepted."""
        try:
            append_as_leader(self.log, batch(value.ljust(90)), 1, now_ms=1)
        except KafkaError as error:
            if error.code is not ErrorCode.KAFKA_STORAGE_ERROR:
                raise
            return False
        return True


@pytest.mark.parametrize("cut", [0, 3, 11])
def test_records_after_a_truncation_are_not_assumed_durable(cut: int) -> None:
    """After the power loss, the log is not damaged, and records of the two histories are not mixed.

    If nothing has been appended yet, the power loss may undo part of the truncation: then the log has the old history.
    """
    taken = 0
    for seed in range(40):
        world = World(seed)
        world.log.truncate_to(cut)
        new = []
        for number in range(world.random.randrange(1, 40)):
            if world.append(f"new {number}"):
                new.append(f"new {number}".ljust(90).encode())
            world.simulation.run(0.0005)
        taken += len(new)
        world.host.power_loss()
        world.start()
        assert world.directories.failed_logs() == []
        found = world.values()
        is_of_new = found == (world.old[:cut] + new)[: len(found)]
        assert is_of_new or found == [value for value in world.old if value in found]
        assert is_of_new or not new or found == world.old[: len(found)]
    assert taken > 0


def test_lower_recovery_point_that_cannot_be_written() -> None:
    """Appends are rejected until it can be written, and then accepted again."""
    world = World(1)
    world.disk.fail("open", f"{CHECKPOINT}*", errno.ENOSPC)
    world.log.truncate_to(3)
    for _ in range(5):
        world.simulation.run(3)
        assert not world.append("too early")
    world.disk.clear_faults()
    world.simulation.run(3)
    assert world.noted() == 3
    assert world.append("now")


def test_kill_between_the_truncation_and_the_checkpoint() -> None:
    """The next start lowers the checkpoint before it accepts appends."""
    world = World(1)
    world.log.truncate_to(3)
    world.host.kill()
    world.start()
    assert (world.noted(), world.log.log_end_offset) == (20, 3)
    assert not world.append("too early")
    world.simulation.run(1)
    assert world.noted() == 3
    assert world.append("now")


def test_truncation_above_the_recovery_point_on_disk() -> None:
    """No checkpoint is needed: appends are accepted at once."""
    world = World(1)
    fill(world.log, 10, first=20)
    flush(world.log)
    world.log.truncate_to(25)
    assert world.append("at once")


def test_truncation_while_a_higher_recovery_point_is_being_written() -> None:
    """The checkpoint that is being written is treated as written."""
    world = World(1)
    fill(world.log, 10, first=20)
    flush(world.log)
    world.directories.directories[0].checkpoints.request()
    world.log.truncate_to(25)
    assert not world.append("too early")
    world.simulation.run(1)
    assert world.noted() == 25
    assert world.append("now")
