"""Accepted TCP connection that takes as little memory as possible while it is idle."""

from __future__ import annotations

from socket import socket
from typing import Any

from twisted.internet import tcp
from twisted.internet.abstract import FileDescriptor
from twisted.internet.address import IPv6Address
from twisted.internet.error import ConnectionAborted
from twisted.python.failure import Failure


class AcceptedSocket(tcp.Server):
    """Base of transports with their own send queue.

    ``tcp.Server.__init__`` and ``tcp.Connection.connectionLost`` are not called: they allocate seven
    objects per connection that are used only for logging and sending.

    :ivar accepted_from: address of the client, until ``begin``.
    """

    logstr = ""
    # Twisted's send queue, which is not used.
    _tempDataBuffer = ()  # type: ignore[assignment]
    _tempDataLen = 0

    def __init__(self, sock: socket, protocol: Any, client: Any, reactor: Any) -> None:
        sock.setblocking(False)
        self.reactor = reactor
        self.socket = sock
        self.protocol = protocol
        self.accepted_from = client
        if len(client) != 2:
            self._addressType = IPv6Address

    @property
    def peer(self) -> str:
        """Host and port of the client, valid after ``begin``."""
        raise NotImplementedError

    @property
    def client(self) -> tuple[str, int]:  # type: ignore[override]
        """Host and port of the client, as in Twisted's transports."""
        host, _, port = self.peer.rpartition(":")
        return host.strip("[]"), int(port)

    def begin_reading(self) -> None:
        """Start reading, and release the address object; ``peer`` keeps its text."""
        del self.accepted_from
        self.connected = 1
        self.startReading()  # type: ignore[no-untyped-call]

    def fileno(self) -> int:
        """Return the socket's file descriptor, -1 if it is closed."""
        return self.socket.fileno()

    def logPrefix(self) -> str:
        return self.logstr or f"{type(self).__name__},{self.client[0]}"

    def close_socket(self, reason: Failure) -> None:
        """Stop watching the socket and close it; with ``ConnectionAborted`` the peer receives a reset."""
        FileDescriptor.connectionLost(self, reason)
        self._closeSocket(not reason.check(ConnectionAborted))  # type: ignore[no-untyped-call]
