"""Sends one frame repeatedly: ``python -m benchmarks.frame_load PORT CONNECTIONS WINDOW COUNT < FRAME``.

Each connection keeps a window of requests in flight until it has sent ``COUNT`` requests.  Responses are counted but
not parsed: the first one shows the size of all.
"""

from __future__ import annotations

import selectors
import socket
import sys

READ_BYTES = 1024 * 1024
SCRATCH = bytearray(READ_BYTES)


class Connection:
    """A connection and its window of requests."""

    def __init__(self, port: int, frame: bytes, window: int, count: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.left = count
        self._window = memoryview(frame * window)
        self._frame_size = len(frame)
        self._to_send = count * len(frame)
        self._sent = 0
        self._room = min(window, count) * len(frame)
        self._response_size = 0
        self._received = 0

    def start(self) -> None:
        """Send the first request, and wait for its response, whose size is that of all responses."""
        self.socket.sendall(self._window[: self._frame_size])
        self._sent = self._frame_size
        head = self.socket.recv(4, socket.MSG_PEEK | socket.MSG_WAITALL)
        self._response_size = 4 + int.from_bytes(head, "big")
        self.socket.setblocking(False)

    def send(self) -> bool:
        """Fill the window, and return True if the socket accepted everything."""
        size = min(self._room, self._to_send) - self._sent
        if size <= 0:
            return True
        start = self._sent % self._frame_size
        try:
            sent = self.socket.send(self._window[start : start + min(size, len(self._window) - start)])
        except BlockingIOError:
            return False
        self._sent += sent
        return sent == size

    def receive(self) -> bool:
        """Read responses; return True when all have arrived, or when the server has closed the connection early."""
        size = self.socket.recv_into(SCRATCH)
        if not size:
            return True
        self._received += size
        completed, rest = divmod(self._received, self._response_size)
        self._received = rest
        self.left -= completed
        self._room += completed * self._frame_size
        return self.left <= 0


def main(port: int, connections: int, window: int, count: int) -> None:
    frame = sys.stdin.buffer.read()
    opened = [Connection(port, frame, window, count) for _ in range(connections)]
    for connection in opened:
        connection.start()
    drive(opened)


def drive(connections: list[Connection]) -> None:
    """Send and receive until all connections are done."""
    selector = selectors.DefaultSelector()
    for connection in connections:
        selector.register(connection.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, connection)
    open_count = len(connections)
    while open_count:
        for key, events in selector.select():
            connection = key.data
            if events & selectors.EVENT_READ and connection.receive():
                selector.unregister(connection.socket)
                open_count -= 1
                continue
            wanted = selectors.EVENT_READ | (0 if connection.send() else selectors.EVENT_WRITE)
            if wanted != key.events:
                selector.modify(connection.socket, wanted, connection)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
