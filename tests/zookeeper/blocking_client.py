"""A session on a plain blocking socket, for tests against server processes."""

from __future__ import annotations

import socket
import struct
from typing import NamedTuple

from kreplica.zookeeper.jute import Reader
from kreplica.zookeeper.records import (
    REPLY_HEADER,
    ConnectRequest,
    ConnectResponse,
    frame,
    request_frame,
)
from kreplica.zookeeper.requests import Request, opcode_of

TIMEOUT_S = 20.0


class Reply(NamedTuple):
    """A response, or an event if the transaction ID is -1."""

    xid: int
    zxid: int
    error: int
    body: bytes


class BlockingClient:
    """One connection with its session.

    :param session: the session to resume; None for a new one.
    """

    def __init__(self, port: int, session: ConnectResponse | None = None) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        self._stream = self._socket.makefile("rb")
        session_id, password = (session.session_id, session.password) if session else (0, bytes(16))
        self._socket.sendall(frame(ConnectRequest(0, 30_000, session_id, password).encode()))
        self.session = ConnectResponse.decode(Reader(self._frame()))

    def send(self, data: bytes) -> None:
        """Send raw bytes."""
        self._socket.sendall(data)

    def _frame(self) -> bytes:
        (length,) = struct.unpack(">i", self._receive(4))
        return self._receive(length)

    def _receive(self, size: int) -> bytes:
        data = self._stream.read(size)
        if len(data) < size:
            raise ConnectionResetError
        return data

    def reply(self) -> Reply:
        """Return the next response or event."""
        data = self._frame()
        return Reply(*REPLY_HEADER.unpack_from(data), data[REPLY_HEADER.size :])

    def exchange(self, request: Request, xid: int = 1) -> list[Reply]:
        """Send a request, and return the events that arrive before its response, followed by the response."""
        self.send(request_frame(xid, opcode_of(request), request.encode()))
        replies = [self.reply()]
        while replies[-1].xid != xid:
            replies.append(self.reply())
        return replies

    def call(self, request: Request) -> bytes:
        """Send a request that must succeed, and return the body of its response."""
        reply = self.exchange(request)[-1]
        assert reply.error == 0, (request, reply)
        return reply.body

    def close(self) -> None:
        """Close the connection, but not the session."""
        self._stream.close()
        self._socket.close()
