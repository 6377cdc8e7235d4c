"""Conversion of records to lines: with their bytes, or decoded and filtered."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from kreplica.blocking.reader import ReadRecord
from kreplica.cli.records.formats import AUTO, RAW, RecordFormats, RegistryAccess
from kreplica.cli.records.record_columns import Columns
from kreplica.cli.records.record_format import RecordFormatter, for_terminal
from kreplica.cli.records.record_json import record_line
from kreplica.cli.terminal.screen import escape_controls

if TYPE_CHECKING:
    from kreplica.formats.messages import RecordView

Line = Callable[[ReadRecord], "bytes | None"]
"""Returns the line of a record; None if the filter does not match."""


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """Options of ``consume`` for its output.

    :param template: formats records if neither JSON nor columns are requested.
    :param columns: None for no columns.
    :param key_format: name of a format, ``raw`` or ``auto``; None if the option is not given.
    :param record_filter: text of a filter.
    """

    template: RecordFormatter
    as_json: bool
    columns: Columns | None
    key_format: str | None
    value_format: str | None
    record_filter: str | None
    registry: RegistryAccess


class RecordOutput:
    """Converts the records of a topic to lines.

    :ivar skipped: number of records that the filter rejected.
    :ivar filter_errors: number of records for which the filter failed; ``filter_error`` is the first failure.
    """

    def __init__(self, options: OutputOptions, topic: str) -> None:
        self.skipped = self.filter_errors = 0
        self.filter_error: str | None = None
        self._options = options
        self._is_terminal = sys.stdout.isatty()
        has_format = options.key_format is not None or options.value_format is not None
        is_shown_decoded = has_format or options.columns is not None or (self._is_terminal and not options.as_json)
        self._formats: RecordFormats | None = None
        self._view: RecordView | None = None
        if is_shown_decoded or options.record_filter is not None:
            self._formats = RecordFormats(options.registry)
            self._view = self._new_view(self._formats, topic)
        self._line = self._decoded_line if is_shown_decoded else self._raw_line
        self._raw = record_json_line if options.as_json else options.template
        if self._is_terminal and not options.as_json:
            self._raw = for_terminal(options.template)

    def header(self) -> bytes | None:
        """Return the line before the first record."""
        return None if self._options.columns is None else self._options.columns.header().encode() + b"\n"

    def line(self, record: ReadRecord) -> bytes | None:
        """Return the line of a record; None if the filter does not match."""
        document = None
        if self._formats is not None and self._view is not None:
            from kreplica.formats.filters import FilterFailed

            try:
                document = self._formats.document(self._view, record)
            except FilterFailed as error:
                self.filter_errors += 1
                if self.filter_error is None:
                    self.filter_error = f"partition {record.partition}, offset {record.offset}: {error}"
            if document is None:
                self.skipped += 1
                return None
        return self._line(record, document)

    def _new_view(self, formats: RecordFormats, topic: str) -> RecordView:
        from kreplica.formats.filters import FilterError, compile_filter
        from kreplica.formats.messages import RecordView

        options = self._options
        formats.check("--key-format", options.key_format)
        formats.check("--value-format", options.value_format)
        try:
            record_filter = None if options.record_filter is None else compile_filter(options.record_filter)
        except FilterError as error:
            raise click.UsageError(f"--filter: {error}") from None
        key_format, value_format = (
            AUTO if name in (None, RAW) else name for name in (options.key_format, options.value_format)
        )
        return RecordView(formats.formats, topic, str(key_format), str(value_format), record_filter)

    def _raw_line(self, record: ReadRecord, document: dict[str, Any] | None) -> bytes:
        return self._raw(record)

    def _decoded_line(self, record: ReadRecord, document: dict[str, Any] | None) -> bytes:
        assert document is not None
        columns = self._options.columns
        if columns is not None:
            line = columns.line(document)
            return (escape_controls(line) if self._is_terminal else line).encode(errors="replace") + b"\n"
        if self._options.as_json:
            return json.dumps({"topic": record.topic, **document}, separators=(",", ":")).encode("ascii") + b"\n"
        key = record.key if self._options.key_format == RAW else _bytes(document["key"])
        value = record.value if self._options.value_format == RAW else _bytes(document["value"])
        return self._raw(record._replace(key=key, value=value))


def record_json_line(record: ReadRecord) -> bytes:
    """Return the line of ``--json`` without formats, which ``produce --json`` reads."""
    return record_line(record) + b"\n"


def _bytes(part: dict[str, Any]) -> bytes | None:
    """Return a decoded key or value as text; null if it is absent."""
    if part["format"] == "null":
        return None
    value = part["value"]
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return f"{text} ({part['error']})".encode() if part["error"] else text.encode()
