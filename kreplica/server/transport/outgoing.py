"""Send queue of one connection, and the system calls that empty it."""

from __future__ import annotations

import os
from socket import MSG_MORE, socket
from typing import ClassVar

from twisted.logger import Logger

from kreplica.runtime.disk import FileRange
from kreplica.server.transport.outgoing_buffers import Piece, memory_size
from kreplica.server.transport.page_prefetch import ReadAhead

log = Logger()

SEND_BYTES_MAX = 1024 * 1024
"""Bytes after which ``OutgoingQueue.send`` returns, so that one connection does not starve the others."""

JOIN_BYTES_MAX = 32 * 1024
"""Up to this size, joining the pieces costs less than passing each one to the kernel."""

SMALL_BYTES_MAX = 8 * 1024
"""File ranges up to this size are read and sent with the pieces around them: ``sendfile`` would avoid copying a
few bytes at the cost of three more system calls."""

PIECES_MAX = 512
"""Maximum number of pieces per system call."""

COPY_BYTES = 256 * 1024
"""Maximum bytes of one read from a file without a descriptor."""


class OutgoingQueue:
    """Queue of unsent pieces for a non-blocking socket.

    One system call sends the bytes of several responses.  File ranges are sent from the page cache; ``MSG_MORE`` makes
    the kernel hold back the bytes before a range, so that both share packets.  Queued ranges keep their files open.

    :cvar copies_ranges: file ranges are read into memory, even if ``sendfile`` could send them.
    :ivar failed: the socket or a file has failed, and nothing more can be sent.
    """

    copies_ranges: ClassVar[bool] = False
    __slots__ = ("_is_blocked", "_peer", "_queue", "_range_sent", "_read_ahead", "_socket", "failed")

    def __init__(self, connected: socket, read_ahead: ReadAhead, peer: str) -> None:
        self.failed = False
        self._socket = connected
        self._read_ahead = read_ahead
        self._peer = peer
        # A list, since the queue is short and an empty deque takes 600 bytes on each idle connection.
        self._queue: list[Piece] = []
        self._range_sent = 0
        self._is_blocked = False

    def __bool__(self) -> bool:
        return bool(self._queue)

    @property
    def held_bytes(self) -> int:
        """Bytes in memory; file ranges do not count."""
        return memory_size(self._queue)

    @property
    def wants_to_write(self) -> bool:
        """True if ``send`` can make progress as soon as the socket is writable."""
        return bool(self._queue) and not self._read_ahead.is_loading

    def extend(self, pieces: list[Piece]) -> None:
        self._queue.extend(pieces)

    def clear(self) -> None:
        """Discard the queue."""
        self._queue.clear()

    def send(self) -> int:
        """Send until the socket is full or ``SEND_BYTES_MAX`` is reached; return the number of bytes sent."""
        queue = self._queue
        total = 0
        self._is_blocked = self._read_ahead.is_loading
        try:
            while queue and not self._is_blocked and total < SEND_BYTES_MAX:
                piece = queue[0]
                if isinstance(piece, FileRange):
                    total += self._send_range(piece)
                elif len(queue) == 1:
                    total += self._send_only(piece)
                else:
                    total += self._send_pieces()
        except BlockingIOError:
            pass
        except OSError as error:
            piece = queue[0]
            if isinstance(piece, FileRange):
                self._read_ahead.report_unreadable(piece.file, error)
            self._fail()
        return total

    def _send_only(self, piece: bytes | bytearray | memoryview) -> int:
        """Send the only piece in the queue, the most frequent case."""
        sent = self._socket.send(piece)
        if sent == len(piece):
            self._queue.clear()
        else:
            self._queue[0] = memoryview(piece)[sent:]
            self._is_blocked = True
        return sent

    def _send_pieces(self) -> int:
        """Send the pieces before the next large file range with one system call; small ranges are copied."""
        second = self._queue[1]
        if isinstance(second, FileRange):
            data = _read_small(second)
            if data is None:
                return self._send_head()
            self._queue[1] = data
        run: list[bytes | bytearray | memoryview] = []
        size = 0
        flags = 0
        for index, piece in enumerate(self._queue):
            if isinstance(piece, FileRange):
                data = _read_small(piece)
                if data is None:
                    flags = MSG_MORE
                    break
                self._queue[index] = piece = data
            if len(run) == PIECES_MAX or size > SEND_BYTES_MAX:
                break
            run.append(piece)
            size += len(piece)
        if len(run) == 1:
            sent = self._socket.send(run[0], flags)
        elif size <= JOIN_BYTES_MAX:
            sent = self._socket.send(b"".join(run), flags)
        else:
            sent = self._socket.sendmsg(run, (), flags)
        if sent < size:
            self._is_blocked = True
        self._remove_sent(sent, len(run))
        return sent

    def _send_head(self) -> int:
        """Send the only piece before a large file range, the most frequent case with records."""
        head = self._queue[0]
        assert not isinstance(head, FileRange)
        sent = self._socket.send(head, MSG_MORE)
        if sent == len(head):
            del self._queue[0]
        else:
            self._queue[0] = memoryview(head)[sent:]
            self._is_blocked = True
        return sent

    def _remove_sent(self, sent: int, count: int) -> None:
        """Remove ``sent`` bytes of the first ``count`` pieces from the queue."""
        queue = self._queue
        for index in range(count):
            piece = queue[index]
            assert not isinstance(piece, FileRange)
            if sent < len(piece):
                queue[index] = memoryview(piece)[sent:]
                count = index
                break
            sent -= len(piece)
        del queue[:count]

    def _send_range(self, piece: FileRange) -> int:
        """Send the part of the first file range that is in the page cache and fits into the socket."""
        file = piece.file
        position = piece.position + self._range_sent
        size = self._read_ahead.cached_bytes(file, position, piece.size - self._range_sent)
        if not size:
            self._is_blocked = True
            return 0
        descriptor = file.descriptor()
        if descriptor is None or self.copies_ranges:
            data = file.read_at(position, min(size, COPY_BYTES))
            size = len(data)
            sent = self._socket.send(data) if data else 0
        else:
            sent = os.sendfile(self._socket.fileno(), descriptor, position, size)
        if not sent:
            # The length of the response has been sent, so closing the connection is the only way to end it early.
            message = "{path} ends at byte {at}, before the end of a response to {peer}"
            log.error(message, path=file.path, at=position, peer=self._peer)
            self._fail()
        self._range_sent += sent
        if self._range_sent == piece.size and sent:
            del self._queue[0]
            self._range_sent = 0
            self._read_ahead.reset()
        elif sent < size:
            self._is_blocked = True
        return sent

    def _fail(self) -> None:
        self.failed = True
        self._queue.clear()


def _read_small(piece: FileRange) -> bytes | bytearray | None:
    """Return the bytes of a small range in the page cache, else None; ``_send_range`` reports read errors."""
    if piece.size > SMALL_BYTES_MAX:
        return None
    try:
        return piece.file.read_cached(piece.position, piece.size)
    except OSError:
        return None
