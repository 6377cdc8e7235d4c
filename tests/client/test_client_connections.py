"""One connection per broker: shared attempts, reconnection and backoff."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from client_peer import answer_bytes, heartbeat, result_of
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ConnectionDone, ConnectionRefusedError
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.python.failure import Failure

from kreplica.client import Cluster
from kreplica.client.client_runtime import ClientRuntime, runtime_of
from kreplica.client.connection import Connection
from kreplica.client.connections import Connections
from kreplica.client.errors import ClientClosed, ConnectionFailed, ConnectionLost, GaveUp, RequestTimedOut
from kreplica.client_core.addresses import Address
from kreplica.client_core.options import ClientOptions
from kreplica.testing.cluster.cluster import SimulatedCluster
from kreplica.wire.messages import API_VERSIONS

BROKER = Address("broker", 9092)
OPTIONS = ClientOptions(backoff_s=2.0, backoff_s_max=4.0, connect_timeout_s=7.0)


class ConnectionsScene:
    """Connections on a network; the test decides whether attempts succeed or fail."""

    def __init__(self) -> None:
        self.reactor = MemoryReactorClock()
        runtime = ClientRuntime(
            reactor=self.reactor,  # type: ignore[arg-type]
            random=Random(1),
            wall_clock_ms=lambda: 0,
        )
        self.connections = Connections(runtime, OPTIONS)

    def ask(self, address: Address = BROKER) -> Deferred[Connection]:
        """Return a coordinator's response, which must not be an error."""
        return Deferred.fromCoroutine(self.connections.to(address))

    @property
    def attempts(self) -> int:
        """Return the number of attempts."""
        return len(self.reactor.tcpClients)

    def accept(self) -> StringTransport:
        """Let the last attempt connect."""
        self.protocol = self.reactor.tcpClients[-1][2].buildProtocol(None)
        transport = StringTransport()
        self.protocol.makeConnection(transport)
        return transport

    def answer_versions(self) -> None:
        """Respond to ApiVersions on the latest connection."""
        rows = [{"api_key": 12, "min_version": 0, "max_version": 4}]
        self.protocol.dataReceived(answer_bytes(API_VERSIONS, 4, 0, {"error_code": 0, "api_keys": rows}))

    def refuse(self) -> None:
        """Let the last attempt fail."""
        self.reactor.tcpClients[-1][2].clientConnectionFailed(None, Failure(ConnectionRefusedError()))

    def close(self) -> Deferred[None]:
        """Close all connections."""
        return Deferred.fromCoroutine(self.connections.close())


@pytest.fixture
def ways() -> ConnectionsScene:
    """Connections without any attempt."""
    return ConnectionsScene()


def failure_of(deferred: Deferred[Connection]) -> BaseException:
    """Return the error."""
    with pytest.raises(BaseException) as caught:
        result_of(deferred)
    return caught.value


def test_concurrent_callers_share_an_attempt(ways: ConnectionsScene) -> None:
    """Cancelling one caller does not affect the others; cancelling the last one ends the attempt and its timers."""
    first, second = ways.ask(), ways.ask()
    assert ways.attempts == 1
    first.cancel()
    assert isinstance(failure_of(first), CancelledError)
    ways.accept()
    assert not second.called
    ways.answer_versions()
    connection = result_of(second)
    assert connection.versions == {12: (0, 4)}
    assert result_of(ways.ask()) is connection
    assert list(ways.connections) == [connection]

    other = Address("other", 9092)
    last = ways.ask(other)
    last.cancel()
    assert isinstance(failure_of(last), CancelledError)
    assert ways.reactor.connectors[-1].stoppedConnecting
    again = ways.ask(other)
    assert ways.attempts == 3
    transport = ways.accept()
    again.cancel()
    assert isinstance(failure_of(again), CancelledError)
    assert transport.disconnecting
    ways.protocol.connectionLost(Failure(ConnectionDone()))
    assert ways.reactor.getDelayedCalls() == []


def test_failed_attempts_are_spaced(ways: ConnectionsScene) -> None:
    """Early callers get the last error at once; a success resets the backoff."""
    refused = ways.ask()
    ways.refuse()
    assert isinstance(failure_of(refused), ConnectionFailed)
    early = failure_of(ways.ask())
    assert isinstance(early, ConnectionFailed)
    assert "broker:9092" in str(early)
    assert ways.attempts == 1
    ways.reactor.advance(2.0)
    ways.ask().addErrback(lambda _: None)
    ways.refuse()
    ways.reactor.advance(1.9)
    assert failure_of(ways.ask()).retriable
    ways.reactor.advance(2.1)
    third = ways.ask()
    ways.accept()
    ways.answer_versions()
    ways.protocol.connectionLost(Failure(ConnectionDone()))
    assert result_of(third).closed
    ways.ask().addErrback(lambda _: None)
    assert ways.attempts == 4


def test_silent_broker_is_a_failed_attempt(ways: ConnectionsScene) -> None:
    """The broker accepts the connection but does not respond."""
    asked = ways.ask()
    transport = ways.accept()
    ways.reactor.advance(7.0)
    assert isinstance(failure_of(asked), RequestTimedOut)
    assert transport.disconnected or transport.disconnecting
    assert isinstance(failure_of(ways.ask()), ConnectionFailed)
    assert ways.attempts == 1


def test_lost_peer_is_detected_by_a_timeout(ways: ConnectionsScene) -> None:
    """A request without a response closes the connection, and the next request opens another."""
    asked = ways.ask()
    ways.accept()
    ways.answer_versions()
    half_open = result_of(asked)
    lost, behind = heartbeat(half_open, timeout_s=3.0), heartbeat(half_open, timeout_s=9.0)
    ways.reactor.advance(3.0)
    with pytest.raises(RequestTimedOut):
        result_of(lost)
    with pytest.raises(ConnectionLost):
        result_of(behind)
    assert half_open.closed
    assert ways.connections.find_open(BROKER) is None
    ways.ask().addErrback(lambda _: None)
    assert ways.attempts == 2


def test_forgotten_address(ways: ConnectionsScene) -> None:
    """The address's connection or attempt ends; a later caller starts again."""
    asked = ways.ask()
    ways.connections.forget(BROKER)
    assert isinstance(failure_of(asked), ConnectionFailed)
    asked = ways.ask()
    ways.accept()
    ways.answer_versions()
    under_way = heartbeat(result_of(asked))
    ways.connections.forget(BROKER)
    with pytest.raises(ConnectionLost):
        result_of(under_way)
    ways.connections.forget(BROKER)
    ways.ask().addErrback(lambda _: None)
    assert ways.attempts == 3


def test_close_ends_everything(ways: ConnectionsScene) -> None:
    """Callers that wait for a connection fail, later ones too; no timer remains."""
    connected = ways.ask()
    ways.accept()
    ways.answer_versions()
    under_way = heartbeat(result_of(connected))
    waiting = ways.ask(Address("other", 9092))
    closed = ways.close()
    assert isinstance(failure_of(waiting), ClientClosed)
    with pytest.raises(ConnectionLost):
        result_of(under_way)
    assert not closed.called
    ways.protocol.connectionLost(Failure(ConnectionDone()))
    assert not closed.called  # a dropped connection needs a reactor iteration to disappear
    ways.reactor.advance(0)
    result_of(closed)
    assert isinstance(failure_of(ways.ask()), ClientClosed)
    again = ways.close()
    ways.reactor.advance(0)
    result_of(again)
    assert ways.reactor.getDelayedCalls() == []


# --- through a cluster ---


@pytest.fixture
def simulated() -> Iterator[SimulatedCluster]:
    """One broker."""
    cluster = SimulatedCluster(seed=3)
    cluster.start()
    yield cluster
    cluster.stop()


def test_close_of_a_cluster_ends_retries(simulated: SimulatedCluster) -> None:
    """Closing ends retries between and during attempts; a cancelled caller gets CancelledError and leaves no timer."""
    host = simulated.host("application")
    lost = Cluster("nowhere:1", runtime=runtime_of(host.runtime))
    pausing = [Deferred.fromCoroutine(lost.retrying(lost.refresh)) for _ in range(2)]
    simulated.run(0.01)
    pausing[0].cancel()
    assert isinstance(failure_of(pausing[0]), CancelledError)
    simulated.run_until(lost.close())
    assert isinstance(failure_of(pausing[1]), ClientClosed)
    assert host.reactor.getDelayedCalls() == []

    cluster = Cluster(simulated.bootstrap_servers, runtime=runtime_of(host.runtime))
    asking = Deferred.fromCoroutine(cluster.retrying(cluster.refresh))
    simulated.run_until(cluster.close())
    assert isinstance(failure_of(asking), ClientClosed)
    simulated.run(0.001)
    assert host.reactor.getDelayedCalls() == []


def test_network_without_responses(simulated: SimulatedCluster) -> None:
    """Requests and the operation time out; afterwards the connection recovers."""
    host = simulated.host("application")
    options = ClientOptions(request_timeout_s=2.0, connect_timeout_s=2.0)
    cluster = Cluster(simulated.bootstrap_servers, options=options, runtime=runtime_of(host.runtime))
    simulated.run_until(cluster.refresh())
    simulated.simulation.network.cut("application", "broker-1")
    with pytest.raises(GaveUp, match=r"within 2 s|timeout"):
        simulated.run_until(cluster.retrying(cluster.refresh, 5.0), 60)
    simulated.simulation.network.heal()
    simulated.run_until(cluster.retrying(cluster.refresh), 60)
    simulated.run_until(cluster.close())
    assert host.reactor.getDelayedCalls() == []
