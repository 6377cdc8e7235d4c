"""One connection per broker: shared attempts, reconnection and backoff."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from client_peer import heartbeat, response_frame, result_of
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
    """Connections on an in-memory reactor: the test accepts or refuses each attempt."""

    def __init__(self) -> None:
        self.reactor = MemoryReactorClock()
        runtime = ClientRuntime(
            reactor=self.reactor,  # type: ignore[arg-type]
            random=Random(1),
            wall_clock_ms=lambda: 0,
        )
        self.connections = Connections(runtime, OPTIONS)

    def connect(self, address: Address = BROKER) -> Deferred[Connection]:
        """Request a connection to an address."""
        return Deferred.fromCoroutine(self.connections.to(address))

    @property
    def attempts(self) -> int:
        """Number of connection attempts so far."""
        return len(self.reactor.tcpClients)

    def accept(self) -> StringTransport:
        """Accept the last connection attempt."""
        self.protocol = self.reactor.tcpClients[-1][2].buildProtocol(None)
        transport = StringTransport()
        self.protocol.makeConnection(transport)
        return transport

    def respond_to_api_versions(self) -> None:
        """Respond to ApiVersions on the latest connection."""
        rows = [{"api_key": 12, "min_version": 0, "max_version": 4}]
        self.protocol.dataReceived(response_frame(API_VERSIONS, 4, 0, {"error_code": 0, "api_keys": rows}))

    def refuse(self) -> None:
        """Refuse the last connection attempt."""
        self.reactor.tcpClients[-1][2].clientConnectionFailed(None, Failure(ConnectionRefusedError()))

    def close(self) -> Deferred[None]:
        """Close all connections."""
        return Deferred.fromCoroutine(self.connections.close())


@pytest.fixture
def scene() -> ConnectionsScene:
    """Connections before the first attempt."""
    return ConnectionsScene()


def failure_of(deferred: Deferred[Connection]) -> BaseException:
    """Return the error of a failed Deferred."""
    with pytest.raises(BaseException) as caught:
        result_of(deferred)
    return caught.value


def test_concurrent_callers_share_an_attempt(scene: ConnectionsScene) -> None:
    """Cancelling one caller does not affect the others; cancelling the last one ends the attempt."""
    first, second = scene.connect(), scene.connect()
    assert scene.attempts == 1
    first.cancel()
    assert isinstance(failure_of(first), CancelledError)
    scene.accept()
    assert not second.called
    scene.respond_to_api_versions()
    connection = result_of(second)
    assert connection.versions == {12: (0, 4)}
    assert result_of(scene.connect()) is connection
    assert list(scene.connections) == [connection]

    other = Address("other", 9092)
    last = scene.connect(other)
    last.cancel()
    assert isinstance(failure_of(last), CancelledError)
    assert scene.reactor.connectors[-1].stoppedConnecting
    again = scene.connect(other)
    assert scene.attempts == 3
    transport = scene.accept()
    again.cancel()
    assert isinstance(failure_of(again), CancelledError)
    assert transport.disconnecting
    scene.protocol.connectionLost(Failure(ConnectionDone()))
    assert scene.reactor.getDelayedCalls() == []


def test_failed_attempts_are_spaced(scene: ConnectionsScene) -> None:
    """During the backoff, callers get the last error at once; a success resets the backoff."""
    refused = scene.connect()
    scene.refuse()
    assert isinstance(failure_of(refused), ConnectionFailed)
    early = failure_of(scene.connect())
    assert isinstance(early, ConnectionFailed)
    assert "broker:9092" in str(early)
    assert scene.attempts == 1
    scene.reactor.advance(2.0)
    scene.connect().addErrback(lambda _: None)
    scene.refuse()
    scene.reactor.advance(1.9)
    assert failure_of(scene.connect()).retriable
    scene.reactor.advance(2.1)
    third = scene.connect()
    scene.accept()
    scene.respond_to_api_versions()
    scene.protocol.connectionLost(Failure(ConnectionDone()))
    assert result_of(third).closed
    scene.connect().addErrback(lambda _: None)
    assert scene.attempts == 4


def test_unresponsive_broker_fails_the_attempt(scene: ConnectionsScene) -> None:
    """If a broker accepts the connection but does not respond, the attempt times out and the backoff starts."""
    attempt = scene.connect()
    transport = scene.accept()
    scene.reactor.advance(7.0)
    assert isinstance(failure_of(attempt), RequestTimedOut)
    assert transport.disconnected or transport.disconnecting
    assert isinstance(failure_of(scene.connect()), ConnectionFailed)
    assert scene.attempts == 1


def test_lost_peer_is_detected_by_a_timeout(scene: ConnectionsScene) -> None:
    """A request that times out closes the connection, and the next caller opens a new one."""
    attempt = scene.connect()
    scene.accept()
    scene.respond_to_api_versions()
    half_open = result_of(attempt)
    lost, behind = heartbeat(half_open, timeout_s=3.0), heartbeat(half_open, timeout_s=9.0)
    scene.reactor.advance(3.0)
    with pytest.raises(RequestTimedOut):
        result_of(lost)
    with pytest.raises(ConnectionLost):
        result_of(behind)
    assert half_open.closed
    assert scene.connections.find_open(BROKER) is None
    scene.connect().addErrback(lambda _: None)
    assert scene.attempts == 2


def test_forgotten_address(scene: ConnectionsScene) -> None:
    """Forgetting an address ends its connection or attempt; a later caller starts a new attempt."""
    attempt = scene.connect()
    scene.connections.forget(BROKER)
    assert isinstance(failure_of(attempt), ConnectionFailed)
    attempt = scene.connect()
    scene.accept()
    scene.respond_to_api_versions()
    in_flight = heartbeat(result_of(attempt))
    scene.connections.forget(BROKER)
    with pytest.raises(ConnectionLost):
        result_of(in_flight)
    scene.connections.forget(BROKER)
    scene.connect().addErrback(lambda _: None)
    assert scene.attempts == 3


def test_close_ends_everything(scene: ConnectionsScene) -> None:
    """Closing makes waiting and later callers fail, and leaves no timer."""
    connected = scene.connect()
    scene.accept()
    scene.respond_to_api_versions()
    in_flight = heartbeat(result_of(connected))
    waiting = scene.connect(Address("other", 9092))
    closed = scene.close()
    assert isinstance(failure_of(waiting), ClientClosed)
    with pytest.raises(ConnectionLost):
        result_of(in_flight)
    assert not closed.called
    scene.protocol.connectionLost(Failure(ConnectionDone()))
    assert not closed.called  # a lost connection is removed in the next reactor iteration
    scene.reactor.advance(0)
    result_of(closed)
    assert isinstance(failure_of(scene.connect()), ClientClosed)
    again = scene.close()
    scene.reactor.advance(0)
    result_of(again)
    assert scene.reactor.getDelayedCalls() == []


# --- through a cluster ---


@pytest.fixture
def brokers() -> Iterator[SimulatedCluster]:
    """One broker."""
    simulated_cluster = SimulatedCluster(seed=3)
    simulated_cluster.start()
    yield simulated_cluster
    simulated_cluster.stop()


def test_close_of_a_cluster_ends_retries(brokers: SimulatedCluster) -> None:
    """Closing ends retries between and during attempts; cancelling or closing leaves no timer."""
    host = brokers.host("application")
    lost = Cluster("nowhere:1", runtime=runtime_of(host.runtime))
    retries = [Deferred.fromCoroutine(lost.retrying(lost.refresh)) for _ in range(2)]
    brokers.run(0.01)
    retries[0].cancel()
    assert isinstance(failure_of(retries[0]), CancelledError)
    brokers.run_until(lost.close())
    assert isinstance(failure_of(retries[1]), ClientClosed)
    assert host.reactor.getDelayedCalls() == []

    cluster = Cluster(brokers.bootstrap_servers, runtime=runtime_of(host.runtime))
    attempt = Deferred.fromCoroutine(cluster.retrying(cluster.refresh))
    brokers.run_until(cluster.close())
    assert isinstance(failure_of(attempt), ClientClosed)
    brokers.run(0.001)
    assert host.reactor.getDelayedCalls() == []


def test_network_without_responses(brokers: SimulatedCluster) -> None:
    """Requests time out, and so does the operation; after the network heals, operations succeed again."""
    host = brokers.host("application")
    options = ClientOptions(request_timeout_s=2.0, connect_timeout_s=2.0)
    cluster = Cluster(brokers.bootstrap_servers, options=options, runtime=runtime_of(host.runtime))
    brokers.run_until(cluster.refresh())
    brokers.simulation.network.cut("application", "broker-1")
    with pytest.raises(GaveUp, match=r"within 2 s|timeout"):
        brokers.run_until(cluster.retrying(cluster.refresh, 5.0), 60)
    brokers.simulation.network.heal()
    brokers.run_until(cluster.retrying(cluster.refresh), 60)
    brokers.run_until(cluster.close())
    assert host.reactor.getDelayedCalls() == []
