"""Metadata, leaders and coordinators of a cluster, even while they change."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from twisted.internet.defer import Deferred

from kreplica.client.client_runtime import runtime_of
from kreplica.client.cluster import Cluster
from kreplica.client_core.errors import BrokerRefused, ConnectionFailed, GaveUp
from kreplica.client_core.metadata import CoordinatorKind
from kreplica.client_core.options import ClientOptions
from kreplica.model import TopicPartition
from kreplica.testing.cluster.cluster import SimulatedCluster
from kreplica.wire.messages import LIST_GROUPS


@pytest.fixture
def brokers() -> Iterator[SimulatedCluster]:
    """Three brokers and the topic t with four partitions."""
    simulated = SimulatedCluster(seed=7, brokers=3)
    simulated.start()
    simulated.run_until(simulated.client().create_topic("t", 4, replication_factor=3))
    simulated.wait_in_sync("t", range(4))
    yield simulated
    simulated.stop()


@pytest.fixture
def cluster(brokers: SimulatedCluster) -> Iterator[Cluster]:
    """A cluster client on its own host."""
    runtime = runtime_of(brokers.host("application").runtime)
    seen = Cluster(brokers.bootstrap_servers, options=ClientOptions(client_id="app"), runtime=runtime)
    yield seen
    brokers.run_until(seen.close())


def test_new_leaders_are_found(brokers: SimulatedCluster, cluster: Cluster) -> None:
    """A new leader is found after the old one died."""
    key = TopicPartition("t", 0)
    leader = brokers.run_until(cluster.leader(key))
    assert leader == brokers.leader_of("t", 0)
    brokers.brokers[leader].kill()

    async def another() -> int:
        found = await cluster.leader(key)
        if found == leader:
            raise ConnectionFailed("the old leader")
        return found

    assert brokers.run_until(cluster.retrying(another)) != leader


def test_concurrent_refreshes_share_a_request(brokers: SimulatedCluster, cluster: Cluster) -> None:
    """Ten concurrent refreshes are one request; cancelling one does not affect the others."""
    views = [Deferred.fromCoroutine(cluster.refresh(("t",))) for _ in range(10)]
    left: list[object] = []
    views[0].addErrback(left.append)
    views[0].cancel()
    found = [brokers.run_until(view) for view in views[1:]]
    assert len(left) == 1
    assert all(view is found[0] for view in found)
    assert sorted(found[0].brokers) == [1, 2, 3]


def test_doubt_raised_during_a_refresh_stays(brokers: SimulatedCluster, cluster: Cluster) -> None:
    """A doubt raised during a refresh remains, because the response may be older."""
    asked = Deferred.fromCoroutine(cluster.refresh(("t",)))
    cluster.mark_stale()
    brokers.run_until(asked)
    assert cluster.known_topic("t") is None
    brokers.run_until(cluster.refresh())
    assert cluster.known_topic("t") is not None


def test_missing_topics(brokers: SimulatedCluster, cluster: Cluster) -> None:
    """A topic that does not exist fails with the reason."""
    with pytest.raises(GaveUp) as caught:
        brokers.run_until(cluster.find_topic("nope", 1.0))
    assert isinstance(caught.value.__cause__, BrokerRefused)
    with pytest.raises(BrokerRefused, match="t-9"):
        brokers.run_until(cluster.partition(TopicPartition("t", 9)))


def test_no_broker_responds(brokers: SimulatedCluster) -> None:
    """All brokers are tried, and the error of the last one is reported."""
    runtime = runtime_of(brokers.host("application").runtime)
    lost = Cluster("nowhere:1,broker-1:2", runtime=runtime)
    with pytest.raises(GaveUp, match=r"nowhere:1|broker-1:2"):
        brokers.run_until(lost.retrying(lost.refresh, 3.0))
    brokers.run_until(lost.close())


def test_coordinators_are_found_again(brokers: SimulatedCluster, cluster: Cluster) -> None:
    """A group's coordinator is found again after its broker died."""

    async def ask(connection):
        answer = await cluster.request(connection, LIST_GROUPS, {"states_filter": [], "types_filter": []})
        return connection.peer, answer["error_code"]

    first, code = brokers.run_until(cluster.at_coordinator(CoordinatorKind.GROUP, "g", ask))
    assert code == 0
    number = int(first.split(":")[0].removeprefix("broker-"))
    brokers.brokers[number].kill()
    second, code = brokers.run_until(cluster.at_coordinator(CoordinatorKind.GROUP, "g", ask))
    assert code == 0
    assert second != first


def test_lost_connections_are_replaced(brokers: SimulatedCluster, cluster: Cluster) -> None:
    """A new connection is opened after a loss; failed attempts are not repeated at once."""
    brokers.run_until(cluster.refresh())
    first = brokers.run_until(cluster.connection(1))
    assert brokers.run_until(cluster.connection(1)) is first
    brokers.brokers[1].kill()
    brokers.run(0.1)
    with pytest.raises(ConnectionFailed):
        brokers.run_until(cluster.connection(1))
    brokers.run_until(brokers.brokers[1].start())

    async def again():
        return await cluster.connection(1)

    second = brokers.run_until(cluster.retrying(again))
    assert second is not first
    assert not second.closed
