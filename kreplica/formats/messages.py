"""Records as documents of the admin API, and their selection by a filter."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kreplica.formats.catalogue import AUTO, Formats, Part
from kreplica.formats.filters import RecordFilter
from kreplica.formats.record_data import RecordData
from kreplica.interfaces.formats import Place

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class RecordView:
    """Selects records of a topic and converts them to documents.

    :param key_format: name of a format, or ``AUTO``; ``value_format`` likewise.
    :param record_filter: None to show all records.
    :param with_base64: True to add the bytes of keys and values.
    :param only_loaded: True to report schemas that are not in memory as errors of the keys and values.
    """

    formats: Formats
    topic: str
    key_format: str = AUTO
    value_format: str = AUTO
    record_filter: RecordFilter | None = None
    with_base64: bool = False
    only_loaded: bool = False

    def document(self, record: RecordData) -> Document | None:
        """Return a record as a document; None if the filter does not match.

        :raise SchemaNotLoaded: a schema must be loaded first; never raised with ``only_loaded``.
        :raise FilterFailed: the filter cannot be evaluated for this record.
        """
        key = value = None
        if self.record_filter is not None:
            variables: dict[str, Any] = {}
            if "key" in self.record_filter.variables:
                key = self._key(record)
                variables["key"] = key
            if "value" in self.record_filter.variables:
                value = self._value(record)
                variables["value"] = value
            if not self.record_filter.matches(record, variables):
                return None
        return {
            "partition": record.partition,
            "offset": record.offset,
            "timestamp_ms": record.timestamp_ms if record.timestamp_ms >= 0 else None,
            "timestamp_type": record.timestamp_type,
            "key": key or self._key(record),
            "value": value or self._value(record),
            "headers": [_header(name, content) for name, content in record.headers],
            "size_bytes": _size(record),
            "control": record.control,
        }

    def _key(self, record: RecordData) -> Part:
        place = Place(self.topic, True, record.key)
        return self._part(record.key, place, self.key_format)

    def _value(self, record: RecordData) -> Part:
        place = Place(self.topic, False, record.key)
        return self._part(record.value, place, self.value_format)

    def _part(self, data: bytes | None, place: Place, chosen: str) -> Part:
        return self.formats.part(data, place, chosen, with_base64=self.with_base64, only_loaded=self.only_loaded)


def text_or_base64(data: bytes | None) -> tuple[str | None, str | None]:
    """Return bytes as text, and the encoding of the text: ``utf8`` or ``base64``; None and None for null."""
    if data is None:
        return None, None
    try:
        return data.decode(), "utf8"
    except UnicodeDecodeError:
        return b64encode(data).decode("ascii"), "base64"


def _header(name: str, content: bytes | None) -> Mapping[str, Any]:
    value, encoding = text_or_base64(content)
    return {
        "key": name.encode(errors="surrogateescape").decode(errors="replace"),
        "value": value,
        "encoding": encoding,
    }


def _size(record: RecordData) -> int:
    return (
        len(record.key or b"")
        + len(record.value or b"")
        + sum(len(name.encode(errors="surrogateescape")) + len(value or b"") for name, value in record.headers)
    )
