"""Three replicas under load, one on bad media: damage never spreads, and it is repaired."""

from __future__ import annotations

import errno
from collections.abc import Mapping

import pytest
from cluster_runs import run_with_timeline, seeds, traced_run
from twisted.internet.defer import Deferred

from kreplica.errors import ErrorCode
from kreplica.model import TopicPartition
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
"""Position of the most significant byte of the leader epoch in a batch."""

REFETCH_S = 60.0
"""A controller retries a failed replica after one second, then every 30 s."""


@pytest.fixture(autouse=True)
def _allow_damage_errors(logged_errors: list[str]) -> object:
    """Damage is logged at error level; no other error is allowed."""
    yield
    allowed = ("is taken offline", "cannot be opened", "is offline")
    logged_errors[:] = [text for text in logged_errors if not any(phrase in text for phrase in allowed)]


def loaded_run(seed: int, *overrides: str, configs: Mapping[str, str] = SMALL_SEGMENTS) -> ReplicatedRun:
    run = traced_run(seed, configs=configs, overrides=overrides)
    run.run_until_acknowledged(10)
    return run


def log_of(run: ReplicatedRun, broker: int, key: TopicPartition) -> Log:
    return run.machine(broker).program.directories.logs[key]


def disk_of(run: ReplicatedRun, broker: int) -> MemoryDisk:
    return run.machine(broker).host.disk


def damaged_files_of(run: ReplicatedRun, broker: int, key: TopicPartition) -> list[str]:
    """Return the names of the files that the broker renamed because they were damaged."""
    return [name for name in disk_of(run, broker).list_directory(f"/data/logs/{key}") if name.endswith(DAMAGED_SUFFIX)]


def flip_bit_in(run: ReplicatedRun, broker: int, segment: Segment, position: int = 100) -> None:
    run.note(f"a bit flips on broker {broker} in {segment.path()} at {position}")
    disk_of(run, broker).flip_bit(segment.path(LOG_SUFFIX), position, 3)


def wait_for_segments(run: ReplicatedRun, broker: int, segments: int) -> Log:
    """Wait until a log has this number of segments, and return the log."""
    log = log_of(run, broker, run.keys[0])
    run.cluster.run_until(lambda: len(log.segments) >= segments, timeout_s=60)
    return log


def start_of_last_batch(disk: MemoryDisk, segment: Segment) -> int:
    """Return the position of the last batch in a segment."""
    return [position for position, _ in iter_headers(memoryview(disk.stored(segment.path(LOG_SUFFIX))))][-1]


def is_repaired(run: ReplicatedRun, broker: int) -> bool:
    state = state_of(run.cluster, run.keys[0])
    return bool(damaged_files_of(run, broker, run.keys[0])) and state is not None and broker in state.isr


class TestFlippedBit:
    @pytest.mark.parametrize("seed", seeds([1]))
    @pytest.mark.parametrize(
        ("whose", "position"), [("leader", 3), ("follower", 14), ("follower", 20), ("leader", 100)]
    )
    def test_in_an_old_segment_is_found_and_repaired(self, whose: str, position: int, seed: int) -> None:
        """The scrubber finds the damage; the replica leaves the ISR, fetches the damaged range and rejoins."""
        with run_with_timeline(seed, loaded_run) as run:
            broker = run.leader() if whose == "leader" else run.in_sync_followers()[0]
            log = wait_for_segments(run, broker, 4)
            flip_bit_in(run, broker, log.segments[1], position)
            run.cluster.run_until(lambda: is_repaired(run, broker), timeout_s=REFETCH_S)
            assert disk_of(run, broker).damaged_files() == [
                f"/data/logs/{run.keys[0]}/{name}" for name in damaged_files_of(run, broker, run.keys[0])[:1]
            ]
            run.converge()

    @pytest.mark.parametrize("seed", seeds([1]))
    @pytest.mark.parametrize("field", [0, 8, 30])
    def test_a_leader_with_an_unreadable_batch_resigns(self, field: int, seed: int) -> None:
        """The follower rejects the damaged batch and retries; the leader checks its log and resigns."""
        with run_with_timeline(seed, lambda s: loaded_run(s, NO_SCRUB)) as run:
            leader, away = run.leader(), run.in_sync_followers()[0]
            run.kill(away)
            before = log_of(run, leader, run.keys[0]).log_end_offset
            log = wait_for_segments(run, leader, 6)
            found = log.segments.find(before + 20)
            assert found is not None
            segment, at, _ = found
            flip_bit_in(run, leader, segment, at + field + 3)
            run.start(away)
            run.cluster.run_until(lambda: is_repaired(run, leader), timeout_s=REFETCH_S + 30)
            run.converge()

    @pytest.mark.parametrize("seed", seeds([1, 2]))
    def test_in_the_leader_epoch_of_the_last_batch_while_the_broker_is_down(self, seed: int) -> None:
        """No checksum covers the leader epoch: the replica seems ahead of all leaders, truncates and rejoins."""
        with run_with_timeline(
            seed, lambda s: loaded_run(s, NO_SCRUB, configs={**SYNCED, "segment.bytes": "100000"})
        ) as run:
            broker = run.in_sync_followers()[0]
            log = log_of(run, broker, run.keys[0])
            run.run_until_acknowledged(20)
            run.kill(broker)
            segment = log.segments[0]
            flip_bit_in(run, broker, segment, start_of_last_batch(disk_of(run, broker), segment) + LEADER_EPOCH_AT)
            run.launch(broker)
            run.converge()

    @pytest.mark.parametrize("seed", seeds([1, 2]))
    def test_below_the_recovery_point_while_the_broker_is_down(self, seed: int) -> None:
        """Recovery finds the damage; the replica is rejected until other replicas have its records, then fetches them.

        The machine loses power: after a kill alone, the broker would not run recovery, and the scrubber would find it.
        """
        with run_with_timeline(seed, lambda s: loaded_run(s, NO_SCRUB, CHECKPOINTS, configs=SYNCED)) as run:
            run.cluster.run(3)
            broker = run.leader() if seed % 2 else run.in_sync_followers()[0]
            log = log_of(run, broker, run.keys[0])
            run.lose_power(broker)
            recovery_point = read_offsets(disk_of(run, broker), f"/data/logs/{RECOVERY_POINTS}")[run.keys[0]]
            segment = log.segments[log.segments.index_of(recovery_point - 1)]
            flip_bit_in(run, broker, segment)
            run.start(broker)
            run.cluster.run_until(lambda: is_repaired(run, broker), timeout_s=REFETCH_S)
            run.converge()

    @pytest.mark.parametrize("seed", seeds([1, 2]))
    def test_beyond_the_recovery_point_while_the_broker_is_down(self, seed: int) -> None:
        """Recovery truncates the log at the damage; the replica rejoins the ISR after it has fetched the rest again."""
        with run_with_timeline(seed, lambda s: loaded_run(s, NO_SCRUB, configs=SAFE)) as run:
            run.run_until_acknowledged(30)
            broker = run.leader()
            segment = log_of(run, broker, run.keys[0]).segments.active
            run.kill(broker)
            flip_bit_in(run, broker, segment, segment.size // 2)
            run.maybe_incomplete[broker] = None
            run.start(broker)
            run.converge()

    @pytest.mark.parametrize("seed", seeds([1]))
    def test_in_the_only_copy(self, seed: int, logged_errors: list[str]) -> None:
        """A leader with the only copy serves intact records and logs the damage; restarted replicas repair it."""
        with run_with_timeline(seed, loaded_run) as run:
            leader, others = run.leader(), run.in_sync_followers()
            log = wait_for_segments(run, leader, 4)
            for other in others:
                run.kill(other)
            run.cluster.run_until(lambda: run.in_sync_followers() == [], timeout_s=30)
            flip_bit_in(run, leader, log.segments[1])
            run.cluster.run_until(lambda: list(log.damage.by_segment.values()), timeout_s=60)
            (found,) = log.damage.by_segment.values()
            assert found.path == log.segments[1].path()
            assert any(str(found) in text for text in logged_errors)
            partition = run.machine(leader).program.partitions.get(run.keys[0])
            assert partition is not None
            assert partition.is_leader
            logged_errors.clear()
            run.start(*others)
            run.cluster.run_until(lambda: is_repaired(run, leader), timeout_s=REFETCH_S + 30)
            run.converge()


class TestReadErrors:
    @pytest.mark.parametrize("seed", seeds([1, 2]))
    def test_of_an_old_segment(self, seed: int) -> None:
        """An unreadable segment is fetched from other replicas, and its log directory stays online."""
        with run_with_timeline(seed, loaded_run) as run:
            broker = run.leader() if seed % 2 else run.in_sync_followers()[0]
            segment = wait_for_segments(run, broker, 4).segments[1]
            disk_of(run, broker).fail("read", segment.path(), errno.EIO)
            run.cluster.run_until(lambda: is_repaired(run, broker), timeout_s=REFETCH_S)
            assert run.machine(broker).program.directories.directories[0].offline is None
            run.converge()

    @pytest.mark.parametrize("seed", seeds([1]))
    def test_of_a_replica_that_has_just_joined_the_isr(self, seed: int) -> None:
        """A replica that the leader has added to the ISR is not reset by a command with the previous ISR."""
        with run_with_timeline(seed, loaded_run) as run:
            broker, key = run.in_sync_followers()[0], run.keys[0]
            segment = wait_for_segments(run, broker, 4).segments[1]
            disk_of(run, broker).fail("read", segment.path(), errno.EIO)
            partitions = run.machine(broker).program.partitions
            partition = partitions.get(key)
            assert partition is not None
            run.cluster.run_until(lambda: partition.role.is_offline, timeout_s=60)
            late = partition.leadership._replace(isr=(run.leader(),))
            command = Deferred.fromCoroutine(partitions.lead_and_follow({key: late}))
            assert run.cluster.run_until(command) == {key: ErrorCode.KAFKA_STORAGE_ERROR}
            run.cluster.run_until(lambda: is_repaired(run, broker), timeout_s=REFETCH_S)
            run.converge()

    @pytest.mark.parametrize("seed", seeds([1, 2]))
    def test_during_start(self, seed: int) -> None:
        """One unreadable segment does not prevent the broker from starting."""
        with run_with_timeline(seed, lambda s: loaded_run(s, NO_SCRUB)) as run:
            broker = run.leader() if seed % 2 else run.in_sync_followers()[0]
            segment = wait_for_segments(run, broker, 3).segments.active
            run.kill(broker)
            disk_of(run, broker).fail("read", segment.path(), errno.EIO)
            run.start(broker)
            run.cluster.run_until(lambda: is_repaired(run, broker), timeout_s=REFETCH_S)
            run.converge()
