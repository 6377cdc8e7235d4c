"""Where a broker can be reached: binds its listeners, makes a connection of whatever comes in, and stops in order."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IReactorFDSet
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure

from kreplica.errors import SettingsError
from kreplica.model import Endpoint
from kreplica.runtime import Runtime
from kreplica.runtime.pacing import LOOPBACK, do_without_pacing
from kreplica.server.protocol.connection import Connection
from kreplica.server.protocol.dispatch import Dispatch
from kreplica.server.protocol.handler_table import HandlerEntry
from kreplica.server.protocol.limits import Bounds
from kreplica.server.protocol.metrics import ServerMetrics
from kreplica.server.protocol.server_context import Resources
from kreplica.server.transport.epoll_transport import FastTransport
from kreplica.server.transport.flush_scope import Turn
from kreplica.server.transport.twisted_transport import StockTransport

_ADVICE = {
    errno.EADDRINUSE: "another program has that port: stop it, or choose another in listeners (standalone: --port)",
    errno.EACCES: "this user may not: choose a port of 1024 or above",
    errno.EADDRNOTAVAIL: "no interface of this machine has that address: name one that it has, or 0.0.0.0",
}


class _FastProtocol(Protocol):
    """What Twisted wants beside a transport; the transport does it all."""

    def __init__(self, resources: Resources, connection: Connection) -> None:
        self._resources = resources
        self.connection = connection

    def makeConnection(self, transport: Any) -> None:
        transport.connection = self.connection
        self.connection.attach(transport)
        transport.setTcpNoDelay(True)
        if transport.getHost().host == transport.getPeer().host:
            do_without_pacing(transport.socket)
        bounds = self._resources.bounds
        for option, size in (
            (socket.SO_SNDBUF, bounds.send_buffer_bytes),
            (socket.SO_RCVBUF, bounds.receive_buffer_bytes),
        ):
            if size > 0:
                transport.socket.setsockopt(socket.SOL_SOCKET, option, size)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.connection.lost()
        self._resources.connections.closed(self.connection)


class _ListenerFactory(Factory):
    noisy = False

    def __init__(self, resources: Resources, listener: str, *, fast: bool) -> None:
        self._resources = resources
        self._listener = listener
        self._fast = fast

    def buildProtocol(self, addr: IPv4Address | IPv6Address) -> Protocol | None:  # type: ignore[override]
        resources = self._resources
        if not resources.connections.admit(addr.host):
            return None
        peer = f"[{addr.host}]:{addr.port}" if ":" in addr.host else f"{addr.host}:{addr.port}"
        connection = resources.connection(self._listener, peer)
        resources.connections.opened(connection, addr.host)
        if self._fast:
            return _FastProtocol(resources, connection)
        protocol = StockTransport(resources, connection)
        connection.attach(protocol)
        return protocol


class Server:
    """All listeners of one broker, on one reactor, before one table of handlers.

    :param table: what is served; ApiVersions is added.
    :param turn: where others wake requests at the turn's end too (``Turn.at_end``), the one that they use.
    :param stock: use Twisted's own transports although the reactor could do better.
    :param unreadable: told of a file that could not be sent, and why.
    :ivar metrics: what it counts.
    """

    def __init__(
        self,
        runtime: Runtime,
        table: Mapping[int, HandlerEntry],
        bounds: Bounds | None = None,
        *,
        turn: Turn | None = None,
        stock: bool = False,
        unreadable: Callable[[str, OSError], None] = lambda *_: None,
    ) -> None:
        self.metrics = ServerMetrics()
        turn = turn or Turn(runtime.reactor)
        bounds = bounds or Bounds()
        dispatch = Dispatch(table, self.metrics, runtime.reactor.seconds, turn, bounds)
        self.resources = Resources(runtime, dispatch, bounds, turn, unreadable)
        self._fast = IReactorFDSet.providedBy(runtime.reactor) and not stock
        self._ports: list[Any] = []

    def listen(self, endpoint: Endpoint) -> int:
        """Accept connections from now on.

        :param endpoint: the listener's name; the address to bind, empty for all; the port, 0 to let the system choose.
        :return: the port.
        :raise SettingsError: where that is not possible; it says why and what to do.
        """
        factory = _ListenerFactory(self.resources, endpoint.listener, fast=self._fast)
        backlog = self.resources.bounds.accept_backlog
        try:
            bound = self.resources.reactor.listenTCP(endpoint.port, factory, backlog=backlog, interface=endpoint.host)
        except CannotListenError as error:
            raise SettingsError(_cannot_listen(endpoint, error.socketError)) from None
        if self._fast:
            bound.transport = partial(FastTransport, self.resources)
            if endpoint.host in LOOPBACK:
                do_without_pacing(bound.socket)
        self._ports.append(bound)
        number: int = bound.getHost().port
        return number

    async def stop(self, timeout_s: float = 5.0) -> None:
        """Accept no more, answer what was asked, and close everything.

        :param timeout_s: connections that are not settled by then are closed as they are.
        """
        ports, self._ports = self._ports, []
        stopped: list[Deferred[Any]] = [bound.stopListening() for bound in ports]
        await DeferredList(stopped, fireOnOneErrback=True, consumeErrors=True)
        await self.resources.connections.stop(timeout_s)


def _cannot_listen(endpoint: Endpoint, error: Exception) -> str:
    number = getattr(error, "errno", None)
    advice = _ADVICE.get(number, "change it in listeners") if isinstance(number, int) else "change it in listeners"
    return f"cannot listen on {endpoint}: {advice} ({error})"
