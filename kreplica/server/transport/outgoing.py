"""What one connection has still to send, and the system calls that send it."""

from __future__ import annotations

import os
from socket import MSG_MORE, socket

from twisted.logger import Logger

from kreplica.runtime.disk import FileRange
from kreplica.server.transport.outgoing_buffers import Piece, memory_size
from kreplica.server.transport.page_prefetch import LookAhead

log = Logger()

SEND_BYTES_MAX = 1024 * 1024
"""One connection sends so much in one turn; then others have theirs."""

JOIN_BYTES_MAX = 32 * 1024
"""Up to so many bytes, joining pieces costs less than telling the kernel about each."""

SMALL_BYTES_MAX = 8 * 1024
"""A range of a file that is no longer costs less to read, and to send with what comes before it, than to be sent from
the page cache: that takes three system calls more, and saves the copy of few bytes."""

PIECES_MAX = 512
COPY_BYTES = 256 * 1024


class Outgoing:
    """A queue of pieces before a socket that does not block.

    Bytes of several answers go with one call; a range of a file goes from the page cache, and what comes before it is
    held back by the kernel for that moment (``MSG_MORE``), so that both share packets.  Queued ranges keep their
    files open.

    :ivar failed: the socket or a file is broken: nothing can be sent any more.
    """

    __slots__ = ("_full", "_look_ahead", "_peer", "_queue", "_range_sent", "_socket", "failed")

    def __init__(self, connected: socket, look_ahead: LookAhead, peer: str) -> None:
        self.failed = False
        self._socket = connected
        self._look_ahead = look_ahead
        self._peer = peer
        # Short, so taking from the front is cheap; an empty deque has 600 bytes, which idle connections would pay for.
        self._queue: list[Piece] = []
        self._range_sent = 0
        self._full = False

    def __bool__(self) -> bool:
        return bool(self._queue)

    @property
    def held_bytes(self) -> int:
        """Bytes of the queue that are in memory."""
        return memory_size(self._queue)

    @property
    def wants_to_write(self) -> bool:
        """Whether ``send`` could do something as soon as the socket takes bytes."""
        return bool(self._queue) and not self._look_ahead.is_loading

    def extend(self, pieces: list[Piece]) -> None:
        """Add to the end."""
        self._queue.extend(pieces)

    def clear(self) -> None:
        """Forget all of it."""
        self._queue.clear()

    def send(self) -> int:
        """Send until the socket takes no more, or others should have their turn; how many bytes that was."""
        queue = self._queue
        total = 0
        self._full = self._look_ahead.is_loading
        try:
            while queue and not self._full and total < SEND_BYTES_MAX:
                piece = queue[0]
                if isinstance(piece, FileRange):
                    total += self._send_range(piece)
                elif len(queue) == 1:
                    total += self._send_last(piece)
                else:
                    total += self._send_run()
        except BlockingIOError:
            pass
        except OSError as error:
            piece = queue[0]
            if isinstance(piece, FileRange):
                self._look_ahead.unreadable(piece.file, error)
            self._fail()
        return total

    def _send_last(self, piece: bytes | bytearray | memoryview) -> int:
        """Send the only piece there is, as most answers are."""
        sent = self._socket.send(piece)
        if sent == len(piece):
            self._queue.clear()
        else:
            self._queue[0] = memoryview(piece)[sent:]
            self._full = True
        return sent

    def _send_run(self) -> int:
        """Send what comes before the next range of a file, with one system call."""
        second = self._queue[1]
        if isinstance(second, FileRange):
            data = _read_small(second)
            if data is None:
                return self._send_head()
            self._queue[1] = data
        run: list[bytes | bytearray | memoryview] = []
        size = 0
        more = 0
        for index, piece in enumerate(self._queue):
            if isinstance(piece, FileRange):
                data = _read_small(piece)
                if data is None:
                    more = MSG_MORE
                    break
                self._queue[index] = piece = data
            if len(run) == PIECES_MAX or size > SEND_BYTES_MAX:
                break
            run.append(piece)
            size += len(piece)
        if len(run) == 1:
            sent = self._socket.send(run[0], more)
        elif size <= JOIN_BYTES_MAX:
            sent = self._socket.send(b"".join(run), more)
        else:
            sent = self._socket.sendmsg(run, (), more)
        if sent < size:
            self._full = True
        self._forget(sent, len(run))
        return sent

    def _send_head(self) -> int:
        """Send the only piece before a range of a file, as most answers with records begin."""
        head = self._queue[0]
        assert not isinstance(head, FileRange)
        sent = self._socket.send(head, MSG_MORE)
        if sent == len(head):
            del self._queue[0]
        else:
            self._queue[0] = memoryview(head)[sent:]
            self._full = True
        return sent

    def _forget(self, sent: int, count: int) -> None:
        """So many bytes of the first pieces are sent."""
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
        """Send of the range that is next as much as is in memory and the socket takes."""
        file = piece.file
        position = piece.position + self._range_sent
        size = self._look_ahead.in_memory(file, position, piece.size - self._range_sent)
        if not size:
            self._full = True
            return 0
        descriptor = file.descriptor()
        if descriptor is None:
            data = file.read_at(position, min(size, COPY_BYTES))
            size = len(data)
            sent = self._socket.send(data) if data else 0
        else:
            sent = os.sendfile(self._socket.fileno(), descriptor, position, size)
        if not sent:
            # The client was told how long the answer is: there is no other way to say that it ends here.
            log.error("{path} ends at {at}, within an answer for {peer}", path=file.path, at=position, peer=self._peer)
            self._fail()
        self._range_sent += sent
        if self._range_sent == piece.size and sent:
            del self._queue[0]
            self._range_sent = 0
            self._look_ahead.forget()
        elif sent < size:
            self._full = True
        return sent

    def _fail(self) -> None:
        self.failed = True
        self._queue.clear()


def _read_small(piece: FileRange) -> bytes | bytearray | None:
    """A short range, where it is in memory; whatever is wrong with it is met when it is sent from the file."""
    if piece.size > SMALL_BYTES_MAX:
        return None
    try:
        return piece.file.read_cached(piece.position, piece.size)
    except OSError:
        return None
