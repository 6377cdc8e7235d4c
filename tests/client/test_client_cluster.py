"""Lookups of metadata, leaders and coordinators while the cluster changes."""

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
    """Three brokers, and the topic t with four partitions."""
    simulated_cluster = SimulatedCluster(seed=7, brokers=3)
    simulated_cluster.start()
    simulated_cluster.run_until(simulated_cluster.client().create_topic("t", 4, replication_factor=3))
    simulated_cluster.wait_in_sync("t", range(4))
    yield simulated_cluster
    simulated_cluster.stop()


@pytest.fixture
def cluster(brokers: SimulatedCluster) -> Iterator[Cluster]:
    """A cluster client on a separate host."""
    runtime = runtime_of(brokers.host("application").runtime)
    client = Cluster(brokers.bootstrap_servers, options=ClientOptions(client_id="app"), runtime=runtime)
    yield client
    brokers.run_until(client.close())


def test_new_leaders_are_found(brokers: SimulatedCluster, cluster: Cluster) -> None:
    """After the leader dies, the client finds the new one."""
    key = TopicPartition("t", 0)
    leader = brokers.run_until(cluster.leader(key))
    assert leader == brokers.leader_of("t", 0)
    brokers.brokers[leader].kill()

    async def new_leader() -> int:
        current_leader = await cluster.leader(key)
        if current_leader == leader:
            raise ConnectionFailed("still the old leader")
        return current_leader

    assert brokers.run_until(cluster.retrying(new_leader)) != leader


def test_concurrent_refreshes_share_a_request(brokers: SimulatedCluster, cluster: Cluster) -> None:
    """Ten concurrent refreshes share one request; cancelling one does not affect the others."""
    refreshes = [Deferred.fromCoroutine(cluster.refresh(("t",))) for _ in range(10)]
    left: list[object] = []
    refreshes[0].addErrback(left.append)
    refreshes[0].cancel()
    views = [brokers.run_until(refresh) for refresh in refreshes[1:]]
    assert len(left) == 1
    assert all(view is views[0] for view in views)
    assert sorted(views[0].brokers) == [1, 2, 3]


def test_metadata_marked_stale_during_a_refresh_stays_stale(brokers: SimulatedCluster, cluster: Cluster) -> None:
    """The mark is kept, because the response to the refresh may be older than the mark."""
    refresh = Deferred.fromCoroutine(cluster.refresh(("t",)))
    cluster.mark_stale()
    brokers.run_until(refresh)
    assert cluster.known_topic("t") is None
    brokers.run_until(cluster.refresh())
    assert cluster.known_topic("t") is not None


def test_missing_topics(brokers: SimulatedCluster, cluster: Cluster) -> None:
    """The lookup of a missing topic or partition fails with the broker's error."""
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
    """A group's coordinator is looked up again after its broker dies."""

    async def ask(connection):
        response = await cluster.request(connection, LIST_GROUPS, {"states_filter": [], "types_filter": []})
        return connection.peer, response["error_code"]

    first, code = brokers.run_until(cluster.at_coordinator(CoordinatorKind.GROUP, "g", ask))
    assert code == 0
    broker_id = int(first.split(":")[0].removeprefix("broker-"))
    brokers.brokers[broker_id].kill()
    second, code = brokers.run_until(cluster.at_coordinator(CoordinatorKind.GROUP, "g", ask))
    assert code == 0
    assert second != first


def test_lost_connections_are_replaced(brokers: SimulatedCluster, cluster: Cluster) -> None:
    """A lost connection is replaced by a new one; a failed attempt is not repeated at once."""
    brokers.run_until(cluster.refresh())
    first = brokers.run_until(cluster.connection(1))
    assert brokers.run_until(cluster.connection(1)) is first
    brokers.brokers[1].kill()
    brokers.run(0.1)
    with pytest.raises(ConnectionFailed):
        brokers.run_until(cluster.connection(1))
    brokers.run_until(brokers.brokers[1].start())

    async def reconnect():
        return await cluster.connection(1)

    second = brokers.run_until(cluster.retrying(reconnect))
    assert second is not first
    assert not second.closed
