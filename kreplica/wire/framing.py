"""Splits a byte stream into frames, each with a length prefix of four bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Any

from kreplica.errors import ProtocolError
from kreplica.wire.primitives import Buffer, records_size

REQUEST_SIZE_MAX = 104_857_600
"""Kafka's default of ``socket.request.max.bytes``."""

RECEIVE_IN_PLACE_MIN = 1 << 16
"""Minimum number of missing bytes of a frame that are received in place; copying fewer bytes is faster."""

_LENGTH = Struct(">i")
LENGTH_SIZE = _LENGTH.size
"""Size of the length prefix in bytes."""


class FrameReader:
    """Assembles the frames of one connection.

    A frame within one chunk is a view of that chunk; a frame that spans chunks is copied once.

    :ivar size_max: maximum size of a body in bytes; may change between calls.
    """

    __slots__ = ("_buffered", "_filled", "_long_frame", "_needed", "size_max")

    def __init__(self, size_max: int = REQUEST_SIZE_MAX) -> None:
        self.size_max = size_max
        self._buffered = bytearray()
        # Number of buffered bytes at which parsing is tried again, so that a long frame in many chunks is copied
        # only once.
        self._needed = _LENGTH.size
        self._long_frame: memoryview | None = None
        self._filled = 0

    @property
    def buffered_size(self) -> int:
        """Number of buffered bytes of an incomplete frame."""
        return len(self._buffered) if self._long_frame is None else self._filled

    @property
    def frame_size(self) -> int:
        """Size of the incomplete frame with its length prefix; 4 if the prefix is incomplete."""
        return self._needed

    @property
    def receive_buffer(self) -> memoryview | None:
        """Buffer for the rest of a long frame; None for a short frame.

        Only for callers that trust the length prefix.  They receive into the buffer and call ``received``, or, if the
        buffer is None, pass the received bytes to ``feed``.
        """
        if self._long_frame is None:
            if self._needed - len(self._buffered) < RECEIVE_IN_PLACE_MIN:
                return None
            self._long_frame, self._filled = memoryview(bytearray(self._needed)), len(self._buffered)
            self._long_frame[: self._filled] = self._buffered
            self._buffered = bytearray()
        return self._long_frame[self._filled :]

    def received(self, size: int) -> memoryview | None:
        """Record that bytes were received into ``receive_buffer``; return the frame's body if it is complete.

        :param size: number of bytes received.
        """
        assert self._long_frame is not None
        self._filled += size
        if self._filled < self._needed:
            return None
        long_frame, self._long_frame = self._long_frame, None
        self._needed = _LENGTH.size
        return long_frame[_LENGTH.size :]

    def feed(self, data: Buffer) -> Iterable[memoryview]:
        """Add received bytes and return the bodies of the frames that they complete.

        The result must be iterated to its end before the next call.  The bodies are views of ``data`` or of a copy;
        they are valid until ``data`` changes.

        :raise ProtocolError: a length is negative or too large; the connection must be closed.
        """
        if self._buffered:
            self._buffered += data
            if len(self._buffered) < self._needed:
                return ()
            data, self._buffered = self._buffered, bytearray()
        body_size = len(data) - _LENGTH.size
        if 0 <= body_size <= self.size_max and _LENGTH.unpack_from(data)[0] == body_size:
            self._needed = _LENGTH.size
            return (memoryview(data)[_LENGTH.size :],)  # exactly one frame, the most frequent case
        return self._split(memoryview(data))

    def _split(self, view: memoryview) -> Iterator[memoryview]:
        position, size = 0, len(view)
        self._needed = _LENGTH.size
        while size - position >= _LENGTH.size:
            length: int = _LENGTH.unpack_from(view, position)[0]
            if not 0 <= length <= self.size_max:
                raise ProtocolError("frame", f"length {length} is not between 0 and {self.size_max}")
            end = position + _LENGTH.size + length
            if end > size:
                self._needed = end - position
                break
            yield view[position + _LENGTH.size : end]
            position = end
        self._buffered += view[position:]


def frame(body: bytes) -> bytes:
    """Return a body with its length prefix."""
    return _LENGTH.pack(len(body)) + body


def frame_pieces(pieces: list[Any]) -> list[Any]:
    """Return the pieces from ``Schema.build_pieces``, with a length prefix in the first piece.

    :param pieces: at least one; the first is bytes.
    """
    size = sum(map(records_size, pieces))
    return [_LENGTH.pack(size) + pieces[0], *pieces[1:]]
