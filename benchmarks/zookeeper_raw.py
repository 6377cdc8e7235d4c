"""The reference for a ZooKeeper client: one blocking socket, and a handwritten encoder and decoder for each request.

It does only the work that every client must do: paths and data are sent unchanged, and every response is checked
(transaction ID, error) and decoded into data and stat.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Sequence
from struct import Struct
from typing import Any

_REQUEST = Struct(">iiii")
_INT = Struct(">i")
_TIMEVAL = Struct("@ll")
_LENGTH = Struct(">i")
_REPLY = Struct(">iqi")
_STAT = Struct(">qqqqiiiqiiq")
_OPERATION = Struct(">i?ii")
_RESULT = Struct(">i?i")
_CONNECT = Struct(">iqiqi16s?")
_MULTI_END = _RESULT.pack(-1, True, -1)

SEND_TIME_S_MAX = 3
SET_DATA, GET_DATA, CHECK, MULTI = 5, 4, 13, 14


class RawSocket:
    """A session on one socket.

    :param window: maximum number of requests in flight.
    """

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A Python timeout would add a system call to each read.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _TIMEVAL.pack(SEND_TIME_S_MAX, 0))
        hello = _CONNECT.pack(0, 0, 30_000, 0, 16, bytes(16), False)
        self._socket.sendall(_LENGTH.pack(len(hello)) + hello)
        self._buffer = b""
        self._position = 0
        self._sent = self._answered = 0
        self._frame()

    def close(self) -> None:
        """End the session."""
        self._socket.sendall(_REQUEST.pack(8, 1, -11, 0)[:12])
        while self._socket.recv(4096):
            pass
        self._socket.close()

    def run(
        self,
        encode: Callable[[int, Any], bytes],
        decode: Callable[[bytes, int], Any],
        items: Sequence[Any],
        window: int,
    ) -> None:
        """Send one request for each item and read every response."""
        half = max(window // 2, 1)
        for start in range(0, len(items), half):
            self._send(encode, items[start : start + half])
            if window > 1:
                self._receive(decode, self._sent - half)
            else:
                self._receive(decode, self._sent)
        self._receive(decode, self._sent)

    def _send(self, encode: Callable[[int, Any], bytes], items: Iterable[Any]) -> None:
        pieces = []
        xid = self._sent
        for item in items:
            xid += 1
            pieces.append(encode(xid, item))
        self._sent = xid
        try:
            self._socket.sendall(b"".join(pieces))
        except BlockingIOError:
            raise ConnectionError(f"the server did not read any data for {SEND_TIME_S_MAX} s") from None

    def _receive(self, decode: Callable[[bytes, int], Any], until: int) -> None:
        while self._answered < until:
            start = self._frame()
            xid, _zxid, error = _REPLY.unpack_from(self._buffer, start)
            if error or xid != self._answered + 1:
                raise AssertionError(f"request {self._answered + 1}: response with transaction ID {xid}, error {error}")
            decode(self._buffer, start + 16)
            self._answered = xid

    def _frame(self) -> int:
        """Receive until the buffer contains the next frame, and return the position of its body."""
        while True:
            left = len(self._buffer) - self._position
            if left >= 4:
                size = _LENGTH.unpack_from(self._buffer, self._position)[0]
                if left >= 4 + size:
                    start = self._position + 4
                    self._position = start + size
                    return start
            data = self._socket.recv(1 << 18)
            if not data:
                raise ConnectionError("the server closed the connection")
            self._buffer = self._buffer[self._position :] + data
            self._position = 0


def encode_get(xid: int, path: str) -> bytes:
    name = path.encode()
    size = len(name)
    return _REQUEST.pack(13 + size, xid, GET_DATA, size) + name + b"\x00"


def decode_get(buffer: bytes, start: int) -> tuple[bytes, tuple[int, ...]]:
    end = start + 4 + _INT.unpack_from(buffer, start)[0]
    return buffer[start + 4 : end], _STAT.unpack_from(buffer, end)


def set_encoder(data: bytes, version: int = -1) -> Callable[[int, str], bytes]:
    """Return an encoder for sets of the same data; it encodes the data each time, as if it were different."""

    def encode(xid: int, path: str) -> bytes:
        name = path.encode()
        size = len(name)
        head = _REQUEST.pack(20 + size + len(data), xid, SET_DATA, size)
        return head + name + _INT.pack(len(data)) + data + _INT.pack(version)

    return encode


def decode_stat(buffer: bytes, start: int) -> tuple[int, ...]:
    return _STAT.unpack_from(buffer, start)


def multi_encoder(data: bytes, check: str | None, version: int = -1) -> Callable[[int, Sequence[str]], bytes]:
    """Return an encoder for multis of such sets, preceded by a check of a znode's version if one is given."""
    name = (check or "").encode()
    head = _OPERATION.pack(CHECK, False, -1, len(name)) + name + _INT.pack(0) if check else b""

    def encode(xid: int, paths: Sequence[str]) -> bytes:
        pieces = [head]
        extend, pack_operation, pack_int = pieces.extend, _OPERATION.pack, _INT.pack
        for path in paths:
            name = path.encode()
            extend((pack_operation(SET_DATA, False, -1, len(name)), name, pack_int(len(data)), data, pack_int(version)))
        pieces.append(_MULTI_END)
        body = b"".join(pieces)
        return _REQUEST.pack(len(body) + 8, xid, MULTI, 0)[:12] + body

    return encode


def decode_multi(buffer: bytes, start: int) -> list[tuple[int, ...] | None]:
    results: list[tuple[int, ...] | None] = []
    while True:
        kind, done, error = _RESULT.unpack_from(buffer, start)
        start += 9
        if done:
            return results
        if error:
            raise AssertionError(f"operation {len(results)} failed with {error}")
        if kind == SET_DATA:
            results.append(_STAT.unpack_from(buffer, start))
            start += 68
        else:
            results.append(None)
