"""A broker that records when it reads from sockets, appends and sends, for the benchmark ``hand_overs``.

``python -P hand_over_stamps.py PATH TWISTD ...`` runs ``twistd ...`` and writes the events to the file PATH, which is
mapped into memory, so that they survive a killed process. An event takes less than a microsecond to record.
"""

from __future__ import annotations

import mmap
import struct
import sys
from pathlib import Path
from socket import SOL_SOCKET, socket
from time import time_ns
from typing import Any, NamedTuple

EVENTS_MAX = 1 << 20
"""Number of events after which recording stops."""

SO_TIMESTAMPNS = 35
"""Linux's socket option for the time at which the kernel received data, and the type of its control message."""

CONTROL_BYTES = 64
READ, APPENDED, SENT = 1, 2, 3

_EVENT = struct.Struct("<BxHIqq")
_TIMESPEC = struct.Struct("<qq")


class Event(NamedTuple):
    """A read, append or send of a process, with times of the real-time clock in ns.

    :param kind: ``READ``, ``APPENDED`` or ``SENT``.
    :param port: port of the connection's client; 0 for appends.
    :param size: number of bytes.
    :param from_ns: time at which the kernel received the data, or at which appending or sending started.
    :param to_ns: time at which the process had the data, or at which appending or sending ended.
    """

    kind: int
    port: int
    size: int
    from_ns: int
    to_ns: int


class EventFile:
    """Events in a file that is mapped into memory."""

    def __init__(self, path: Path) -> None:
        with open(path, "w+b") as file:
            file.truncate(EVENTS_MAX * _EVENT.size)
            self._map = mmap.mmap(file.fileno(), 0)
        self._position = 0

    def add(self, kind: int, port: int, size: int, from_ns: int, to_ns: int) -> None:
        if self._position < len(self._map):
            _EVENT.pack_into(self._map, self._position, kind, port, size, from_ns, to_ns)
            self._position += _EVENT.size


def read_events(path: Path) -> list[Event]:
    """Return the events that a process has recorded."""
    data = path.read_bytes()
    return [Event(*fields) for fields in _EVENT.iter_unpack(data) if fields[0]]


class StampedSocket(socket):
    """Socket that records its reads, with the kernel's time of arrival, and its sends.

    :param port: port of the connection's client.
    """

    def __init__(self, plain: socket, events: EventFile, port: int) -> None:
        family, kind, protocol = plain.family, plain.type, plain.proto
        super().__init__(family, kind, protocol, fileno=plain.detach())
        self.setblocking(False)
        self.setsockopt(SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self._events = events
        self._port = port

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:
        size, control, _, _ = self.recvmsg_into([buffer], CONTROL_BYTES)
        self._note_read(size, control)
        return size

    def recv(self, bufsize: int, flags: int = 0) -> bytes:
        data, control, _, _ = self.recvmsg(bufsize, CONTROL_BYTES)
        self._note_read(len(data), control)
        return data

    def send(self, data: Any, flags: int = 0) -> int:
        begin_ns = time_ns()
        size = super().send(data, flags)
        self._events.add(SENT, self._port, size, begin_ns, time_ns())
        return size

    def _note_read(self, size: int, control: Any) -> None:
        now_ns = time_ns()
        self._events.add(READ, self._port, size, arrival_ns(control, now_ns), now_ns)


def arrival_ns(control: Any, default_ns: int) -> int:
    """Return the time of arrival that the kernel reported in the control messages of a read."""
    for _, kind, data in control:
        if kind == SO_TIMESTAMPNS:
            seconds, rest_ns = _TIMESPEC.unpack(data[: _TIMESPEC.size])
            return int(seconds) * 1_000_000_000 + int(rest_ns)
    return default_ns


def install(events: EventFile) -> None:
    """Record the events of all connections and logs of this process."""
    from kreplica.client.connection import Connection
    from kreplica.server.transport.epoll_transport import EpollTransport
    from kreplica.storage.log.log import Log

    transport_class: Any = EpollTransport
    client_class: Any = Connection
    log_class: Any = Log
    new_transport, client_made, write = EpollTransport.__init__, Connection.connectionMade, Log.write

    def stamped_transport(self: Any, resources: Any, sock: socket, protocol: Any, client: Any, *rest: Any) -> None:
        new_transport(self, resources, StampedSocket(sock, events, client[1]), protocol, client, *rest)

    def stamped_client(self: Any) -> None:
        transport = self.transport
        transport.socket = StampedSocket(transport.socket, events, transport.socket.getsockname()[1])
        transport.fileno = transport.socket.fileno
        client_made(self)

    def stamped_write(self: Any, run: Any, now_ms: int) -> None:
        begin_ns = time_ns()
        write(self, run, now_ms)
        events.add(APPENDED, 0, run.size, begin_ns, time_ns())

    transport_class.__init__ = stamped_transport
    client_class.connectionMade = stamped_client
    log_class.write = stamped_write


if __name__ == "__main__":
    install(EventFile(Path(sys.argv[1])))
    sys.argv = sys.argv[2:]
    from twisted.scripts.twistd import run

    run()
