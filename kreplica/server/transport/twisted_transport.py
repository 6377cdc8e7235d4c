"""Transport on top of Twisted's own, for reactors without file descriptors."""

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
from kreplica.server.transport.page_prefetch import ReadAhead
from kreplica.wire.framing import FrameReader

if TYPE_CHECKING:
    from kreplica.server.protocol.server_context import Resources

log = Logger()

CHUNK_BYTES = 256 * 1024
"""Maximum bytes of a file that are read into memory at a time."""


@implementer(IPushProducer)
class TwistedTransport(Protocol):
    """Protocol and push producer of one connection; Twisted's transport pauses it while the send buffer is full."""

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
        self._read_ahead = ReadAhead(resources.page_prefetch, self)
        self._closing = False
        self._waits_for_memory = False

    def connectionMade(self) -> None:
        self.transport.setTcpNoDelay(True)
        self.transport.registerProducer(self, True)

    # --- reading -----------------------------------------------------------------------------------------------------

    @property
    def is_reading(self) -> bool:
        """True if neither the connection nor a lack of memory has paused reading."""
        return not self.connection.paused and not self._waits_for_memory

    def dataReceived(self, data: bytes) -> None:
        connection = self.connection
        connection.last_active_s = connection.seconds()
        self._reader.size_max = connection.frame_bytes_max
        with self._resources.flush_scope:
            try:
                for frame in self._reader.feed(data):
                    # Frames after a pause are kept; frames after a close are discarded.
                    if connection.closed:
                        return
                    if connection.paused or self._backlog:
                        self._backlog.append(frame)
                    else:
                        connection.frame_received(connection, frame)
            except ProtocolError as error:
                self._resources.dispatch.handle_open_run()
                connection.abort(f"{error} (socket.request.max.bytes)")
                return
        reader, partial_frames = self._reader, self._resources.partial_frames
        if reader.buffered_size and not connection.closed:
            partial_frames.update(self, reader.buffered_size, reader.frame_size)
        else:
            partial_frames.remove(self)

    def release_frame(self) -> None:
        """Do nothing: frames are views of memory that is not reused."""

    def pause_reading(self) -> None:
        if self.transport is not None:
            self.transport.pauseProducing()

    def resume_reading(self) -> None:
        if self._backlog:
            # Earlier frames are handled first, but in a later iteration: the caller may be handling a frame.
            if not self._is_resuming:
                self._is_resuming = True
                self._resources.reactor.callLater(0, self._handle_backlog)
        elif self.is_reading and self.transport is not None:
            self.transport.resumeProducing()

    def _handle_backlog(self) -> None:
        self._is_resuming = False
        with self._resources.flush_scope:
            while self._backlog and not self.connection.paused:
                self.connection.frame_received(self.connection, self._backlog.popleft())
        # The connection may have paused and resumed in between, with frames left in the backlog.
        if self.is_reading and not self._backlog and self.transport is not None:
            self.transport.resumeProducing()

    def wait_for_memory(self) -> None:
        self._waits_for_memory = True
        self.pause_reading()

    def resume_with_memory(self) -> None:
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
        """Do nothing: ``connectionLost`` is called, too."""

    def _send_queue(self) -> int:
        """Fill the transport's buffer; return the number of bytes passed to it."""
        queue = self._queue
        total = 0
        while queue and not self._is_full and not self._read_ahead.is_loading:
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
            size = self._read_ahead.cached_bytes(piece.file, position, min(piece.size - self._range_sent, CHUNK_BYTES))
            data = piece.file.read_at(position, size)
        except OSError as error:
            log.failure("reading records of a response to {peer} from disk failed", peer=self.connection.peer)
            self._read_ahead.report_unreadable(piece.file, error)
            self.abort()
            return 0
        if len(data) < size:
            # The length of the response has been sent, so closing the connection is the only way to end it early.
            end = position + len(data)
            log.error(
                "{path} ends at byte {at}, before the end of a response to {peer}",
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
            self._read_ahead.reset()
        self._write(data)
        return size

    def loaded(self) -> None:
        self.connection.sent(self._send_queue())

    # --- closing -----------------------------------------------------------------------------------------------------

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
        """Do nothing: this transport has no priorities."""

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.transport = None
        self._queue.clear()
        self._backlog.clear()
        self._resources.partial_frames.remove(self)
        self.connection.lost()
        self._resources.connections.closed(self.connection)
