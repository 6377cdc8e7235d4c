"""A connection over Twisted's own transports: for TLS, and for reactors that have no file descriptors."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from twisted.internet.interfaces import IPushProducer
from twisted.internet.protocol import Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from kreplica.errors import ProtocolError
from kreplica.runtime.disk import FileRange
from kreplica.server.protocol.connection import Connection
from kreplica.server.transport.outgoing_buffers import Piece, memory_size
from kreplica.server.transport.page_prefetch import LookAhead
from kreplica.wire.framing import FrameReader

if TYPE_CHECKING:
    from kreplica.server.protocol.server_context import Resources

log = Logger()

CHUNK_BYTES = 256 * 1024
"""So much of a file is read into memory at a time."""


@implementer(IPushProducer)
class StockTransport(Protocol):
    """A protocol; answers are its product, which Twisted's transport asks for as its buffer drains."""

    transport: Any  # ITCPTransport and IConsumer, and None when it is lost

    def __init__(self, resources: Resources, connection: Connection) -> None:
        self.connection = connection
        self._resources = resources
        self._reader = FrameReader(resources.bounds.request_bytes_max)
        self._backlog: deque[memoryview] = deque()
        self._is_resuming = False
        self._queue: deque[Piece] = deque()
        self._range_sent = 0
        self._is_full = False
        self._look_ahead = LookAhead(resources.cold_reads, self)
        self._closing = False
        self._waits_for_memory = False

    def connectionMade(self) -> None:
        self.transport.setTcpNoDelay(True)
        self.transport.registerProducer(self, True)

    # --- reading -----------------------------------------------------------------------------------------------------

    @property
    def is_reading(self) -> bool:
        """Whether frames are wanted now."""
        return not self.connection.paused and not self._waits_for_memory

    def dataReceived(self, data: bytes) -> None:
        connection = self.connection
        connection.last_active_s = connection.seconds()
        with self._resources.turn:
            try:
                for frame in self._reader.feed(data):
                    # After a pause, what was read already is kept; after the end, it is not.
                    if connection.closed:
                        return
                    if connection.paused or self._backlog:
                        self._backlog.append(frame)
                    else:
                        self._resources.dispatch.frame_received(connection, frame)
            except ProtocolError as error:
                self._resources.dispatch.settle()
                connection.abort(f"{error} (socket.request.max.bytes)")
                return
        reader, partial = self._reader, self._resources.partial
        if reader.held_size and not connection.closed:
            partial.update(self, reader.held_size, reader.wanted_size)
        else:
            partial.end(self)

    def release_frame(self) -> None:
        """Nothing: frames are views of memory that is not reused."""

    def pause_reading(self) -> None:
        if self.transport is not None:
            self.transport.pauseProducing()

    def resume_reading(self) -> None:
        if self._backlog:
            # What was read before comes first; not from here, as the caller may be in the middle of anything.
            if not self._is_resuming:
                self._is_resuming = True
                self._resources.reactor.callLater(0, self._handle_backlog)
        elif self.is_reading and self.transport is not None:
            self.transport.resumeProducing()

    def _handle_backlog(self) -> None:
        self._is_resuming = False
        with self._resources.turn:
            while self._backlog and not self.connection.paused:
                self._resources.dispatch.frame_received(self.connection, self._backlog.popleft())
        # It may have been paused and resumed again meanwhile, with a part of the backlog still to be handled.
        if self.is_reading and not self._backlog and self.transport is not None:
            self.transport.resumeProducing()

    def wait_for_memory(self) -> None:
        self._waits_for_memory = True
        self.pause_reading()

    def go_on(self) -> None:
        self._waits_for_memory = False
        if self.is_reading:
            self.resume_reading()

    # --- writing -----------------------------------------------------------------------------------------------------

    def send(self, pieces: list[Piece]) -> int:
        if self.transport is None or self._closing:
            return 0
        self._queue.extend(pieces)
        return self._send_queue()

    @property
    def held_bytes(self) -> int:
        return memory_size(self._queue)

    def pauseProducing(self) -> None:
        self._is_full = True

    def resumeProducing(self) -> None:
        self._is_full = False
        self.connection.last_active_s = self.connection.seconds()
        self.connection.sent(self._send_queue())

    def stopProducing(self) -> None:
        """The transport is gone, as ``connectionLost`` tells too."""

    def _send_queue(self) -> int:
        """Give the transport as much as it wants to have in its buffer; how many bytes that was."""
        queue = self._queue
        total = 0
        while queue and not self._is_full and not self._look_ahead.is_loading:
            piece = queue[0]
            if isinstance(piece, FileRange):
                total += self._send_range(piece)
            else:
                queue.popleft()
                total += len(piece)
                self._write(piece)
        if self._closing and not queue:
            self._close_transport()
        return total

    def _write(self, data: bytes | bytearray | memoryview) -> None:
        self.transport.write(bytes(data))

    def _send_range(self, piece: FileRange) -> int:
        position = piece.position + self._range_sent
        try:
            size = self._look_ahead.in_memory(piece.file, position, min(piece.size - self._range_sent, CHUNK_BYTES))
            data = piece.file.read_at(position, size)
        except OSError as error:
            log.failure("reading an answer for {peer} from disk", peer=self.connection.peer)
            self._look_ahead.unreadable(piece.file, error)
            self.abort()
            return 0
        if len(data) < size:
            # The client was told how long the answer is: there is no other way to say that it ends here.
            end = position + len(data)
            log.error(
                "{path} ends at {at}, within an answer for {peer}",
                path=piece.file.path,
                at=end,
                peer=self.connection.peer,
            )
            self.abort()
            return 0
        self._range_sent += size
        if self._range_sent == piece.size:
            self._queue.popleft()
            self._range_sent = 0
            self._look_ahead.forget()
        self._write(data)
        return size

    def loaded(self) -> None:
        self.connection.sent(self._send_queue())

    # --- the end -----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            if not self._queue:
                self._close_transport()

    def _close_transport(self) -> None:
        if self.transport is not None:
            self.transport.unregisterProducer()
            self.transport.loseConnection()

    def load_failed(self) -> None:
        self.abort()

    def abort(self) -> None:
        self._queue.clear()
        if self.transport is not None:
            self.transport.abortConnection()

    def mark_control(self) -> None:
        """Nothing: this transport is not asked before others."""

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.transport = None
        self._queue.clear()
        self._backlog.clear()
        self._resources.partial.end(self)
        self.connection.lost()
        self._resources.connections.closed(self.connection)
