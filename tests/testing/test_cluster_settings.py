"""Changes to topic configurations on a whole cluster, interrupted by faults."""

from __future__ import annotations

import pytest
from twisted.internet.defer import Deferred

from kreplica.cluster import documents, znodes
from kreplica.errors import ErrorCode, KafkaError
from kreplica.testing.cluster.cluster import SimulatedCluster
from kreplica.testing.cluster.state import znode

pytestmark = pytest.mark.usefixtures("logged_errors")

TOPIC = "orders"
PATH = znodes.config_path("topics", TOPIC)
COORDINATOR = "coordinator"


def three_brokers() -> SimulatedCluster:
    """Start a cluster with one topic that has one setting."""
    cluster = SimulatedCluster(1, brokers=3, overrides=["zookeeper.session.timeout.ms=6000"])
    cluster.start()
    client = cluster.client()
    cluster.run_until(client.create_topic(TOPIC, 1, {"min.insync.replicas": "1"}, replication_factor=3))
    cluster.run_until(client.close())
    cluster.run(1)
    return cluster


def settings(cluster: SimulatedCluster) -> dict[str, str] | None:
    """Return the topic's configuration in ZooKeeper."""
    node = znode(cluster, PATH)
    return None if node is None else documents.decode_config(PATH, node.data or b"")


def test_a_change_with_a_lost_response_reaches_all_brokers() -> None:
    """All brokers apply a change although the broker that wrote it lost its connection before the response."""
    cluster = three_brokers()
    client = cluster.client(broker=2)
    results: list[object] = []
    Deferred.fromCoroutine(client.change_settings(TOPIC, {"min.insync.replicas": "2"})).addBoth(results.append)
    cluster.run_until(lambda: settings(cluster) == {"min.insync.replicas": "2"})
    cluster.simulation.network.cut("broker-2", COORDINATOR)
    cluster.run(10)
    cluster.simulation.network.heal()
    cluster.run(20)
    assert results
    brokers = cluster.brokers.items()
    effective = {broker: machine.program.dynamic_settings.min_insync_replicas(TOPIC) for broker, machine in brokers}
    assert effective == {1: 2, 2: 2, 3: 2}
    cluster.run_until(client.close())
    cluster.stop()


def test_a_change_does_not_outlive_its_topic() -> None:
    """If a topic is deleted between a broker's read and its write, the response is UNKNOWN_TOPIC_OR_PARTITION."""
    cluster = three_brokers()
    controller = cluster.controller()
    assert controller is not None
    other = next(broker for broker in cluster.brokers if broker != controller)
    cluster.simulation.network.link(f"broker-{other}", COORDINATOR).latency_s = (1.0, 1.0)
    client, administrator = cluster.client(broker=other), cluster.client(broker=controller)
    asked = Deferred.fromCoroutine(client.change_settings(TOPIC, {"min.insync.replicas": "2"}))
    refused: list[KafkaError] = []
    asked.addErrback(lambda failure: refused.append(failure.value))
    cluster.run(2.5)
    cluster.run_until(administrator.delete_topic(TOPIC))
    cluster.run(5)
    assert [error.code for error in refused] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert settings(cluster) is None
    for each in (client, administrator):
        cluster.run_until(each.close())
    cluster.stop()
