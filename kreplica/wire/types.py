"""The wire's types as constructs: each parses and builds by itself, slowly and with exact errors.

The fast form of the same trees is source code made by ``parsing`` and ``building``.  Where that form meets anything
it does not accept, it hands over to these classes, so they alone know how to say what is wrong and where.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from struct import Struct
from struct import error as StructError
from typing import Any
from uuid import UUID

from construct import Construct

from kreplica.errors import ProtocolError
from kreplica.model import ZERO_UUID
from kreplica.wire.primitives import COST_MAX, LENGTH_MAX, TAG_COST, uvarint


def take(stream: BytesIO, size: int, path: str) -> bytes:
    """Read exactly that many bytes.

    :raise ProtocolError: where fewer remain.
    """
    data = stream.read(size)
    if len(data) != size:
        raise ProtocolError(path, f"needs {size} bytes, {len(data)} remain")
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
        raise ProtocolError(path, f"varint {result} is beyond {LENGTH_MAX}")
    return result


def spend(context: Any, cost: int, path: str) -> None:
    """Count what the frame has cost so far.

    :raise ProtocolError: when that is too much.
    """
    context._cost = context.get("_cost", 0) + cost
    if context._cost > COST_MAX:
        raise ProtocolError(path, "the frame has more elements than are accepted")


def remaining(stream: BytesIO) -> int:
    """Bytes that the stream still holds."""
    return stream.getbuffer().nbytes - stream.tell()


class WireType(Construct):  # type: ignore[misc]  # construct is not typed
    """One type at one version; immutable once made, shared by all who parse with it."""

    size_min: int
    """Bytes that the smallest value takes: what bounds the count of an array before anything is allocated."""

    cost: int
    """What each value costs in memory, see ``COST_MAX``; arrays without their elements."""

    zero: Any
    """The value of a field that was not given and has no default."""

    def __init__(self) -> None:
        super().__init__()
        self.flagbuildnone = True  # a field may be left out: it then takes its default

    def _emitparse(self, code: Any) -> str:
        """Let construct's own ``compile`` link to our compiled form, wherever this type stands in a tree."""
        from kreplica.wire.parsing import compile_parser

        parse = compile_parser(self)

        def from_stream(stream: BytesIO) -> Any:
            value, end = parse(stream.getbuffer(), stream.tell())
            stream.seek(end)
            return value

        return self._link(code, from_stream)

    def _emitbuild(self, code: Any) -> str:
        from kreplica.wire.building import compile_builder

        build = compile_builder(self)

        def to_stream(stream: BytesIO, value: Any) -> Any:
            stream.write(b"".join(build(value)[0]))
            return value

        return self._link(code, to_stream, ", obj")

    def _link(self, code: Any, function: Callable[..., Any], arguments: str = "") -> str:
        number = code.allocateId()
        code.linkedinstances[number] = function
        return f"linkedinstances[{number}](io{arguments})"


class Fixed(WireType):
    """A value of fixed size that ``struct`` reads and writes as it is: numbers and bool.

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
    """Sixteen raw bytes, a ``uuid.UUID`` in Python."""

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
    """What is preceded by its length: text, bytes, arrays.

    :param compact: the length is an unsigned varint of length + 1, with 0 for null (KIP-482); else a signed number.
    :param nullable: None is a value, as length -1.
    """

    cost = 2
    prefix = "i"
    """The ``struct`` letter of the length in the plain form."""

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
    """A string in UTF-8."""

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
    """Record batches: parsing yields a view of the frame itself; ``build_pieces`` also takes what has a ``size``."""

    cost = 5

    def _parse_content(self, stream: BytesIO, length: int, context: Any, path: str) -> memoryview:
        return memoryview(take(stream, length, path))


class Array(Sized):
    """A list of one type; how long it may be depends on what the frame has cost before (``COST_MAX``).

    The context value ``patience`` says after how many elements to give up the search for what is wrong with a frame.
    """

    def __init__(self, item: WireType, compact: bool, nullable: bool) -> None:
        super().__init__(compact, nullable)
        self.item = item

    @property
    def zero(self) -> list[Any]:
        """A list of its own each time, since the caller may fill it."""
        return []

    def _parse_content(self, stream: BytesIO, length: int, context: Any, path: str) -> list[Any]:
        if length * self.item.size_min > remaining(stream):
            raise ProtocolError(path, f"{length} elements do not fit in the {remaining(stream)} bytes that remain")
        spend(context, length * self.item.cost, path)
        if isinstance(self.item, Fixed) and not isinstance(self.item, Uuid):
            data = take(stream, length * self.item.size_min, path)
            return [number for (number,) in Struct(f">{self.item.code}").iter_unpack(data)]
        values = []
        for index in range(length):
            context.patience = context.get("patience", COST_MAX) - 1
            if context.patience < 0:
                raise ProtocolError(f"{path}[{index}]", "the frame is malformed here or further on")
            values.append(self.item._parse(stream, context, f"{path}[{index}]"))
        return values

    def _build(self, value: Any, stream: BytesIO, context: Any, path: str) -> Any:
        if value is not None and not isinstance(value, (list, tuple)):
            raise ProtocolError(path, f"{type(value).__name__} is not a list")
        self._put_length(None if value is None else len(value), stream, path)
        for index, item in enumerate(value or ()):
            self.item._build(item, stream, context, f"{path}[{index}]")
        return value


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a record at one version.

    :param default: what it is when not given; never handed out itself, only copies of it.
    :param tag: its number in the tag section, or None where it stands among the plain fields.
    """

    name: str
    type: WireType
    default: Any
    tag: int | None = None


class Record(WireType):
    """Named fields in order, with a tag section at the end in flexible versions; a plain dict in Python.

    :param title: the message's name for the root of a tree, else empty: error paths start with it.
    :param nullable: a byte before it says whether it is there (KIP-893).
    """

    def __init__(self, fields: list[Field], *, flexible: bool, nullable: bool = False, title: str = "") -> None:
        super().__init__()
        self.fields = [field for field in fields if field.tag is None]
        self.tagged = sorted((field for field in fields if field.tag is not None), key=lambda field: field.tag or 0)
        self.flexible = flexible
        self.nullable = nullable
        self.title = title
        self._names = {field.name for field in fields}
        self._by_tag = {field.tag: field for field in self.tagged}
        self.cost = 5 + sum(field.type.cost for field in fields)
        self.size_min = 1 if nullable else sum(field.type.size_min for field in self.fields) + flexible

    @property
    def zero(self) -> dict[str, Any]:
        """Every field with its default."""
        return {field.name: copy.deepcopy(field.default) for field in (*self.fields, *self.tagged)}

    def _parse(self, stream: BytesIO, context: Any, path: str) -> dict[str, Any] | None:
        if self.title:
            path = self.title
        if self.nullable and Fixed("b")._parse(stream, context, path) < 0:
            return None
        value = {field.name: field.type._parse(stream, context, f"{path}.{field.name}") for field in self.fields}
        value.update({field.name: copy.deepcopy(field.default) for field in self.tagged})
        if self.flexible:
            self._parse_tags(value, stream, context, path)
        return value

    def _parse_tags(self, value: dict[str, Any], stream: BytesIO, context: Any, path: str) -> None:
        last = -1
        count = take_uvarint(stream, f"{path}.tags")
        spend(context, count * TAG_COST, f"{path}.tags")
        for _ in range(count):
            tag = take_uvarint(stream, f"{path}.tags")
            if tag <= last:
                raise ProtocolError(f"{path}.tags", f"tag {tag} follows tag {last}")
            last = tag
            size = take_uvarint(stream, f"{path}.tags")
            if size > remaining(stream):
                raise ProtocolError(f"{path}.tags", f"tag {tag} has {size} bytes, {remaining(stream)} remain")
            field = self._by_tag.get(tag)
            if field is None:
                stream.seek(size, 1)
                continue
            end = stream.tell() + size
            value[field.name] = field.type._parse(stream, context, f"{path}.{field.name}")
            if stream.tell() != end:
                raise ProtocolError(f"{path}.{field.name}", f"is not the {size} bytes long that its tag says")

    def _build(self, value: Any, stream: BytesIO, context: Any, path: str) -> Any:
        path = self.title or path
        if self.nullable:
            stream.write(b"\xff" if value is None else b"\x01")
            if value is None:
                return value
        if not isinstance(value, dict):
            raise ProtocolError(path, f"{type(value).__name__} is not a dict")
        for field in self.fields:
            field.type._build(value.get(field.name, field.default), stream, context, f"{path}.{field.name}")
        if self.flexible:
            self._build_tags(value, stream, context, path)
        return value

    def _build_tags(self, value: dict[str, Any], stream: BytesIO, context: Any, path: str) -> None:
        written = [field for field in self.tagged if value.get(field.name, field.default) != field.default]
        stream.write(uvarint(len(written)))
        for field in written:
            payload = BytesIO()
            field.type._build(value[field.name], payload, context, f"{path}.{field.name}")
            stream.write(uvarint(field.tag or 0) + uvarint(payload.tell()) + payload.getbuffer())
