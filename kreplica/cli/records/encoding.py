"""Encoding of keys and values that a command writes."""

from __future__ import annotations

from typing import Any, NamedTuple

import click

from kreplica.cli.records.formats import BUILT_IN, RAW, RecordFormats, RegistryAccess
from kreplica.cli.records.record_json import BadRecord
from kreplica.interfaces.formats import FormatError

ENCODABLE = tuple(name for name in BUILT_IN if not name.endswith("-record"))
_TEXTS = ("text", "hex")
"""Formats whose values are written as text and not as JSON."""


class PartFormat(NamedTuple):
    """How keys or values are encoded.

    :param name: name of a format; None or ``raw`` to write them unchanged.
    """

    name: str | None
    schema_id: int | None
    subject: str | None
    message: str | None

    @property
    def is_raw(self) -> bool:
        return self.name in (None, RAW)


class PartEncoder:
    """Encodes the keys and values of a command.

    :ivar key_from_json: encodes a key given as any JSON value; None if keys are not encoded.
    :ivar value_from_json: likewise for values.
    """

    def __init__(self, access: RegistryAccess, key: PartFormat, value: PartFormat) -> None:
        for each, option in ((key, "--key-"), (value, "--")):
            if each.is_raw and (each.schema_id, each.subject, each.message) != (None, None, None):
                text = f"{option}schema-id, {option}subject and --message require a format with a schema"
                raise click.UsageError(text)
        self._formats = None if key.is_raw and value.is_raw else RecordFormats(access)
        if self._formats is not None:
            self._formats.check("--key-format", key.name)
            self._formats.check("--value-format", value.name)
        self._key, self._value = key, value
        self.key_from_json = None if key.is_raw else lambda given: self._encode(key, given, "key")
        self.value_from_json = None if value.is_raw else lambda given: self._encode(value, given, "value")

    def key_from_line(self, text: bytes) -> bytes | None:
        """Encode the key in a line.

        :raise BadRecord: it cannot be encoded.
        """
        return text if self._key.is_raw else self._encode(self._key, _parse(self._key, text, "key"), "key")

    def value_from_line(self, text: bytes) -> bytes | None:
        """Encode the value in a line.

        :raise BadRecord: it cannot be encoded.
        """
        return text if self._value.is_raw else self._encode(self._value, _parse(self._value, text, "value"), "value")

    def _encode(self, part: PartFormat, value: Any, part_name: str) -> bytes | None:
        if value is None:
            return None
        assert self._formats is not None
        try:
            return self._formats.encode(str(part.name), value, part.schema_id, part.subject, part.message)
        except FormatError as error:
            raise BadRecord(f"the {part_name} as {part.name}: {error}") from None


def _parse(part: PartFormat, text: bytes, part_name: str) -> Any:
    if part.name in _TEXTS:
        try:
            return text.decode()
        except UnicodeDecodeError as error:
            raise BadRecord(f"the {part_name} is not UTF-8: {error.reason}") from None
    from kreplica.formats.json_format import parse_json

    try:
        return parse_json(text)
    except FormatError as error:
        raise BadRecord(f"the {part_name}: {error}") from None
