"""A client of a TLS listener with an in-memory reactor and in-memory sockets."""

from __future__ import annotations

from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.error import ConnectionDone
from twisted.internet.testing import MemoryReactorClock
from twisted.python.failure import Failure

from kreplica.server.transport.listeners import Server
from tests.support.memory_socket import MemorySocket


class TlsPeer:
    """A client whose encrypted data the caller provides.

    :param server: a server with one listener and no other connection.
    :param factory: the listener's factory.
    :ivar connection: the server's end.
    :ivar socket: the server's socket.
    """

    def __init__(self, server: Server, factory: Any, reactor: MemoryReactorClock, host: str = "127.0.0.1") -> None:
        self._reactor = reactor
        self.socket = MemorySocket()
        protocol = factory.buildProtocol(IPv4Address("TCP", host, 1000))
        (port,) = server._ports
        self._transport = port.transport(self.socket, protocol, (host, 1000), None, 0, reactor)
        protocol.makeConnection(self._transport)
        (self.connection,) = server.resources.connections

    @property
    def lost(self) -> bool:
        """True if the server has closed the connection."""
        return self.socket.is_closed

    def value(self) -> bytes:
        """Return all data that the server has sent."""
        return bytes(self.socket.sent)

    def send(self, data: bytes) -> None:
        """Send data, unless the server has closed the connection."""
        self.socket.incoming += data
        while self.socket.incoming and self._transport in self._reactor.getReaders():
            self._after(self._transport.doRead())
        self.run()

    def run(self) -> None:
        """Run the server until it waits for the client."""
        while self._transport in self._reactor.getWriters() and self.socket.send_limit != 0:
            self._after(self._transport.doWrite())
        self._reactor.advance(0)

    def disconnect(self) -> None:
        """Close the connection unless the server has closed it."""
        self.run()
        self._after(ConnectionDone())

    def _after(self, error: BaseException | None) -> None:
        if error is not None:
            self._transport.connectionLost(Failure(error))
