"""Protobuf with a registered schema."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from zope.interface import implementer

from kreplica.formats.json_values import DEPTH_MAX, from_json, to_json
from kreplica.formats.protobuf_schemas import CompiledProtobuf, compiled_schema
from kreplica.formats.schema_header import HEADER_SIZE, has_schema_of_type, header_of, schema_for_encoding, schema_of
from kreplica.interfaces.formats import Decoded, FormatContext, FormatError, IRecordFormat, Place, RegisteredSchema

PROTOBUF = "PROTOBUF"
_INDEXES_MAX = 32
_FIRST_MESSAGE = b"\x00"
"""Short form of the message indexes [0], which name the first message."""

_WELL_KNOWN_AS_TEXT = ("google.protobuf.Timestamp", "google.protobuf.Duration", "google.protobuf.FieldMask")
_WELL_KNOWN_AS_JSON = ("google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue")
_WRAPPERS = tuple(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)


@implementer(IRecordFormat)
class ProtobufFormat:
    """Binary Protobuf, preceded by the ID of its schema and the indexes of its message type.

    Fields have their names in the schema, 64-bit integers stay integers, and bytes become ``{"$base64": "..."}``.
    Unset fields without presence are shown with their default values.
    """

    can_encode = True
    schema_type = PROTOBUF

    def __init__(self, context: FormatContext) -> None:
        self._schemas = context.schemas

    def recognizes(self, data: bytes, place: Place) -> bool:
        return has_schema_of_type(self._schemas, data, PROTOBUF)

    def decode(self, data: bytes, place: Place) -> Decoded:
        schema = schema_of(self._schemas, data, PROTOBUF)
        compiled = compiled_schema(schema)
        indexes, position = _read_indexes(data, HEADER_SIZE)
        descriptor = compiled.message_at(indexes)
        message = compiled.new_message(descriptor)
        try:
            message.ParseFromString(data[position:])
        except Exception as error:  # the library raises errors of many types for malformed data
            raise FormatError(f"does not match schema {schema.schema_id}: {error}") from None
        return Decoded(to_json(_document(message, 0)), schema.describe(place, descriptor.full_name))

    def encode(self, value: Any, schema: RegisteredSchema | None, message: str | None) -> bytes:
        from google.protobuf.json_format import ParseDict, ParseError

        registered = schema_for_encoding(schema, PROTOBUF)
        compiled = compiled_schema(registered)
        descriptor = compiled.message_at([0]) if message is None else compiled.message_named(message)
        if not isinstance(value, dict):
            raise FormatError("value: expected an object")
        filled = compiled.new_message(descriptor)
        try:
            document = from_json(value, _base64_text)
            ParseDict(document, filled, descriptor_pool=compiled.pool, max_recursion_depth=DEPTH_MAX)
            content = filled.SerializeToString()
        except (ParseError, ValueError, TypeError, RecursionError) as error:
            raise FormatError(f"does not match schema {registered.schema_id}: {str(error)[:300]}") from None
        indexes = _encoded_indexes(compiled, descriptor)
        return header_of(registered.schema_id) + indexes + bytes(content)


def _encoded_indexes(compiled: CompiledProtobuf, descriptor: Any) -> bytes:
    indexes = compiled.indexes_of(descriptor)
    if indexes == [0]:
        return _FIRST_MESSAGE
    return b"".join(map(_zigzag, [len(indexes), *indexes]))


def _zigzag(number: int) -> bytes:
    encoded = bytearray()
    remaining = number << 1  # never negative
    while remaining > 0x7F:
        encoded.append(remaining & 0x7F | 0x80)
        remaining >>= 7
    encoded.append(remaining)
    return bytes(encoded)


def _read_indexes(data: bytes, position: int) -> tuple[list[int], int]:
    """Return the message indexes and the position after them."""
    count, position = _read_zigzag(data, position)
    if count == 0:
        return [0], position
    if not 0 < count <= _INDEXES_MAX:
        raise FormatError(f"invalid number of message indexes: {count}")
    indexes = []
    for _ in range(count):
        index, position = _read_zigzag(data, position)
        indexes.append(index)
    return indexes, position


def _read_zigzag(data: bytes, position: int) -> tuple[int, int]:
    number = shift = 0
    while position < len(data) and shift < 35:
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), position
        shift += 7
    raise FormatError("malformed message indexes")


# --- messages to JSON ------------------------------------------------------------------------------------------------


def _document(message: Any, depth: int) -> Any:
    if depth > DEPTH_MAX:
        raise FormatError(f"nested more than {DEPTH_MAX} levels deep")
    name = message.DESCRIPTOR.full_name
    if name in _WELL_KNOWN_AS_TEXT:
        return _text_of(message)
    if name in _WRAPPERS:
        return message.value
    if name in _WELL_KNOWN_AS_JSON:
        return _json_of(message)
    return {field.name: _field(message, field, depth) for field in _shown_fields(message)}


def _text_of(message: Any) -> str:
    try:
        return str(message.ToJsonString())
    except ValueError:  # out of range
        return " ".join(f"{field.name}: {value}" for field, value in message.ListFields())


def _json_of(message: Any) -> Any:
    from google.protobuf.json_format import MessageToDict

    try:
        return MessageToDict(message)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{message.DESCRIPTOR.full_name}: {error}") from None


def _shown_fields(message: Any) -> Iterator[Any]:
    for field in message.DESCRIPTOR.fields:
        if not field.has_presence or message.HasField(field.name):
            yield field


def _field(message: Any, field: Any, depth: int) -> Any:
    value = getattr(message, field.name)
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        convert = _converter(kind.fields_by_name["value"], depth)
        return {_key(key): convert(value[key]) for key in value}
    convert = _converter(field, depth)
    if field.is_repeated:
        return _each(value, convert)
    return convert(value)


def _each(values: Iterable[Any], convert: Callable[[Any], Any]) -> list[Any]:
    return [convert(value) for value in values]


def _key(key: Any) -> Any:
    return ("true" if key else "false") if isinstance(key, bool) else key


def _converter(field: Any, depth: int) -> Callable[[Any], Any]:
    if field.message_type is not None:
        return lambda value: _document(value, depth + 1)
    if field.enum_type is not None:
        names = field.enum_type.values_by_number
        return lambda number: names[number].name if number in names else number
    return lambda value: value


def _base64_text(data: bytes) -> str:
    """Return bytes as in Protobuf's JSON mapping."""
    return b64encode(data).decode("ascii")
