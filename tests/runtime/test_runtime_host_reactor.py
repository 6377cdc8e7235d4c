"""Hosts on real sockets: kill, pause and isolation take effect at once, and do not affect other hosts."""

from __future__ import annotations

import gc
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.error import TimeoutError as ConnectTimedOut
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure

from kreplica.runtime import use_monotonic_clock
from kreplica.runtime.hosts.host_reactor import HostClient, HostReactor
from kreplica.runtime.hosts.loopback import CLIENTS, Loopback
from kreplica.runtime.pause import pause
from tests.support.real_reactor import run

HOST = "127.0.0.1"


class Peer(Protocol):
    """Records its events."""

    def __init__(self, echoes: bool = False) -> None:
        self.received = b""
        self.lost: Failure | None = None
        self._echoes = echoes

    def dataReceived(self, data: bytes) -> None:
        self.received += data
        if self._echoes:
            self.transport.write(data)  # type: ignore[union-attr]

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.lost = reason

    def send(self, data: bytes) -> None:
        self.transport.write(data)  # type: ignore[union-attr]


class World:
    """Hosts that echo received data, each on its own port, and connections between them."""

    def __init__(self, reactor: Any) -> None:
        self.reactor = reactor
        self.loopback = Loopback()
        self.hosts: dict[str, HostReactor] = {}
        self.ports: dict[str, int] = {}
        self.accepted: dict[str, list[Peer]] = {}

    def host(self, name: str, port: int = 0) -> HostReactor:
        host = self.hosts[name] = HostReactor(self.reactor, name, self.loopback)
        peers = self.accepted[name] = []

        def accept() -> Peer:
            peers.append(Peer(echoes=True))
            return peers[-1]

        factory = Factory.forProtocol(accept)
        factory.noisy = False
        bound: Any = host.listenTCP(port, factory, interface=HOST)
        self.ports[name] = bound.getHost().port
        return host

    def connect(self, reactor: Any, to: str, timeout_s: float = 10.0) -> tuple[Deferred[Any], Peer]:
        from twisted.internet.endpoints import TCP4ClientEndpoint

        peer = Peer()
        factory = Factory.forProtocol(lambda: peer)
        factory.noisy = False
        return TCP4ClientEndpoint(reactor, HOST, self.ports[to], timeout_s).connect(factory), peer

    async def connected(self, reactor: Any, to: str) -> Peer:
        """Return a connection that has transported data in both directions."""
        made, peer = self.connect(reactor, to)
        await made
        await self.echoed(peer, b"hello ")
        return peer

    async def echoed(self, peer: Peer, data: bytes) -> None:
        before = len(peer.received)
        peer.send(data)
        await self.until(lambda: peer.received[before:] == data)

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await pause(self.reactor, 0.001)

    async def wait_for_pending_effects(self) -> None:
        """Wait long enough for pending effects: a connection of other hosts transports ten messages."""
        if "bystander" not in self.hosts:
            self.host("bystander")
        peer = await self.connected(self.reactor, "bystander")
        for _ in range(10):
            await self.echoed(peer, b"still here")
        peer.transport.abortConnection()  # type: ignore[union-attr]
        await self.until(lambda: peer.lost is not None)

    def close(self) -> None:
        for host in self.hosts.values():
            host.kill()


Story = Callable[[World], Coroutine[Any, Any, None]]


def run_story(story: Story) -> None:
    """Run a test function on the process's reactor, and check that its hosts leave nothing there."""
    from twisted.internet import reactor

    async def whole() -> None:
        use_monotonic_clock(reactor)
        world = World(reactor)
        try:
            await story(world)
        finally:
            world.close()

    run(whole(), 20.0)


# --- killed ----------------------------------------------------------------------------------------------------------


def test_connections_of_a_killed_host_are_lost_at_once() -> None:
    """The host's port refuses connections, and its timers never fire."""

    async def story(world: World) -> None:
        victim = world.host("victim")
        peer = await world.connected(world.reactor, "victim")
        happened: list[str] = []
        victim.callLater(0.001, happened.append, "timer")
        victim.callFromThread(happened.append, "from a thread")
        own_end = world.accepted["victim"][0]
        victim.kill()
        await world.until(lambda: peer.lost is not None)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((HOST, world.ports["victim"]))
        await world.wait_for_pending_effects()
        assert happened == []
        assert own_end.lost is None

    run_story(story)


def test_code_of_a_killed_host_has_no_effect() -> None:
    """The garbage collector may run code that starts and cancels timers; none fires."""

    async def story(world: World) -> None:
        victim = world.host("victim")
        victim.kill()
        happened: list[str] = []
        victim.callLater(0, happened.append, "timer")
        cancelled = victim.callLater(0, happened.append, "cancelled")
        cancelled.cancel()
        victim.callFromThread(happened.append, "from a thread")
        victim.kill()
        await world.wait_for_pending_effects()
        assert happened == []
        assert not cancelled.active()

    run_story(story)


def test_next_process_can_use_the_same_port() -> None:
    """Clients find the restarted broker at its address."""

    async def story(world: World) -> None:
        world.host("broker").kill()
        world.host("broker", world.ports["broker"])
        await world.connected(world.reactor, "broker")

    run_story(story)


# --- paused ----------------------------------------------------------------------------------------------------------


def test_paused_host_responds_after_its_resume() -> None:
    """The host's connections stay open, the kernel buffers data, and the resumed host reads all of it."""

    async def story(world: World) -> None:
        sleeper = world.host("sleeper")
        peer = await world.connected(world.reactor, "sleeper")
        sleeper.pause()
        peer.send(b"are you there?")
        made, late = world.connect(world.reactor, "sleeper")
        await made
        late.send(b"and for me?")
        await world.wait_for_pending_effects()
        assert peer.received == b"hello "
        assert len(world.accepted["sleeper"]) == 1
        sleeper.resume()
        await world.until(lambda: peer.received == b"hello are you there?" and late.received == b"and for me?")

    run_story(story)


def test_timers_of_a_paused_host_fire_afterwards_in_order() -> None:
    """Overdue ones fire at once, the others at their time."""

    async def story(world: World) -> None:
        sleeper = world.host("sleeper")
        fired: list[str] = []
        sleeper.callLater(0.002, fired.append, "second")
        sleeper.callLater(0.001, fired.append, "first")
        later = sleeper.callLater(300.0, fired.append, "never here")
        due_s = later.getTime()
        sleeper.pause()
        sleeper.pause()
        sleeper.callFromThread(fired.append, "from a thread")
        end_s = world.reactor.seconds() + 0.01
        await world.until(lambda: world.reactor.seconds() > end_s)
        await world.wait_for_pending_effects()
        assert fired == []
        sleeper.resume()
        sleeper.resume()
        await world.until(lambda: len(fired) == 3)
        assert [each for each in fired if each != "from a thread"] == ["first", "second"]
        assert later.getTime() == pytest.approx(due_s, abs=0.05)

    run_story(story)


def test_paused_host_can_be_killed() -> None:
    """The host's peers then lose their connections."""

    async def story(world: World) -> None:
        sleeper = world.host("sleeper")
        peer = await world.connected(world.reactor, "sleeper")
        sleeper.pause()
        sleeper.kill()
        await world.until(lambda: peer.lost is not None)

    run_story(story)


# --- isolated --------------------------------------------------------------------------------------------------------


def test_nothing_passes_between_isolated_hosts() -> None:
    """This holds for both directions and all connections; pending data arrives after the link is restored."""

    async def story(world: World) -> None:
        a, _ = world.host("a"), world.host("b")
        peer = await world.connected(a, "b")
        own_end = world.accepted["b"][0]
        world.loopback.cut(["a"], ["b"])
        peer.send(b"from a")
        own_end.send(b"from b")
        await world.wait_for_pending_effects()
        assert (peer.received, own_end.received) == (b"hello ", b"hello ")
        world.loopback.heal()
        await world.until(lambda: own_end.received == b"hello from a" and peer.received == b"hello from bfrom a")

    run_story(story)


def test_new_connection_hangs_while_the_link_is_cut() -> None:
    """The connection is established when the link is restored."""

    async def story(world: World) -> None:
        a, _ = world.host("a"), world.host("b")
        world.loopback.cut(["a"], ["b"])
        made, peer = world.connect(a, "b")
        await world.wait_for_pending_effects()
        assert not made.called
        assert world.accepted["b"] == []
        world.loopback.heal()
        await made
        await world.echoed(peer, b"at last")

    run_story(story)


def test_new_connection_times_out_while_the_link_is_cut() -> None:
    """The timeout is that of the client; restoring the link changes nothing afterwards."""

    async def story(world: World) -> None:
        a, _ = world.host("a"), world.host("b")
        world.loopback.cut(["a"], ["b"])
        made, _ = world.connect(a, "b", timeout_s=0.02)
        with pytest.raises(ConnectTimedOut):
            await made
        await world.wait_for_pending_effects()
        gc.collect()
        # `isinstance` would use dead weak references; other tests may have left clients.
        clients = [each for each in gc.get_objects() if type(each) is HostClient]
        assert [client for client in clients if client.reactor is a] == []
        world.loopback.heal()
        await world.wait_for_pending_effects()
        assert world.accepted["b"] == []

    run_story(story)


def test_isolated_host_is_not_notified_of_a_closed_connection() -> None:
    """The peers of a host killed while its link is cut see no lost connection until the link is restored."""

    async def story(world: World) -> None:
        a, b = world.host("a"), world.host("b")
        peer = await world.connected(a, "b")
        back = await world.connected(b, "a")
        world.loopback.cut(["a"], ["b"])
        b.kill()
        world.loopback.cut(["a"], ["somebody else"])
        await world.wait_for_pending_effects()
        assert peer.lost is None
        assert world.accepted["a"][0].lost is None
        assert back.lost is None
        world.loopback.heal()
        await world.until(lambda: peer.lost is not None and world.accepted["a"][0].lost is not None)

    run_story(story)


def test_other_hosts_reach_both_isolated_ones() -> None:
    """A third host and clients are not affected."""

    async def story(world: World) -> None:
        for name in ("a", "b", "c"):
            world.host(name)
        to_a, to_b = await world.connected(world.hosts["c"], "a"), await world.connected(world.hosts["c"], "b")
        client = await world.connected(world.reactor, "a")
        world.loopback.cut(["a"], ["b"])
        for peer in (to_a, to_b, client):
            await world.echoed(peer, b"unhindered")
        await world.connected(world.reactor, "b")

    run_story(story)


def test_clients_can_be_isolated() -> None:
    """Connections between brokers continue; those of clients, old and new, do not."""

    async def story(world: World) -> None:
        a, _ = world.host("a"), world.host("b")
        inside, client = await world.connected(a, "b"), await world.connected(world.reactor, "b")
        world.loopback.cut(["b"], [CLIENTS])
        client.send(b"anybody?")
        made, late = world.connect(world.reactor, "b")
        await made
        late.send(b"anybody?")
        await world.echoed(inside, b"unhindered")
        await world.wait_for_pending_effects()
        assert (client.received, late.received) == (b"hello ", b"")
        assert [peer.received for peer in world.accepted["b"]] == [b"hello unhindered", b"hello ", b""]
        world.loopback.heal()
        await world.until(lambda: client.received == b"hello anybody?" and late.received == b"anybody?")

    run_story(story)


def test_cut_link_and_paused_host() -> None:
    """Each of two simultaneous faults lasts until its own end."""

    async def story(world: World) -> None:
        a, b = world.host("a"), world.host("b")
        peer = await world.connected(a, "b")
        b.pause()
        world.loopback.cut(["a"], ["b"])
        peer.send(b"held twice")
        b.resume()
        await world.wait_for_pending_effects()
        assert peer.received == b"hello "
        b.pause()
        world.loopback.heal()
        await world.wait_for_pending_effects()
        assert peer.received == b"hello "
        b.resume()
        await world.until(lambda: peer.received == b"hello held twice")

    run_story(story)
