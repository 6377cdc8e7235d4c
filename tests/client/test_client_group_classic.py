"""Members of a classic group share partitions, whatever becomes of them and of their coordinator."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from group_readers import Owners, Reader, waiting

from kreplica.model import TopicPartition
from kreplica.sansio.errors import CommitFailed
from kreplica.sansio.offsets import CommittedOffset
from kreplica.testing.cluster import SimulatedCluster

ALL = list(range(6))


@pytest.fixture
def brokers() -> Iterator[SimulatedCluster]:
    """Three brokers and the topic t with six partitions."""
    simulated = SimulatedCluster(seed=11, brokers=3, overrides=["group.initial.rebalance.delay.ms=0"])
    simulated.start()
    simulated.run_until(simulated.client().create_topic("t", 6, replication_factor=3))
    simulated.wait_in_sync("t", range(6))
    yield simulated
    assert simulated.simulation.failures == []
    simulated.stop()


def begin(brokers: SimulatedCluster, *names: str, **options: object) -> list[Reader]:
    """Readers of one group, each of which has begun, with shares that are settled."""
    owners = Owners()
    readers = [Reader(brokers, name, owners=owners, protocol="classic", **options) for name in names]
    for reader in readers:
        brokers.run_until(reader.start())
    settle(brokers, *readers)
    return readers


def settle(brokers: SimulatedCluster, *readers: Reader, timeout_s: float = 60.0) -> None:
    """Until all partitions are read, in equal shares."""

    def settled() -> bool:
        counts = [len(reader.has) for reader in readers]
        return sum(counts) == len(ALL) and max(counts) - min(counts) <= 1

    try:
        brokers.run_until(settled, timeout_s)
    except TimeoutError:
        raise AssertionError({reader.name: reader.told for reader in readers}) from None
    assert readers[0].owners.contradictions == []


def test_one_member_reads_everything(brokers: SimulatedCluster) -> None:
    """It has all that it reads when ``start`` returns, gives it up when it stops, and leaves."""
    (one,) = begin(brokers, "one")
    assert one.numbers == ALL
    assert one.membership.assignment == one.has
    one.stop()
    assert one.told == [("assigned", ALL), ("revoked", ALL)]
    assert one.membership.assignment == frozenset()


def test_members_come_and_go(brokers: SimulatedCluster) -> None:
    """Each gets its share; who leaves is replaced at once, who dies after a session."""
    one, two, three = begin(brokers, "one", "two", "three")
    assert [reader.numbers for reader in (one, two, three)] != [ALL, [], []]
    three.stop()
    settle(brokers, one, two, timeout_s=5)
    two.die()
    assert len(one.has) == 3
    settle(brokers, one)
    one.stop()


def test_a_member_that_waits_for_minutes_is_not_thrown_out(brokers: SimulatedCluster) -> None:
    """Whatever user code awaits: heartbeats go on, and a rebalance waits for it."""
    (one,) = begin(brokers, "one", rebalance_timeout_s=300.0)
    one.before_giving = waiting(one, 200.0)
    two = Reader(brokers, "two", owners=one.owners, protocol="classic", rebalance_timeout_s=300.0)
    started = two.start()
    brokers.run(190.0)
    assert one.numbers == ALL
    assert two.numbers == []
    brokers.run_until(started)
    settle(brokers, one, two)
    assert "lost" not in [what for what, _ in one.told]
    one.before_giving = None
    one.stop()
    two.stop()


def test_who_does_not_give_up_in_time_loses_everything(brokers: SimulatedCluster) -> None:
    """A rebalance waits no longer than the time-out; then that one is cancelled, and joins again when it can."""
    (one,) = begin(brokers, "one", rebalance_timeout_s=20.0)
    one.before_giving = waiting(one, 1000.0)
    two = Reader(brokers, "two", owners=one.owners, protocol="classic", rebalance_timeout_s=20.0)
    brokers.run_until(two.start())
    one.before_giving = None
    settle(brokers, one, two)
    assert ("lost", ALL) in one.told
    one.stop()
    two.stop()


def test_offsets_are_committed_and_found_again(brokers: SimulatedCluster) -> None:
    """Also while a member gives its partitions up; the next one finds them."""
    one, two = begin(brokers, "one", "two")
    offsets = {each: CommittedOffset(each.partition + 10, 0, "note") for each in one.has}
    brokers.run_until(one.membership.commit(offsets))

    async def commit(partitions):
        await one.membership.commit({each: CommittedOffset(each.partition + 20) for each in partitions})

    one.before_giving = commit
    one.stop()
    settle(brokers, two)
    found = brokers.run_until(two.membership.committed(two.has))
    assert found == {each: CommittedOffset(each.partition + 20) for each in offsets}
    two.stop()


def test_who_has_a_partition_no_more_commits_nothing(brokers: SimulatedCluster) -> None:
    """The commit of a partition that another member has by now fails, and changes nothing."""
    one, two = begin(brokers, "one", "two")
    with pytest.raises(CommitFailed, match="t-"):
        brokers.run_until(one.membership.commit({each: CommittedOffset(5) for each in two.has}))
    one.host.pause()
    settle_without = sorted(one.has)
    one.owners.give("one", one.has)
    brokers.run_until(lambda: len(two.has) == 6)
    one.host.resume()
    with pytest.raises(CommitFailed):
        brokers.run_until(one.membership.commit({each: CommittedOffset(5) for each in settle_without}))
    assert brokers.run_until(two.membership.committed([TopicPartition("t", each) for each in ALL])) == {}
    settle(brokers, one, two)
    assert "lost" in [what for what, _ in one.told]
    one.stop()
    two.stop()


def test_the_coordinator_dies(brokers: SimulatedCluster) -> None:
    """Its successor knows the group: nobody has to join again for that."""
    one, two = begin(brokers, "one", "two", session_timeout_s=40.0)
    told = [list(one.told), list(two.told)]
    coordinator = brokers.leader_of("__consumer_offsets", group_partition(brokers))
    brokers.brokers[coordinator].kill()
    brokers.run(30.0)
    assert [one.told, two.told] == told
    brokers.run_until(one.membership.commit({each: CommittedOffset(5) for each in one.has}))
    two.stop()
    settle(brokers, one)
    one.stop()


def group_partition(brokers: SimulatedCluster) -> int:
    """Which partition of the offsets topic the group g is in; all of the simulated cluster's are small."""
    cluster = Reader(brokers, "asking", protocol="classic").cluster
    view = brokers.run_until(cluster.refresh(("__consumer_offsets",)))
    count = len(view.topics["__consumer_offsets"].partitions)
    brokers.run_until(cluster.close())
    return ord("g") % count
