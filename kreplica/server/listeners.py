"""Where a broker can be reached: binds its listeners, makes a connection of whatever comes in, and stops in order."""

from __future__ import annotations

import errno
import socket
from functools import partial
from typing import Any

from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IReactorFDSet
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure

from kreplica.errors import SettingsError
from kreplica.runtime import Runtime
from kreplica.server.bounds import Bounds
from kreplica.server.connection import Connection
from kreplica.server.dispatch import Dispatch
from kreplica.server.resources import Resources
from kreplica.server.stock import StockTransport
from kreplica.server.transport import FastTransport

BACKLOG = 1024
"""Connections that the operating system accepts ahead; clients come back all at once after a restart."""

_ADVICE = {
    errno.EADDRINUSE: "another program has that port: stop it, or choose another port",
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
        connection = resources.connection(self._listener, f"{addr.host}:{addr.port}")
        resources.connections.opened(connection, addr.host)
        if self._fast:
            return _FastProtocol(resources, connection)
        protocol = StockTransport(resources, connection)
        connection.attach(protocol)
        return protocol


class Listeners:
    """All listeners of one broker, on one reactor, before one dispatch.

    :param stock: use Twisted's own transports although the reactor could do better.
    """

    def __init__(self, runtime: Runtime, dispatch: Dispatch, bounds: Bounds, *, stock: bool = False) -> None:
        self.resources = Resources(runtime, dispatch, bounds)
        self._fast = IReactorFDSet.providedBy(runtime.reactor) and not stock
        self._ports: dict[str, Any] = {}

    def listen(self, name: str, host: str, port: int) -> int:
        """Accept connections from now on.

        :param name: the listener's name, such as ``PLAINTEXT``.
        :param host: the address to bind; empty for all of them.
        :param port: 0 lets the operating system choose.
        :return: the port.
        :raise SettingsError: where that is not possible; it says why and what to do.
        """
        factory = _ListenerFactory(self.resources, name, fast=self._fast)
        try:
            bound = self.resources.reactor.listenTCP(port, factory, backlog=BACKLOG, interface=host)
        except CannotListenError as error:
            raise SettingsError(_cannot_listen(name, host, port, error.socketError)) from None
        if self._fast:
            bound.transport = partial(FastTransport, self.resources)
        self._ports[name] = bound
        number: int = bound.getHost().port
        return number

    def port(self, name: str) -> int:
        """The port that a listener has.

        :raise KeyError: where there is no such listener.
        """
        number: int = self._ports[name].getHost().port
        return number

    async def stop(self, timeout_s: float = 5.0) -> None:
        """Accept no more, answer what was asked, and close everything.

        :param timeout_s: connections that are not settled by then are closed as they are.
        """
        ports, self._ports = self._ports, {}
        stopped: list[Deferred[Any]] = [bound.stopListening() for bound in ports.values()]
        await DeferredList(stopped, fireOnOneErrback=True, consumeErrors=True)
        await self.resources.connections.stop(timeout_s)


def _cannot_listen(name: str, host: str, port: int, error: Exception) -> str:
    number = getattr(error, "errno", None)
    advice = _ADVICE.get(number, "see listeners") if isinstance(number, int) else "see listeners"
    shown = f"[{host}]" if ":" in host else host or "*"
    return f"listener {name} cannot listen on {shown}:{port}: {advice} ({error})"
