"""Deletion of a topic while clients with auto-creation still request its metadata."""

from __future__ import annotations

import pytest
from twisted.internet.defer import Deferred

from kreplica.cluster import znodes
from kreplica.testing.cluster.cluster import SimulatedCluster
from kreplica.wire import messages
from kreplica.zookeeper import ZooKeeperClient

pytestmark = pytest.mark.usefixtures("logged_errors")

METADATA_REQUEST = {"topics": [{"name": "orders"}], "allow_auto_topic_creation": True}


def test_a_request_during_deletion_does_not_recreate_the_topic() -> None:
    """While a topic is being deleted, Metadata requests with auto-creation do not create it again; later ones do."""
    cluster = SimulatedCluster(1, brokers=2)
    cluster.start()
    client, other = cluster.client(broker=1), cluster.client(broker=2)
    cluster.run_until(client.create_topic("orders", 3, {}))
    assert cluster.controller() == 1
    runtime = cluster.host("tool").runtime
    tool = ZooKeeperClient(runtime.reactor, "coordinator:2181", random=runtime.random)
    cluster.run_until(tool.start())
    # Delays the second of the controller's last two writes: it deletes the topic's znodes, then the deletion request.
    cluster.simulation.network.slow("broker-1", "coordinator", (0.4, 0.4))
    deleted = Deferred.fromCoroutine(client.delete_topic("orders"))
    outcomes: list[object] = []
    deleted.addBoth(outcomes.append)
    request = znodes.delete_topic_path("orders")
    cluster.run_until(lambda: cluster.run_until(tool.exists(request)) is not None)
    while cluster.run_until(tool.exists(request)) is not None:
        cluster.run_until(other.request(messages.METADATA, METADATA_REQUEST))
        cluster.run(0.02)
    cluster.run_until(lambda: bool(outcomes))
    cluster.run(20)
    assert cluster.run_until(tool.exists(znodes.topic_path("orders"))) is None
    assert "orders" not in cluster.brokers[2].program.metadata.topics
    cluster.run_until(other.request(messages.METADATA, METADATA_REQUEST))
    cluster.run(20)
    assert cluster.run_until(tool.exists(znodes.topic_path("orders"))) is not None
    cluster.run_until(tool.close())
    cluster.stop()
