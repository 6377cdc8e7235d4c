"""Jute, ZooKeeper's record encoding: big-endian integers; length-prefixed byte arrays, strings and vectors.

``Reader`` decodes records of any shape and checks every bound.  ``requests`` and ``responses`` pack and unpack the
most frequent records directly, with the ``Struct`` values of this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from struct import Struct
from typing import TypeVar

from kreplica.errors import ProtocolError

T = TypeVar("T")

INT32 = Struct(">i")
INT64 = Struct(">q")

pack_int32 = INT32.pack
pack_int64 = INT64.pack
unpack_int32 = INT32.unpack_from
unpack_int64 = INT64.unpack_from

TRUE = b"\x01"
FALSE = b"\x00"


def pack_text(text: str) -> bytes:
    """Encode a string: the length of its UTF-8 encoding (int32), then the UTF-8 bytes."""
    data = text.encode()
    return pack_int32(len(data)) + data


def pack_text_and_flag(text: str, flag: bool) -> bytes:
    """Encode a string and a boolean: the body of every read with an optional watch."""
    data = text.encode()
    return pack_int32(len(data)) + data + (TRUE if flag else FALSE)


def pack_buffer(data: bytes | None) -> bytes:
    """Encode length-prefixed bytes (int32 length); None is encoded as length -1."""
    return b"\xff\xff\xff\xff" if data is None else pack_int32(len(data)) + data


def pack_texts(texts: Iterable[str]) -> bytes:
    """Encode a vector of strings: their count (int32), then each string."""
    encoded = [text.encode() for text in texts]
    pieces = [pack_int32(len(encoded))]
    for data in encoded:
        pieces.append(pack_int32(len(data)))
        pieces.append(data)
    return b"".join(pieces)


class Reader:
    """Decodes one record in place from a section of a buffer; never reads beyond that section.

    :param name: name of the record, used as the ``path`` of errors.
    :param end: position after the record's last byte; None means the end of the buffer.
    :raise ProtocolError: from every method, if the data is too short or malformed.
    """

    __slots__ = ("data", "end", "name", "position")

    def __init__(self, data: bytes, position: int = 0, end: int | None = None, name: str = "record") -> None:
        self.data = data
        self.position = position
        self.end = len(data) if end is None else end
        self.name = name

    @property
    def remaining(self) -> int:
        """Number of bytes left."""
        return self.end - self.position

    def _take(self, size: int) -> int:
        position = self.position
        if size > self.end - position:
            raise ProtocolError(self.name, f"{size} bytes expected, {self.end - position} left")
        self.position = position + size
        return position

    def int32(self) -> int:
        """Read a signed 32-bit integer."""
        value: int = unpack_int32(self.data, self._take(4))[0]
        return value

    def int64(self) -> int:
        """Read a signed 64-bit integer."""
        value: int = unpack_int64(self.data, self._take(8))[0]
        return value

    def boolean(self) -> bool:
        """Read one byte; any value except 0 is true."""
        return self.data[self._take(1)] != 0

    def unpack(self, layout: Struct) -> tuple[int, ...]:
        """Read several fixed-size fields."""
        return layout.unpack_from(self.data, self._take(layout.size))

    def buffer(self) -> bytes | None:
        """Read length-prefixed bytes; None if the length is -1."""
        size = self.int32()
        if size < 0:
            if size != -1:
                raise ProtocolError(self.name, f"negative length {size}")
            return None
        start = self._take(size)
        return self.data[start : start + size]

    def text(self) -> str:
        """Read a length-prefixed UTF-8 string; a null string (length -1) is returned as an empty one."""
        data = self.buffer() or b""
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise ProtocolError(self.name, f"not UTF-8: {error.reason}") from None

    def vector(self, element: Callable[[], T], size_min: int = 4) -> list[T]:
        """Read a length-prefixed vector; a null vector (length -1) is returned as an empty list.

        :param element: reads one element, usually a bound method of this reader.
        :param size_min: minimum encoded size of an element in bytes; limits the count before anything is allocated.
        """
        count = self.int32()
        if count < -1 or count * size_min > self.end - self.position:
            raise ProtocolError(self.name, f"a vector of {count} elements in {self.end - self.position} bytes")
        return [element() for _ in range(count)]

    def texts(self) -> list[str]:
        """Read a vector of strings; fast path for the names of thousands of children."""
        begin = self.position
        count = self.int32()
        data, end, position = self.data, self.end, self.position
        texts: list[str] = []
        if 0 <= count * 4 <= end - position:
            for _ in range(count):
                start = position + 4
                if start > end:
                    break
                position = start + unpack_int32(data, position)[0]
                if not start <= position <= end:
                    break
                try:
                    texts.append(data[start:position].decode())
                except UnicodeDecodeError:
                    break
            else:
                self.position = position
                return texts
        self.position = begin
        return self.vector(self.text)  # reads null strings, or raises the error

    def finish(self) -> None:
        """Check that the whole record has been read."""
        if self.position != self.end:
            raise ProtocolError(self.name, f"{self.end - self.position} bytes too many")
