"""Helper functions that build JSON Schemas.

A schema with a ``title`` appears once in the OpenAPI document, under that name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kreplica.admin.http.api import Parameter, Schema
from kreplica.cluster.topic_names import NAME_LENGTH_MAX

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

STRING: Schema = {"type": "string"}
BOOLEAN: Schema = {"type": "boolean"}
INTEGER: Schema = {"type": "integer"}
COUNT: Schema = {"type": "integer", "minimum": 0}
RATE_OR_NULL: Schema = {"type": ["number", "null"], "minimum": 0}
TIME_MS: Schema = {"type": "integer", "description": "Milliseconds since 1970."}
BROKER_ID: Schema = {"type": "integer", "minimum": 0, "maximum": INT32_MAX}
PARTITION: Schema = {"type": "integer", "minimum": 0, "maximum": INT32_MAX}
TOPIC: Schema = {
    "type": "string",
    "minLength": 1,
    "maxLength": NAME_LENGTH_MAX,
    "pattern": r"^[a-zA-Z0-9._-]+$",
    "examples": ["orders"],
}
NEW_PARTITIONS: Schema = {"type": "integer", "minimum": 1, "maximum": 10_000}

IN_TOPIC = Parameter("topic", TOPIC, "The topic's name.")
IN_PARTITION = Parameter("partition", PARTITION, "The partition's number.")
IN_BROKER = Parameter("broker_id", BROKER_ID, "The broker's ID.")


def nullable(schema: Schema) -> Schema:
    """Return a schema that also allows null."""
    if isinstance(schema.get("type"), str) and "title" not in schema and "enum" not in schema:
        return {**schema, "type": [schema["type"], "null"]}
    return {"anyOf": [schema, {"type": "null"}]}


def listing(of: Schema, **bounds: int) -> Schema:
    """Return the schema of a list.

    :param bounds: ``minItems`` and ``maxItems``.
    """
    return {"type": "array", "items": of, **bounds}


def one_of(*values: str) -> Schema:
    """Return the schema of a string that is one of these values."""
    return {"type": "string", "enum": list(values)}


def record(
    members: Mapping[str, Schema], *, title: str | None = None, optional: Sequence[str] = (), **keywords: Any
) -> Schema:
    """Return the schema of an object with exactly these members.

    :param title: for a schema that several routes share.
    :param optional: the members that may be absent.
    """
    required = [name for name in members if name not in optional]
    schema: dict[str, Any] = {"type": "object", "properties": dict(members), "additionalProperties": False, **keywords}
    if required:
        schema["required"] = required
    return schema if title is None else {"title": title, **schema}


def page(name: str, row: Schema) -> Schema:
    """Return the schema of a page of a long list: ``{name: [...], "next": ...}``."""
    after = {**nullable(STRING), "description": "`after` of the next page; null on the last page."}
    return record({name: listing(row), "next": after})


ZNODE_WRITE = record(
    {
        "operation": one_of("create", "set", "delete"),
        "path": STRING,
        "data": {"description": "The written JSON, or text if it is not JSON; absent for a deletion."},
        "version": {**INTEGER, "description": "The required version of the znode; absent to accept any."},
    },
    title="ZnodeWrite",
    optional=("data", "version"),
    description="One operation on one znode; all operations of a response are one transaction.",
)


def written(
    members: Mapping[str, Schema], *, title: str | None = None, optional: Sequence[str] = (), **keywords: Any
) -> Schema:
    """Return the schema of a write's response: its own members, the dry-run flag and the znodes."""
    dry_run = {**BOOLEAN, "description": "True if nothing was written."}
    write_members = {"dry_run": dry_run, "znodes": listing(ZNODE_WRITE)}
    return record({**members, **write_members}, title=title, optional=optional, **keywords)
