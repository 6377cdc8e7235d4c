"""The fast transport: reads into one shared buffer, parses in place, sends directly and straight from files.

What differs from Twisted's own: a read fills the scratch buffer that all connections share, and frames are handled
right there as views; a large frame that comes in several reads lands in a pooled buffer without a copy; answers leave
at the end of the turn in one system call; ranges of files go from the page cache to the socket with ``sendfile``.
A client that closes its side for writing has left: what it still waits for is abandoned (Kafka does the same).
"""

from __future__ import annotations

from mmap import mmap
from socket import socket
from struct import Struct
from typing import TYPE_CHECKING, Any

from twisted.internet import main, tcp
from twisted.python.failure import Failure

from kreplica.runtime.slices import LONG_S
from kreplica.server.protocol.connection import Connection
from kreplica.server.transport.outgoing import Outgoing
from kreplica.server.transport.outgoing_buffers import Piece
from kreplica.server.transport.page_prefetch import LookAhead
from kreplica.server.transport.read_turns import SHARE_S

if TYPE_CHECKING:
    from kreplica.server.protocol.server_context import Resources

STUB_BYTES_MAX = 8 * 1024
"""Less than this of an incomplete frame is put aside, and copied before what the next read brings."""

READ_BUDGET_S = 0.002
"""Longest time in which the requests of one read are handled at once; the others wait for turns (``ReadTurns``)."""

TURNS_PER_BUDGET = 8
"""A connection that waits for its turn handles requests for this part of ``READ_BUDGET_S``."""

_LENGTH = Struct(">i")


class FastTransport(tcp.Server):
    """A server connection; ``Port.transport`` makes it.

    :ivar connection: set before the first read.
    :ivar share: of its client address.
    :ivar is_bulk: the requests of its last read took longer than one read may.
    """

    connection: Connection

    def __init__(self, resources: Resources, sock: socket, protocol: Any, client: Any, *arguments: Any) -> None:
        self._resources = resources
        self._frame_received = resources.frame_received
        # What was read and not handled: the start of a frame, or whatever a pause has left.
        self._stub: bytes | memoryview = b""
        self._address = str(client[0])
        self.share = resources.read_turns.opened(self._address)
        self._waits_for_turn = False
        self.is_bulk = False
        self._frame: mmap | None = None
        self._frame_filled = 0
        self._frame_size = 0
        self._waits_for_memory = False
        self._is_writing = False
        self._outgoing = Outgoing(sock, LookAhead(resources.cold_reads, self), self._address)
        super().__init__(sock, protocol, client, *arguments)
        self.repstr = type(self).__name__  # a text of its own would be 80 bytes of each

    def __repr__(self) -> str:
        return f"<{self.repstr} of {self.connection!r}>"

    # --- reading -----------------------------------------------------------------------------------------------------

    @property
    def is_reading(self) -> bool:
        """Whether frames are wanted now."""
        return bool(self.connected) and not self.connection.paused and not self._waits_for_memory

    def doRead(self) -> BaseException | None:  # type: ignore[override]
        """Read once, and handle every frame that is complete then."""
        resources = self._resources
        connection = self.connection
        if connection.is_control:
            return self._read(connection.seconds(), READ_BUDGET_S)
        if resources.control:
            resources.control.serve()
        if self.share.used_s >= SHARE_S or (self.is_bulk and resources.read_turns.is_contended):
            self.reactor.removeReader(self)
            self._handle_soon()
            return None
        begun_s = connection.seconds()
        why = self._read(begun_s, READ_BUDGET_S)
        resources.read_turns.spend(self.share, connection.seconds() - begun_s)
        return why

    def _read(self, now_s: float, budget_s: float) -> BaseException | None:
        resources = self._resources
        connection = self.connection
        if self._frame is not None:
            return self._read_into_frame(self._frame, now_s)
        scratch = resources.scratch
        kept = len(self._stub)
        try:
            if kept:
                scratch[:kept] = self._stub
                size = self.socket.recv_into(scratch[kept:])
            else:
                size = self.socket.recv_into(scratch)
        except BlockingIOError:
            return None
        except OSError:
            return main.CONNECTION_LOST
        if not size:
            return main.CONNECTION_DONE
        self._stub = b""
        self.is_bulk = False
        connection.last_active_s = now_s
        with resources.turn:
            self._handle(scratch, kept + size, now_s + budget_s)
        return None

    def _note_if_long(self, frame: memoryview, seconds: float) -> None:
        """Report the frame if it kept the event loop for long beyond its share."""
        if seconds >= LONG_S:
            self._resources.turn.slices.on_long(self._resources.dispatch.description(self.connection, frame), seconds)

    def _read_into_frame(self, buffer: mmap, begun_s: float) -> BaseException | None:
        """Read the rest of a large frame to where it belongs, and what comes behind it into the scratch buffer."""
        resources = self._resources
        connection = self.connection
        view = memoryview(buffer)
        try:
            rest = view[self._frame_filled : self._frame_size]
            size = self.socket.recvmsg_into((rest, resources.scratch))[0]
        except BlockingIOError:
            return None
        except OSError:
            return main.CONNECTION_LOST
        if not size:
            return main.CONNECTION_DONE
        connection.last_active_s = begun_s
        self._frame_filled += size
        behind = self._frame_filled - self._frame_size
        if behind < 0:
            resources.partial.update(self, self._frame_filled, self._frame_size)
            return None
        with resources.turn:
            frame = view[_LENGTH.size : self._frame_size]
            self._frame_received(connection, frame)
            resources.dispatch.settle()
            now_s = connection.seconds()
            self._note_if_long(frame, now_s - begun_s)
            if not connection.keeps_frame:
                self._drop_frame()
            if behind:
                self._handle(resources.scratch, behind, now_s + READ_BUDGET_S)
        return None

    def _handle(self, view: memoryview, size: int, until_s: float) -> None:
        """Handle the frames in the first ``size`` bytes, and keep what is left.

        :param until_s: when the frames that are left must wait for a turn; one frame is handled in any case.
        """
        connection = self.connection
        received = self._frame_received
        length_max = self._resources.bounds.request_bytes_max
        position = 0
        seconds = connection.seconds
        while size - position >= 4 and not connection.paused:
            length: int = _LENGTH.unpack_from(view, position)[0]
            if not 0 <= length <= length_max:
                self._resources.dispatch.settle()
                connection.abort(f"a frame of {length} bytes; 0 to {length_max} are allowed (socket.request.max.bytes)")
                return
            end = position + 4 + length
            if end > size:
                break
            received(connection, view[position + 4 : end])
            now_s = seconds()
            if now_s >= until_s:
                self._note_if_long(view[position + 4 : end], now_s - until_s)
                if end < size and not connection.paused:
                    self._set_aside(view[end:size])
                    return
            position = end
        if position < size and not connection.closed:
            self._keep(view[position:size])

    def _keep(self, rest: memoryview) -> None:
        if len(rest) < STUB_BYTES_MAX or self.connection.paused:
            self._stub = bytes(rest)
            return
        self._frame_size = _LENGTH.unpack_from(rest)[0] + _LENGTH.size
        excess = self._resources.dispatch.excess(rest[_LENGTH.size :], self._frame_size - _LENGTH.size)
        if excess is not None:
            self.connection.abort(excess)
            return
        try:
            self._frame = self._resources.buffers.take(self._frame_size)
        except OSError as error:
            self.connection.abort(f"no memory for its request of {self._frame_size} bytes: {error}")
            return
        self._frame_filled = len(rest)
        self._frame[: len(rest)] = rest
        self._resources.partial.update(self, len(rest), self._frame_size)

    def _set_aside(self, rest: memoryview) -> None:
        """Keep complete frames until the next turn: other connections go first."""
        self._stub = rest if isinstance(rest.obj, bytes) else bytes(rest)
        self.is_bulk = True
        self.reactor.removeReader(self)
        self._handle_soon()

    def _drop_frame(self) -> None:
        if self._frame is not None:
            self._resources.buffers.give_back(self._frame)
            self._frame = None
            self._resources.partial.end(self)

    def release_frame(self) -> None:
        self._drop_frame()

    def pause_reading(self) -> None:
        self.reactor.removeReader(self)

    def resume_reading(self) -> None:
        if self._stub:
            # What is left from before comes first; not from here, as the caller may be in the middle of anything.
            self._handle_soon()
        elif self.is_reading:
            self.reactor.addReader(self)

    def _handle_soon(self) -> None:
        if not self._waits_for_turn:
            self._waits_for_turn = True
            if self.connection.is_control:
                self._resources.reactor.callLater(0, self.take_turn)
            else:
                self._resources.read_turns.wait(self)

    def take_turn(self) -> None:
        """Handle what was set aside, then read; the reactor resumes reading if nothing is left."""
        self._waits_for_turn = False
        if not self.is_reading:
            return
        seconds = self.connection.seconds
        budget_s = READ_BUDGET_S / TURNS_PER_BUDGET
        if self._stub:
            stub, self._stub = self._stub, b""
            with self._resources.turn:
                self._handle(memoryview(stub), len(stub), seconds() + budget_s)
        if self.is_reading and not self._waits_for_turn and (why := self._read(seconds(), budget_s)) is not None:
            self.connectionLost(Failure(why))
        # Handling frames may have paused and resumed the connection, with a part of the stub still to be handled.
        if self.is_reading and not self._waits_for_turn:
            self.reactor.addReader(self)

    def wait_for_memory(self) -> None:
        self._waits_for_memory = True
        self.reactor.removeReader(self)

    def go_on(self) -> None:
        self._waits_for_memory = False
        self.resume_reading()

    # --- writing -----------------------------------------------------------------------------------------------------

    def send(self, pieces: list[Piece]) -> int:
        outgoing = self._outgoing
        if not self.connected or outgoing.failed:
            return 0
        is_first = not outgoing
        outgoing.extend(pieces)
        return self._send() if is_first else 0

    @property
    def held_bytes(self) -> int:
        return self._outgoing.held_bytes

    def doWrite(self) -> BaseException | None:  # type: ignore[override]
        """Send more; the last thing before the connection ends, where that is asked."""
        sent = self._send()
        if self._outgoing.failed:
            return main.CONNECTION_LOST
        if sent:
            self._sent_later(sent)
        if self.disconnecting and not self._outgoing:
            return main.CONNECTION_DONE
        return None

    def _send(self) -> int:
        outgoing = self._outgoing
        sent = outgoing.send()
        # A broken connection is closed by the reactor: it asks doWrite, which says so.
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
        if self.connected and not self._outgoing.failed:
            self._sent_later(self._send())

    def load_failed(self) -> None:
        self.abortConnection()  # type: ignore[no-untyped-call]

    # --- the end -----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        self.loseConnection()  # type: ignore[no-untyped-call]
        self._is_writing = True

    def abort(self) -> None:
        self.abortConnection()  # type: ignore[no-untyped-call]

    def mark_control(self) -> None:
        self._resources.control.add(self)

    def connectionLost(self, reason: Failure) -> None:
        if self.connected:
            if self.connection.is_control:
                self._resources.control.remove(self)
            self._outgoing.clear()
            self._stub = b""
            super().connectionLost(reason)
            self._drop_frame()
            self._resources.read_turns.closed(self._address)
