"""Header of keys and values with a registered schema: a zero byte and the schema's ID (Confluent's wire format)."""

from __future__ import annotations

from struct import Struct

from kreplica.interfaces.formats import FormatError, RegisteredSchema, Schemas

MAGIC = 0
_HEADER = Struct(">bi")
HEADER_SIZE = _HEADER.size


def schema_id_of(data: bytes) -> int | None:
    """Return the ID in the header; None if the data has no header."""
    if len(data) < HEADER_SIZE:
        return None
    magic, schema_id = _HEADER.unpack_from(data)
    return schema_id if magic == MAGIC and schema_id > 0 else None


def header_of(schema_id: int) -> bytes:
    """Return the header with an ID."""
    return _HEADER.pack(MAGIC, schema_id)


def has_schema_of_type(schemas: Schemas, data: bytes, schema_type: str) -> bool:
    """Return True if the data has a header whose schema has this type.

    :raise SchemaNotLoaded: the schema is not in memory.
    """
    if not schemas.has_registry:
        return False
    schema_id = schema_id_of(data)
    if schema_id is None:
        return False
    try:
        return schemas.by_id(schema_id).schema_type == schema_type
    except FormatError:
        return False


def schema_of(schemas: Schemas, data: bytes, schema_type: str) -> RegisteredSchema:
    """Return the schema that the header names.

    :raise FormatError: there is no header, or the schema does not exist or has another type.
    :raise SchemaNotLoaded: the schema is not in memory.
    """
    schema_id = schema_id_of(data)
    if schema_id is None:
        raise FormatError("does not start with the ID of a schema (a zero byte and four bytes)")
    if not schemas.has_registry:
        raise FormatError(f"requires schema {schema_id}, but no schema registry is configured")
    schema = schemas.by_id(schema_id)
    if schema.schema_type != schema_type:
        raise FormatError(f"schema {schema_id} is of type {schema.schema_type}, not {schema_type}")
    return schema


def schema_for_encoding(schema: RegisteredSchema | None, schema_type: str) -> RegisteredSchema:
    """Return the schema to encode with.

    :raise FormatError: it is missing or has another type.
    """
    if schema is None:
        raise FormatError("requires a schema: specify its ID or subject")
    if schema.schema_type != schema_type:
        raise FormatError(f"schema {schema.schema_id} is of type {schema.schema_type}, not {schema_type}")
    return schema
