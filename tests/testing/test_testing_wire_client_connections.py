"""The simulator's client closes connections whose version negotiation fails or is cancelled."""

from __future__ import annotations

import pytest
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.protocol import Factory, Protocol

from kreplica.client_core.errors import ClientError
from kreplica.testing.clients.wire_client import WireClient
from kreplica.testing.simulator.simulation import Simulation


class Silent(Protocol):
    """Never responds to the request for the supported versions."""

    open = False

    def connectionMade(self) -> None:
        self.open = True

    def connectionLost(self, reason: object = None) -> None:
        self.open = False


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_connection_without_versions_is_closed(cancelled: bool) -> None:
    """If version negotiation times out or is cancelled, the connection is closed."""
    simulation = Simulation(seed=7)
    broker, host = simulation.host("broker"), simulation.host("client")
    peer = Silent()
    port = broker.reactor.listenTCP(0, Factory.forProtocol(lambda: peer))
    client = WireClient(host.reactor, broker.name, port.getHost().port, client_id="test", request_timeout_s=5.0)
    connecting = Deferred.fromCoroutine(client.connection())
    simulation.run(1.0)
    assert peer.open
    if cancelled:
        connecting.cancel()
    with pytest.raises(CancelledError if cancelled else ClientError):
        simulation.run_until(connecting)
    simulation.run(1.0)
    assert not peer.open
