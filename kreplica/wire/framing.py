"""Splits a byte stream into frames, each with a length prefix of four bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Any

from kreplica.errors import ProtocolError
from kreplica.wire.primitives import Buffer, records_size

REQUEST_SIZE_MAX = 104_857_600
"""Kafka's default of ``socket.request.max.bytes``."""

ROOM_SIZE_MIN = 1 << 16
"""Minimum number of missing bytes for receiving the rest of a frame in place; copying less is faster."""

_LENGTH = Struct(">i")


class FrameReader:
    """Assembles the frames of one connection.

    A frame within one chunk is a view of that chunk; a frame that spans chunks is copied once.

    :param size_max: the longest body accepted, in bytes.
    """

    __slots__ = ("_filled", "_held", "_size_max", "_wanted", "_whole")

    def __init__(self, size_max: int = REQUEST_SIZE_MAX) -> None:
        self._size_max = size_max
        self._held = bytearray()
        # Buffered bytes needed before the next parse, so that a long frame in many chunks is copied only once.
        self._wanted = _LENGTH.size
        self._whole: memoryview | None = None
        self._filled = 0

    @property
    def held_size(self) -> int:
        """Buffered bytes of an incomplete frame."""
        return len(self._held) if self._whole is None else self._filled

    @property
    def wanted_size(self) -> int:
        """Size of the incomplete frame with its length prefix; 4 if the prefix is incomplete."""
        return self._wanted

    @property
    def room(self) -> memoryview | None:
        """Buffer for the rest of a long frame, for callers that trust its length and can receive into a buffer.

        After receiving into it, the caller calls ``fill``.  If it is None, the caller passes the bytes to ``feed``.
        """
        if self._whole is None:
            if self._wanted - len(self._held) < ROOM_SIZE_MIN:
                return None
            self._whole, self._filled = memoryview(bytearray(self._wanted)), len(self._held)
            self._whole[: self._filled] = self._held
            self._held = bytearray()
        return self._whole[self._filled :]

    def fill(self, size: int) -> memoryview | None:
        """Record bytes received into ``room``; return the frame's body if it is complete.

        :param size: number of bytes received.
        """
        assert self._whole is not None
        self._filled += size
        if self._filled < self._wanted:
            return None
        whole, self._whole = self._whole, None
        self._wanted = _LENGTH.size
        return whole[_LENGTH.size :]

    def feed(self, data: Buffer) -> Iterable[memoryview]:
        """Add received bytes and return the bodies of the frames that they complete.

        The result must be iterated to its end before the next call.  The bodies are views of ``data`` or of a copy;
        they are valid until ``data`` changes.

        :raise ProtocolError: a length is negative or too large; the connection must be closed.
        """
        if self._held:
            self._held += data
            if len(self._held) < self._wanted:
                return ()
            data, self._held = self._held, bytearray()
        body_size = len(data) - _LENGTH.size
        if 0 <= body_size <= self._size_max and _LENGTH.unpack_from(data)[0] == body_size:
            self._wanted = _LENGTH.size
            return (memoryview(data)[_LENGTH.size :],)  # exactly one frame, the most frequent case
        return self._cut(memoryview(data))

    def _cut(self, view: memoryview) -> Iterator[memoryview]:
        position, size = 0, len(view)
        self._wanted = _LENGTH.size
        while size - position >= _LENGTH.size:
            length: int = _LENGTH.unpack_from(view, position)[0]
            if not 0 <= length <= self._size_max:
                raise ProtocolError("frame", f"length {length} is not within 0 and {self._size_max}")
            end = position + _LENGTH.size + length
            if end > size:
                self._wanted = end - position
                break
            yield view[position + _LENGTH.size : end]
            position = end
        self._held += view[position:]


def frame(body: bytes) -> bytes:
    """Return a body with its length prefix."""
    return _LENGTH.pack(len(body)) + body


def frame_pieces(pieces: list[Any]) -> list[Any]:
    """Return buffers of ``Schema.build_pieces`` with a length prefix in the first.

    :param pieces: at least one; the first is bytes.
    """
    size = sum(map(records_size, pieces))
    return [_LENGTH.pack(size) + pieces[0], *pieces[1:]]
