"""Transport for reactors with file descriptors, with less copying and fewer system calls than Twisted's own.

* All connections read into one scratch buffer, and frames are handled there as views.
* A large frame that arrives in several reads is read into a pooled buffer, without another copy.
* Responses are sent with one system call at the end of the flush scope.
* File ranges are sent from the page cache with ``sendfile``.

If a client shuts down its sending side, its pending requests are abandoned, as in Kafka.
"""

from __future__ import annotations

from mmap import mmap
from socket import socket
from struct import Struct
from typing import TYPE_CHECKING, Any, ClassVar

from twisted.internet import main
from twisted.python.failure import Failure

from kreplica.runtime.disk import FileRange
from kreplica.runtime.slices import LONG_S
from kreplica.server.protocol.connection import Connection
from kreplica.server.transport.accepted_socket import AcceptedSocket
from kreplica.server.transport.outgoing import OutgoingQueue
from kreplica.server.transport.outgoing_buffers import Piece
from kreplica.server.transport.page_prefetch import ReadAhead
from kreplica.server.transport.read_turns import SHARE_S

if TYPE_CHECKING:
    from kreplica.server.protocol.server_context import Resources

REMAINDER_BYTES_MAX = 8 * 1024
"""If less than this of an incomplete frame has been read, it is copied into the scratch buffer before the next read;
otherwise the frame gets its own buffer.
"""

READ_BUDGET_S = 0.002
"""Time limit for handling the requests of one read; the other requests are queued (``ReadTurns``)."""

TURNS_PER_BUDGET = 8
"""A queued connection handles requests for ``READ_BUDGET_S`` divided by this number per turn."""

_LENGTH = Struct(">i")


class EpollTransport(AcceptedSocket):
    """Transport of one connection, created by ``Port.transport``.

    It is created when the connection is accepted, and starts reading in ``begin``.

    Most connections are idle, so each has few and small objects: attributes that only busy connections change have
    their initial values in the class, and the send queue is created when it is needed.

    :cvar outgoing_queue: type of the send queue.
    :ivar connection: set by ``begin``.
    :ivar share: time used by the client's address.
    :ivar is_bulk: the requests of the last read exceeded the time limit.
    """

    connection: Connection
    outgoing_queue: ClassVar[type[OutgoingQueue]] = OutgoingQueue

    # Bytes read but not handled: the start of a frame, or frames left when reading paused.
    _remainder: bytes | memoryview = b""
    _is_queued = False
    is_bulk = False
    _frame: mmap | None = None
    _frame_filled = 0
    _frame_size = 0
    _waits_for_memory = False
    _is_writing = False
    _outgoing: OutgoingQueue | None = None

    def __init__(
        self, resources: Resources, sock: socket, protocol: Any, client: Any, _server: Any, _number: int, reactor: Any
    ) -> None:
        super().__init__(sock, protocol, client, reactor)
        self._resources = resources
        self.share = resources.read_turns.opened(client[0])

    def begin(self, connection: Connection) -> None:
        """Start reading."""
        self.connection = connection
        self.begin_reading()

    @property
    def peer(self) -> str:
        return self.connection.peer

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.connection!r}>"

    # --- reading -----------------------------------------------------------------------------------------------------

    @property
    def is_reading(self) -> bool:
        """True if neither the connection nor a lack of memory has paused reading."""
        return bool(self.connected) and not self.connection.paused and not self._waits_for_memory

    def doRead(self) -> BaseException | None:  # type: ignore[override]
        """Read once and handle the complete frames, unless the connection must wait for its turn."""
        resources = self._resources
        connection = self.connection
        if connection.is_control:
            return self._read(connection.seconds(), READ_BUDGET_S)
        if resources.control:
            resources.control.serve()
        if self.share.used_s >= SHARE_S or (self.is_bulk and resources.read_turns.is_contended):
            self.reactor.removeReader(self)
            self._queue_turn()
            return None
        start_s = connection.seconds()
        error = self._read(start_s, READ_BUDGET_S)
        resources.read_turns.spend(self.share, connection.seconds() - start_s)
        return error

    def _read(self, now_s: float, budget_s: float) -> BaseException | None:
        resources = self._resources
        connection = self.connection
        if self._frame is not None:
            return self._read_into_frame(self._frame, now_s)
        scratch = resources.scratch
        remainder_size = len(self._remainder)
        try:
            if remainder_size:
                scratch[:remainder_size] = self._remainder
                size = self.socket.recv_into(scratch[remainder_size:])
            else:
                size = self.socket.recv_into(scratch)
        except BlockingIOError:
            return None
        except OSError:
            return main.CONNECTION_LOST
        if not size:
            return main.CONNECTION_DONE
        self._remainder = b""
        self.is_bulk = False
        connection.last_active_s = now_s
        with resources.flush_scope:
            self._handle(scratch, remainder_size + size, now_s + budget_s)
        return None

    def _note_if_long(self, frame: memoryview, seconds: float) -> None:
        """Report a frame that occupied the event loop for too long.

        :param seconds: time beyond the budget; the total time if the frame was read in parts.
        """
        if seconds >= LONG_S:
            description = self._resources.dispatch.description(self.connection, frame)
            self._resources.flush_scope.slices.on_long(description, seconds)

    def _read_into_frame(self, buffer: mmap, start_s: float) -> BaseException | None:
        """Read the rest of a large frame into its buffer, and the bytes after it into the scratch buffer."""
        resources = self._resources
        connection = self.connection
        view = memoryview(buffer)
        try:
            missing = view[self._frame_filled : self._frame_size]
            size = self.socket.recvmsg_into((missing, resources.scratch))[0]
        except BlockingIOError:
            return None
        except OSError:
            return main.CONNECTION_LOST
        if not size:
            return main.CONNECTION_DONE
        connection.last_active_s = start_s
        self._frame_filled += size
        surplus = self._frame_filled - self._frame_size
        if surplus < 0:
            resources.partial_frames.update(self, self._frame_filled, self._frame_size)
            return None
        with resources.flush_scope:
            frame = view[_LENGTH.size : self._frame_size]
            connection.frame_received(connection, frame)
            resources.dispatch.handle_open_run()
            now_s = connection.seconds()
            self._note_if_long(frame, now_s - start_s)
            if not connection.keeps_frame:
                self._drop_frame()
            if surplus:
                self._handle(resources.scratch, surplus, now_s + READ_BUDGET_S)
        return None

    def _handle(self, view: memoryview, size: int, until_s: float) -> None:
        """Handle the frames in the first ``size`` bytes, and keep the incomplete one at their end.

        :param until_s: time after which the remaining frames are queued; at least one frame is handled.
        """
        connection = self.connection
        length_max = connection.frame_bytes_max
        position = 0
        seconds = connection.seconds
        extend_run = self._resources.dispatch.extend_run
        while size - position >= 4 and not connection.paused:
            length: int = _LENGTH.unpack_from(view, position)[0]
            if not 0 <= length <= length_max:
                self._resources.dispatch.handle_open_run()
                connection.abort(f"frame length {length} is not between 0 and {length_max} (socket.request.max.bytes)")
                return
            end = position + 4 + length
            if end > size:
                break
            frame = view[position + 4 : end]
            connection.frame_received(connection, frame)
            now_s = seconds()
            if now_s >= until_s:
                self._note_if_long(frame, now_s - until_s)
                if end < size and not connection.paused:
                    self._set_aside(view[end:size])
                    return
            if end < size:
                end = extend_run(connection, frame, view, end, size)
            position = end
        if position < size and not connection.closed:
            self._keep(view[position:size])

    def _keep(self, data: memoryview) -> None:
        if len(data) < REMAINDER_BYTES_MAX or self.connection.paused:
            self._remainder = bytes(data)
            return
        self._frame_size = _LENGTH.unpack_from(data)[0] + _LENGTH.size
        reason = self._resources.dispatch.reason_too_large(data[_LENGTH.size :], self._frame_size - _LENGTH.size)
        if reason is not None:
            self.connection.abort(reason)
            return
        try:
            self._frame = self._resources.buffers.take(self._frame_size)
        except OSError as error:
            self.connection.abort(f"no memory for a request of {self._frame_size} bytes: {error}")
            return
        self._frame_filled = len(data)
        self._frame[: len(data)] = data
        self._resources.partial_frames.update(self, len(data), self._frame_size)

    def _set_aside(self, frames: memoryview) -> None:
        """Keep complete frames until this connection's next turn."""
        self._remainder = frames if isinstance(frames.obj, bytes) else bytes(frames)
        self.is_bulk = True
        self.reactor.removeReader(self)
        self._queue_turn()

    def _drop_frame(self) -> None:
        if self._frame is not None:
            self._resources.buffers.give_back(self._frame)
            self._frame = None
            self._resources.partial_frames.remove(self)

    def release_frame(self) -> None:
        self._drop_frame()

    def pause_reading(self) -> None:
        self.reactor.removeReader(self)

    def resume_reading(self) -> None:
        if self._remainder:
            # Earlier bytes are handled first, but in a later iteration: the caller may be handling a frame.
            self._queue_turn()
        elif self.is_reading:
            self.reactor.addReader(self)

    def _queue_turn(self) -> None:
        if not self._is_queued:
            self._is_queued = True
            if self.connection.is_control:
                self._resources.reactor.callLater(0, self.take_turn)
            else:
                self._resources.read_turns.wait(self)

    def take_turn(self) -> None:
        """Handle the frames set aside, then read once; watch the socket again unless another turn is queued."""
        self._is_queued = False
        if not self.is_reading:
            return
        seconds = self.connection.seconds
        budget_s = READ_BUDGET_S / TURNS_PER_BUDGET
        if self._remainder:
            remainder, self._remainder = self._remainder, b""
            with self._resources.flush_scope:
                self._handle(memoryview(remainder), len(remainder), seconds() + budget_s)
        if self.is_reading and not self._is_queued and (error := self._read(seconds(), budget_s)) is not None:
            self.connectionLost(Failure(error))
        # The connection may have paused and resumed in between, and have queued another turn.
        if self.is_reading and not self._is_queued:
            self.reactor.addReader(self)

    def wait_for_memory(self) -> None:
        self._waits_for_memory = True
        self.reactor.removeReader(self)

    def resume_with_memory(self) -> None:
        self._waits_for_memory = False
        self.resume_reading()

    # --- writing -----------------------------------------------------------------------------------------------------

    def send(self, pieces: list[Piece]) -> int:
        if not self.connected:
            return 0
        outgoing = self._outgoing
        sent = 0
        if outgoing is None:
            piece = pieces[0]
            if len(pieces) == 1 and not isinstance(piece, FileRange):
                try:
                    sent = self.socket.send(piece)
                except OSError:
                    pass  # the queue gets the same error
                if sent == len(piece):
                    return sent
                pieces = [memoryview(piece)[sent:]]
            outgoing = self._new_queue()
        elif outgoing.failed:
            return 0
        is_first = not outgoing
        outgoing.extend(pieces)
        return sent + self._send(outgoing) if is_first else 0

    def _new_queue(self) -> OutgoingQueue:
        read_ahead = ReadAhead(self._resources.page_prefetch, self)
        self._outgoing = outgoing = self.outgoing_queue(self.socket, read_ahead, self.share.address)
        return outgoing

    @property
    def held_bytes(self) -> int:
        return 0 if self._outgoing is None else self._outgoing.held_bytes

    def doWrite(self) -> BaseException | None:  # type: ignore[override]
        """Send more; return the reason to close if sending failed, or if a closing connection has sent everything."""
        outgoing = self._outgoing
        if outgoing is None:
            outgoing = self._new_queue()
        sent = self._send(outgoing)
        if outgoing.failed:
            return main.CONNECTION_LOST
        if sent:
            self._sent_later(sent)
        if self.disconnecting and not outgoing:
            return main.CONNECTION_DONE
        return None

    def _send(self, outgoing: OutgoingQueue) -> int:
        sent = outgoing.send()
        # The reactor closes a failed or finished connection after doWrite returns the reason.
        if outgoing.wants_to_write or outgoing.failed or (self.disconnecting and not outgoing):
            self.reactor.addWriter(self)
            self._is_writing = True
        elif self._is_writing:
            self.reactor.removeWriter(self)
            self._is_writing = False
        return sent

    def _sent_later(self, size: int) -> None:
        self.connection.last_active_s = self.connection.seconds()
        self.connection.sent(size)

    def loaded(self) -> None:
        outgoing = self._outgoing
        if self.connected and outgoing is not None and not outgoing.failed:
            self._sent_later(self._send(outgoing))

    def load_failed(self) -> None:
        self.abortConnection()  # type: ignore[no-untyped-call]

    # --- closing -----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        self.loseConnection()  # type: ignore[no-untyped-call]
        self._is_writing = True  # loseConnection adds the writer

    def abort(self) -> None:
        self.abortConnection()  # type: ignore[no-untyped-call]

    def mark_control(self) -> None:
        self._resources.control.add(self)

    def connectionLost(self, reason: Failure) -> None:
        if self.connected:
            connection = self.connection
            if connection.is_control:
                self._resources.control.remove(self)
            if self._outgoing is not None:
                self._outgoing.clear()
            self._remainder = b""
            self.close_socket(reason)
            connection.lost()
            self._drop_frame()
            self._resources.read_turns.closed(self.share)
            self._resources.connections.closed(connection)
