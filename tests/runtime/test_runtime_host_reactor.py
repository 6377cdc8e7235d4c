"""Hosts on real sockets: what is killed, paused or cut off is so at once, and nobody else notices."""

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

from kreplica.runtime import count_true_seconds
from kreplica.runtime.hosts.host_reactor import HostClient, HostReactor
from kreplica.runtime.hosts.loopback import CLIENTS, Loopback
from kreplica.runtime.pause import pause
from tests.support.real_reactor import run

HOST = "127.0.0.1"


class Peer(Protocol):
    """Notes what it is told."""

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
    """Hosts that echo what they receive, each on a port of its own, and connections between them."""

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
        """A connection that has carried something both ways."""
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

    async def others_go_on(self) -> None:
        """So long that what could happen has: a bystander's connection has carried ten messages there and back."""
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


def tell(story: Story) -> None:
    """Run a story on the process's reactor; that none of its hosts leaves anything there is part of each."""
    from twisted.internet import reactor

    async def whole() -> None:
        count_true_seconds(reactor)
        world = World(reactor)
        try:
            await story(world)
        finally:
            world.close()

    run(whole(), 20.0)


# --- killed ----------------------------------------------------------------------------------------------------------


def test_a_killed_host_is_gone_for_its_peers_at_once() -> None:
    """Its connections end, its port refuses, and whatever it had planned never happens."""

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
        await world.others_go_on()
        assert happened == []
        assert own_end.lost is None

    tell(story)


def test_code_of_a_killed_host_that_is_still_called_can_do_no_harm() -> None:
    """What the garbage collector runs of it may make and cancel timers; none fires."""

    async def story(world: World) -> None:
        victim = world.host("victim")
        victim.kill()
        happened: list[str] = []
        victim.callLater(0, happened.append, "timer")
        cancelled = victim.callLater(0, happened.append, "cancelled")
        cancelled.cancel()
        victim.callFromThread(happened.append, "from a thread")
        victim.kill()
        await world.others_go_on()
        assert happened == []
        assert not cancelled.active()

    tell(story)


def test_a_host_can_have_the_port_that_was_its_predecessors() -> None:
    """The next process of a killed broker is found where clients know it."""

    async def story(world: World) -> None:
        world.host("broker").kill()
        world.host("broker", world.ports["broker"])
        await world.connected(world.reactor, "broker")

    tell(story)


# --- paused ----------------------------------------------------------------------------------------------------------


def test_a_paused_host_answers_nothing_and_then_everything() -> None:
    """Its connections stay, the kernel takes what is sent, and a resumed host reads all of it."""

    async def story(world: World) -> None:
        sleeper = world.host("sleeper")
        peer = await world.connected(world.reactor, "sleeper")
        sleeper.pause()
        peer.send(b"are you there?")
        made, late = world.connect(world.reactor, "sleeper")
        await made
        late.send(b"and for me?")
        await world.others_go_on()
        assert peer.received == b"hello "
        assert len(world.accepted["sleeper"]) == 1
        sleeper.resume()
        await world.until(lambda: peer.received == b"hello are you there?" and late.received == b"and for me?")

    tell(story)


def test_timers_of_a_paused_host_wait_and_then_fire_in_their_order() -> None:
    """Those that were due meanwhile fire at once, the others when they would have."""

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
        await world.others_go_on()
        assert fired == []
        sleeper.resume()
        sleeper.resume()
        await world.until(lambda: len(fired) == 3)
        assert [each for each in fired if each != "from a thread"] == ["first", "second"]
        assert later.getTime() == pytest.approx(due_s, abs=0.05)

    tell(story)


def test_a_paused_host_can_be_killed() -> None:
    """Its peers learn of it then."""

    async def story(world: World) -> None:
        sleeper = world.host("sleeper")
        peer = await world.connected(world.reactor, "sleeper")
        sleeper.pause()
        sleeper.kill()
        await world.until(lambda: peer.lost is not None)

    tell(story)


# --- cut off ---------------------------------------------------------------------------------------------------------


def test_nothing_passes_between_hosts_that_are_cut_off_until_they_are_healed() -> None:
    """Neither way, on no connection; what was sent meanwhile arrives then, as after lost packets."""

    async def story(world: World) -> None:
        a, _ = world.host("a"), world.host("b")
        peer = await world.connected(a, "b")
        own_end = world.accepted["b"][0]
        world.loopback.cut(["a"], ["b"])
        peer.send(b"from a")
        own_end.send(b"from b")
        await world.others_go_on()
        assert (peer.received, own_end.received) == (b"hello ", b"hello ")
        world.loopback.heal()
        await world.until(lambda: own_end.received == b"hello from a" and peer.received == b"hello from bfrom a")

    tell(story)


def test_a_new_connection_hangs_while_the_link_is_cut() -> None:
    """It is made when the link is whole again."""

    async def story(world: World) -> None:
        a, _ = world.host("a"), world.host("b")
        world.loopback.cut(["a"], ["b"])
        made, peer = world.connect(a, "b")
        await world.others_go_on()
        assert not made.called
        assert world.accepted["b"] == []
        world.loopback.heal()
        await made
        await world.echoed(peer, b"at last")

    tell(story)


def test_a_new_connection_times_out_while_the_link_is_cut() -> None:
    """Whoever wants to connect is not kept longer than it would wait; healing changes nothing for it any more."""

    async def story(world: World) -> None:
        a, _ = world.host("a"), world.host("b")
        world.loopback.cut(["a"], ["b"])
        made, _ = world.connect(a, "b", timeout_s=0.02)
        with pytest.raises(ConnectTimedOut):
            await made
        await world.others_go_on()
        gc.collect()
        # `isinstance` would ask dead weak references; other tests may have left clients of their own.
        clients = [each for each in gc.get_objects() if type(each) is HostClient]
        assert [client for client in clients if client.reactor is a] == []
        world.loopback.heal()
        await world.others_go_on()
        assert world.accepted["b"] == []

    tell(story)


def test_a_host_that_is_cut_off_does_not_hear_of_the_others_end() -> None:
    """A kill behind a cut link looks like silence; only a whole link brings the news."""

    async def story(world: World) -> None:
        a, b = world.host("a"), world.host("b")
        peer = await world.connected(a, "b")
        back = await world.connected(b, "a")
        world.loopback.cut(["a"], ["b"])
        b.kill()
        world.loopback.cut(["a"], ["somebody else"])
        await world.others_go_on()
        assert peer.lost is None
        assert world.accepted["a"][0].lost is None
        assert back.lost is None
        world.loopback.heal()
        await world.until(lambda: peer.lost is not None and world.accepted["a"][0].lost is not None)

    tell(story)


def test_others_are_reached_while_two_are_cut_off_from_each_other() -> None:
    """A third host, and clients, reach both."""

    async def story(world: World) -> None:
        for name in ("a", "b", "c"):
            world.host(name)
        to_a, to_b = await world.connected(world.hosts["c"], "a"), await world.connected(world.hosts["c"], "b")
        client = await world.connected(world.reactor, "a")
        world.loopback.cut(["a"], ["b"])
        for peer in (to_a, to_b, client):
            await world.echoed(peer, b"unhindered")
        await world.connected(world.reactor, "b")

    tell(story)


def test_clients_can_be_cut_off_alone() -> None:
    """The cluster's own connections go on; a client's stand still, old and new."""

    async def story(world: World) -> None:
        a, _ = world.host("a"), world.host("b")
        inside, client = await world.connected(a, "b"), await world.connected(world.reactor, "b")
        world.loopback.cut(["b"], [CLIENTS])
        client.send(b"anybody?")
        made, late = world.connect(world.reactor, "b")
        await made
        late.send(b"anybody?")
        await world.echoed(inside, b"unhindered")
        await world.others_go_on()
        assert (client.received, late.received) == (b"hello ", b"")
        assert [peer.received for peer in world.accepted["b"]] == [b"hello unhindered", b"hello ", b""]
        world.loopback.heal()
        await world.until(lambda: client.received == b"hello anybody?" and late.received == b"anybody?")

    tell(story)


def test_a_cut_link_holds_what_a_paused_host_sends_when_it_goes_on() -> None:
    """Two faults at a time: each keeps its own effect until it ends itself."""

    async def story(world: World) -> None:
        a, b = world.host("a"), world.host("b")
        peer = await world.connected(a, "b")
        b.pause()
        world.loopback.cut(["a"], ["b"])
        peer.send(b"held twice")
        b.resume()
        await world.others_go_on()
        assert peer.received == b"hello "
        b.pause()
        world.loopback.heal()
        await world.others_go_on()
        assert peer.received == b"hello "
        b.resume()
        await world.until(lambda: peer.received == b"hello held twice")

    tell(story)
