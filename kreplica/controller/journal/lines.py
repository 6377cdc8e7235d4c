"""Encoding of journal entries as lines of JSON; large lines are compressed."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

from kreplica.controller.journal.value_json import DeferredJson, plain

FORMAT = 1
"""Version of the file format."""

LARGE_CHARACTERS = 16_384
"""Line length above which a line is compressed: 1,000 partitions take 200 KB, or 20 KB compressed."""

LINE_BYTES_MAX = 64 * 2**20
"""Maximum decompressed size of a line that is read, as protection against crafted files."""

SLICE = 200
"""Number of list items encoded in one call, which holds the GIL and thus blocks the reactor."""

EntryFields = dict[str, Any]
"""Fields of one journal entry; ``n`` is its number."""

_text = json.JSONEncoder(default=plain, separators=(",", ":")).encode


def encode_line(number: int, entry: Mapping[str, Any]) -> bytes:
    """Encode an entry as one line.

    :param number: position of the entry in its file; the header has 0.
    """
    text = "".join(_pieces({"n": number, **entry}))
    if len(text) > LARGE_CHARACTERS:
        packed = base64.b64encode(zlib.compress(text.encode(), 1)).decode()
        text = f'{{"n":{number},"packed":"{packed}"}}'
    return text.encode() + b"\n"


def _pieces(value: Any) -> Iterator[str]:
    """Yield the JSON text of a value in pieces."""
    if isinstance(value, DeferredJson):
        value = value.json()
    if isinstance(value, dict):
        before = "{"
        for key, each in value.items():
            yield f"{before}{_text(key)}:"
            yield from _pieces(each)
            before = ","
        yield "}" if value else "{}"
    elif isinstance(value, list) and len(value) > SLICE:
        for start in range(0, len(value), SLICE):
            yield "," if start else "["
            yield _text(value[start : start + SLICE])[1:-1]
        yield "]"
    else:
        yield _text(value)


def decode_line(line: bytes) -> EntryFields:
    """Return the entry of a line.

    :raise ValueError: the line is not a complete journal entry.
    """
    return decode_sized(line)[0]


def decode_sized(line: bytes) -> tuple[EntryFields, int]:
    """Return the entry of a line and the size of its JSON in bytes.

    :raise ValueError: the line is not a complete journal entry.
    """
    if not line.endswith(b"\n"):
        raise ValueError("the line is incomplete")
    try:
        text = line
        entry = json.loads(text)
        if isinstance(entry, dict) and "packed" in entry:
            text = _unpack(entry["packed"])
            entry = json.loads(text)
    except RecursionError:
        raise ValueError("the line is nested too deeply") from None
    if not isinstance(entry, dict) or type(entry.get("n")) is not int:
        raise ValueError("the line is not a journal entry")
    return entry, len(text)


def _unpack(packed: object) -> bytes:
    if not isinstance(packed, str):
        raise ValueError("packed data is not text")
    unpacking = zlib.decompressobj()
    try:
        text = unpacking.decompress(base64.b64decode(packed, validate=True), LINE_BYTES_MAX)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    if not unpacking.eof:
        raise ValueError(f"packed data is truncated, or decompresses to more than {LINE_BYTES_MAX:,} bytes")
    return text


def lines_of(data: bytes) -> Iterator[bytes]:
    """Yield the lines with their line ends; the last one may be incomplete."""
    start = 0
    while start < len(data):
        end = data.find(b"\n", start) + 1 or len(data)
        yield data[start:end]
        start = end
