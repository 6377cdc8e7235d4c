"""Three replicas under load, and bad media under one of them: nothing damaged spreads, and it is made good again."""

from __future__ import annotations

import errno
from collections.abc import Mapping

import pytest
from cluster_runs import replicated, seeds, traced_run
from twisted.internet.defer import Deferred

from kreplica.errors import ErrorCode
from kreplica.model import TopicPartition
from kreplica.replication import Role
from kreplica.storage.directories.failed_logs import DAMAGED_SUFFIX
from kreplica.storage.formats.checkpoints import RECOVERY_POINTS, read_offsets
from kreplica.storage.log.log import Log
from kreplica.storage.segments.segment import LOG_SUFFIX, Segment
from kreplica.testing.cluster.state import state_of
from kreplica.testing.simulator.disk import MemoryDisk
from kreplica.testing.storms.replicated_run import SAFE, SYNCED, ReplicatedRun
from kreplica.wire.batches import iter_headers

CHECKPOINTS = "log.flush.offset.checkpoint.interval.ms=1000"
NO_SCRUB = "kreplica.scrub.bytes.per.second=0"
SMALL_SEGMENTS = {**SAFE, "segment.bytes": "4000"}
LEADER_EPOCH_AT = 12
"""Where the highest byte of a batch's leader epoch is."""

FETCH_ANEW_S = 60.0
"""A controller tries a replica that failed again after a second, then every 30 s."""


@pytest.fixture(autouse=True)
def _errors(logged_errors: list[str]) -> object:
    """What is damaged is told at error level; nothing else is."""
    yield
    damaged = ("is taken out", "cannot be opened", "is offline")
    logged_errors[:] = [text for text in logged_errors if not any(told in text for told in damaged)]


def made(seed: int, *overrides: str, configs: Mapping[str, str] = SMALL_SEGMENTS) -> ReplicatedRun:
    run = traced_run(seed, configs=configs, overrides=overrides)
    run.acknowledge(10)
    return run


def log_of(run: ReplicatedRun, broker: int, key: TopicPartition) -> Log:
    return run.machine(broker).program.directories.logs[key]


def disk_of(run: ReplicatedRun, broker: int) -> MemoryDisk:
    return run.machine(broker).host.disk


def set_aside(run: ReplicatedRun, broker: int, key: TopicPartition) -> list[str]:
    """The files that were kept of what was damaged."""
    return [name for name in disk_of(run, broker).list_directory(f"/data/logs/{key}") if name.endswith(DAMAGED_SUFFIX)]


def damage(run: ReplicatedRun, broker: int, segment: Segment, position: int = 100) -> None:
    run.tell(f"a bit flips on broker {broker} in {segment.path()} at {position}")
    disk_of(run, broker).flip_bit(segment.path(LOG_SUFFIX), position, 3)


def roll(run: ReplicatedRun, broker: int, segments: int) -> Log:
    """Wait until a log has several segments."""
    log = log_of(run, broker, run.keys[0])
    run.cluster.run_until(lambda: len(log.segments) >= segments, timeout_s=60)
    return log


def start_of_last_batch(disk: MemoryDisk, segment: Segment) -> int:
    """Where the last batch of a segment begins."""
    return [position for position, _ in iter_headers(memoryview(disk.stored(segment.path(LOG_SUFFIX))))][-1]


def is_repaired(run: ReplicatedRun, broker: int) -> bool:
    state = state_of(run.cluster, run.keys[0])
    return bool(set_aside(run, broker, run.keys[0])) and state is not None and broker in state.isr


class TestFlippedBit:
    @pytest.mark.parametrize("seed", seeds([1]))
    @pytest.mark.parametrize(
        ("whose", "position"), [("leader", 3), ("follower", 14), ("follower", 20), ("leader", 100)]
    )
    def test_in_an_old_segment_is_found_and_mended(self, whose: str, position: int, seed: int) -> None:
        """It is found by reading all again and again; the replica leaves, fetches what was damaged, and is back."""
        with replicated(seed, made) as run:
            broker = run.leader() if whose == "leader" else run.followers()[0]
            log = roll(run, broker, 4)
            damage(run, broker, log.segments[1], position)
            run.cluster.run_until(lambda: is_repaired(run, broker), timeout_s=FETCH_ANEW_S)
            assert disk_of(run, broker).damaged_files() == [
                f"/data/logs/{run.keys[0]}/{name}" for name in set_aside(run, broker, run.keys[0])[:1]
            ]
            run.converge()

    @pytest.mark.parametrize("seed", seeds([1]))
    @pytest.mark.parametrize("field", [0, 8, 30])
    def test_a_leader_that_cannot_bring_a_follower_up_hands_over(self, field: int, seed: int) -> None:
        """The follower takes nothing that is damaged, and asks again; the leader looks at what it sent, and goes."""
        with replicated(seed, lambda s: made(s, NO_SCRUB)) as run:
            leader, away = run.leader(), run.followers()[0]
            run.kill(away)
            before = log_of(run, leader, run.keys[0]).log_end_offset
            log = roll(run, leader, 6)
            found = log.segments.find(before + 20)
            assert found is not None
            segment, at, _ = found
            damage(run, leader, segment, at + field + 3)
            run.start(away)
            run.cluster.run_until(lambda: is_repaired(run, leader), timeout_s=FETCH_ANEW_S + 30)
            run.converge()

    @pytest.mark.parametrize("seed", seeds([1, 2]))
    def test_in_the_leader_epoch_of_the_last_batch_while_the_broker_is_down(self, seed: int) -> None:
        """No checksum covers it: the replica seems to be ahead of every leader, cuts what cannot be, and is back."""
        with replicated(seed, lambda s: made(s, NO_SCRUB, configs={**SYNCED, "segment.bytes": "100000"})) as run:
            broker = run.followers()[0]
            log = log_of(run, broker, run.keys[0])
            run.acknowledge(20)
            run.kill(broker)
            segment = log.segments[0]
            damage(run, broker, segment, start_of_last_batch(disk_of(run, broker), segment) + LEADER_EPOCH_AT)
            run.launch(broker)
            run.converge()

    @pytest.mark.parametrize("seed", seeds([1, 2]))
    def test_below_the_recovery_point_while_the_broker_is_down(self, seed: int) -> None:
        """Recovery finds it: the replica is refused until others are relied on, then it is fetched again from there.

        The machine was off: after a kill alone the broker resumes its logs, and the scrubber finds the damage.
        """
        with replicated(seed, lambda s: made(s, NO_SCRUB, CHECKPOINTS, configs=SYNCED)) as run:
            run.cluster.run(3)
            broker = run.leader() if seed % 2 else run.followers()[0]
            log = log_of(run, broker, run.keys[0])
            run.lose_power(broker)
            recovery_point = read_offsets(disk_of(run, broker), f"/data/logs/{RECOVERY_POINTS}")[run.keys[0]]
            segment = log.segments[log.segments.index_of(recovery_point - 1)]
            damage(run, broker, segment)
            run.start(broker)
            run.cluster.run_until(lambda: is_repaired(run, broker), timeout_s=FETCH_ANEW_S)
            run.converge()

    @pytest.mark.parametrize("seed", seeds([1, 2]))
    def test_beyond_the_recovery_point_while_the_broker_is_down(self, seed: int) -> None:
        """Recovery cuts the log there; the broker does not count as in sync before it has fetched the rest again."""
        with replicated(seed, lambda s: made(s, NO_SCRUB, configs=SAFE)) as run:
            run.acknowledge(30)
            broker = run.leader()
            segment = log_of(run, broker, run.keys[0]).segments.active
            run.kill(broker)
            damage(run, broker, segment, segment.size // 2)
            run.lost[broker] = None
            run.start(broker)
            run.converge()

    @pytest.mark.parametrize("seed", seeds([1]))
    def test_in_the_only_copy(self, seed: int, logged_errors: list[str]) -> None:
        """What is whole is served on; the log names file and position; once others have it, it is made good."""
        with replicated(seed, made) as run:
            leader, others = run.leader(), run.followers()
            log = roll(run, leader, 4)
            for other in others:
                run.kill(other)
            run.cluster.run_until(lambda: run.followers() == [], timeout_s=30)
            damage(run, leader, log.segments[1])
            run.cluster.run_until(lambda: list(log.damages), timeout_s=60)
            (found,) = log.damages
            assert found.path == log.segments[1].path()
            assert any(str(found) in text for text in logged_errors)
            partition = run.machine(leader).program.partitions.get(run.keys[0])
            assert partition is not None
            assert partition.role is Role.LEADER
            logged_errors.clear()
            run.start(*others)
            run.cluster.run_until(lambda: is_repaired(run, leader), timeout_s=FETCH_ANEW_S + 30)
            run.converge()


class TestReadErrors:
    @pytest.mark.parametrize("seed", seeds([1, 2]))
    def test_of_an_old_segment(self, seed: int) -> None:
        """A segment that the device does not give back is fetched from the others; the rest of the broker goes on."""
        with replicated(seed, made) as run:
            broker = run.leader() if seed % 2 else run.followers()[0]
            segment = roll(run, broker, 4).segments[1]
            disk_of(run, broker).fail("read", segment.path(), errno.EIO)
            run.cluster.run_until(lambda: is_repaired(run, broker), timeout_s=FETCH_ANEW_S)
            assert run.machine(broker).program.directories.directories[0].offline is None
            run.converge()

    @pytest.mark.parametrize("seed", seeds([1]))
    def test_of_a_replica_that_the_controller_takes_for_out_of_sync(self, seed: int) -> None:
        """The leader let it in, and the controller speaks before it was told so: nothing may be begun anew yet."""
        with replicated(seed, made) as run:
            broker, key = run.followers()[0], run.keys[0]
            segment = roll(run, broker, 4).segments[1]
            disk_of(run, broker).fail("read", segment.path(), errno.EIO)
            partitions = run.machine(broker).program.partitions
            partition = partitions.get(key)
            assert partition is not None
            run.cluster.run_until(lambda: partition.role is Role.OFFLINE, timeout_s=60)
            late = partition.leadership._replace(isr=(run.leader(),))
            told = Deferred.fromCoroutine(partitions.lead_and_follow({key: late}))
            assert run.cluster.run_until(told) == {key: ErrorCode.KAFKA_STORAGE_ERROR}
            run.cluster.run_until(lambda: is_repaired(run, broker), timeout_s=FETCH_ANEW_S)
            run.converge()

    @pytest.mark.parametrize("seed", seeds([1, 2]))
    def test_at_a_start(self, seed: int) -> None:
        """One segment that cannot be read keeps no broker from starting."""
        with replicated(seed, lambda s: made(s, NO_SCRUB)) as run:
            broker = run.leader() if seed % 2 else run.followers()[0]
            segment = roll(run, broker, 3).segments.active
            run.kill(broker)
            disk_of(run, broker).fail("read", segment.path(), errno.EIO)
            run.start(broker)
            run.cluster.run_until(lambda: is_repaired(run, broker), timeout_s=FETCH_ANEW_S)
            run.converge()
