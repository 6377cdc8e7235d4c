"""Hosts on real sockets: kill, pause and isolation take effect immediately and do not affect other hosts."""

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
    """Records received data and the loss of its connection."""

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

    async def open_connection(self, reactor: Any, to: str) -> Peer:
        """Return a connection that has transferred data in both directions."""
        connecting, peer = self.connect(reactor, to)
        await connecting
        await self.echo(peer, b"hello ")
        return peer

    async def echo(self, peer: Peer, data: bytes) -> None:
        before = len(peer.received)
        peer.send(data)
        await self.wait_until(lambda: peer.received[before:] == data)

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await pause(self.reactor, 0.001)

    async def wait_for_pending_effects(self) -> None:
        """Wait until a connection of other hosts has transferred ten messages, long enough for any pending effect."""
        if "bystander" not in self.hosts:
            self.host("bystander")
        peer = await self.open_connection(self.reactor, "bystander")
        for _ in range(10):
            await self.echo(peer, b"still here")
        peer.transport.abortConnection()  # type: ignore[union-attr]
        await self.wait_until(lambda: peer.lost is not None)

    def close(self) -> None:
        for host in self.hosts.values():
            host.kill()


Scenario = Callable[[World], Coroutine[Any, Any, None]]


def run_scenario(scenario: Scenario) -> None:
    """Run a scenario on the process's reactor, and kill its hosts at the end."""
    from twisted.internet import reactor

    async def run_and_close() -> None:
        use_monotonic_clock(reactor)
        world = World(reactor)
        try:
            await scenario(world)
        finally:
            world.close()

    run(run_and_close(), 20.0)


# --- killed ----------------------------------------------------------------------------------------------------------


def test_connections_of_a_killed_host_are_lost_immediately() -> None:
    """After a kill, the host's port refuses connections, and its timers never fire."""

    async def scenario(world: World) -> None:
        victim = world.host("victim")
        peer = await world.open_connection(world.reactor, "victim")
        events: list[str] = []
        victim.callLater(0.001, events.append, "timer")
        victim.callFromThread(events.append, "from a thread")
        server_peer = world.accepted["victim"][0]
        victim.kill()
        await world.wait_until(lambda: peer.lost is not None)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((HOST, world.ports["victim"]))
        await world.wait_for_pending_effects()
        assert events == []
        assert server_peer.lost is None

    run_scenario(scenario)


def test_code_of_a_killed_host_has_no_effect() -> None:
    """The garbage collector may run code that starts and cancels timers, but none of them fires."""

    async def scenario(world: World) -> None:
        victim = world.host("victim")
        victim.kill()
        events: list[str] = []
        victim.callLater(0, events.append, "timer")
        cancelled = victim.callLater(0, events.append, "cancelled")
        cancelled.cancel()
        victim.callFromThread(events.append, "from a thread")
        victim.kill()
        await world.wait_for_pending_effects()
        assert events == []
        assert not cancelled.active()

    run_scenario(scenario)


def test_next_process_can_use_the_same_port() -> None:
    """Clients find a restarted broker at its address."""

    async def scenario(world: World) -> None:
        world.host("broker").kill()
        world.host("broker", world.ports["broker"])
        await world.open_connection(world.reactor, "broker")

    run_scenario(scenario)


# --- paused ----------------------------------------------------------------------------------------------------------


def test_paused_host_responds_after_its_resume() -> None:
    """The host's connections stay open, the kernel buffers data, and the resumed host reads all of it."""

    async def scenario(world: World) -> None:
        sleeper = world.host("sleeper")
        peer = await world.open_connection(world.reactor, "sleeper")
        sleeper.pause()
        peer.send(b"are you there?")
        connecting, late = world.connect(world.reactor, "sleeper")
        await connecting
        late.send(b"and for me?")
        await world.wait_for_pending_effects()
        assert peer.received == b"hello "
        assert len(world.accepted["sleeper"]) == 1
        sleeper.resume()
        await world.wait_until(lambda: peer.received == b"hello are you there?" and late.received == b"and for me?")

    run_scenario(scenario)


def test_timers_of_a_paused_host_fire_afterwards_in_order() -> None:
    """After the pause, overdue timers fire immediately and the others at their time."""

    async def scenario(world: World) -> None:
        sleeper = world.host("sleeper")
        fired: list[str] = []
        sleeper.callLater(0.002, fired.append, "second")
        sleeper.callLater(0.001, fired.append, "first")
        later = sleeper.callLater(300.0, fired.append, "not during the test")
        due_s = later.getTime()
        sleeper.pause()
        sleeper.pause()
        sleeper.callFromThread(fired.append, "from a thread")
        end_s = world.reactor.seconds() + 0.01
        await world.wait_until(lambda: world.reactor.seconds() > end_s)
        await world.wait_for_pending_effects()
        assert fired == []
        sleeper.resume()
        sleeper.resume()
        await world.wait_until(lambda: len(fired) == 3)
        assert [each for each in fired if each != "from a thread"] == ["first", "second"]
        assert later.getTime() == pytest.approx(due_s, abs=0.05)

    run_scenario(scenario)


def test_paused_host_can_be_killed() -> None:
    """When a paused host is killed, its peers lose their connections."""

    async def scenario(world: World) -> None:
        sleeper = world.host("sleeper")
        peer = await world.open_connection(world.reactor, "sleeper")
        sleeper.pause()
        sleeper.kill()
        await world.wait_until(lambda: peer.lost is not None)

    run_scenario(scenario)


# --- isolated --------------------------------------------------------------------------------------------------------


def test_nothing_passes_between_isolated_hosts() -> None:
    """No data passes in either direction; pending data arrives after the link is restored."""

    async def scenario(world: World) -> None:
        a, _ = world.host("a"), world.host("b")
        peer = await world.open_connection(a, "b")
        server_peer = world.accepted["b"][0]
        world.loopback.cut(["a"], ["b"])
        peer.send(b"from a")
        server_peer.send(b"from b")
        await world.wait_for_pending_effects()
        assert (peer.received, server_peer.received) == (b"hello ", b"hello ")
        world.loopback.heal()
        await world.wait_until(
            lambda: server_peer.received == b"hello from a" and peer.received == b"hello from bfrom a"
        )

    run_scenario(scenario)


def test_new_connection_hangs_while_the_link_is_cut() -> None:
    """The connection is established when the link is restored."""

    async def scenario(world: World) -> None:
        a, _ = world.host("a"), world.host("b")
        world.loopback.cut(["a"], ["b"])
        connecting, peer = world.connect(a, "b")
        await world.wait_for_pending_effects()
        assert not connecting.called
        assert world.accepted["b"] == []
        world.loopback.heal()
        await connecting
        await world.echo(peer, b"at last")

    run_scenario(scenario)


def test_new_connection_times_out_while_the_link_is_cut() -> None:
    """The client's timeout applies; restoring the link afterwards changes nothing."""

    async def scenario(world: World) -> None:
        a, _ = world.host("a"), world.host("b")
        world.loopback.cut(["a"], ["b"])
        connecting, _ = world.connect(a, "b", timeout_s=0.02)
        with pytest.raises(ConnectTimedOut):
            await connecting
        await world.wait_for_pending_effects()
        gc.collect()
        # `isinstance` would call dead weak references; other tests may have left clients as well.
        clients = [each for each in gc.get_objects() if type(each) is HostClient]
        assert [client for client in clients if client.reactor is a] == []
        world.loopback.heal()
        await world.wait_for_pending_effects()
        assert world.accepted["b"] == []

    run_scenario(scenario)


def test_isolated_host_is_not_notified_of_a_closed_connection() -> None:
    """The kill of a host behind a cut link is not noticed until the link is restored."""

    async def scenario(world: World) -> None:
        a, b = world.host("a"), world.host("b")
        peer = await world.open_connection(a, "b")
        back = await world.open_connection(b, "a")
        world.loopback.cut(["a"], ["b"])
        b.kill()
        world.loopback.cut(["a"], ["another host"])
        await world.wait_for_pending_effects()
        assert peer.lost is None
        assert world.accepted["a"][0].lost is None
        assert back.lost is None
        world.loopback.heal()
        await world.wait_until(lambda: peer.lost is not None and world.accepted["a"][0].lost is not None)

    run_scenario(scenario)


def test_other_hosts_reach_both_isolated_ones() -> None:
    """A third host and clients can still connect to both isolated hosts."""

    async def scenario(world: World) -> None:
        for name in ("a", "b", "c"):
            world.host(name)
        to_a, to_b = (
            await world.open_connection(world.hosts["c"], "a"),
            await world.open_connection(world.hosts["c"], "b"),
        )
        client = await world.open_connection(world.reactor, "a")
        world.loopback.cut(["a"], ["b"])
        for peer in (to_a, to_b, client):
            await world.echo(peer, b"unhindered")
        await world.open_connection(world.reactor, "b")

    run_scenario(scenario)


def test_clients_can_be_isolated() -> None:
    """Connections between brokers continue; existing and new connections of clients do not."""

    async def scenario(world: World) -> None:
        a, _ = world.host("a"), world.host("b")
        inside, client = await world.open_connection(a, "b"), await world.open_connection(world.reactor, "b")
        world.loopback.cut(["b"], [CLIENTS])
        client.send(b"again")
        connecting, late = world.connect(world.reactor, "b")
        await connecting
        late.send(b"again")
        await world.echo(inside, b"unhindered")
        await world.wait_for_pending_effects()
        assert (client.received, late.received) == (b"hello ", b"")
        assert [peer.received for peer in world.accepted["b"]] == [b"hello unhindered", b"hello ", b""]
        world.loopback.heal()
        await world.wait_until(lambda: client.received == b"hello again" and late.received == b"again")

    run_scenario(scenario)


def test_cut_link_and_paused_host() -> None:
    """With two simultaneous faults, data arrives only after both have ended."""

    async def scenario(world: World) -> None:
        a, b = world.host("a"), world.host("b")
        peer = await world.open_connection(a, "b")
        b.pause()
        world.loopback.cut(["a"], ["b"])
        peer.send(b"delayed twice")
        b.resume()
        await world.wait_for_pending_effects()
        assert peer.received == b"hello "
        b.pause()
        world.loopback.heal()
        await world.wait_for_pending_effects()
        assert peer.received == b"hello "
        b.resume()
        await world.wait_until(lambda: peer.received == b"hello delayed twice")

    run_scenario(scenario)
