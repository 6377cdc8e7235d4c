"""TCP and timers: the same tests on the real reactor and on the simulated one."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from twisted.internet import error, tcp
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import TCP4ClientEndpoint, TCP4ServerEndpoint, clientFromString, serverFromString
from twisted.internet.interfaces import IHalfCloseableProtocol, IPullProducer, IPushProducer
from twisted.internet.protocol import ClientFactory, Factory, Protocol
from twisted.internet.task import deferLater
from twisted.python.failure import Failure
from zope.interface import implementer

from kreplica.testing.simulator.simulation import Simulation
from tests.support import real_reactor

NO_REASON = Failure(error.ConnectionDone())
PAYLOAD = bytes(range(256)) * 4096


@dataclass
class World:
    """The reactors of a server and a client, and a method that runs a coroutine on them."""

    server: Any
    client: Any
    server_name: str
    simulation: Simulation | None

    def run(self, coroutine: Coroutine[Deferred[Any], Any, None]) -> None:
        if self.simulation is None:
            real_reactor.run(coroutine, timeout_s=10)
        else:
            self.simulation.run_until(coroutine, timeout_s=10)

    def pause(self, seconds: float) -> Deferred[None]:
        return deferLater(self.client, seconds, lambda: None)


@pytest.fixture(params=["real", "simulated 1", "simulated 2", "simulated 3"])
def world(request: pytest.FixtureRequest) -> World:
    if request.param == "real":
        from twisted.internet import reactor

        return World(reactor, reactor, "127.0.0.1", None)
    simulation = Simulation(seed=int(request.param.split()[1]))
    server, client = simulation.host("server"), simulation.host("client")
    return World(server.reactor, client.reactor, "server", simulation)


class Peer(Protocol):
    """Collects received data, and waits for a number of bytes or the loss of the connection."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.reads = 0
        self.lost: Deferred[type[BaseException]] = Deferred()
        self._waiting: list[tuple[int, Deferred[bytes]]] = []

    def dataReceived(self, data: bytes) -> None:
        self.received += data
        self.reads += 1
        for size, deferred in list(self._waiting):
            if len(self.received) >= size:
                self._waiting.remove((size, deferred))
                deferred.callback(bytes(self.received))

    def wait_for(self, size: int) -> Deferred[bytes]:
        deferred: Deferred[bytes] = Deferred()
        self._waiting.append((size, deferred))
        self.dataReceived(b"")
        return deferred

    def connectionLost(self, reason: Failure = NO_REASON) -> None:
        self.lost.callback(type(reason.value))


class Server(Factory):
    def __init__(self, protocol: type[Peer] = Peer) -> None:
        self.protocol = protocol  # type: ignore[assignment]
        self.accepted: Deferred[Any] = Deferred()

    def buildProtocol(self, addr: Any) -> Any:
        protocol = self.protocol()  # type: ignore[misc]
        protocol.address = addr
        self.accepted, accepted = Deferred(), self.accepted
        fire_when_connected(protocol, accepted)
        return protocol


def fire_when_connected(protocol: Any, deferred: Deferred[Any]) -> None:
    """Fire the Deferred when the protocol is connected, not when it is built."""
    original = protocol.makeConnection

    def connected(transport: Any) -> None:
        original(transport)
        deferred.callback(protocol)

    protocol.makeConnection = connected


async def connect(world: World, server_protocol: type[Peer] = Peer, client_protocol: type[Peer] = Peer) -> Any:
    """Open a connection and return (port, server protocol, client protocol)."""
    factory = Server(server_protocol)
    accepted = factory.accepted
    port = world.server.listenTCP(0, factory, interface="127.0.0.1" if world.simulation is None else "")
    endpoint = TCP4ClientEndpoint(world.client, world.server_name, port.getHost().port)
    client = await endpoint.connect(Factory.forProtocol(client_protocol))
    server = await accepted
    return port, server, client


@contextmanager
def closing(*peers: Any) -> Iterator[None]:
    try:
        yield
    finally:
        for peer in peers:
            if peer.transport is not None:
                peer.transport.abortConnection()


class TestConnections:
    def test_bytes_arrive_whole_and_in_order(self, world: World) -> None:
        """A megabyte sent in each direction at once arrives unchanged."""

        async def scenario() -> None:
            port, server, client = await connect(world)
            with closing(server, client):
                client.transport.write(PAYLOAD)
                server.transport.writeSequence([PAYLOAD[:1000], PAYLOAD[1000:]])
                assert await server.wait_for(len(PAYLOAD)) == PAYLOAD
                assert await client.wait_for(len(PAYLOAD)) == PAYLOAD
                assert server.reads > 1
                await port.stopListening()
                server.transport.loseConnection()
                assert await client.lost is error.ConnectionDone
                assert await server.lost is error.ConnectionDone

        world.run(scenario())

    def test_losing_a_connection_sends_written_data(self, world: World) -> None:
        """loseConnection sends all written data before it closes; both ends see a clean close."""

        async def scenario() -> None:
            port, server, client = await connect(world)
            server.transport.write(PAYLOAD)
            server.transport.loseConnection()
            assert await client.lost is error.ConnectionDone
            assert client.received == PAYLOAD
            assert await server.lost is error.ConnectionDone
            await port.stopListening()

        world.run(scenario())

    def test_aborting_is_visible_at_both_ends(self, world: World) -> None:
        """abortConnection closes a connection at once: it is aborted at this end and lost at the peer."""

        async def scenario() -> None:
            port, server, client = await connect(world)
            client.transport.abortConnection()
            assert await client.lost is error.ConnectionAborted
            assert await server.lost is error.ConnectionLost
            await port.stopListening()

        world.run(scenario())

    def test_no_listener(self, world: World) -> None:
        """Connecting to a port without a listener is refused, even after the listener has stopped."""

        async def scenario() -> None:
            port, server, client = await connect(world)
            number = port.getHost().port
            with closing(server, client):
                await port.stopListening()
                endpoint = TCP4ClientEndpoint(world.client, world.server_name, number)
                with pytest.raises(error.ConnectionRefusedError):
                    await endpoint.connect(Factory.forProtocol(Protocol))
                client.transport.write(b"still connected")
                assert await server.wait_for(15) == b"still connected"

        world.run(scenario())

    def test_a_port_can_be_used_once(self, world: World) -> None:
        """Listening on a port in use fails at once."""

        async def scenario() -> None:
            port = world.server.listenTCP(0, Server(), interface="127.0.0.1")
            with pytest.raises(error.CannotListenError):
                world.server.listenTCP(port.getHost().port, Server(), interface="127.0.0.1")
            await port.stopListening()

        world.run(scenario())

    def test_both_ends_agree_on_their_addresses(self, world: World) -> None:
        """The peer of one end is the host of the other; options are kept."""

        async def scenario() -> None:
            port, server, client = await connect(world)
            with closing(server, client):
                assert server.transport.getPeer() == client.transport.getHost() == server.address
                assert server.transport.getHost() == client.transport.getPeer()
                assert client.transport.getPeer().port == port.getHost().port
                client.transport.setTcpNoDelay(True)
                client.transport.setTcpKeepAlive(True)
                assert client.transport.getTcpNoDelay()
                assert client.transport.getTcpKeepAlive()
                await port.stopListening()

        world.run(scenario())

    def test_half_closing(self, world: World) -> None:
        """A client that has sent everything half-closes the connection, and still receives the response."""

        @implementer(IHalfCloseableProtocol)
        class Answering(Peer):
            def readConnectionLost(self) -> None:
                self.transport.write(b"answer to " + self.received)  # type: ignore[union-attr]
                self.transport.loseConnection()  # type: ignore[union-attr]

            def writeConnectionLost(self) -> None:
                raise AssertionError("this end did not half-close the connection")

        async def scenario() -> None:
            port, server, client = await connect(world, Answering)
            client.transport.write(b"question")
            client.transport.loseWriteConnection()
            assert await client.lost is error.ConnectionDone
            assert client.received == b"answer to question"
            assert await server.lost is error.ConnectionDone
            await port.stopListening()

        world.run(scenario())

    def test_a_factory_may_reject_a_connection(self, world: World) -> None:
        """If a factory builds no protocol, the connection is closed."""

        class Refusing(Factory):
            def buildProtocol(self, addr: Any) -> None:
                return None

        async def scenario() -> None:
            port = world.server.listenTCP(0, Refusing(), interface="127.0.0.1" if world.simulation is None else "")
            endpoint = TCP4ClientEndpoint(world.client, world.server_name, port.getHost().port)
            client: Any = await endpoint.connect(Factory.forProtocol(Peer))
            assert await client.lost is error.ConnectionDone
            await port.stopListening()

        world.run(scenario())

    def test_an_exception_closes_only_its_connection(self, world: World) -> None:
        """If a protocol raises, its connection is lost with that exception; other connections continue."""

        class Broken(Peer):
            def dataReceived(self, data: bytes) -> None:
                raise ZeroDivisionError("broken protocol")

        async def scenario() -> None:
            port, server, client = await connect(world, Broken)
            client.transport.write(b"x")
            assert await server.lost is ZeroDivisionError
            await client.lost
            await port.stopListening()

        world.run(scenario())
        if world.simulation is not None:
            assert [type(failure.value) for failure in world.simulation.failures] == [ZeroDivisionError]

    def test_a_factory_that_raises_keeps_listening(self, world: World) -> None:
        """If a factory fails to build one protocol, its port stays open."""

        class FailsOnce(Server):
            calls = 0

            def buildProtocol(self, addr: Any) -> Any:
                self.calls += 1
                if self.calls == 1:
                    raise ZeroDivisionError("the first connection fails")
                return super().buildProtocol(addr)

        async def scenario() -> None:
            factory = FailsOnce()
            accepted = factory.accepted
            port = world.server.listenTCP(0, factory, interface="127.0.0.1" if world.simulation is None else "")
            endpoint = TCP4ClientEndpoint(world.client, world.server_name, port.getHost().port)
            first: Any = await endpoint.connect(Factory.forProtocol(Peer))
            second: Any = await endpoint.connect(Factory.forProtocol(Peer))
            server = await accepted
            server.transport.write(b"hello")
            assert await second.wait_for(5) == b"hello"
            for each in (first, second):
                each.transport.abortConnection()
                await each.lost
            await server.lost
            await port.stopListening()

        world.run(scenario())

    def test_connecting_can_be_stopped(self, world: World) -> None:
        """stopConnecting fails the attempt; its factory is notified once."""
        failed: Deferred[type[BaseException]] = Deferred()

        class Impatient(ClientFactory):
            def clientConnectionFailed(self, connector: Any, reason: Failure) -> None:
                failed.callback(type(reason.value))

        async def scenario() -> None:
            port = world.server.listenTCP(0, Server(), interface="127.0.0.1" if world.simulation is None else "")
            connector = world.client.connectTCP(world.server_name, port.getHost().port, Impatient())
            connector.stopConnecting()
            assert await failed is error.UserError
            await port.stopListening()

        world.run(scenario())

    def test_endpoint_strings(self, world: World) -> None:

        async def scenario() -> None:
            server = serverFromString(world.server, "tcp:0:interface=127.0.0.1" if not world.simulation else "tcp:0")
            assert isinstance(server, TCP4ServerEndpoint)
            port = await server.listen(Server())
            name = f"tcp:{world.server_name}:{port.getHost().port}"
            client: Any = await clientFromString(world.client, name).connect(Factory.forProtocol(Peer))
            client.transport.loseConnection()
            await client.lost
            await port.stopListening()

        world.run(scenario())


class TestBackPressure:
    def test_a_reader_that_pauses_stops_its_sender(self, world: World) -> None:
        """A push producer is paused while the peer does not read, and resumed later; nothing is lost."""
        total = 32 << 20

        @implementer(IPushProducer)
        class Producer:
            sent = 0
            pauses = 0
            going = True

            def __init__(self, transport: Any) -> None:
                self.transport = transport

            def resumeProducing(self) -> None:
                self.going = True
                while self.going and self.sent < total:
                    self.sent += 1 << 16
                    self.transport.write(bytes(1 << 16))
                if self.sent == total:
                    self.transport.unregisterProducer()

            def pauseProducing(self) -> None:
                self.going = False
                self.pauses += 1

            def stopProducing(self) -> None:
                self.going = False

        async def scenario() -> None:
            port, server, client = await connect(world)
            with closing(server, client):
                server.transport.pauseProducing()
                producer = Producer(client.transport)
                client.transport.registerProducer(producer, True)
                producer.resumeProducing()
                await world.pause(0.2)
                assert not server.received
                assert producer.pauses
                assert producer.sent < total
                server.transport.resumeProducing()
                await server.wait_for(total)
                assert len(server.received) == total
                await port.stopListening()

        world.run(scenario())

    def test_a_pull_producer_is_called_for_each_piece(self, world: World) -> None:
        """A pull producer is called again after its data was sent; loseConnection waits until it is unregistered."""

        @implementer(IPullProducer)
        class Producer:
            calls = 0

            def __init__(self, transport: Any) -> None:
                self.transport = transport

            def resumeProducing(self) -> None:
                self.calls += 1
                self.transport.write(b"%04d" % self.calls)
                if self.calls == 20:
                    self.transport.unregisterProducer()

            def stopProducing(self) -> None:
                raise AssertionError("the producer was stopped before its end")

        async def scenario() -> None:
            port, server, client = await connect(world)
            producer = Producer(client.transport)
            client.transport.registerProducer(producer, False)
            client.transport.loseConnection()
            await server.lost
            assert server.received == b"".join(b"%04d" % number for number in range(1, 21))
            await port.stopListening()

        world.run(scenario())

    def test_a_paused_reader_gets_nothing_until_it_resumes(self, world: World) -> None:
        """A paused protocol receives neither data nor the end of the connection."""

        async def scenario() -> None:
            port, server, client = await connect(world)
            server.transport.pauseProducing()
            client.transport.write(b"late")
            client.transport.loseConnection()
            await world.pause(0.05)
            assert not server.received
            assert not server.lost.called
            server.transport.resumeProducing()
            assert await server.lost is error.ConnectionDone
            assert server.received == b"late"
            await port.stopListening()

        world.run(scenario())


class TestCustomTransport:
    def test_a_custom_transport_reads_into_its_buffer(self, world: World) -> None:
        """The class in ``Port.transport`` handles the port's connections, and can use recv_into and sendmsg."""
        scratch = bytearray(4096)

        class Scratch(tcp.Server):
            def doRead(self) -> Any:
                try:
                    size = self.socket.recv_into(scratch)
                except BlockingIOError:
                    return None
                if not size:
                    return error.ConnectionDone()
                self.socket.sendmsg([b"<", memoryview(scratch)[:size], b">"])
                return None

        async def scenario() -> None:
            port = world.server.listenTCP(0, Server(), interface="127.0.0.1" if world.simulation is None else "")
            port.transport = Scratch
            endpoint = TCP4ClientEndpoint(world.client, world.server_name, port.getHost().port)
            client: Any = await endpoint.connect(Factory.forProtocol(Peer))
            client.transport.write(b"a")
            assert await client.wait_for(3) == b"<a>"
            client.transport.loseConnection()
            await client.lost
            await port.stopListening()

        world.run(scenario())


class TestTimers:
    def test_order_cancel_reset_and_delay(self, world: World) -> None:
        """Delayed calls run in the order of their final times, after resets, delays and cancellations."""
        seen: list[str] = []

        async def scenario() -> None:
            reactor = world.client
            began = reactor.seconds()
            later = reactor.callLater(0.001, seen.append, "put off")
            sooner = reactor.callLater(5, seen.append, "brought forward")
            never = reactor.callLater(0.005, seen.append, "never")
            reactor.callLater(0.02, seen.append, "second")
            reactor.callLater(0.02, seen.append, "third")
            later.delay(0.03)
            later.reset(0.04)
            sooner.reset(0.01)
            assert later in reactor.getDelayedCalls()
            assert sooner.getTime() == pytest.approx(began + 0.01, abs=0.005)
            never.cancel()
            assert not never.active()
            with pytest.raises(error.AlreadyCancelled):
                never.reset(1)
            await world.pause(0.06)
            assert seen == ["brought forward", "second", "third", "put off"]
            with pytest.raises(error.AlreadyCalled):
                later.cancel()
            assert later not in reactor.getDelayedCalls()
            assert reactor.seconds() >= began + 0.06

        world.run(scenario())

    def test_call_from_thread(self, world: World) -> None:
        """callFromThread runs functions soon and in order, but not immediately."""
        seen: list[int] = []

        async def scenario() -> None:
            for number in range(3):
                world.client.callFromThread(seen.append, number)
            assert seen == []
            await world.pause(0.01)
            assert seen == [0, 1, 2]

        world.run(scenario())

    def test_a_negative_delay_is_an_error(self, world: World) -> None:

        async def scenario() -> None:
            with pytest.raises(AssertionError):
                world.client.callLater(-1, print)

        world.run(scenario())
