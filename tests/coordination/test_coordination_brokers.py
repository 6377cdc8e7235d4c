"""Connections between brokers."""

from __future__ import annotations

import pytest
from twisted.internet.defer import Deferred

from kreplica.client.errors import ClientError, ConnectionFailed, ConnectionLost
from kreplica.coordination import BrokerConnections
from kreplica.model import Endpoint
from kreplica.testing.cluster.cluster import BROKER_PORT, SimulatedCluster
from kreplica.wire.messages import LIST_GROUPS, METADATA

BODY = {"topics": []}


def test_connection_reuse_address_change_and_failure() -> None:
    """A connection is reused, follows an address change, and fails without a backoff."""
    simulated = SimulatedCluster(seed=5)
    simulated.start()
    host = simulated.host("client")
    endpoints = {1: Endpoint("PLAINTEXT", "broker-1", BROKER_PORT)}
    connections = BrokerConnections(host.runtime, endpoints.get, "client")

    def send(broker_id: int = 1) -> Deferred[object]:
        return connections.request(broker_id, METADATA, BODY, timeout_s=5.0)

    def open_connections() -> list[object]:
        return simulated.simulation.network.connections("client", "broker-1")

    responses = [send() for _ in range(3)]
    for each in responses:
        assert simulated.run_until(each)["brokers"][0]["node_id"] == 1
    assert len(open_connections()) == 1
    with pytest.raises(ConnectionFailed, match="broker 2"):
        simulated.run_until(send(2))

    endpoints[1] = endpoints[1]._replace(port=1)
    for _ in range(2):
        started_s = host.reactor.seconds()
        with pytest.raises(ConnectionFailed, match="broker-1:1"):
            simulated.run_until(send())
        assert host.reactor.seconds() - started_s < 0.1
    endpoints[1] = endpoints[1]._replace(port=BROKER_PORT)
    simulated.run_until(send())
    simulated.run(1.0)
    assert len(open_connections()) == 1

    pending = connections.request(1, LIST_GROUPS, {"states_filter": []}, timeout_s=5.0)
    connections.stop()
    with pytest.raises(ConnectionLost):
        simulated.run_until(pending)
    with pytest.raises(ClientError, match="closed"):
        simulated.run_until(send())
    simulated.run(1.0)
    assert open_connections() == []
    assert host.reactor.getDelayedCalls() == []
    simulated.stop()
