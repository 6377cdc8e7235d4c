"""Clients of a ZooKeeper server for one test, with a private chroot, and links that can be cut.

The same scenarios run against a real ZooKeeper and against the embedded coordinator: a scenario is a coroutine
function that takes a ``Scene``; a ``ServerUnderTest`` runs it.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol, TypeAlias

from twisted.internet.defer import Deferred, DeferredQueue
from twisted.internet.protocol import connectionDone
from twisted.protocols.portforward import ProxyFactory, ProxyServer
from twisted.python.failure import Failure

from kreplica.runtime import Reactor
from kreplica.zookeeper import WatchEvent, ZooKeeperClient
from tests.support.real_reactor import run
from tests.support.real_zookeeper import RealZooKeeper


class Scene:
    """Clients for one test; ``finish`` closes them all.

    :param connect_string: of the servers, without a chroot.
    :param chroot: parent of this test's znodes, so that tests can share a server.
    """

    def __init__(self, reactor: Reactor, connect_string: str, chroot: str) -> None:
        self.reactor = reactor
        self.connect_string = connect_string
        self.chroot = chroot
        self._clients: list[ZooKeeperClient] = []
        self._links: list[Link] = []

    async def client(
        self, *, connect_string: str | None = None, chroot: str | None = None, **options: Any
    ) -> ZooKeeperClient:
        """Start a client in this test's chroot; takes the client's own options."""
        client = self.new_client(connect_string=connect_string, chroot=chroot, **options)
        await client.start()
        await client.create_chroot()
        return client

    def new_client(
        self, *, connect_string: str | None = None, chroot: str | None = None, **options: Any
    ) -> ZooKeeperClient:
        """Create a client in this test's chroot without starting it."""
        place = (connect_string or self.connect_string) + (self.chroot if chroot is None else chroot)
        client = ZooKeeperClient(
            self.reactor, place, **{"random": random.Random(1), "session_timeout_ms": 6000, **options}
        )
        self._clients.append(client)
        return client

    def link(self) -> Link:
        """Create a link to the first server that can be cut."""
        host, _, port = self.connect_string.partition(",")[0].rpartition(":")
        link = Link(self.reactor, host, int(port))
        self._links.append(link)
        return link

    async def expire(self, client: ZooKeeperClient) -> None:
        """End a client's session at the server without the client's knowledge, as its expiry does."""
        other = ZooKeeperClient(
            self.reactor,
            self.connect_string,
            random=random.Random(2),
            resume=(client.session_id, client.session_password),
        )
        await other.start()
        await other.close()

    async def finish(self) -> None:
        for client in self._clients:
            await client.close()
        for link in self._links:
            await link.stop()


class Events(DeferredQueue[WatchEvent]):
    """Watch listener that queues events: ``await events.get()``."""

    def __call__(self, event: WatchEvent) -> None:
        self.put(event)

    @property
    def unheard(self) -> list[WatchEvent]:
        """Return the events that were not consumed yet."""
        return list(self.pending)


class _LinkedConnection(ProxyServer):
    factory: Any
    transport: Any
    peer: Any

    def connectionMade(self) -> None:
        self.factory.connections.append(self)
        super().connectionMade()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.factory.connections.remove(self)
        super().connectionLost(reason)  # type: ignore[no-untyped-call]


class _LinkFactory(ProxyFactory):
    protocol = _LinkedConnection
    noisy = False

    def __init__(self, reactor: Reactor, host: str, port: int) -> None:
        super().__init__(host, port)
        self.reactor = reactor
        self.connections: list[_LinkedConnection] = []

    def buildProtocol(self, address: Any) -> Any:
        connection: Any = super().buildProtocol(address)
        connection.reactor = self.reactor
        return connection


class Link:
    """A TCP proxy in front of a server."""

    def __init__(self, reactor: Any, host: str, port: int) -> None:
        self._reactor = reactor
        self._factory = _LinkFactory(reactor, host, port)
        self._listening = reactor.listenTCP(0, self._factory, interface="127.0.0.1")
        self._port = self._listening.getHost().port

    @property
    def connect_string(self) -> str:
        """Connect string through this link."""
        return f"127.0.0.1:{self._port}"

    def cut(self) -> None:
        """Reset the current connections; new connections are accepted."""
        for connection in list(self._factory.connections):
            connection.transport.abortConnection()

    def freeze(self) -> None:
        """Stop forwarding in both directions without closing connections."""
        for connection in self._factory.connections:
            for end in (connection, connection.peer):
                if end is not None:
                    end.transport.pauseProducing()

    async def stop(self) -> None:
        """Reset the connections and refuse new ones; does nothing the second time."""
        listening, self._listening = self._listening, None
        if listening is not None:
            await listening.stopListening()
        self.cut()

    def restart(self) -> None:
        """Accept connections again on the same port."""
        self._listening = self._reactor.listenTCP(self._port, self._factory, interface="127.0.0.1")


Scenario: TypeAlias = Callable[[Scene], Coroutine[Deferred[Any], Any, None]]


class ServerUnderTest(Protocol):
    """A server that scenarios run against."""

    def run(self, scenario: Scenario, timeout_s: float = 30.0) -> None:
        """Run a scenario with a private chroot, and remove everything afterwards."""


class RealServerUnderTest:
    """A running real ZooKeeper that many tests share."""

    def __init__(self, zookeeper: RealZooKeeper) -> None:
        self.zookeeper = zookeeper
        self._scenes = 0

    def run(self, scenario: Scenario, timeout_s: float = 30.0) -> None:
        from twisted.internet import reactor

        self._scenes += 1
        scene = Scene(reactor, self.zookeeper.connect_string, f"/scene-{self._scenes}")  # type: ignore[arg-type]
        run(play(scene, scenario), timeout_s)


async def play(scene: Scene, scenario: Callable[[Scene], Awaitable[None]]) -> None:
    """Run a scenario and always close its clients."""
    try:
        await scenario(scene)
    finally:
        await scene.finish()
