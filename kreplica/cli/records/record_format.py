"""Output format of ``consume``: the user's template."""

from __future__ import annotations

import codecs
from collections.abc import Callable
from string import Formatter

from kreplica.blocking.reader import ReadRecord
from kreplica.cli.terminal.screen import escape_controls, iso_time_text

RecordFormatter = Callable[[ReadRecord], bytes]

NULL = b"null"


def _data(data: bytes | None) -> bytes:
    return NULL if data is None else data


def _headers(record: ReadRecord) -> bytes:
    return b",".join(name.encode(errors="surrogateescape") + b"=" + _data(data) for name, data in record.headers)


def _time(record: ReadRecord) -> bytes:
    if record.timestamp_ms < 0:
        return NULL
    return iso_time_text(record.timestamp_ms).encode()


FIELDS: dict[str, RecordFormatter] = {
    "topic": lambda record: record.topic.encode(),
    "partition": lambda record: b"%d" % record.partition,
    "offset": lambda record: b"%d" % record.offset,
    "timestamp_ms": lambda record: b"%d" % record.timestamp_ms,
    "timestamp_type": lambda record: record.timestamp_type.name.lower().encode(),
    "time": _time,
    "key": lambda record: _data(record.key),
    "value": lambda record: _data(record.value),
    "headers": _headers,
    "key_size": lambda record: b"%d" % len(record.key or b""),
    "value_size": lambda record: b"%d" % len(record.value or b""),
}
"""Fields of templates."""


def compile_template(text: str) -> RecordFormatter:
    """Return a function that formats records with a template such as ``{key}: {value}\\n``.

    :raise ValueError: the template is malformed, or names an unknown field.
    """
    parts: list[bytes | RecordFormatter] = []
    for literal, name, spec, conversion in Formatter().parse(_unescape(text)):
        parts.append(literal.encode(errors="surrogateescape"))
        if name is None:
            continue
        if name not in FIELDS or spec or conversion:
            fields = ", ".join(f"{{{each}}}" for each in FIELDS)
            raise ValueError(f"unknown field {{{name}}}; the known fields are {fields}")
        parts.append(FIELDS[name])

    def print_record(record: ReadRecord) -> bytes:
        return b"".join([part if isinstance(part, bytes) else part(record) for part in parts])

    return print_record


def for_terminal(print_record: RecordFormatter) -> RecordFormatter:
    """Return a formatter whose output has control characters escaped: records are not trusted."""
    return lambda record: escape_controls(print_record(record).decode(errors="replace")).encode()


def _unescape(text: str) -> str:
    """Replace escape sequences such as ``\\n``, ``\\t`` and ``\\x00``."""
    data = text.encode("raw_unicode_escape", errors="surrogateescape")
    return codecs.decode(data, "unicode_escape")
