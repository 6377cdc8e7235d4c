"""Members of both protocols share partitions, even when members and coordinators fail."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from group_readers import ALL, KINDS, Reader, begin, coordinator_of, new_brokers, settle, waiting
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
    """Three brokers and the topic t with six partitions."""
    simulated = new_brokers()
    yield simulated
    assert simulated.simulation.failures == []
    simulated.stop()


@pytest.fixture(params=["eager", "cooperative", "consumer"])
def kind(request: pytest.FixtureRequest) -> dict[str, object]:
    """Options of one kind of member."""
    return KINDS[request.param]


def test_single_member_owns_everything(brokers: SimulatedCluster, kind: dict[str, object]) -> None:
    """The member owns all partitions when ``start`` returns, and releases them when it stops."""
    (one,) = begin(brokers, "one", **kind)
    assert one.membership.assignment == one.has
    one.stop()
    assert one.calls == [("assigned", ALL), ("revoked", ALL)]
    assert one.membership.assignment == frozenset()
    assert one.host.runtime.reactor.getDelayedCalls() == []


def test_members_join_leave_and_die(brokers: SimulatedCluster, kind: dict[str, object]) -> None:
    """Each member gets its share; leaving members are replaced at once, dead ones after their session."""
    one, two, three = begin(brokers, "one", "two", "three", **kind)
    three.stop()
    settle(brokers, one, two, timeout_s=5)
    two.die()
    assert len(one.has) == 3
    settle(brokers, one)
    one.stop()


def test_slow_listener_keeps_its_membership(brokers: SimulatedCluster, kind: dict[str, object]) -> None:
    """Heartbeats continue while user code awaits, and the next owner waits for it."""
    (one,) = begin(brokers, "one", **kind, rebalance_timeout_s=150.0)
    one.before_giving = waiting(one, 100.0)
    two = Reader(brokers, "two", owners=one.owners, **kind, rebalance_timeout_s=150.0)
    two.start()
    brokers.run(95.0)
    assert one.numbers == ALL
    assert two.numbers == []
    settle(brokers, one, two)
    assert "lost" not in [what for what, _ in one.calls]
    one.before_giving = None
    one.stop()
    two.stop()


def test_slow_release_loses_all_partitions(brokers: SimulatedCluster, kind: dict[str, object]) -> None:
    """A rebalance waits until its timeout; the slow listener is cancelled, and its member joins again later."""
    (one,) = begin(brokers, "one", **kind, rebalance_timeout_s=20.0)
    one.before_giving = waiting(one, 1000.0)
    two = Reader(brokers, "two", owners=one.owners, **kind, rebalance_timeout_s=20.0)
    brokers.run_until(two.start())
    brokers.run_until(lambda: ("lost", ALL) in one.calls)
    one.before_giving = None
    settle(brokers, one, two)
    one.stop()
    two.stop()


def test_slow_start_loses_all_partitions(brokers: SimulatedCluster, kind: dict[str, object]) -> None:
    """A rebalance does not wait longer for a slow ``on_assigned`` either."""
    one = Reader(brokers, "one", **kind, rebalance_timeout_s=20.0)
    one.before_taking = waiting(one, 1000.0)
    started = one.start()
    brokers.run(60.0)
    assert (one.numbers, started.called) == (ALL, False)
    one.before_taking = None
    two = Reader(brokers, "two", owners=one.owners, **kind, rebalance_timeout_s=20.0)
    brokers.run_until(two.start())
    brokers.run_until(lambda: ("lost", ALL) in one.calls)
    settle(brokers, one, two)
    one.stop()
    two.stop()


def test_committed_offsets_are_found_by_the_next_owner(brokers: SimulatedCluster, kind: dict[str, object]) -> None:
    """A member commits even while it releases partitions."""
    one, two = begin(brokers, "one", "two", **kind)
    offsets = {each: CommittedOffset(each.partition + 10, 0, "note") for each in one.has}
    brokers.run_until(one.membership.commit(offsets))
    assert brokers.run_until(one.membership.committed(ALL_PARTITIONS)) == offsets

    async def commit(partitions):
        await one.membership.commit({each: CommittedOffset(each.partition + 20) for each in partitions})

    one.before_giving = commit
    one.stop()
    settle(brokers, two)
    found = brokers.run_until(two.membership.committed(two.has))
    assert found == {each: CommittedOffset(each.partition + 20) for each in offsets}
    two.stop()


def test_offsets_of_an_open_transaction_are_awaited(brokers: SimulatedCluster, kind: dict[str, object]) -> None:
    """The next owner of a partition starts after the offsets of an open transaction (KIP-447)."""
    one, two = begin(brokers, "one", "two", **kind)
    key = min(one.has)
    producer = Producer(one.cluster, ProducerOptions(transactional_id="x"))

    async def under_way() -> None:
        await producer.begin()
        await producer.send_offsets({key: CommittedOffset(7)}, one.membership.identity)

    brokers.run_until(under_way())
    found = Deferred.fromCoroutine(two.membership.committed([key]))
    brokers.run(3.0)
    assert not found.called
    brokers.run_until(producer.commit())
    assert brokers.run_until(found) == {key: CommittedOffset(7)}
    brokers.run_until(producer.close())
    one.stop()
    two.stop()


ALL_PARTITIONS = [TopicPartition("t", each) for each in ALL]


def test_former_owner_cannot_commit(brokers: SimulatedCluster, kind: dict[str, object]) -> None:
    """A commit for a partition of another member fails without effect."""
    one, two = begin(brokers, "one", "two", **kind)
    with pytest.raises(CommitFailed, match="t-"):
        brokers.run_until(one.membership.commit({each: CommittedOffset(5) for each in two.has}))
    had = one.has
    one.host.pause()
    one.owners.give("one", had)  # it is suspended and reads nothing
    brokers.run_until(lambda: len(two.has) == len(ALL))
    one.host.resume()
    with pytest.raises(CommitFailed):
        brokers.run_until(one.membership.commit({each: CommittedOffset(5) for each in had}))
    assert brokers.run_until(two.membership.committed(ALL_PARTITIONS)) == {}
    settle(brokers, one, two)
    assert "lost" in [what for what, _ in one.calls]
    one.stop()
    two.stop()


def test_coordinator_dies(brokers: SimulatedCluster, kind: dict[str, object]) -> None:
    """The new coordinator knows the group; no partition is revoked."""
    one, two = begin(brokers, "one", "two", **kind, session_timeout_s=40.0)
    calls = [list(one.calls), list(two.calls)]
    brokers.brokers[coordinator_of(brokers)].kill()
    brokers.run_until(one.membership.commit({each: CommittedOffset(5) for each in one.has}))
    brokers.run(20.0)
    assert [one.calls, two.calls] == calls
    two.stop()
    settle(brokers, one)
    one.stop()


def test_isolated_member_loses_its_partitions(brokers: SimulatedCluster, kind: dict[str, object]) -> None:
    """The member drops its partitions before others get them, and gets a share after it reconnects."""
    one, two = begin(brokers, "one", "two", **kind)
    had = one.numbers
    network = brokers.simulation.network
    network.isolate("one")
    brokers.run_until(lambda: len(two.has) == len(ALL))
    assert one.calls[-1] == ("lost", had)
    network.heal()
    settle(brokers, one, two)
    one.stop()
    two.stop()


def test_removed_member_joins_again(brokers: SimulatedCluster, kind: dict[str, object]) -> None:
    """A removed member cannot commit, notices by a heartbeat, and joins again."""
    (one,) = begin(brokers, "one", **kind)
    brokers.run_until(remove_from_group(one))
    with pytest.raises(CommitFailed):
        brokers.run_until(one.membership.commit({each: CommittedOffset(5) for each in one.has}))
    brokers.run_until(lambda: one.calls[1:] == [("lost", ALL), ("assigned", ALL)])
    brokers.run_until(one.membership.commit({each: CommittedOffset(5) for each in one.has}))
    one.stop()


def test_member_removed_while_it_stops(brokers: SimulatedCluster, kind: dict[str, object]) -> None:
    """The member does not wait for lost partitions, and leaves no timer."""
    (one,) = begin(brokers, "one", **kind, instance_id="one")
    one.before_giving = waiting(one, 1000.0)
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
    """The commit succeeds in the current generation."""
    (one,) = begin(brokers, "one", **kind)
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
    (one,) = begin(brokers, "one", **kind)
    offsets = {each: CommittedOffset(5) for each in one.has}
    brokers.run_until(Admin(one.cluster).delete_topic("t"))
    before_s = brokers.simulation.now_s
    with pytest.raises((BrokerRefused, CommitFailed)):
        brokers.run_until(one.membership.commit(offsets))
    assert brokers.simulation.now_s - before_s < 10.0
    brokers.run_until(lambda: one.numbers == [])
    one.stop()


def test_subscription_changes(brokers: SimulatedCluster, kind: dict[str, object]) -> None:
    """The subscription changes during the membership, also to a topic created later."""
    (one,) = begin(brokers, "one", **kind)
    one.membership.subscribe(["t", "later"])
    brokers.run(5.0)
    assert one.numbers == ALL
    brokers.run_until(brokers.client().create_topic("later", 2, replication_factor=3))
    brokers.run_until(lambda: len(one.has) == len(ALL) + 2)
    one.membership.subscribe(["later"])
    brokers.run_until(lambda: {each.topic for each in one.has} == {"later"})
    one.stop()


def test_new_partitions_are_assigned(brokers: SimulatedCluster, kind: dict[str, object]) -> None:
    one, two = begin(brokers, "one", "two", **kind)
    brokers.run_until(one.cluster.refresh(("t",)))
    brokers.run_until(Admin(one.cluster).create_partitions({"t": 9}))
    brokers.run_until(lambda: sorted([*one.numbers, *two.numbers]) == list(range(9)))
    assert one.owners.contradictions == []
    one.stop()
    two.stop()


def test_empty_subscription(brokers: SimulatedCluster, kind: dict[str, object]) -> None:
    """A membership starts without subscribed topics, or with missing ones."""
    one = Reader(brokers, "one", [], **kind)
    brokers.run_until(one.start())
    assert one.calls == []
    one.membership.subscribe(["t"])
    brokers.run_until(lambda: one.numbers == ALL)
    one.membership.subscribe([])
    brokers.run_until(lambda: one.numbers == [])
    one.stop()


def test_member_stops_without_a_coordinator(brokers: SimulatedCluster, kind: dict[str, object]) -> None:
    """The member releases its partitions and ends without leaving."""
    (one,) = begin(brokers, "one", **kind)
    brokers.simulation.network.isolate("one")
    before_s = brokers.simulation.now_s
    one.stop()
    assert brokers.simulation.now_s - before_s < 12.0
    assert one.calls[-1] == ("revoked", ALL)


def test_joining_without_a_coordinator(brokers: SimulatedCluster, kind: dict[str, object]) -> None:
    """Joining fails after a while without a coordinator; cancellation leaves no timer."""
    one = Reader(brokers, "one", **kind)
    brokers.simulation.network.isolate("one")
    started = one.start()
    brokers.run(5.0)
    started.addErrback(lambda failure: None).cancel()
    one.stop()
    brokers.run(6.0)
    assert one.host.runtime.reactor.getDelayedCalls() == []
