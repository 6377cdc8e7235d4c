"""Avro with a registered schema."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from io import BytesIO
from typing import Any
from uuid import UUID

from zope.interface import implementer

from kreplica.formats.compiled_schemas import compiled_once
from kreplica.formats.json_values import DEPTH_MAX, bytes_of, to_json
from kreplica.formats.schema_header import HEADER_SIZE, has_schema_of_type, header_of, schema_for_encoding, schema_of
from kreplica.interfaces.formats import Decoded, FormatContext, FormatError, IRecordFormat, Place, RegisteredSchema

AVRO = "AVRO"
_COMPILED = "avro"
CONTINUED_BYTES_MAX = 1000
"""Maximum number of continuation bytes of an integer, which are read one by one."""

Parsed = Any


@implementer(IRecordFormat)
class AvroFormat:
    """Binary Avro, preceded by the ID of its schema."""

    can_encode = True
    schema_type = AVRO

    def __init__(self, context: FormatContext) -> None:
        self._schemas = context.schemas

    def recognizes(self, data: bytes, place: Place) -> bool:
        return has_schema_of_type(self._schemas, data, AVRO)

    def decode(self, data: bytes, place: Place) -> Decoded:
        schema = schema_of(self._schemas, data, AVRO)
        compiled = compiled_schema(schema)
        # fastavro in C does not limit the depth of recursive data.
        if compiled.is_recursive:
            from fastavro._read_py import schemaless_reader

            file: BytesIO = _LimitedFile(data)
        else:
            from fastavro import schemaless_reader

            file = BytesIO(data)
        file.seek(HEADER_SIZE)
        try:
            value = schemaless_reader(file, compiled.parsed, None)
        except Exception as error:  # the library raises errors of many types for malformed data
            reason = "nested too deeply" if isinstance(error, RecursionError) else _reason(error)
            raise FormatError(f"does not match schema {schema.schema_id}: {reason}") from None
        if file.tell() != len(data):
            remaining = len(data) - file.tell()
            raise FormatError(f"does not match schema {schema.schema_id}: {remaining} bytes follow the value")
        return Decoded(to_json(value), schema.describe(place, compiled.name))

    def encode(self, value: Any, schema: RegisteredSchema | None, message: str | None) -> bytes:
        from fastavro import schemaless_writer
        from fastavro.validation import ValidationError, validate

        registered = schema_for_encoding(schema, AVRO)
        compiled = compiled_schema(registered)
        datum = _Encoder(compiled.named).convert(value, compiled.parsed, "value", 0)
        file = BytesIO()
        file.write(header_of(registered.schema_id))
        try:
            validate(datum, compiled.parsed, field="value")
            schemaless_writer(file, compiled.parsed, datum)
        except ValidationError as error:
            first = error.errors[0] if error.errors else error
            raise FormatError(f"does not match schema {registered.schema_id}: {first}"[:300]) from None
        except Exception as error:  # the library raises errors of many types for values that do not fit
            raise FormatError(f"does not match schema {registered.schema_id}: {_reason(error)}") from None
        return file.getvalue()


class _LimitedFile(BytesIO):
    """A file with limited integers, because fastavro in Python takes quadratic time for an integer of many bytes."""

    _run = 0

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        self._run = self._run + 1 if size == 1 and data >= b"\x80" else 0
        if self._run > CONTINUED_BYTES_MAX:
            raise FormatError("an integer is too long")
        return data


class CompiledAvro:
    """A parsed schema.

    :ivar parsed: fastavro's representation of the schema.
    :ivar named: named types by full name.
    :ivar is_recursive: True if a type contains itself.
    """

    def __init__(self, parsed: Parsed, named: dict[str, Parsed]) -> None:
        self.parsed = parsed
        self.named = named
        self.name: str | None = parsed.get("name") if isinstance(parsed, dict) else None
        checker = _SchemaChecker(named)
        checker.check(parsed, (), 0)
        self.is_recursive = checker.is_recursive


def compiled_schema(schema: RegisteredSchema) -> CompiledAvro:
    """Return the parsed schema with its references; each schema is parsed once.

    :raise FormatError: the schema is invalid or unsafe to decode.
    """
    return compiled_once(schema, _COMPILED, _compile)


def _compile(schema: RegisteredSchema) -> CompiledAvro:
    import fastavro

    named: dict[str, Parsed] = {}
    try:
        for each in schema.references.values():
            fastavro.parse_schema(json.loads(each.text), named_schemas=named)
        parsed = fastavro.parse_schema(json.loads(schema.text), named_schemas=named)
        return CompiledAvro(parsed, named)
    except FormatError:
        raise
    except Exception as error:  # the library raises errors of many types for invalid schemas
        raise FormatError(f"schema {schema.schema_id} is not a valid Avro schema: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    return (str(error) or type(error).__name__)[:300]


class _SchemaChecker:
    """Finds recursive types; rejects arrays of items that need no bytes, whose length the data does not limit."""

    def __init__(self, named: Mapping[str, Parsed]) -> None:
        self._named = named
        self.is_recursive = False
        self._checked: set[str] = set()

    def check(self, schema: Parsed, path: tuple[str, ...], depth: int) -> None:
        if depth > DEPTH_MAX:
            raise FormatError(f"the schema is nested more than {DEPTH_MAX} levels deep")
        if isinstance(schema, list):
            for each in schema:
                self.check(each, path, depth + 1)
            return
        kind = schema if isinstance(schema, str) else schema["type"]
        if isinstance(schema, str) or kind in ("record", "error", "enum", "fixed"):
            name = schema if isinstance(schema, str) else schema["name"]
            if name in path:
                self.is_recursive = True
                return
            if isinstance(schema, str):
                if name not in self._named:
                    return
                schema = self._named[name]
                kind = schema["type"]
            if name in self._checked:
                return
            if kind in ("record", "error"):
                for each in schema["fields"]:
                    self.check(each["type"], (*path, name), depth + 1)
            self._checked.add(name)
        elif kind in ("array", "map"):
            inner = schema["items" if kind == "array" else "values"]
            if kind == "array" and not self._has_bytes(inner, ()):
                raise FormatError("the schema has an array of items that need no bytes, which is not decoded")
            self.check(inner, path, depth + 1)
        elif isinstance(kind, dict | list):
            self.check(kind, path, depth + 1)

    def _has_bytes(self, schema: Parsed, path: tuple[str, ...]) -> bool:
        """Return True if each value of a schema has at least one byte."""
        if isinstance(schema, list):
            return True  # the index of the branch
        kind = schema if isinstance(schema, str) else schema["type"]
        if isinstance(kind, str) and kind in self._named and kind not in path:
            return self._has_bytes(self._named[kind], (*path, kind))
        if kind in ("record", "error"):
            return any(self._has_bytes(each["type"], path) for each in schema["fields"])
        if kind == "fixed":
            return bool(schema["size"])
        return kind != "null"


class _Encoder:
    """Converts JSON values to the values that fastavro writes for a schema."""

    def __init__(self, named: Mapping[str, Parsed]) -> None:
        self._named = named

    def convert(self, value: Any, schema: Parsed, where: str, depth: int) -> Any:
        if depth > DEPTH_MAX:
            raise FormatError(f"{where}: nested more than {DEPTH_MAX} levels deep")
        if isinstance(schema, list):
            return self._union(value, schema, where, depth)
        kind = schema if isinstance(schema, str) else schema["type"]
        if isinstance(kind, str) and kind in self._named:
            schema = self._named[kind]
            kind = schema["type"]
        if kind in ("record", "error"):
            return self._record(value, schema, where, depth)
        if kind == "array" and isinstance(value, list):
            return [
                self.convert(each, schema["items"], f"{where}[{index}]", depth + 1) for index, each in enumerate(value)
            ]
        if kind == "map" and isinstance(value, dict):
            return {
                key: self.convert(each, schema["values"], f"{where}.{key}", depth + 1) for key, each in value.items()
            }
        if isinstance(kind, dict | list):
            return self.convert(value, kind, where, depth + 1)
        return _scalar(value, kind, schema.get("logicalType") if isinstance(schema, dict) else None, where)

    def _record(self, value: Any, schema: Parsed, where: str, depth: int) -> Any:
        if not isinstance(value, dict):
            raise FormatError(f"{where}: expected an object")
        fields = {each["name"]: each for each in schema["fields"]}
        for name in value:
            if name not in fields:
                raise FormatError(f"{where}.{name}: the record {schema['name']} has no such field")
        row = {}
        for name, each in fields.items():
            if name in value:
                row[name] = self.convert(value[name], each["type"], f"{where}.{name}", depth + 1)
            elif "default" not in each:
                raise FormatError(f"{where}.{name}: the field is missing")
        return row

    def _union(self, value: Any, branches: list[Parsed], where: str, depth: int) -> Any:
        """Convert with the first branch that fits; ``{"TYPE": value}`` names the branch, as in Avro's JSON encoding."""
        if value is None and "null" in branches:
            return None
        from fastavro.validation import validate

        candidates = [each for each in branches if each != "null"]
        if isinstance(value, dict) and len(value) == 1:
            (name, inner), *_ = value.items()
            named = [each for each in candidates if name == _branch_name(each)]
            if named:
                return self._tag(named[0], self.convert(inner, named[0], f"{where}.{name}", depth + 1))
        reasons = []
        for each in candidates:
            try:
                converted = self.convert(value, each, where, depth + 1)
                if validate(converted, self._resolve(each), raise_errors=False):
                    return self._tag(each, converted)
                reasons.append(f"not {_branch_name(each)}")
            except FormatError as error:
                reasons.append(str(error))
        raise FormatError(reasons[0] if len(candidates) == 1 else f"{where}: fits no type of the union: {reasons}")

    def _resolve(self, schema: Parsed) -> Parsed:
        return self._named.get(schema, schema) if isinstance(schema, str) else schema

    def _tag(self, schema: Parsed, value: Any) -> Any:
        """Name the branch for records, because fastavro would choose any record whose fields fit."""
        resolved = self._resolve(schema)
        is_record = isinstance(resolved, dict) and resolved.get("type") == "record"
        return (resolved["name"], value) if is_record else value


def _branch_name(schema: Parsed) -> str:
    return schema if isinstance(schema, str) else str(schema.get("name") or schema["type"])


def _scalar(value: Any, kind: str, logical: str | None, where: str) -> Any:
    if kind in ("bytes", "fixed") and logical != "decimal":
        data = bytes_of(value)
        if data is not None:
            return data
    if logical is None or not isinstance(value, str):
        return float(value) if kind in ("float", "double") and type(value) is int else value
    try:
        if logical.startswith(("timestamp", "local-timestamp")):
            return datetime.fromisoformat(value)
        if logical == "date":
            return date.fromisoformat(value)
        if logical.startswith("time-"):
            return time.fromisoformat(value)
        if logical == "decimal":
            return Decimal(value)
        if logical == "uuid":
            return UUID(value)
    except (ValueError, InvalidOperation):
        raise FormatError(f"{where}: {value[:100]!r} is not a valid {logical}") from None
    return value
