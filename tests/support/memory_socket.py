"""A connected, non-blocking, in-memory socket."""

from __future__ import annotations

from typing import Any


class MemorySocket:
    """The server's end of a connection; its system calls have the semantics of a TCP socket.

    :ivar incoming: bytes that the server has not received yet.
    :ivar sent: all bytes that the server has sent.
    :ivar send_limit: number of bytes that the server can send before the socket is full; None for no limit.
    :ivar is_ended: True if the client has shut down its sending side.
    :ivar is_closed: True if the server has closed the socket.
    """

    def __init__(self) -> None:
        self.incoming = bytearray()
        self.sent = bytearray()
        self.send_limit: int | None = None
        self.is_ended = False
        self.is_closed = False

    def recv_into(self, buffer: memoryview) -> int:
        size = min(len(buffer), len(self.incoming))
        if not size and not self.is_ended:
            raise BlockingIOError
        buffer[:size] = self.incoming[:size]
        del self.incoming[:size]
        return size

    def send(self, data: Any, flags: int = 0) -> int:
        size = len(data) if self.send_limit is None else min(len(data), self.send_limit)
        if not size:
            raise BlockingIOError
        self.sent += bytes(data)[:size]
        if self.send_limit is not None:
            self.send_limit -= size
        return size

    def fileno(self) -> int:
        return 0

    def setblocking(self, flag: bool) -> None:
        """Do nothing: the socket never blocks."""

    def setsockopt(self, *arguments: object) -> None:
        """Do nothing: the socket has no options."""

    def getsockname(self) -> tuple[str, int]:
        return ("127.0.0.1", 9092)

    def shutdown(self, how: int) -> None:
        self.is_closed = True

    def close(self) -> None:
        self.is_closed = True
