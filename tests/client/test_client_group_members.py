"""Members of both protocols share partitions, even when members and coordinators fail."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from group_readers import ALL, KINDS, Reader, coordinator_of, delay, new_brokers, settle, start_readers
from twisted.internet.defer import Deferred

from kreplica.client import Producer, ProducerOptions
from kreplica.client.admin import Admin
from kreplica.client.connection import Connection
from kreplica.client.group.consumer import ConsumerMember
from kreplica.client_core.errors import BrokerRefused, CommitFailed, RebalanceUnderWay
from kreplica.client_core.metadata import CoordinatorKind
from kreplica.client_core.offsets import CommittedOffset
from kreplica.errors import ErrorCode
from kreplica.model import TopicPartition
from kreplica.testing.cluster.cluster import SimulatedCluster
from kreplica.wire.messages import CONSUMER_GROUP_HEARTBEAT, LEAVE_GROUP


@pytest.fixture
def brokers() -> Iterator[SimulatedCluster]:
    """Three brokers, and the topic t with six partitions."""
    simulated_cluster = new_brokers()
    yield simulated_cluster
    assert simulated_cluster.simulation.failures == []
    simulated_cluster.stop()


@pytest.fixture(params=["eager", "cooperative", "consumer"])
def kind(request: pytest.FixtureRequest) -> dict[str, object]:
    """Options of one kind of group member."""
    return KINDS[request.param]


def test_single_member_owns_everything(brokers: SimulatedCluster, kind: dict[str, object]) -> None:
    """The member owns all partitions when ``start`` returns, and releases them when it stops."""
    (one,) = start_readers(brokers, "one", **kind)
    assert one.membership.assignment == one.owned
    one.stop()
    assert one.calls == [("assigned", ALL), ("revoked", ALL)]
    assert one.membership.assignment == frozenset()
    assert one.host.runtime.reactor.getDelayedCalls() == []


def test_members_join_leave_and_die(brokers: SimulatedCluster, kind: dict[str, object]) -> None:
    """The partitions of a leaving member are reassigned at once, those of a dead one when its session has expired."""
    one, two, three = start_readers(brokers, "one", "two", "three", **kind)
    three.stop()
    settle(brokers, one, two, timeout_s=5)
    two.die()
    assert len(one.owned) == 3
    settle(brokers, one)
    one.stop()


def test_slow_listener_keeps_its_membership(brokers: SimulatedCluster, kind: dict[str, object]) -> None:
    """Heartbeats continue while ``on_revoked`` runs, and the next owner waits until it has finished."""
    (one,) = start_readers(brokers, "one", **kind, rebalance_timeout_s=150.0)
    one.revocation_hook = delay(one, 100.0)
    two = Reader(brokers, "two", owners=one.owners, **kind, rebalance_timeout_s=150.0)
    two.start()
    brokers.run(95.0)
    assert one.partition_numbers == ALL
    assert two.partition_numbers == []
    settle(brokers, one, two)
    assert "lost" not in [method for method, _ in one.calls]
    one.revocation_hook = None
    one.stop()
    two.stop()


def test_slow_release_loses_all_partitions(brokers: SimulatedCluster, kind: dict[str, object]) -> None:
    """A member whose ``on_revoked`` exceeds the rebalance timeout loses its partitions and joins again."""
    (one,) = start_readers(brokers, "one", **kind, rebalance_timeout_s=20.0)
    one.revocation_hook = delay(one, 1000.0)
    two = Reader(brokers, "two", owners=one.owners, **kind, rebalance_timeout_s=20.0)
    brokers.run_until(two.start())
    brokers.run_until(lambda: ("lost", ALL) in one.calls)
    one.revocation_hook = None
    settle(brokers, one, two)
    one.stop()
    two.stop()


def test_slow_start_loses_all_partitions(brokers: SimulatedCluster, kind: dict[str, object]) -> None:
    """A member whose ``on_assigned`` delays a rebalance beyond its timeout loses its partitions."""
    one = Reader(brokers, "one", **kind, rebalance_timeout_s=20.0)
    one.assignment_hook = delay(one, 1000.0)
    started = one.start()
    brokers.run(60.0)
    assert (one.partition_numbers, started.called) == (ALL, False)
    one.assignment_hook = None
    two = Reader(brokers, "two", owners=one.owners, **kind, rebalance_timeout_s=20.0)
    brokers.run_until(two.start())
    brokers.run_until(lambda: ("lost", ALL) in one.calls)
    settle(brokers, one, two)
    one.stop()
    two.stop()


def test_committed_offsets_are_found_by_the_next_owner(brokers: SimulatedCluster, kind: dict[str, object]) -> None:
    """Commits of the previous owner are found, even those made in ``on_revoked``."""
    one, two = start_readers(brokers, "one", "two", **kind)
    offsets = {each: CommittedOffset(each.partition + 10, 0, "note") for each in one.owned}
    brokers.run_until(one.membership.commit(offsets))
    assert brokers.run_until(one.membership.committed(ALL_PARTITIONS)) == offsets

    async def commit(partitions):
        await one.membership.commit({each: CommittedOffset(each.partition + 20) for each in partitions})

    one.revocation_hook = commit
    one.stop()
    settle(brokers, two)
    committed = brokers.run_until(two.membership.committed(two.owned))
    assert committed == {each: CommittedOffset(each.partition + 20) for each in offsets}
    two.stop()


def test_offsets_of_an_open_transaction_are_awaited(brokers: SimulatedCluster, kind: dict[str, object]) -> None:
    """The next owner of a partition waits for the offsets of an open transaction (KIP-447)."""
    one, two = start_readers(brokers, "one", "two", **kind)
    key = min(one.owned)
    producer = Producer(one.cluster, ProducerOptions(transactional_id="x"))

    async def send_offsets() -> None:
        await producer.begin()
        await producer.send_offsets({key: CommittedOffset(7)}, one.membership.identity)

    brokers.run_until(send_offsets())
    committed = Deferred.fromCoroutine(two.membership.committed([key]))
    brokers.run(3.0)
    assert not committed.called
    brokers.run_until(producer.commit())
    assert brokers.run_until(committed) == {key: CommittedOffset(7)}
    brokers.run_until(producer.close())
    one.stop()
    two.stop()


ALL_PARTITIONS = [TopicPartition("t", each) for each in ALL]


def test_former_owner_cannot_commit(brokers: SimulatedCluster, kind: dict[str, object]) -> None:
    """A commit for a partition that another member owns fails without effect."""
    one, two = start_readers(brokers, "one", "two", **kind)
    with pytest.raises(CommitFailed, match="t-"):
        brokers.run_until(one.membership.commit({each: CommittedOffset(5) for each in two.owned}))
    lost = one.owned
    one.host.pause()
    one.owners.release("one", lost)  # a suspended process reads nothing
    brokers.run_until(lambda: len(two.owned) == len(ALL))
    one.host.resume()
    with pytest.raises(CommitFailed):
        brokers.run_until(one.membership.commit({each: CommittedOffset(5) for each in lost}))
    assert brokers.run_until(two.membership.committed(ALL_PARTITIONS)) == {}
    settle(brokers, one, two)
    assert "lost" in [method for method, _ in one.calls]
    one.stop()
    two.stop()


def test_coordinator_dies(brokers: SimulatedCluster, kind: dict[str, object]) -> None:
    """The new coordinator has loaded the group, and no partition is revoked."""
    one, two = start_readers(brokers, "one", "two", **kind, session_timeout_s=40.0)
    calls = [list(one.calls), list(two.calls)]
    brokers.brokers[coordinator_of(brokers)].kill()
    brokers.run_until(one.membership.commit({each: CommittedOffset(5) for each in one.owned}))
    brokers.run(20.0)
    assert [one.calls, two.calls] == calls
    two.stop()
    settle(brokers, one)
    one.stop()


def test_isolated_member_loses_its_partitions(brokers: SimulatedCluster, kind: dict[str, object]) -> None:
    """The member drops its partitions before another one gets them, and gets a share after it reconnects."""
    one, two = start_readers(brokers, "one", "two", **kind)
    numbers = one.partition_numbers
    network = brokers.simulation.network
    network.isolate("one")
    brokers.run_until(lambda: len(two.owned) == len(ALL))
    assert one.calls[-1] == ("lost", numbers)
    network.heal()
    settle(brokers, one, two)
    one.stop()
    two.stop()


def test_removed_member_joins_again(brokers: SimulatedCluster, kind: dict[str, object]) -> None:
    """A removed member cannot commit; it learns of its removal from a heartbeat and joins again."""
    (one,) = start_readers(brokers, "one", **kind)
    brokers.run_until(remove_from_group(one))
    with pytest.raises(CommitFailed):
        brokers.run_until(one.membership.commit({each: CommittedOffset(5) for each in one.owned}))
    brokers.run_until(lambda: one.calls[1:] == [("lost", ALL), ("assigned", ALL)])
    brokers.run_until(one.membership.commit({each: CommittedOffset(5) for each in one.owned}))
    one.stop()


def test_member_removed_while_it_stops(brokers: SimulatedCluster, kind: dict[str, object]) -> None:
    """The stopping member does not wait for lost partitions, and leaves no timer."""
    (one,) = start_readers(brokers, "one", **kind, instance_id="one")
    one.revocation_hook = delay(one, 1000.0)
    stopped = Deferred.fromCoroutine(one.membership.stop())
    brokers.run_until(remove_from_group(one))
    brokers.run_until(stopped, 5.0)
    assert one.calls[1:] == [("revoked", ALL), ("lost", ALL)]
    one.stop()
    assert one.host.runtime.reactor.getDelayedCalls() == []


async def remove_from_group(reader: Reader) -> None:
    """Remove a member from the group."""
    identity = reader.membership.identity
    member = {"group_id": "g", "member_id": identity.member_id, "group_instance_id": identity.instance_id}
    api, body = LEAVE_GROUP, {**member, "members": [member]}
    if isinstance(reader.membership, ConsumerMember):
        api, body = CONSUMER_GROUP_HEARTBEAT, {**member, "member_epoch": -1}

    async def leave(connection: Connection) -> None:
        assert (await reader.cluster.request(connection, api, body))["error_code"] == 0

    await reader.cluster.at_coordinator(CoordinatorKind.GROUP, "g", leave)


def test_commit_of_an_earlier_generation_is_retried(brokers: SimulatedCluster, kind: dict[str, object]) -> None:
    """A refused commit may be retried if the generation has changed since, and otherwise fails."""
    (one,) = start_readers(brokers, "one", **kind)
    member, now = one.membership, one.membership.identity
    before = now._replace(generation=now.generation - 1)
    code = ErrorCode.STALE_MEMBER_EPOCH if kind["protocol"] == "consumer" else ErrorCode.ILLEGAL_GENERATION
    error = BrokerRefused(code, "commit")
    assert isinstance(brokers.run_until(member.application_error(error, before)), RebalanceUnderWay)
    brokers.run_until(member.application_error(error, now))
    brokers.run(5.0)
    assert isinstance(brokers.run_until(member.application_error(error, now)), CommitFailed)
    other = BrokerRefused(ErrorCode.OFFSET_METADATA_TOO_LARGE, "commit")
    assert brokers.run_until(member.application_error(other, now)) is other
    one.stop()


def test_commit_for_a_deleted_topic_fails(brokers: SimulatedCluster, kind: dict[str, object]) -> None:
    """The commit fails within seconds, and the group continues without the topic."""
    (one,) = start_readers(brokers, "one", **kind)
    offsets = {each: CommittedOffset(5) for each in one.owned}
    brokers.run_until(Admin(one.cluster).delete_topic("t"))
    before_s = brokers.simulation.now_s
    with pytest.raises((BrokerRefused, CommitFailed)):
        brokers.run_until(one.membership.commit(offsets))
    assert brokers.simulation.now_s - before_s < 10.0
    brokers.run_until(lambda: one.partition_numbers == [])
    one.stop()


def test_subscription_changes(brokers: SimulatedCluster, kind: dict[str, object]) -> None:
    """A member changes its subscription, even to a topic that is created later."""
    (one,) = start_readers(brokers, "one", **kind)
    one.membership.subscribe(["t", "later"])
    brokers.run(5.0)
    assert one.partition_numbers == ALL
    brokers.run_until(brokers.client().create_topic("later", 2, replication_factor=3))
    brokers.run_until(lambda: len(one.owned) == len(ALL) + 2)
    one.membership.subscribe(["later"])
    brokers.run_until(lambda: {each.topic for each in one.owned} == {"later"})
    one.stop()


def test_new_partitions_are_assigned(brokers: SimulatedCluster, kind: dict[str, object]) -> None:
    one, two = start_readers(brokers, "one", "two", **kind)
    brokers.run_until(one.cluster.refresh(("t",)))
    brokers.run_until(Admin(one.cluster).create_partitions({"t": 9}))
    brokers.run_until(lambda: sorted([*one.partition_numbers, *two.partition_numbers]) == list(range(9)))
    assert one.owners.contradictions == []
    one.stop()
    two.stop()


def test_empty_subscription(brokers: SimulatedCluster, kind: dict[str, object]) -> None:
    """A member joins without topics, and can subscribe and unsubscribe later."""
    one = Reader(brokers, "one", [], **kind)
    brokers.run_until(one.start())
    assert one.calls == []
    one.membership.subscribe(["t"])
    brokers.run_until(lambda: one.partition_numbers == ALL)
    one.membership.subscribe([])
    brokers.run_until(lambda: one.partition_numbers == [])
    one.stop()


def test_member_stops_without_a_coordinator(brokers: SimulatedCluster, kind: dict[str, object]) -> None:
    """A member without a coordinator releases its partitions and stops without leaving the group."""
    (one,) = start_readers(brokers, "one", **kind)
    brokers.simulation.network.isolate("one")
    before_s = brokers.simulation.now_s
    one.stop()
    assert brokers.simulation.now_s - before_s < 12.0
    assert one.calls[-1] == ("revoked", ALL)


def test_cancelled_join_without_a_coordinator(brokers: SimulatedCluster, kind: dict[str, object]) -> None:
    """Cancelling ``start`` while no coordinator is reachable leaves no timer."""
    one = Reader(brokers, "one", **kind)
    brokers.simulation.network.isolate("one")
    started = one.start()
    brokers.run(5.0)
    started.addErrback(lambda failure: None).cancel()
    one.stop()
    brokers.run(6.0)
    assert one.host.runtime.reactor.getDelayedCalls() == []
