"""TCP sockets of simulated hosts, with the interface of ``socket.socket``.

Twisted's own transports run on these unchanged.  Bytes travel over ``kreplica.testing.simulator.network``; at most
``WINDOW_BYTES`` per direction are in flight or unread, so a receiver that does not read blocks its sender.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Protocol

from kreplica.runtime.disk import Buffer
from kreplica.testing.simulator.links import Link, Segment

WINDOW_BYTES = 256 * 1024
SEGMENT_BYTES_MAX = 64 * 1024
# Data longer than a packet is often split, shorter data rarely; sends and reads are split with the same probability.
PACKET_BYTES = 1448
SPLIT_CHANCE = 0.25
PACKET_SPLIT_CHANCE = 0.03
MSG_MORE = int(socket.MSG_MORE)
ABORT_ON_CLOSE = struct.pack("ii", 1, 0)
LOOPBACK_NAMES = ("127.0.0.1", "localhost")

Address = tuple[str, int]


class SocketNetwork(Protocol):
    """The functions of a network that its sockets use."""

    random: Random

    def link(self, source: str, destination: str) -> Link: ...

    def bind(self, listener: SimulatedSocket, address: Address) -> Address: ...

    def listen(self, listener: SimulatedSocket) -> None: ...

    def stop_listening(self, listener: SimulatedSocket) -> None: ...

    def connect(self, client: SimulatedSocket, address: Address) -> int: ...

    def transmit(
        self, sender: SimulatedSocket, size: int, arrival: Callable[..., None], *args: Any, acknowledges: bool = False
    ) -> None: ...


class SimulatedSocket:
    """One end of a connection, or a listening socket.

    :param number: the result of ``fileno``; not a descriptor of the operating system.
    :param host: name of its host.
    """

    def __init__(self, network: SocketNetwork, number: int, host: str) -> None:
        self.network = network
        self.host = host
        self.link = network.link(host, host)
        self.local: Address = ("0.0.0.0", 0)
        self.remote: Address | None = None
        self.destination = host
        self.peer: SimulatedSocket | None = None
        self.connected = False
        self.connecting = False
        self.backlog_max = 0
        self.backlog: deque[SimulatedSocket] = deque()
        self.on_ready: Callable[[], None] | None = None
        # Latest arrival time of all segments sent so far: segments of one connection never overtake each other.
        self.last_arrival_s = 0.0
        self.held: deque[Segment] = deque()
        self.number = number
        self.closed = False
        # ``closed``: the program closed the socket.  ``_gone``: the kernel no longer has a connection for it.
        self._gone = False
        self._error = 0
        self._inbox = bytearray()
        self._corked: list[bytes] = []
        self._end_received = False
        self._end_sent = False
        self._outstanding_bytes = 0
        self._blocked = False
        self._abort_on_close = False
        self._options: dict[tuple[int, int], int] = {}

    def set_destination(self, host: str) -> None:
        self.destination = host
        self.link = self.network.link(self.host, host)

    # --- interface of socket.socket ---

    def fileno(self) -> int:
        return -1 if self.closed else self.number

    def setblocking(self, flag: bool) -> None:
        """Do nothing: simulated sockets never block."""

    def setsockopt(self, level: int, option: int, value: int | bytes) -> None:
        if (level, option) == (socket.SOL_SOCKET, socket.SO_LINGER):
            self._abort_on_close = value == ABORT_ON_CLOSE
        elif isinstance(value, int):
            self._options[level, option] = value

    def getsockopt(self, level: int, option: int, size: int = 0) -> int:
        if size:
            raise OSError(errno.ENOPROTOOPT, os.strerror(errno.ENOPROTOOPT))  # there is no TCP_INFO
        if (level, option) == (socket.SOL_SOCKET, socket.SO_ERROR):
            number, self._error = self._error, 0
            return number
        return self._options.get((level, option), 0)

    def bind(self, address: Address) -> None:
        self.local = self.network.bind(self, address)

    def listen(self, backlog: int) -> None:
        self.backlog_max = backlog
        self.network.listen(self)

    def accept(self) -> tuple[SimulatedSocket, Address]:
        self._check_open()
        if not self.backlog:
            raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK))
        accepted = self.backlog.popleft()
        assert accepted.remote is not None
        return accepted, accepted.remote

    def connect_ex(self, address: Address) -> int:
        if self.connected:
            return errno.EISCONN
        if self.connecting:
            return errno.EALREADY
        self.remote = address
        return self.network.connect(self, address)

    def getsockname(self) -> Address:
        self._check_open()
        return self.local

    def getpeername(self) -> Address:
        self._check_open()
        if self.remote is None:
            raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))
        return self.remote

    def send(self, data: Buffer, flags: int = 0) -> int:
        if self.closed or self._error or self._end_sent or self.peer is None:
            self._check_open()
            if self._error:
                raise self._take_error()
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        window_left = WINDOW_BYTES - self._outstanding_bytes
        size = len(data)
        if size >= window_left:
            self._blocked = True
            if window_left <= 0:
                raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK))
            data, size = memoryview(data)[:window_left], window_left
        else:
            self._blocked = False
        self._outstanding_bytes += size
        if flags & MSG_MORE and not self._blocked:
            self._corked.append(bytes(data))
        elif self._corked:
            self._corked.append(bytes(data))
            self._uncork()
        else:
            self._transmit(bytes(data))
        return size

    def sendmsg(self, buffers: Sequence[Buffer], ancillary: Sequence[Any] = (), flags: int = 0) -> int:
        return self.send(b"".join(buffers), flags)

    def recv(self, size: int, flags: int = 0) -> bytes:
        size = self._readable_bytes(size)
        inbox = self._inbox
        data = bytes(inbox) if size == len(inbox) else bytes(inbox[:size])
        self._consume(size)
        return data

    def recv_into(self, buffer: bytearray | memoryview, size: int = 0, flags: int = 0) -> int:
        size = self._readable_bytes(size or len(buffer))
        buffer[:size] = self._inbox[:size]
        self._consume(size)
        return size

    def recvmsg_into(
        self, buffers: Sequence[bytearray | memoryview], ancillary_size: int = 0, flags: int = 0
    ) -> tuple[int, list[Any], int, Address | None]:
        size = self._readable_bytes(sum(map(len, buffers)))
        start = 0
        for buffer in buffers:
            piece = self._inbox[start : min(start + len(buffer), size)]
            memoryview(buffer)[: len(piece)] = piece
            start += len(piece)
        self._consume(size)
        return size, [], 0, self.remote

    def shutdown(self, how: int) -> None:
        self._check_open()
        if how != socket.SHUT_RD and self.connected and not self._end_sent and not self._gone:
            self._uncork()
            self._end_sent = True
            self.network.transmit(self, 0, self._connected_peer().arrive_end)

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self.on_ready = None
        if self.backlog_max:
            self.network.stop_listening(self)
            for waiting in self.backlog:
                waiting.abort()
        if self.connected and not self._gone:
            self._uncork()
            if self._abort_on_close or self._inbox:
                self.network.transmit(self, 0, self._connected_peer().arrive_reset)
            elif not self._end_sent:
                self._end_sent = True
                self.network.transmit(self, 0, self._connected_peer().arrive_end)

    def abort(self) -> None:
        """Close the connection with a reset instead of a FIN."""
        self._abort_on_close = True
        self.close()

    # --- readiness, as epoll reports it ---

    @property
    def readable(self) -> bool:
        return bool(self._inbox or self._end_received or self._error or self.backlog)

    @property
    def writable(self) -> bool:
        return bool(self._error or (self.connected and (self._outstanding_bytes < WINDOW_BYTES or self._end_sent)))

    @property
    def failed(self) -> bool:
        """True if a reset or a failed connect has not been reported to the program yet."""
        return bool(self._error)

    # --- arrivals from the network ---

    def arrive(self, data: bytes) -> None:
        """Accept bytes from the peer, or respond with a reset if the connection no longer exists."""
        if self.closed or self._gone:
            self.network.transmit(self, 0, self._connected_peer().arrive_reset)
            return
        self._inbox += data
        if self.on_ready is not None:
            self.on_ready()

    def arrive_end(self) -> None:
        self._end_received = True
        self._notify_ready()

    def arrive_reset(self) -> None:
        """Accept a reset: the peer has no such connection or refuses it."""
        self.reset(errno.ECONNRESET)

    def arrive_credit(self, size: int) -> None:
        """Accept an acknowledgement of ``size`` bytes that the peer has read."""
        self._outstanding_bytes -= size
        self._blocked = False
        self._notify_ready()

    def establish(self, peer: SimulatedSocket) -> None:
        self.peer = peer
        self.connecting = False
        self.connected = True
        self._notify_ready()

    def enqueue(self, connection: SimulatedSocket) -> None:
        self.backlog.append(connection)
        self._notify_ready()

    def reset(self, number: int) -> None:
        """Drop the connection at this end; its next use raises the errno ``number``."""
        self._gone = True
        self.held.clear()
        if not self._error and not self.closed:
            self._error = number
            self.connecting = False
            self._notify_ready()

    def power_off(self) -> None:
        """Drop the connection without notifying the peer, which sees a reset only if it sends to this end later."""
        self.closed = self._gone = True
        self.on_ready = None
        self.held.clear()
        if self.backlog_max:
            self.network.stop_listening(self)
            for waiting in self.backlog:
                waiting.power_off()

    # --- internals ---

    def _uncork(self) -> None:
        """Send the data that was held back by ``MSG_MORE``."""
        corked, self._corked = self._corked, []
        if corked:
            self._transmit(b"".join(corked))

    def _transmit(self, data: bytes) -> None:
        """Send bytes to the peer, sometimes in several segments."""
        network, arrive = self.network, self._connected_peer().arrive
        while data:
            size = len(data)
            part_size = _split_size(size if size < SEGMENT_BYTES_MAX else SEGMENT_BYTES_MAX, network.random)
            network.transmit(self, part_size, arrive, data[:part_size])
            data = data[part_size:]

    def _readable_bytes(self, size: int) -> int:
        """Return the number of bytes that a read of at most ``size`` bytes returns; 0 at the end of the stream."""
        available = len(self._inbox)
        if available and not self.closed:
            return _split_size(size if size < available else available, self.network.random)
        self._check_open()
        if self._error:
            raise self._take_error()
        if not self._end_received:
            raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK))
        return 0

    def _consume(self, size: int) -> None:
        del self._inbox[:size]
        if size and self.peer is not None:
            self.peer._read_by_peer(self, size)

    def _read_by_peer(self, reader: SimulatedSocket, size: int) -> None:
        # An event is needed only if the sender is blocked or the acknowledgement is delayed by a cut link.
        if self._blocked or reader.held or reader.link.cut:
            self.network.transmit(reader, 0, self.arrive_credit, size, acknowledges=True)
        else:
            self._outstanding_bytes -= size

    def _connected_peer(self) -> SimulatedSocket:
        assert self.peer is not None
        return self.peer

    def _notify_ready(self) -> None:
        if self.on_ready is not None:
            self.on_ready()

    def _check_open(self) -> None:
        if self.closed:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))

    def _take_error(self) -> OSError:
        number = self._error
        return OSError(number, os.strerror(number))


def _split_size(size: int, random: Random) -> int:
    """Return the size of the next part of ``size`` bytes: sometimes fewer, as TCP may split a stream anywhere."""
    if random.random() < (PACKET_SPLIT_CHANCE if size <= PACKET_BYTES else SPLIT_CHANCE):
        return random.randint(1, size)
    return size
