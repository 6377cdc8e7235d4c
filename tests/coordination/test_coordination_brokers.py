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


def test_connection_is_reused_follows_its_broker_and_fails_at_once() -> None:
    """A connection is reused, follows an address change, and fails without a backoff."""
    simulated = SimulatedCluster(seed=5)
    simulated.start()
    host = simulated.host("asking")
    where = {1: Endpoint("PLAINTEXT", "broker-1", BROKER_PORT)}
    connections = BrokerConnections(host.runtime, where.get, "asking")

    def ask(broker_id: int = 1) -> Deferred[object]:
        return connections.request(broker_id, METADATA, BODY, timeout_s=5.0)

    def open_ones() -> list[object]:
        return simulated.simulation.network.connections("asking", "broker-1")

    several = [ask() for _ in range(3)]
    for each in several:
        assert simulated.run_until(each)["brokers"][0]["node_id"] == 1
    assert len(open_ones()) == 1
    with pytest.raises(ConnectionFailed, match="broker 2"):
        simulated.run_until(ask(2))

    where[1] = where[1]._replace(port=1)
    for _ in range(2):
        started_s = host.reactor.seconds()
        with pytest.raises(ConnectionFailed, match="broker-1:1"):
            simulated.run_until(ask())
        assert host.reactor.seconds() - started_s < 0.1
    where[1] = where[1]._replace(port=BROKER_PORT)
    simulated.run_until(ask())
    simulated.run(1.0)
    assert len(open_ones()) == 1

    under_way = connections.request(1, LIST_GROUPS, {"states_filter": []}, timeout_s=5.0)
    connections.stop()
    with pytest.raises(ConnectionLost):
        simulated.run_until(under_way)
    with pytest.raises(ClientError, match="closed"):
        simulated.run_until(ask())
    simulated.run(1.0)
    assert open_ones() == []
    assert host.reactor.getDelayedCalls() == []
    simulated.stop()
