"""The invariant checker reports every violation in a cluster at the next event."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

import pytest
from broker_runs import batch

from kreplica.cluster import documents, znodes
from kreplica.model import TopicPartition
from kreplica.replication import Partition
from kreplica.storage.directories.opening import LogToOpen
from kreplica.storage.log.appending import append_as_leader
from kreplica.storage.log.log import Log
from kreplica.storage.log_config import LogConfig
from kreplica.testing.cluster.cluster import SimulatedCluster
from kreplica.testing.cluster.committed_log import CommittedLog
from kreplica.testing.cluster.invariants import Invariants, InvariantViolation
from kreplica.testing.cluster.state import active_replicas, is_in_sync, state_of, znode
from kreplica.testing.histories.record_history import History
from kreplica.testing.simulator.disk import MemoryDisk
from kreplica.testing.storms.cleanup import deferred_collection
from kreplica.testing.storms.replicated_run import ReplicatedRun

KEY = TopicPartition("orders", 0)


class Scene:
    """A broker that leads a partition with a few records, with invariants checked after each event."""

    def __init__(self) -> None:
        self.cluster = SimulatedCluster(seed=1)
        self.cluster.start()
        self.client = self.cluster.client()
        self.cluster.run_until(self.client.create_topic("orders"))
        self.history = History()
        self.invariants = Invariants(self.cluster, "orders", 1, self.history)
        self.invariants.watch()
        self.invariants.check()
        self.produce()

    def produce(self) -> None:
        self.cluster.run_until(self.client.produce("orders", 0, batch(b"one", b"two")))

    def check(self) -> None:
        """Let some time pass, and check all invariants."""
        self.cluster.run(10)
        self.invariants.check()

    @property
    def partition(self) -> Partition:
        partition = self.cluster.brokers[1].program.partitions.get(KEY)
        assert partition is not None
        return partition

    def write_state(self, **changes: object) -> None:
        """Change the partition's state znode without notifying the brokers."""
        state, node = state_of(self.cluster, KEY), znode(self.cluster, znodes.partition_state_path(*KEY))
        assert state is not None
        assert node is not None
        node.data = documents.encode_partition_state(replace(state, **changes))  # type: ignore[arg-type]
        node.version += 1


def high_watermark_back(scene: Scene) -> None:
    scene.partition.high_watermark = 1


def high_watermark_beyond(scene: Scene) -> None:
    scene.partition.high_watermark = 5


def log_cut(scene: Scene) -> None:
    scene.partition.log.truncate_to(0)
    scene.partition.high_watermark = 0
    scene.partition.leadership = scene.partition.leadership._replace(leader_epoch=5)


def epoch_back(scene: Scene) -> None:
    scene.partition.leadership = scene.partition.leadership._replace(leader_epoch=-1)


def older_controller(scene: Scene) -> None:
    scene.cluster.brokers[1].program.fence.controller_epoch = 0


def acknowledged_too_early(scene: Scene) -> None:
    scene.history.acknowledged(0, 4, [b"0/0"])


def state_epoch_back(scene: Scene) -> None:
    scene.write_state(leader_epoch=-1)


def unassigned_replica_in_sync(scene: Scene) -> None:
    scene.write_state(isr=(1, 7))


def leader_not_in_sync(scene: Scene) -> None:
    scene.write_state(isr=())


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (high_watermark_back, "the high watermark decreased"),
        (high_watermark_beyond, "committed beyond its log"),
        (log_cut, "leads in epoch 5 without all commits"),
        (epoch_back, "the leader epoch decreased"),
        (older_controller, "a broker accepts an older controller"),
        (acknowledged_too_early, "acknowledged, but not committed"),
        (state_epoch_back, "the leader epoch decreased"),
        (unassigned_replica_in_sync, "in sync, but not assigned"),
        (leader_not_in_sync, "the leader is not in sync"),
    ],
)
def test_a_violation_is_reported(fault: Callable[[Scene], None], text: str) -> None:
    """The error names the violated rule; without a fault there is none."""
    scene = Scene()
    scene.produce()
    fault(scene)
    with pytest.raises(InvariantViolation, match=text):
        scene.check()


def test_unchanged_topics_are_not_checked() -> None:
    """Events that do not change a topic are not checked."""
    scene = Scene()
    before = scene.invariants.check_count
    scene.cluster.run(60)
    assert scene.invariants.check_count == before


@pytest.mark.parametrize("dead_before", [0, 1])
def test_a_dead_in_sync_replica_without_committed_records_is_found(dead_before: int) -> None:
    """Every replica in the ISR must have all committed records, even while its broker is down."""
    with deferred_collection():
        run = ReplicatedRun(1, partitions=1)
        leader, followers = run.leader(), run.in_sync_followers()
        for follower in followers[:dead_before]:
            run.kill(follower)
        run.cluster.run_until(lambda: is_in_sync(run.cluster, run.keys[0]))
        run.run_until_acknowledged(20)
        replicas = dict(active_replicas(run.cluster, run.keys[0]))
        had = replicas[followers[-1]].log.log_end_offset
        run.kill(followers[-1])
        others = [replicas[broker] for broker in (leader, *followers[dead_before:-1])]
        run.cluster.run_until(lambda: all(other.log.log_end_offset > had for other in others))
        assert run.machine(leader).program.partitions.get(run.keys[0]) is replicas[leader]
        replicas[leader].high_watermark = min(other.log.log_end_offset for other in others)
        with pytest.raises(InvariantViolation, match="is in sync without all committed records"):
            run.cluster.run(0.1)


def test_dead_in_sync_replicas_count_without_a_coordinator() -> None:
    """Without a coordinator, a dead replica stays in the ISR; the leader counts its last fetches, which arrive late."""
    run = ReplicatedRun(1, partitions=1)
    leader, followers = run.leader(), run.in_sync_followers()
    for follower in followers:
        run.network.link(f"broker-{follower}", f"broker-{leader}").latency_s = (0.2, 0.2)
    run.run_until_acknowledged(20)
    replicas = dict(active_replicas(run.cluster, run.keys[0]))
    partition = replicas[leader]
    run.cluster.run_until(lambda: all(r.log.log_end_offset > partition.high_watermark for r in replicas.values()))
    run.steps(3)
    run.cluster.zookeeper.kill()
    for follower in followers:
        run.kill(follower)
    before = partition.high_watermark
    run.cluster.run(0.3)
    assert partition.high_watermark > before
    run.converge()


def test_a_topic_with_a_reused_name_is_a_new_topic() -> None:
    """Logs of an earlier topic with the same name are neither checked nor compared with those of the new one."""
    scene = Scene()
    scene.invariants.forget(KEY)
    scene.invariants.add(KEY, History(), UUID(int=7))
    scene.partition.high_watermark = 5
    scene.check()
    scene.invariants.forget(KEY)
    scene.invariants.add(KEY, History(), scene.partition.topic_id)
    with pytest.raises(InvariantViolation, match="committed beyond its log"):
        scene.check()


def test_a_commit_in_the_event_that_takes_the_log_offline() -> None:
    """A leader may commit, respond and go offline in the same event without a violation."""
    scene = Scene()
    partition = scene.partition
    append_as_leader(partition.log, bytearray(batch(b"three")), 0, now_ms=1000)
    partition.high_watermark = end = partition.log.log_end_offset
    partition.go_offline()
    scene.history.acknowledged(0, end - 1, [b"0/0"])
    scene.invariants.check()
    assert scene.invariants.committed[KEY].end_offset == end


class TestCommittedLog:
    def log(self, disk: MemoryDisk, *values: bytes) -> Log:
        """Create a log with one batch per value, in small segments."""
        log = LogToOpen("/data", KEY, LogConfig(segment_bytes=300), disk, lambda: 5000).open()[0]
        for value in values:
            append_as_leader(log, bytearray(batch(value)), 3, now_ms=1000)
        return log

    def compared(self, *values: bytes) -> str | None:
        """Return the difference between a committed log and a replica with these values."""
        disk, other = MemoryDisk(directories=["/data"]), MemoryDisk(directories=["/data"])
        committed, leader = CommittedLog(), self.log(disk, *(b"value %d" % i for i in range(20)))
        committed.extend(1, disk, leader, 7, 3)
        committed.extend(1, disk, leader, 20, 4)
        assert committed.end_offset == 20
        assert [committed.end_before(epoch) for epoch in (3, 4, 5)] == [0, 7, 20]
        assert len(leader.segments) > 3
        assert committed.compare(1, disk, leader, 20) is None
        return committed.compare(2, other, self.log(other, *values), 20)

    def test_equal_logs(self) -> None:
        """A replica that is equal or shorter does not differ."""
        values = [b"value %d" % i for i in range(20)]
        assert self.compared(*values) is None
        assert self.compared(*values[:11]) is None

    def test_one_different_byte(self) -> None:
        """A difference of one byte is reported with the offset of its batch."""
        values = [b"value %d" % i for i in range(20)]
        values[13] = b"Value 13"
        assert "base_offset=13" in (self.compared(*values) or "")

    def test_truncated_and_rewritten_records(self) -> None:
        """Records that a replica has truncated and rewritten are compared again."""
        disk, other = MemoryDisk(directories=["/data"]), MemoryDisk(directories=["/data"])
        values = [b"value %d" % i for i in range(20)]
        committed, replica = CommittedLog(), self.log(other, *values)
        committed.extend(1, disk, self.log(disk, *values), 20, 3)
        assert committed.compare(2, other, replica, 20) is None
        replica.truncate_to(15)
        assert committed.compare(2, other, replica, 20) is None
        append_as_leader(replica, bytearray(batch(b"another")), 4, now_ms=1000)
        assert "base_offset=15" in (committed.compare(2, other, replica, 20) or "")
