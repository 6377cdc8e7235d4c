"""A leader's writes of in-sync sets, to a coordinator on virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from leading_scene import EVERYBODY, LAG_S, LEADER, SECOND, THIRD, Leading, append, fetch, leadership
from twisted.internet.defer import Deferred
from twisted.logger import formatEvent

from kreplica.cluster import documents, znodes
from kreplica.membership.registration import create_persistent_paths
from kreplica.model import BrokerRegistration, LeaderAndIsr, TopicPartition
from kreplica.replication import Partition
from kreplica.replication.leader import in_sync
from kreplica.replication.leader.isr_notifications import INTERVAL_SECONDS, IsrNotifications
from kreplica.replication.leader.isr_writes import RETRY_SECONDS, IsrWrites
from kreplica.replication.leadership import Leadership
from kreplica.testing.simulator.simulation import Simulation
from kreplica.zookeeper import Acl, ConnectionLoss, Operation, OperationResult, Permission, ZooKeeperClient
from kreplica.zookeeper.embedded.server import EmbeddedCoordinator

SESSION_S = 6.0


class Client(ZooKeeperClient):
    """A client that counts its multis, and may lose the answer to one, written or not, or turn out to have a bug.

    :ivar lose_answers: so many multis from now on are done, and their answers are lost.
    :ivar lose_requests: so many multis from now on are lost themselves.
    :ivar stumble: so many multis from now on are done, and end with an error that is not ZooKeeper's.
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
    """A coordinator, broker 1 which leads, and an onlooker who plays everybody else."""

    def __init__(self) -> None:
        self.simulation = Simulation(1)
        coordinator = self.simulation.host("coordinator")
        self.run(EmbeddedCoordinator(coordinator.runtime, port=2181, interface="").start())
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
        """The new broker epoch of a follower that has started again."""
        path = znodes.broker_path(broker)
        if self.run(self.onlooker.exists(path)) is not None:
            self.run(self.onlooker.delete(path))
        registration = documents.encode_broker(BrokerRegistration(broker, ()))
        return int(self.run(self.onlooker.create(path, registration)).stat.czxid)

    def lead(self, number: int = 0, isr: tuple[int, ...] = (LEADER,), **more: Any) -> Partition:
        """A partition of topic t with its state in ZooKeeper."""
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
        """What ZooKeeper holds."""
        path = znodes.partition_state_path("t", number)
        data, stat = self.run(self.onlooker.get_data(path))
        return documents.decode_partition_state(path, data, stat.version)

    def overwrite(self, number: int = 0, **changes: Any) -> LeaderAndIsr:
        """What a controller does."""
        known = self.state(number)
        fields = {name: getattr(known, name) for name in LeaderAndIsr.__dataclass_fields__}
        data = documents.encode_partition_state(LeaderAndIsr(**fields | changes))
        self.run(self.onlooker.set_data(znodes.partition_state_path("t", number), data))
        return self.state(number)

    def allow(self, permissions: Permission) -> None:
        """What everybody may do with the state of partition 0."""
        acl = (Acl(permissions | Permission.ADMIN, "world", "anyone"),)
        self.run(self.onlooker.set_acl(znodes.partition_state_path("t", 0), acl))

    def timers(self) -> list[str]:
        """The broker's, but for those of its connection."""
        calls = map(repr, self.simulation.scheduler.pending())
        return [call for call in calls if "broker#" in call and "Connection._check" not in call]

    def told(self) -> list[set[int]]:
        """The partitions of each notification."""
        found = []
        for name in sorted(self.run(self.onlooker.get_children(znodes.ISR_CHANGE_NOTIFICATION))):
            path = f"{znodes.ISR_CHANGE_NOTIFICATION}/{name}"
            data, _ = self.run(self.onlooker.get_data(path))
            found.append({key.partition for key in documents.decode_partitions(path, data)})
        return found

    def agree(self, partition: Partition) -> bool:
        """Whether the leader knows what ZooKeeper holds, and waits for nothing."""
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


def test_who_has_caught_up_joins(world: World) -> None:
    """It is written with everything else as it was, and the controller is told."""
    partition = world.lead()
    world.fetch(partition, SECOND, 0)
    world.simulation.run(1)
    assert world.state() == LeaderAndIsr(LEADER, 5, (LEADER, SECOND), 1, partition_epoch=2)
    assert world.agree(partition)
    assert world.told() == [{0}]
    assert (world.writes.expands, world.writes.shrinks) == (1, 0)


def test_many_at_a_time(world: World) -> None:
    """What happens in one turn to many partitions is one write and one notification."""
    partitions = [world.lead(number) for number in range(50)]
    before = world.broker.multis
    for partition in partitions:
        for replica in (SECOND, THIRD):
            world.fetch(partition, replica, 0)
    world.simulation.run(1)
    assert all(world.agree(partition) and partition.leadership.isr == EVERYBODY for partition in partitions)
    assert world.broker.multis == before + 1
    assert world.told() == [set(range(50))]


def test_who_lags_leaves(world: World) -> None:
    """And comes back when it has caught up."""
    partition = world.lead(isr=EVERYBODY)
    append(partition)
    world.leading.clock.advance(LAG_S + 1)
    world.fetch(partition, SECOND, 1)
    assert partition.leader_state is not None
    partition.leader_state.look_for_lag()
    world.simulation.run(1)
    assert world.state().isr == (LEADER, SECOND)
    assert partition.high_watermark == 1
    world.fetch(partition, THIRD, 1)
    world.simulation.run(1)
    assert world.state().isr == EVERYBODY
    assert (world.writes.expands, world.writes.shrinks) == (1, 1)


@pytest.mark.parametrize("again", [True, False], ids=["started again", "down"])
def test_who_is_not_the_one_that_fetched_does_not_join(world: World, *, again: bool) -> None:
    """Its log may have lost its end since; whoever else has caught up joins all the same (KIP-903)."""
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
    assert (world.state().isr, world.writes.refused_joins) == ((LEADER, THIRD), 1), "it is not even asked for again"


def test_a_guard_that_is_taken_away_lets_it_join(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one above tests what it says: without the look at the registration the dead broker is let in."""
    monkeypatch.setattr(in_sync, "is_current_incarnation", lambda *_: True)
    partition = world.lead()
    world.run(world.onlooker.delete(znodes.broker_path(SECOND)))
    world.fetch(partition, SECOND, 0)
    world.simulation.run(1)
    assert world.state().isr == (LEADER, SECOND)


def test_another_has_written_in_between(world: World) -> None:
    """The leader takes over what it finds, once, and goes on from there (KAFKA-2729)."""
    partition = world.lead(isr=(LEADER, THIRD))
    world.overwrite(isr=(LEADER,), controller_epoch=2)
    world.fetch(partition, SECOND, 0)
    world.simulation.run(1)
    assert world.state() == LeaderAndIsr(LEADER, 5, (LEADER, SECOND), 2, partition_epoch=3)
    assert world.agree(partition)
    assert world.writes.conflicts == 1


def test_another_leads_already(world: World) -> None:
    """The leader hears it from ZooKeeper first, and is none any more; nothing is written over."""
    partition = world.lead(isr=(LEADER, THIRD))
    state = world.overwrite(leader=THIRD, leader_epoch=6)
    world.fetch(partition, SECOND, 0)
    world.simulation.run(1)
    assert world.state() == state
    assert not partition.is_leader
    assert partition.leadership.leader_epoch == 6


def test_without_the_condition_the_new_leader_would_be_overwritten(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one above tests what it says."""
    monkeypatch.setattr(in_sync, "expected_version", lambda _: -1)
    partition = world.lead(isr=(LEADER, THIRD))
    world.overwrite(leader=THIRD, leader_epoch=6)
    world.fetch(partition, SECOND, 0)
    world.simulation.run(1)
    assert world.state().leader == LEADER


def test_one_conflict_is_that_partitions_alone(world: World) -> None:
    """The others of the batch are written."""
    partitions = [world.lead(number) for number in range(5)]
    world.overwrite(3, controller_epoch=2)
    for partition in partitions:
        world.fetch(partition, SECOND, 0)
    world.simulation.run(1)
    assert all(world.agree(partition) and partition.leadership.isr == (LEADER, SECOND) for partition in partitions)
    assert world.writes.conflicts == 1


@pytest.mark.parametrize("lost", ["answer", "request"])
def test_nobody_knows_whether_it_was_written(world: World, lost: str) -> None:
    """Both sets count until the znode was read again; then the leader goes on from what it holds."""
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
    assert world.told() == [{0}]


def test_zookeeper_out_of_reach(world: World) -> None:
    """The proposal waits, with both sets counting or neither, and is written when ZooKeeper is back."""
    partition = world.lead()
    world.simulation.network.cut("broker", "coordinator")
    world.fetch(partition, SECOND, 0)
    world.simulation.run(SESSION_S / 2)
    assert world.state().isr == (LEADER,)
    world.simulation.network.heal("broker", "coordinator")
    world.simulation.run(SESSION_S)
    assert world.agree(partition)
    assert world.state().isr == (LEADER, SECOND)


def test_a_session_that_ends(world: World) -> None:
    """Nothing is forgotten: what waited is written in the next session."""
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


def test_a_topic_that_was_deleted(world: World) -> None:
    """There is nothing to write any more, and nothing is tried again."""
    partition = world.lead()
    world.run(world.onlooker.delete(znodes.partition_state_path("t", 0)))
    world.fetch(partition, SECOND, 0)
    world.simulation.run(1)
    before = world.broker.multis
    world.simulation.run(5)
    assert world.broker.multis == before
    assert partition.leadership.isr == (LEADER,)


def test_a_state_that_may_not_be_written(world: World, caplog_events: list[dict[str, Any]]) -> None:
    """It is tried about once a second, with a line in the log, while the others go on; and written when it may be."""
    first, second = world.lead(0), world.lead(1)
    world.allow(Permission.READ)
    before = world.broker.multis
    for partition in (first, second):
        world.fetch(partition, SECOND, 0)
    world.simulation.run(RETRY_SECONDS / 2)
    assert world.agree(second)
    assert world.state(1).isr == (LEADER, SECOND)
    append(first)
    assert first.high_watermark == 0, "the second counts until the state was read"
    for replica in (SECOND, THIRD):
        world.fetch(first, replica, 1)
    world.simulation.run(5 * RETRY_SECONDS)
    assert 3 <= world.writes.refused_writes <= 7
    assert world.broker.multis - before <= 9
    lines = [formatEvent(event) for event in caplog_events if "will be retried" in str(event["log_format"])]
    assert len(lines) == world.writes.refused_writes
    assert "t-0" in lines[0]
    world.allow(Permission.ALL)
    world.simulation.run(2 * RETRY_SECONDS)
    assert world.agree(first)
    assert world.state().isr == EVERYBODY


def test_a_state_that_may_not_be_read(world: World) -> None:
    """What nobody can read is not taken for deleted: both sets count until it can be read again."""
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
    assert world.told() == [{0}]


def test_an_error_that_nobody_expects(world: World, caplog_events: list[dict[str, Any]]) -> None:
    """It is in the log, nothing waits for ever, and it is not tried again at once."""
    partition = world.lead()
    world.broker.stumble = 1
    world.fetch(partition, SECOND, 0)
    world.simulation.run(RETRY_SECONDS / 2)
    assert partition.leader_state is not None
    assert partition.leader_state.proposed is not None, "it may be written, or not"
    assert [event for event in caplog_events if "ISR writes failed; partition states" in str(event["log_format"])]
    world.simulation.run(RETRY_SECONDS)
    assert world.agree(partition)
    assert partition.leadership.isr == (LEADER, SECOND)


def test_a_state_that_the_leader_stumbles_over(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other partitions go on without it, and it comes after them."""
    first, second = world.lead(0, isr=(LEADER, THIRD)), world.lead(1)
    world.overwrite(0, controller_epoch=2)  # so that it has to be read
    assert first.leader_state is not None
    with monkeypatch.context() as patched:
        patched.setattr(type(first.leader_state), "was_read", lambda *_: {}["a bug"])
        for partition in (first, second):
            world.fetch(partition, SECOND, 0)
        world.simulation.run(3 * RETRY_SECONDS)
        world.fetch(second, THIRD, 0)
        world.simulation.run(RETRY_SECONDS / 4)
        assert world.state(1).isr == EVERYBODY
        assert not world.agree(first)
    world.simulation.run(2 * RETRY_SECONDS)
    assert world.agree(first)
    assert world.state().isr == (LEADER, THIRD, SECOND)


def test_a_broker_that_stops_before_it_tries_again(world: World) -> None:
    """No timer is left."""
    partition = world.lead()
    world.allow(Permission.READ)
    world.fetch(partition, SECOND, 0)
    world.run(lambda: bool(world.writes.refused_writes))
    world.simulation.run(RETRY_SECONDS / 4)
    assert world.timers()
    world.writes.stop()
    assert not world.timers()


def test_leadership_lost_while_it_is_written(world: World) -> None:
    """The answer changes nothing for whoever is something else by then."""
    partition = world.lead()
    world.fetch(partition, SECOND, 0)
    world.run(lambda: partition.leader_state is None or partition.leader_state.proposed is not None)
    following = Leadership(SECOND, 6, (SECOND,), EVERYBODY, 9, 2)
    partition.follow(following)
    world.simulation.run(2)
    assert partition.leadership == following


def test_leading_again_in_the_same_epoch(world: World) -> None:
    """What the first tenure wrote may hold, though the controller has not heard of it: its set counts, and is read."""
    partition = world.lead()
    world.broker.lose_answers = 1
    world.fetch(partition, SECOND, 0)
    world.run(lambda: bool(world.writes.unknown_outcomes))
    told = partition.leadership
    partition.stop()
    partition.lead(told)
    append(partition)
    assert partition.high_watermark == 0
    world.simulation.run(1)
    assert world.agree(partition)
    assert partition.leadership.isr == (LEADER, SECOND)
    assert partition.high_watermark == 0


def test_notifications_are_not_too_many(world: World) -> None:
    """The first goes at once; then one stands for everything that is written within a while."""
    partitions = [world.lead(number) for number in range(4)]
    for partition in partitions:
        world.fetch(partition, SECOND, 0)
        world.simulation.run(INTERVAL_SECONDS / 5)
    world.simulation.run(2 * INTERVAL_SECONDS)
    first, *others = world.told()
    assert first == {0}
    assert others == [{1, 2, 3}]


def test_a_broker_that_stops(world: World) -> None:
    """No timer is left, whatever was under way, and nothing is begun any more."""
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
    assert world.told() == [{0}]
