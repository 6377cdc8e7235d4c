"""Puts load on a ZooKeeper server through one raw socket with pipelining, so that no client library is measured.

``python -m benchmarks.zookeeper_load PORT KIND REQUESTS OUTSTANDING`` prints requests per second.  Requests are built
before the clock starts; responses of one kind have the same size, so that counting them costs almost nothing, and their
error codes are checked after the clock has stopped.
"""

from __future__ import annotations

import socket
import struct
import sys
import time
from itertools import islice

from kreplica.zookeeper.records import ConnectRequest, Opcode, frame, request_frame
from kreplica.zookeeper.requests import Create, Delete, GetChildren, GetData, Multi, SetData
from kreplica.zookeeper.responses import decode_children

ROOT = "/benchmark"
ZNODE_COUNT = 1_000
DATA = b"x" * 100
MULTI_SIZE = 1_000
TIMEOUT_S = 60.0

_LENGTH = struct.Struct(">i")
_REPLY = struct.Struct(">iiqi")


class Pipe:
    """A connection with a session."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.sendall(frame(ConnectRequest(0, 30_000, 0, bytes(16)).encode()))
        self._receive(_LENGTH.unpack(self._receive(4))[0])
        self._socket.settimeout(TIMEOUT_S)

    def close(self) -> None:
        """Close the connection without ending the session, which expires later."""
        self._socket.close()

    def request(self, opcode: Opcode, body: bytes) -> tuple[int, bytes]:
        """Send one request, and return the error code and the body of its response."""
        self._socket.sendall(request_frame(1, opcode, body))
        response = self._receive(_LENGTH.unpack(self._receive(4))[0])
        return struct.unpack_from(">i", response, 12)[0], response[16:]

    def _receive(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self._socket.recv(size - len(data))
            if not piece:
                raise ConnectionError("the server closed the connection")
            data += piece
        return data

    def send_all(self, requests: list[bytes], outstanding: int) -> float:
        """Send all requests with at most ``outstanding`` in flight, and return the time taken in seconds.

        :raise AssertionError: a response contains an error.
        """
        waiting = iter(requests)
        begin = time.perf_counter()
        self._socket.sendall(b"".join(islice(waiting, outstanding)))
        responses = bytearray(self._socket.recv(1 << 20))
        size = 4 + _LENGTH.unpack_from(responses)[0]
        complete = 0
        while len(responses) < size * len(requests):
            count = len(responses) // size
            if count > complete:
                self._socket.sendall(b"".join(islice(waiting, count - complete)))
                complete = count
            responses += self._receive_some()
        took_s = time.perf_counter() - begin
        _check(responses, size)
        return took_s

    def _receive_some(self) -> bytes:
        data = self._socket.recv(1 << 20)
        if not data:
            raise ConnectionError("the server closed the connection")
        return data


def _check(responses: bytearray, size: int) -> None:
    for position in range(0, len(responses), size):
        length, _xid, _zxid, error = _REPLY.unpack_from(responses, position)
        assert (length, error) == (size - 4, 0), f"a response of {length} bytes with error {error}"


def clear(pipe: Pipe, path: str) -> None:
    """Delete a znode and its children, if it exists."""
    error, body = pipe.request(Opcode.GET_CHILDREN, GetChildren(path).encode())
    if error:
        return
    names = decode_children(body, 0, len(body))
    for start in range(0, len(names), MULTI_SIZE):
        part = names[start : start + MULTI_SIZE]
        error, _ = pipe.request(Opcode.MULTI, Multi([Delete(f"{path}/{name}") for name in part]).encode())
        assert not error
    pipe.request(Opcode.DELETE, Delete(path).encode())


def prepare(pipe: Pipe) -> None:
    """Create the znodes to read and write."""
    clear(pipe, ROOT)
    operations = [Create(ROOT), *(Create(f"{ROOT}/{number:06d}", DATA) for number in range(ZNODE_COUNT))]
    error, _ = pipe.request(Opcode.MULTI, Multi(operations).encode())
    assert not error


def requests_of(kind: str, count: int) -> list[bytes]:
    """Return requests of a kind: ``read``, ``write``, or ``create`` (each a multi of 1,000)."""
    paths = [f"{ROOT}/{number % ZNODE_COUNT:06d}" for number in range(count)]
    if kind == "read":
        return [request_frame(1, Opcode.GET_DATA, GetData(path).encode()) for path in paths]
    if kind == "write":
        return [request_frame(1, Opcode.SET_DATA, SetData(path, DATA).encode()) for path in paths]
    starts = range(0, count * MULTI_SIZE, MULTI_SIZE)
    return [request_frame(1, Opcode.MULTI, Multi(_creates(start)).encode()) for start in starts]


def _creates(start: int) -> list[Create]:
    return [
        Create(f"{ROOT}/created-{number:09d}", DATA, with_stat=False) for number in range(start, start + MULTI_SIZE)
    ]


def main(port: int, kind: str, count: int, outstanding: int) -> float:
    """Return operations per second (operations in a multi count individually)."""
    pipe = Pipe(port)
    prepare(pipe)
    requests = requests_of(kind, count)
    took_s = pipe.send_all(requests, outstanding)
    clear(pipe, ROOT)
    return count * (MULTI_SIZE if kind == "create" else 1) / took_s


if __name__ == "__main__":
    print(main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
