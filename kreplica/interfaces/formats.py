"""Formats of record keys and values, for the admin API and the command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from zope.interface import Attribute, Interface

from kreplica.errors import KreplicaError


class FormatError(KreplicaError):
    """The data cannot be decoded, or the value cannot be encoded; the text says why."""


class SchemaNotLoaded(KreplicaError):
    """The schema is not in memory; the caller loads it from the registry and decodes again.

    :ivar schema_id: ID of the schema.
    """

    def __init__(self, schema_id: int) -> None:
        super().__init__(f"schema {schema_id} is not loaded")
        self.schema_id = schema_id


class Place(NamedTuple):
    """The key or the value of a record.

    :param record_key: key of the record, on which the layout of values in internal topics depends.
    """

    topic: str
    is_key: bool
    record_key: bytes | None


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema of the registry, with everything that it references.

    :param schema_type: ``AVRO``, ``PROTOBUF`` or ``JSON``.
    :param text: source text; for Protobuf, base64 of a serialized ``FileDescriptorProto`` if ``is_serialized``.
    :param subjects: all pairs of subject and version with this schema, if known.
    :param references: referenced schemas by the name in the reference, dependencies first.
    :param compiled: cache for the format's own representation of the schema.
    """

    schema_id: int
    schema_type: str
    text: str
    subjects: tuple[tuple[str, int], ...] = ()
    references: Mapping[str, RegisteredSchema] = field(default_factory=dict)
    is_serialized: bool = False
    compiled: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def describe(self, place: Place, name: str | None) -> dict[str, Any]:
        """Return the schema's identity for messages.

        If several subjects have this schema, the subject of the topic is preferred.
        """
        wanted = f"{place.topic}-{'key' if place.is_key else 'value'}"
        subject, version = next(
            (row for row in self.subjects if row[0] == wanted), self.subjects[0] if self.subjects else (None, None)
        )
        return {
            "id": self.schema_id,
            "subject": subject,
            "version": version,
            "type": self.schema_type,
            "name": name,
        }


class Schemas(Protocol):
    """Schemas of the registry that are in memory."""

    @property
    def has_registry(self) -> bool:
        """True if a registry is configured."""

    def by_id(self, schema_id: int) -> RegisteredSchema:
        """Return a schema.

        :raise SchemaNotLoaded: it is not in memory.
        :raise FormatError: the registry does not have it, or did not respond.
        """


class Decoded(NamedTuple):
    """A decoded key or value.

    :param value: a JSON value; see ``kreplica.formats.json_values``.
    :param schema: identity of the schema; see ``RegisteredSchema.describe``.
    """

    value: Any
    schema: Mapping[str, Any] | None = None


class FormatContext(NamedTuple):
    """Argument of a record format's factory.

    :param settings: the plugin's own settings without the prefix ``kreplica.plugin.NAME.``.
    """

    name: str
    settings: Mapping[str, str]
    schemas: Schemas


class IRecordFormat(Interface):
    """Decodes and encodes keys and values (``kreplica.record.formats``).

    All methods except the constructor may be called in any thread, and concurrently.
    """

    can_encode: bool = Attribute("True if ``encode`` is supported.")
    schema_type: str | None = Attribute("Type of the schemas that the format requires (AVRO, PROTOBUF, JSON), or None.")

    def recognizes(data: bytes, place: Place) -> bool:
        """Return True if the data is certainly in this format; the format is then chosen automatically.

        :raise SchemaNotLoaded: a schema must be loaded first.
        """

    def decode(data: bytes, place: Place) -> Decoded:
        """Decode a key or value of at most ``DECODED_BYTES_MAX`` bytes.

        :raise FormatError: the data is not in this format. Other exceptions are reported as internal errors.
        :raise SchemaNotLoaded: a schema must be loaded first.
        """

    def encode(value: Any, schema: RegisteredSchema | None, message: str | None) -> bytes:
        """Encode a JSON value.

        :param schema: a schema of ``schema_type``.
        :param message: full name of a message in a Protobuf schema; None for the first one.
        :raise FormatError: the value does not fit the format or the schema.
        """
