"""A leader's ISR writes to a coordinator, in virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from leading_scene import ALL_REPLICAS, LAG_S, LEADER, SECOND, THIRD, Leading, append, fetch, leadership
from twisted.internet.defer import Deferred
from twisted.logger import formatEvent

from kreplica.cluster import documents, znodes
from kreplica.membership.registration import create_persistent_paths
from kreplica.model import BrokerRegistration, LeaderAndIsr, TopicPartition
from kreplica.replication import Partition
from kreplica.replication.leader import isr_membership
from kreplica.replication.leader.isr_notifications import INTERVAL_SECONDS, IsrNotifications
from kreplica.replication.leader.isr_writes import RETRY_SECONDS, IsrWrites
from kreplica.replication.leadership import Leadership
from kreplica.testing.simulator.simulation import Simulation
from kreplica.zookeeper import Acl, ConnectionLoss, Operation, OperationResult, Permission, ZooKeeperClient
from kreplica.zookeeper.embedded.server import EmbeddedZooKeeper

SESSION_S = 6.0


class Client(ZooKeeperClient):
    """A client that counts its multis, and may lose their responses, lose the requests, or fail.

    :ivar lose_answers: number of following multis that are applied but whose responses are lost.
    :ivar lose_requests: number of following multis that are lost.
    :ivar stumble: number of following multis that are applied but fail with an error that is not ZooKeeper's.
    """

    lose_answers = 0
    lose_requests = 0
    stumble = 0
    multis = 0

    def multi(self, operations: Sequence[Operation]) -> Deferred[list[OperationResult]]:
        self.multis += 1
        if self.lose_requests:
            self.lose_requests -= 1
            lost: Deferred[list[OperationResult]] = Deferred()
            lost.errback(ConnectionLoss())
            return lost
        done = super().multi(operations)
        if self.lose_answers:
            self.lose_answers -= 1
            done.addCallback(lambda _: _lost())
        if self.stumble:
            self.stumble -= 1
            done.addCallback(lambda _: {}["a bug"])
        return done


def _lost() -> list[OperationResult]:
    raise ConnectionLoss


class World:
    """A coordinator, broker 1 as leader, and a second client with the roles of all other brokers."""

    def __init__(self) -> None:
        self.simulation = Simulation(1)
        coordinator = self.simulation.host("coordinator")
        self.run(EmbeddedZooKeeper(coordinator.runtime, port=2181, interface="").start())
        self.onlooker = self.client("onlooker", ZooKeeperClient)
        self.run(create_persistent_paths(self.onlooker))
        self.broker = self.client("broker", Client)
        reactor = self.simulation.host("broker").runtime.reactor
        self.notifications = IsrNotifications(reactor, self.broker)
        self.writes = IsrWrites(reactor, self.broker, self.notifications)
        self.leading = Leading(self.writes.propose)
        self.epochs = {broker: self.register(broker) for broker in (SECOND, THIRD)}

    def run(self, goal: Any) -> Any:
        return self.simulation.run_until(goal)

    def client(self, name: str, kind: type[Any]) -> Any:
        runtime = self.simulation.host(name).runtime
        client = kind(
            runtime.reactor, "coordinator:2181", random=runtime.random, session_timeout_ms=int(SESSION_S * 1000)
        )
        self.run(client.start())
        return client

    def register(self, broker: int) -> int:
        """Register a restarted follower, and return its new broker epoch."""
        path = znodes.broker_path(broker)
        if self.run(self.onlooker.exists(path)) is not None:
            self.run(self.onlooker.delete(path))
        registration = documents.encode_broker(BrokerRegistration(broker, ()))
        return int(self.run(self.onlooker.create(path, registration)).stat.czxid)

    def lead(self, number: int = 0, isr: tuple[int, ...] = (LEADER,), **more: Any) -> Partition:
        """Return a partition of topic t whose state is in ZooKeeper."""
        first = leadership(isr=isr)
        partition = self.leading.partition(first, **more)
        partition.topic_partition = TopicPartition("t", number)
        path = ""
        for part in znodes.partition_state_path("t", number)[1:].split("/"):
            path += f"/{part}"
            if self.run(self.onlooker.exists(path)) is None:
                self.run(self.onlooker.create(path))
        state = LeaderAndIsr(LEADER, 5, isr, 1)
        stat = self.run(self.onlooker.set_data(path, documents.encode_partition_state(state)))
        partition.update_within_epoch(first._replace(partition_epoch=stat.version))
        return partition

    def fetch(self, partition: Partition, replica: int, offset: int, **more: int) -> None:
        more.setdefault("broker_epoch", self.epochs[replica])
        fetch(partition, replica, offset, self.leading.clock.seconds(), **more)

    def state(self, number: int = 0) -> LeaderAndIsr:
        """Return the state in ZooKeeper."""
        path = znodes.partition_state_path("t", number)
        data, stat = self.run(self.onlooker.get_data(path))
        return documents.decode_partition_state(path, data, stat.version)

    def overwrite(self, number: int = 0, **changes: Any) -> LeaderAndIsr:
        """Write a state, as the controller does."""
        known = self.state(number)
        fields = {name: getattr(known, name) for name in LeaderAndIsr.__dataclass_fields__}
        data = documents.encode_partition_state(LeaderAndIsr(**fields | changes))
        self.run(self.onlooker.set_data(znodes.partition_state_path("t", number), data))
        return self.state(number)

    def allow(self, permissions: Permission) -> None:
        """Set the permissions on the state znode of partition 0."""
        acl = (Acl(permissions | Permission.ADMIN, "world", "anyone"),)
        self.run(self.onlooker.set_acl(znodes.partition_state_path("t", 0), acl))

    def timers(self) -> list[str]:
        """Return the broker's timers, except those of its connection."""
        calls = map(repr, self.simulation.scheduler.pending())
        return [call for call in calls if "broker#" in call and "Connection._check" not in call]

    def notified(self) -> list[set[int]]:
        """Return the partitions of each notification."""
        found = []
        for name in sorted(self.run(self.onlooker.get_children(znodes.ISR_CHANGE_NOTIFICATION))):
            path = f"{znodes.ISR_CHANGE_NOTIFICATION}/{name}"
            data, _ = self.run(self.onlooker.get_data(path))
            found.append({key.partition for key in documents.decode_partitions(path, data)})
        return found

    def agree(self, partition: Partition) -> bool:
        """Return True if the leader knows the state in ZooKeeper and no write is pending."""
        state, known = self.state(partition.topic_partition.partition), partition.leadership
        assert partition.leader_state is not None
        return (state.isr, state.partition_epoch, state.eligible_leader_replicas, partition.leader_state.proposed) == (
            known.isr,
            known.partition_epoch,
            known.eligible,
            None,
        )


@pytest.fixture
def world() -> World:
    return World()


def test_caught_up_follower_joins(world: World) -> None:
    """The other fields of the state are unchanged, and the controller is notified."""
    partition = world.lead()
    world.fetch(partition, SECOND, 0)
    world.simulation.run(1)
    assert world.state() == LeaderAndIsr(LEADER, 5, (LEADER, SECOND), 1, partition_epoch=2)
    assert world.agree(partition)
    assert world.notified() == [{0}]
    assert (world.writes.expands, world.writes.shrinks) == (1, 0)


def test_many_changes_are_one_write(world: World) -> None:
    """The changes of many partitions in one reactor iteration cause one write and one notification."""
    partitions = [world.lead(number) for number in range(50)]
    before = world.broker.multis
    for partition in partitions:
        for replica in (SECOND, THIRD):
            world.fetch(partition, replica, 0)
    world.simulation.run(1)
    assert all(world.agree(partition) and partition.leadership.isr == ALL_REPLICAS for partition in partitions)
    assert world.broker.multis == before + 1
    assert world.notified() == [set(range(50))]


def test_lagging_follower_leaves(world: World) -> None:
    """The follower rejoins when it has caught up."""
    partition = world.lead(isr=ALL_REPLICAS)
    append(partition)
    world.leading.clock.advance(LAG_S + 1)
    world.fetch(partition, SECOND, 1)
    assert partition.leader_state is not None
    partition.leader_state.check_lag()
    world.simulation.run(1)
    assert world.state().isr == (LEADER, SECOND)
    assert partition.high_watermark == 1
    world.fetch(partition, THIRD, 1)
    world.simulation.run(1)
    assert world.state().isr == ALL_REPLICAS
    assert (world.writes.expands, world.writes.shrinks) == (1, 1)


@pytest.mark.parametrize("again", [True, False], ids=["restarted", "down"])
def test_stale_incarnation_does_not_join(world: World, *, again: bool) -> None:
    """The follower's log may have lost its end in the meantime; other caught-up followers join (KIP-903)."""
    partition = world.lead()
    if again:
        world.register(SECOND)
    else:
        world.run(world.onlooker.delete(znodes.broker_path(SECOND)))
    world.fetch(partition, SECOND, 0)
    world.fetch(partition, THIRD, 0)
    world.simulation.run(1)
    assert world.state().isr == (LEADER, THIRD)
    assert world.agree(partition)
    world.fetch(partition, SECOND, 0)
    world.simulation.run(1)
    assert (world.state().isr, world.writes.rejected_joins) == ((LEADER, THIRD), 1), "no retry is scheduled"


def test_stale_incarnation_joins_without_the_check(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Proves that the previous test fails without the check of the registration."""
    monkeypatch.setattr(isr_membership, "is_current_incarnation", lambda *_: True)
    partition = world.lead()
    world.run(world.onlooker.delete(znodes.broker_path(SECOND)))
    world.fetch(partition, SECOND, 0)
    world.simulation.run(1)
    assert world.state().isr == (LEADER, SECOND)


def test_concurrent_write_of_another_broker(world: World) -> None:
    """The leader adopts the state that it finds, and continues from there (KAFKA-2729)."""
    partition = world.lead(isr=(LEADER, THIRD))
    world.overwrite(isr=(LEADER,), controller_epoch=2)
    world.fetch(partition, SECOND, 0)
    world.simulation.run(1)
    assert world.state() == LeaderAndIsr(LEADER, 5, (LEADER, SECOND), 2, partition_epoch=3)
    assert world.agree(partition)
    assert world.writes.conflicts == 1


def test_other_leader_in_the_state(world: World) -> None:
    """The leader learns of its successor from ZooKeeper first and resigns; nothing is overwritten."""
    partition = world.lead(isr=(LEADER, THIRD))
    state = world.overwrite(leader=THIRD, leader_epoch=6)
    world.fetch(partition, SECOND, 0)
    world.simulation.run(1)
    assert world.state() == state
    assert not partition.is_leader
    assert partition.leadership.leader_epoch == 6


def test_new_leader_would_be_overwritten_without_the_condition(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Proves that the previous test fails without the condition."""
    monkeypatch.setattr(isr_membership, "expected_version", lambda _: -1)
    partition = world.lead(isr=(LEADER, THIRD))
    world.overwrite(leader=THIRD, leader_epoch=6)
    world.fetch(partition, SECOND, 0)
    world.simulation.run(1)
    assert world.state().leader == LEADER


def test_conflict_affects_one_partition(world: World) -> None:
    """The other partitions in the batch are written."""
    partitions = [world.lead(number) for number in range(5)]
    world.overwrite(3, controller_epoch=2)
    for partition in partitions:
        world.fetch(partition, SECOND, 0)
    world.simulation.run(1)
    assert all(world.agree(partition) and partition.leadership.isr == (LEADER, SECOND) for partition in partitions)
    assert world.writes.conflicts == 1


@pytest.mark.parametrize("lost", ["answer", "request"])
def test_unknown_outcome_of_a_write(world: World, lost: str) -> None:
    """Both ISRs count until the znode has been read; then the leader continues from its contents."""
    partition = world.lead()
    if lost == "answer":
        world.broker.lose_answers = 1
    else:
        world.broker.lose_requests = 1
    world.fetch(partition, SECOND, 0)
    world.run(lambda: bool(world.writes.unknown_outcomes))
    append(partition)
    assert partition.high_watermark == 0, "the second may be in sync by now"
    world.simulation.run(1)
    assert world.agree(partition)
    assert world.state().isr == ((LEADER, SECOND) if lost == "answer" else (LEADER,))
    world.fetch(partition, SECOND, 1)
    world.simulation.run(1)
    assert world.state().isr == (LEADER, SECOND)
    assert partition.high_watermark == 1
    assert world.notified() == [{0}]


def test_zookeeper_outage(world: World) -> None:
    """The proposal waits, and is written when ZooKeeper is back; until then, both ISRs count, or neither."""
    partition = world.lead()
    world.simulation.network.cut("broker", "coordinator")
    world.fetch(partition, SECOND, 0)
    world.simulation.run(SESSION_S / 2)
    assert world.state().isr == (LEADER,)
    world.simulation.network.heal("broker", "coordinator")
    world.simulation.run(SESSION_S)
    assert world.agree(partition)
    assert world.state().isr == (LEADER, SECOND)


def test_session_ends(world: World) -> None:
    """Pending writes are made in the next session."""
    partition = world.lead()
    world.simulation.network.cut("broker", "coordinator")
    world.fetch(partition, SECOND, 0)
    world.simulation.run(4 * SESSION_S)
    world.simulation.network.heal("broker", "coordinator")
    world.run(lambda: world.broker.state.ended)
    world.run(world.broker.renew())
    world.simulation.run(2 * RETRY_SECONDS + 1)
    assert world.agree(partition)
    assert world.state().isr == (LEADER, SECOND)


def test_topic_was_deleted(world: World) -> None:
    """The write is dropped without a retry."""
    partition = world.lead()
    world.run(world.onlooker.delete(znodes.partition_state_path("t", 0)))
    world.fetch(partition, SECOND, 0)
    world.simulation.run(1)
    before = world.broker.multis
    world.simulation.run(5)
    assert world.broker.multis == before
    assert partition.leadership.isr == (LEADER,)


def test_state_without_write_permission(world: World, caplog_events: list[dict[str, Any]]) -> None:
    """The write is retried about once a second, with a log line, while others are written; it succeeds with the
    permission."""
    first, second = world.lead(0), world.lead(1)
    world.allow(Permission.READ)
    before = world.broker.multis
    for partition in (first, second):
        world.fetch(partition, SECOND, 0)
    world.simulation.run(RETRY_SECONDS / 2)
    assert world.agree(second)
    assert world.state(1).isr == (LEADER, SECOND)
    append(first)
    assert first.high_watermark == 0, "the second counts until the state has been read"
    for replica in (SECOND, THIRD):
        world.fetch(first, replica, 1)
    world.simulation.run(5 * RETRY_SECONDS)
    assert 3 <= world.writes.rejected_writes <= 7
    assert world.broker.multis - before <= 9
    lines = [formatEvent(event) for event in caplog_events if "will be retried" in str(event["log_format"])]
    assert len(lines) == world.writes.rejected_writes
    assert "t-0" in lines[0]
    world.allow(Permission.ALL)
    world.simulation.run(2 * RETRY_SECONDS)
    assert world.agree(first)
    assert world.state().isr == ALL_REPLICAS


def test_state_without_read_permission(world: World) -> None:
    """An unreadable state is not treated as deleted: both ISRs count until it can be read."""
    partition = world.lead()
    world.allow(Permission.WRITE)
    world.broker.lose_answers = 1
    world.fetch(partition, SECOND, 0)
    world.simulation.run(5 * RETRY_SECONDS)
    append(partition)
    assert partition.high_watermark == 0, "the second is in sync"
    world.allow(Permission.ALL)
    world.simulation.run(2 * RETRY_SECONDS)
    assert world.agree(partition)
    assert partition.leadership.isr == (LEADER, SECOND)
    assert world.notified() == [{0}]


def test_unexpected_error(world: World, caplog_events: list[dict[str, Any]]) -> None:
    """The error is logged, no request hangs, and the write is not retried at once."""
    partition = world.lead()
    world.broker.stumble = 1
    world.fetch(partition, SECOND, 0)
    world.simulation.run(RETRY_SECONDS / 2)
    assert partition.leader_state is not None
    assert partition.leader_state.proposed is not None, "it may have been written or not"
    assert [event for event in caplog_events if "ISR writes failed; partition states" in str(event["log_format"])]
    world.simulation.run(RETRY_SECONDS)
    assert world.agree(partition)
    assert partition.leadership.isr == (LEADER, SECOND)


def test_state_that_the_leader_fails_to_apply(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other partitions continue; the state is applied after theirs."""
    first, second = world.lead(0, isr=(LEADER, THIRD)), world.lead(1)
    world.overwrite(0, controller_epoch=2)  # so that it must be read
    assert first.leader_state is not None
    with monkeypatch.context() as patched:
        patched.setattr(type(first.leader_state), "state_read", lambda *_: {}["a bug"])
        for partition in (first, second):
            world.fetch(partition, SECOND, 0)
        world.simulation.run(3 * RETRY_SECONDS)
        world.fetch(second, THIRD, 0)
        world.simulation.run(RETRY_SECONDS / 4)
        assert world.state(1).isr == ALL_REPLICAS
        assert not world.agree(first)
    world.simulation.run(2 * RETRY_SECONDS)
    assert world.agree(first)
    assert world.state().isr == (LEADER, THIRD, SECOND)


def test_broker_stops_before_a_retry(world: World) -> None:
    """No timer is left."""
    partition = world.lead()
    world.allow(Permission.READ)
    world.fetch(partition, SECOND, 0)
    world.run(lambda: bool(world.writes.rejected_writes))
    world.simulation.run(RETRY_SECONDS / 4)
    assert world.timers()
    world.writes.stop()
    assert not world.timers()


def test_leadership_lost_during_a_write(world: World) -> None:
    """The outcome does not affect the new role."""
    partition = world.lead()
    world.fetch(partition, SECOND, 0)
    world.run(lambda: partition.leader_state is None or partition.leader_state.proposed is not None)
    following = Leadership(SECOND, 6, (SECOND,), ALL_REPLICAS, 9, 2)
    partition.follow(following)
    world.simulation.run(2)
    assert partition.leadership == following


def test_leading_again_in_the_same_epoch(world: World) -> None:
    """The write of the first leadership may have taken effect without the controller's knowledge: its ISR counts, and
    is read."""
    partition = world.lead()
    world.broker.lose_answers = 1
    world.fetch(partition, SECOND, 0)
    world.run(lambda: bool(world.writes.unknown_outcomes))
    leadership = partition.leadership
    partition.stop()
    partition.lead(leadership)
    append(partition)
    assert partition.high_watermark == 0
    world.simulation.run(1)
    assert world.agree(partition)
    assert partition.leadership.isr == (LEADER, SECOND)
    assert partition.high_watermark == 0


def test_notifications_are_coalesced(world: World) -> None:
    """The first notification is sent at once; later ones are combined for a while."""
    partitions = [world.lead(number) for number in range(4)]
    for partition in partitions:
        world.fetch(partition, SECOND, 0)
        world.simulation.run(INTERVAL_SECONDS / 5)
    world.simulation.run(2 * INTERVAL_SECONDS)
    first, *others = world.notified()
    assert first == {0}
    assert others == [{1, 2, 3}]


def test_broker_stops(world: World) -> None:
    """In any state, no timer is left, and nothing is started afterwards."""
    first, second = world.lead(0), world.lead(1)
    world.fetch(first, SECOND, 0)
    world.simulation.run(INTERVAL_SECONDS / 5)
    assert world.timers(), "the next notification has to wait"
    world.simulation.network.cut("broker", "coordinator")
    world.fetch(second, SECOND, 0)
    world.simulation.run(INTERVAL_SECONDS / 5)
    world.writes.stop()
    world.notifications.stop()
    world.notifications.add(second.topic_partition)
    assert second.leader_state is not None
    world.writes.propose(second.leader_state)
    assert not world.timers()
    world.simulation.network.heal("broker", "coordinator")
    world.simulation.run(10)
    assert world.state(1).isr == (LEADER,)
    assert world.notified() == [{0}]
