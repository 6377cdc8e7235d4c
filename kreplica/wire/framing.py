"""Cuts a connection's byte stream into frames, each a length in four bytes and a body; without I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Any

from kreplica.errors import ProtocolError
from kreplica.wire.primitives import Buffer, records_size

REQUEST_SIZE_MAX = 104_857_600
"""Kafka's default of ``socket.request.max.bytes``."""

ROOM_SIZE_MIN = 1 << 16
"""What is missing of a frame is received in its place if it is as much; less is copied sooner."""

_LENGTH = Struct(">i")


class FrameReader:
    """Collects what one connection receives; lives as long as the connection.

    A frame that comes whole within one piece is a view of that piece; one that comes in several is copied once.

    :param size_max: the longest body accepted, in bytes.
    """

    __slots__ = ("_filled", "_held", "_size_max", "_wanted", "_whole")

    def __init__(self, size_max: int = REQUEST_SIZE_MAX) -> None:
        self._size_max = size_max
        self._held = bytearray()
        # Nothing is looked at until this many bytes are held, so a long frame in many pieces is not copied every time.
        self._wanted = _LENGTH.size
        self._whole: memoryview | None = None
        self._filled = 0

    @property
    def held_size(self) -> int:
        """Bytes held of a frame that is not complete yet."""
        return len(self._held) if self._whole is None else self._filled

    @property
    def wanted_size(self) -> int:
        """Bytes of that frame when it is complete, with its length; 4 while the length itself is not."""
        return self._wanted

    @property
    def room(self) -> memoryview | None:
        """Where the rest of a long frame goes, for who trusts its length and can receive into a buffer.

        Then ``fill`` is called; None: ``feed`` takes what comes.
        """
        if self._whole is None:
            if self._wanted - len(self._held) < ROOM_SIZE_MIN:
                return None
            self._whole, self._filled = memoryview(bytearray(self._wanted)), len(self._held)
            self._whole[: self._filled] = self._held
            self._held = bytearray()
        return self._whole[self._filled :]

    def fill(self, size: int) -> memoryview | None:
        """So many bytes were put where ``room`` is; give the body of the frame, if that completes it."""
        assert self._whole is not None
        self._filled += size
        if self._filled < self._wanted:
            return None
        whole, self._whole = self._whole, None
        self._wanted = _LENGTH.size
        return whole[_LENGTH.size :]

    def feed(self, data: Buffer) -> Iterable[memoryview]:
        """Take bytes in; give the body of every frame that they complete.

        What is given has to be gone through to its end before more bytes come.  Views are of ``data`` or of a copy, so
        they are good for as long as ``data`` is not changed.

        :raise ProtocolError: at a length that is negative or too large; the connection cannot go on.
        """
        if self._held:
            self._held += data
            if len(self._held) < self._wanted:
                return ()
            data, self._held = self._held, bytearray()
        body_size = len(data) - _LENGTH.size
        if 0 <= body_size <= self._size_max and _LENGTH.unpack_from(data)[0] == body_size:
            self._wanted = _LENGTH.size
            return (memoryview(data)[_LENGTH.size :],)  # one frame, as mostly it is
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
    """A body with its length before it."""
    return _LENGTH.pack(len(body)) + body


def frame_pieces(pieces: list[Any]) -> list[Any]:
    """Pieces as ``Schema.build_pieces`` gives them, with the length of all of them before the first.

    :param pieces: at least one, of which the first is bytes.
    """
    size = sum(map(records_size, pieces))
    return [_LENGTH.pack(size) + pieces[0], *pieces[1:]]
