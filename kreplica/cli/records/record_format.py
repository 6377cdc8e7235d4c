"""How ``consume`` prints records: a template of the user's, or JSON."""

from __future__ import annotations

import codecs
from collections.abc import Callable
from datetime import datetime
from string import Formatter

from kreplica.blocking.reader import ReadRecord
from kreplica.cli.terminal.screen import plain

Print = Callable[[ReadRecord], bytes]

NULL = b"null"


def _data(data: bytes | None) -> bytes:
    return NULL if data is None else data


def _headers(record: ReadRecord) -> bytes:
    return b",".join(name.encode(errors="surrogateescape") + b"=" + _data(data) for name, data in record.headers)


def _time(record: ReadRecord) -> bytes:
    if record.timestamp_ms < 0:
        return NULL
    try:
        time = datetime.fromtimestamp(record.timestamp_ms / 1000).astimezone()
        return time.isoformat(timespec="milliseconds").encode()
    except (ValueError, OverflowError, OSError):
        return b"%d" % record.timestamp_ms


FIELDS: dict[str, Print] = {
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
"""What a template may name."""


def template(text: str) -> Print:
    """What prints records as a template says: ``{key}: {value}\\n``.

    :raise ValueError: it is malformed, or names what records do not have.
    """
    pieces: list[bytes | Print] = []
    for literal, name, spec, conversion in Formatter().parse(_unescaped(text)):
        pieces.append(literal.encode(errors="surrogateescape"))
        if name is None:
            continue
        if name not in FIELDS or spec or conversion:
            raise ValueError(f"{{{name}}} is not known: there are {', '.join(f'{{{each}}}' for each in FIELDS)}")
        pieces.append(FIELDS[name])

    def print_record(record: ReadRecord) -> bytes:
        return b"".join([piece if isinstance(piece, bytes) else piece(record) for piece in pieces])

    return print_record


def for_terminal(print_record: Print) -> Print:
    """The same without what a terminal would obey: records may hold anything."""
    return lambda record: plain(print_record(record).decode(errors="replace")).encode()


def _unescaped(text: str) -> str:
    """With ``\\n``, ``\\t``, ``\\x00`` and the like replaced; other characters as they are."""
    data = text.encode("raw_unicode_escape", errors="surrogateescape")
    return codecs.decode(data, "unicode_escape")
