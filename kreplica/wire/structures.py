"""Array and record types, with the tag sections of flexible versions (KIP-482).

Parsing adds up the memory cost of the message.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from io import BytesIO
from struct import Struct
from typing import Any

from kreplica.errors import ProtocolError
from kreplica.wire.primitives import COST_MAX, TAG_COST, TAGS_MAX, PrebuiltElements, uvarint
from kreplica.wire.types import Fixed, Sized, Uuid, WireType, take, take_uvarint


def add_cost(context: Any, cost: int, path: str) -> None:
    """Add to the cost of the message.

    :raise ProtocolError: the cost exceeds the limit.
    """
    context._cost = context.get("_cost", 0) + cost
    if context._cost > context.get("cost_max", COST_MAX):
        raise ProtocolError(path, "the message has too many elements")


def remaining(stream: BytesIO) -> int:
    """Return the number of unread bytes."""
    return stream.getbuffer().nbytes - stream.tell()


class Array(Sized):
    """List of values of one type; the cost of the message (``COST_MAX``) limits its length.

    The context value ``elements_left`` limits the number of elements that are parsed to find the error in a message.
    """

    def __init__(self, item: WireType, compact: bool, nullable: bool) -> None:
        super().__init__(compact, nullable)
        self.item = item

    @property
    def zero(self) -> list[Any]:
        """A new empty list for each caller, which may change it."""
        return []

    def _parse_content(self, stream: BytesIO, length: int, context: Any, path: str) -> list[Any]:
        if length * self.item.size_min > remaining(stream):
            raise ProtocolError(path, f"{length} elements do not fit in the {remaining(stream)} bytes that remain")
        add_cost(context, length * self.item.cost, path)
        if isinstance(self.item, Fixed) and not isinstance(self.item, Uuid):
            data = take(stream, length * self.item.size_min, path)
            return [number for (number,) in Struct(f">{self.item.code}").iter_unpack(data)]
        values = []
        for index in range(length):
            context.elements_left = context.get("elements_left", COST_MAX) - 1
            if context.elements_left < 0:
                raise ProtocolError(f"{path}[{index}]", "the message is malformed here or later")
            values.append(self.item._parse(stream, context, f"{path}[{index}]"))
        return values

    def _build(self, value: Any, stream: BytesIO, context: Any, path: str) -> Any:
        if value is not None and not isinstance(value, (list, tuple, PrebuiltElements)):
            raise ProtocolError(path, f"{type(value).__name__} is not a list")
        self._put_length(None if value is None else len(value), stream, path)
        if isinstance(value, PrebuiltElements):
            stream.write(b"".join(value.pieces))
            return value
        for index, item in enumerate(value or ()):
            self.item._build(item, stream, context, f"{path}[{index}]")
        return value


@dataclass(frozen=True, slots=True)
class Field:
    """Field of a record in one version.

    :param default: value if the field is absent; callers receive copies.
    :param tag: tag number, or None for an untagged field.
    """

    name: str
    type: WireType
    default: Any
    tag: int | None = None


class Record(WireType):
    """Struct of named fields, followed by a tag section in flexible versions; a dict in Python.

    :param title: name of the message, used to start error paths, if the record is the root of a tree; otherwise empty.
    :param nullable: a byte before the record indicates null (KIP-893).
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
        """Dict of all fields with their defaults."""
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
        add_cost(context, count * TAG_COST, f"{path}.tags")
        if count > TAGS_MAX:
            raise ProtocolError(f"{path}.tags", f"{count} tags exceed the limit of {TAGS_MAX}")
        for _ in range(count):
            tag = take_uvarint(stream, f"{path}.tags")
            if tag <= last:
                raise ProtocolError(f"{path}.tags", f"tags are not in ascending order: {tag} follows {last}")
            last = tag
            size = take_uvarint(stream, f"{path}.tags")
            if size > remaining(stream):
                raise ProtocolError(f"{path}.tags", f"tag {tag} has {size} bytes, but {remaining(stream)} remain")
            field = self._by_tag.get(tag)
            if field is None:
                stream.seek(size, 1)
                continue
            end = stream.tell() + size
            value[field.name] = field.type._parse(stream, context, f"{path}.{field.name}")
            if stream.tell() != end:
                raise ProtocolError(f"{path}.{field.name}", f"its size is not the {size} bytes declared by its tag")

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
        fields = [field for field in self.tagged if value.get(field.name, field.default) != field.default]
        stream.write(uvarint(len(fields)))
        for field in fields:
            payload = BytesIO()
            field.type._build(value[field.name], payload, context, f"{path}.{field.name}")
            stream.write(uvarint(field.tag or 0) + uvarint(payload.tell()) + payload.getbuffer())
