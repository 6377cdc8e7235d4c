"""Types of the wire format as ``construct`` classes, which parse and build slowly, with detailed errors.

``structures`` defines the types that contain other types.  ``parsing`` and ``building`` generate faster functions from
the same trees.  If such a function fails, these classes repeat its work and raise an error that names the field.
"""

from __future__ import annotations

from io import BytesIO
from struct import Struct
from struct import error as StructError
from typing import Any
from uuid import UUID

from construct import Construct

from kreplica.errors import ProtocolError
from kreplica.model import ZERO_UUID
from kreplica.wire.primitives import LENGTH_MAX, uvarint


def take(stream: BytesIO, size: int, path: str) -> bytes:
    """Read an exact number of bytes.

    :raise ProtocolError: fewer bytes remain.
    """
    data = stream.read(size)
    if len(data) != size:
        raise ProtocolError(path, f"needs {size} bytes, but {len(data)} remain")
    return data


def take_uvarint(stream: BytesIO, path: str) -> int:
    """Read an unsigned varint of at most five bytes and at most ``LENGTH_MAX`` (KIP-482)."""
    result = 0
    for shift in range(0, 35, 7):
        byte = take(stream, 1, path)[0]
        result |= (byte & 127) << shift
        if byte < 128:
            break
    else:
        raise ProtocolError(path, "varint is longer than five bytes")
    if result > LENGTH_MAX:
        raise ProtocolError(path, f"varint {result} is larger than {LENGTH_MAX}")
    return result


class WireType(Construct):  # type: ignore[misc]  # construct is not typed
    """Type of a value in one version of a message; immutable and shared."""

    size_min: int
    """Size of the smallest value in bytes, which bounds the count of an array before allocation."""

    cost: int
    """Memory cost of a value (see ``COST_MAX``), without the elements of an array."""

    zero: Any
    """Value of an absent field that has no default."""

    def __init__(self) -> None:
        super().__init__()
        self.flagbuildnone = True  # a missing field gets its default


class Fixed(WireType):
    """Number or bool of fixed size, read and written by ``struct``.

    :param code: the ``struct`` letter.
    """

    def __init__(self, code: str) -> None:
        super().__init__()
        self.code = code
        self._struct = Struct(">" + code)
        self.size_min = self._struct.size
        self.cost = 1
        self.zero = False if code == "?" else 0.0 if code == "d" else 0

    def _parse(self, stream: BytesIO, context: Any, path: str) -> Any:
        return self._struct.unpack(take(stream, self.size_min, path))[0]

    def _build(self, value: Any, stream: BytesIO, context: Any, path: str) -> Any:
        try:
            stream.write(self._struct.pack(value))
        except StructError as error:
            raise ProtocolError(path, f"{value!r} does not fit: {error}") from None
        return value

    def _sizeof(self, context: Any, path: str) -> int:
        return self.size_min


class Uuid(Fixed):
    """UUID of sixteen bytes, a ``uuid.UUID`` in Python."""

    def __init__(self) -> None:
        super().__init__("16s")
        self.cost = 3
        self.zero = ZERO_UUID

    def _parse(self, stream: BytesIO, context: Any, path: str) -> UUID:
        return UUID(bytes=take(stream, 16, path))

    def _build(self, value: Any, stream: BytesIO, context: Any, path: str) -> Any:
        if not isinstance(value, UUID):
            raise ProtocolError(path, f"{value!r} is not a UUID")
        stream.write(value.bytes)
        return value


class Sized(WireType):
    """Type with a length prefix: text, bytes or array.

    :param compact: the length is an unsigned varint of length + 1, with 0 for null (KIP-482); otherwise, it is signed.
    :param nullable: None is valid, encoded as length -1.
    """

    cost = 2
    prefix = "i"
    """``struct`` code of the length in versions without compact encodings."""

    def __init__(self, compact: bool, nullable: bool) -> None:
        super().__init__()
        self.compact = compact
        self.nullable = nullable
        self._struct = Struct(">" + self.prefix)
        self.size_min = 1 if compact else self._struct.size

    def _take_length(self, stream: BytesIO, path: str) -> int | None:
        if self.compact:
            length = take_uvarint(stream, path) - 1
        else:
            length = self._struct.unpack(take(stream, self._struct.size, path))[0]
        if length == -1 and self.nullable:
            return None
        if length < 0:
            raise ProtocolError(path, f"length {length} is not allowed")
        return length

    def _put_length(self, length: int | None, stream: BytesIO, path: str) -> None:
        if length is None:
            if not self.nullable:
                raise ProtocolError(path, "null is not allowed")
            length = -1
        try:
            stream.write(uvarint(length + 1) if self.compact else self._struct.pack(length))
        except StructError:
            raise ProtocolError(path, f"is too long: {length}") from None

    def _parse(self, stream: BytesIO, context: Any, path: str) -> Any:
        length = self._take_length(stream, path)
        return None if length is None else self._parse_content(stream, length, context, path)

    def _parse_content(self, stream: BytesIO, length: int, context: Any, path: str) -> Any:
        raise NotImplementedError


class Text(Sized):
    """String in UTF-8."""

    prefix = "h"
    zero = ""

    def _parse_content(self, stream: BytesIO, length: int, context: Any, path: str) -> str:
        try:
            return take(stream, length, path).decode()
        except UnicodeDecodeError as error:
            raise ProtocolError(path, f"is not UTF-8: {error.reason} at byte {error.start}") from None

    def _build(self, value: Any, stream: BytesIO, context: Any, path: str) -> Any:
        if value is not None and not isinstance(value, str):
            raise ProtocolError(path, f"{value!r} is not a string")
        try:
            data = b"" if value is None else value.encode()
        except UnicodeEncodeError as error:
            raise ProtocolError(path, f"cannot be written in UTF-8: {error.reason}") from None
        self._put_length(None if value is None else len(data), stream, path)
        stream.write(data)
        return value


class Blob(Sized):
    """Bytes; parsing copies them out of the frame."""

    zero = b""

    def _parse_content(self, stream: BytesIO, length: int, context: Any, path: str) -> bytes | memoryview:
        return take(stream, length, path)

    def _build(self, value: Any, stream: BytesIO, context: Any, path: str) -> Any:
        if value is not None and not isinstance(value, (bytes, bytearray, memoryview)):
            raise ProtocolError(path, f"{type(value).__name__} is not bytes")
        data = b"" if value is None else memoryview(value).cast("B")
        self._put_length(None if value is None else len(data), stream, path)
        stream.write(data)
        return value


class Records(Blob):
    """Record batches; parsing returns a view of the frame.

    Compiled builders accept an object with a ``size``, such as a range of a file, as a piece.  This type rejects such
    objects unless the context value ``accept_sized_objects`` is set.
    """

    cost = 5

    def _parse_content(self, stream: BytesIO, length: int, context: Any, path: str) -> memoryview:
        return memoryview(take(stream, length, path))

    def _build(self, value: Any, stream: BytesIO, context: Any, path: str) -> Any:
        if context.get("accept_sized_objects") and isinstance(getattr(value, "size", None), int):
            return value
        return super()._build(value, stream, context, path)
