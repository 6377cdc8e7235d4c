"""Splits a ZooKeeper connection's byte stream into frames (a four-byte length, then the body), without I/O."""

from __future__ import annotations

from collections.abc import Iterator

from kreplica.errors import ProtocolError
from kreplica.zookeeper.jute import unpack_int32


class FrameSplitter:
    """Reassembles frames from received data; one per connection.

    :param frame_size_max: maximum body size in bytes (ZooKeeper's ``jute.maxbuffer``).
    """

    __slots__ = ("_frame_size_max", "_held_size", "_pieces", "_wanted")

    def __init__(self, frame_size_max: int) -> None:
        self._frame_size_max = frame_size_max
        self._pieces: list[bytes] = []
        self._held_size = 0
        # Chunks are joined only when this many bytes have arrived, so that a long frame is copied once.
        self._wanted = 4

    def frames(self, data: bytes) -> Iterator[tuple[bytes, int, int]]:
        """Add received data and yield every completed frame, in place, as (buffer, start, end) of its body.

        The iterator must be exhausted before the next call.

        :raise ProtocolError: if a length is negative or too large; the caller must close the connection.
        """
        if self._pieces:
            self._pieces.append(data)
            self._held_size += len(data)
            if self._held_size < self._wanted:
                return
            data = b"".join(self._pieces)
            self._pieces.clear()
        position, size = 0, len(data)
        self._wanted = 4
        while size - position >= 4:
            length: int = unpack_int32(data, position)[0]
            if not 0 <= length <= self._frame_size_max:
                raise ProtocolError("frame", f"length {length} is not between 0 and {self._frame_size_max}")
            end = position + 4 + length
            if end > size:
                self._wanted = end - position
                break
            yield data, position + 4, end
            position = end
        if position < size:
            self._pieces.append(data[position:] if position else data)
            self._held_size = size - position
