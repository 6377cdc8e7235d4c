"""Chooses formats and decodes keys and values."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any

from kreplica.formats.built_in import FORMATS
from kreplica.formats.hex_format import SHOWN_BYTES_MAX
from kreplica.formats.json_values import DECODED_BYTES_MAX
from kreplica.formats.schema_header import schema_id_of
from kreplica.interfaces import IPluginMaker
from kreplica.interfaces.formats import (
    Decoded,
    FormatContext,
    FormatError,
    IRecordFormat,
    Place,
    SchemaNotLoaded,
    Schemas,
)

AUTO = "auto"
HEX, TEXT, BASE64 = "hex", "text", "base64"
NULL = "null"
"""Format of an absent key or value."""

Part = dict[str, Any]
"""A decoded key or value as a document; see ``docs/reference/rest.md``."""


class Formats:
    """The formats of one broker or command; created when first used.

    :param schemas: schemas in memory.
    :param more: plugin formats by name, which are tried before the built-in ones.
    """

    def __init__(self, schemas: Schemas, more: Mapping[str, IRecordFormat] | None = None) -> None:
        self._schemas = schemas
        self._makers: dict[str, IPluginMaker] = {maker.name: maker for maker in FORMATS}
        self._instances: dict[str, IRecordFormat] = dict(more or {})
        self._automatic = (*self._instances, *(name for name in self._makers if name not in self._instances))

    @property
    def names(self) -> Sequence[str]:
        """Names of all formats, in the order in which they are tried automatically."""
        return self._automatic

    def description(self, name: str) -> str:
        """Return one sentence about a format."""
        maker = self._makers.get(name)
        return f"The plugin {name}." if maker is None else maker.description

    def named(self, name: str) -> IRecordFormat:
        """Return a format.

        :raise FormatError: there is no format with this name.
        """
        instance = self._instances.get(name)
        if instance is None:
            maker = self._makers.get(name)
            if maker is None:
                raise FormatError(f"unknown format {name!r}; the formats are: {', '.join(self._automatic)}")
            instance = self._instances[name] = maker.make(FormatContext(name, {}, self._schemas))
        return instance

    def part(
        self, data: bytes | None, place: Place, chosen: str, *, with_base64: bool, only_loaded: bool = False
    ) -> Part:
        """Decode a key or value.

        :param chosen: name of a format, or ``AUTO``.
        :param only_loaded: True to report a schema that is not in memory as an error of the part.
        :raise SchemaNotLoaded: a schema must be loaded first.
        """
        if data is None:
            return _part(NULL, Decoded(None), b"", None, with_base64, is_null=True)
        try:
            if len(data) > DECODED_BYTES_MAX and chosen != HEX:
                raise FormatError(f"longer than {DECODED_BYTES_MAX:,} bytes, so not decoded")
            name = self._automatic_name(data, place) if chosen == AUTO else chosen
            return _part(name, self.named(name).decode(data, place), data, None, with_base64)
        except SchemaNotLoaded as error:
            if not only_loaded:
                raise
            reason = f"{error}: too many schemas in these records"
        except FormatError as error:
            reason = str(error)
        except Exception as error:
            reason = f"the format failed: {error!r}"[:300]
        digits = self.named(HEX).decode(data, place)
        return _part(HEX, digits, data, reason if chosen == AUTO else f"{chosen}: {reason}", with_base64)

    def _automatic_name(self, data: bytes, place: Place) -> str:
        if self._schemas.has_registry:
            schema_id = schema_id_of(data)
            if schema_id is not None:
                self._schemas.by_id(schema_id)
        return next(name for name in self._automatic if self.named(name).recognizes(data, place))


def _part(
    name: str, decoded: Decoded, data: bytes, error: str | None, with_base64: bool, *, is_null: bool = False
) -> Part:
    part = {
        "format": name,
        "value": decoded.value,
        "size_bytes": len(data),
        "schema": decoded.schema,
        "error": error,
        "truncated": name == HEX and len(data) > SHOWN_BYTES_MAX,
    }
    if with_base64:
        part["base64"] = None if is_null else b64encode(data).decode("ascii")
    return part
