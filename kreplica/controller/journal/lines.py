"""A journal's entries as lines of JSON, and back; one that is large is packed."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

from kreplica.controller.journal.value_json import Later, plain

FORMAT = 1
"""Of the files: whoever reads another says so."""

LARGE_CHARACTERS = 16_384
"""A line that is longer is compressed: what ZooKeeper says of 1,000 partitions takes 200 KB, and packed 20."""

LINE_BYTES_MAX = 64 * 2**20
"""Size of an unpacked line that is read back: a crafted one could unpack to a thousand times its size."""

SLICE = 200
"""So many values of a list become JSON at once: the interpreter's lock is held meanwhile, which stops the reactor."""

Line = dict[str, Any]

_text = json.JSONEncoder(default=plain, separators=(",", ":")).encode


def encode_line(number: int, entry: Mapping[str, Any]) -> bytes:
    """:param number: of the entry in its file; the header has 0."""
    text = "".join(_pieces({"n": number, **entry}))
    if len(text) > LARGE_CHARACTERS:
        packed = base64.b64encode(zlib.compress(text.encode(), 1)).decode()
        text = f'{{"n":{number},"packed":"{packed}"}}'
    return text.encode() + b"\n"


def _pieces(value: Any) -> Iterator[str]:
    """The JSON of a value."""
    if isinstance(value, Later):
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


def decode_line(line: bytes) -> Line:
    """:raise ValueError: where it is not a whole line of a journal."""
    return decode_sized(line)[0]


def decode_sized(line: bytes) -> tuple[Line, int]:
    """Return an entry, and the bytes of its JSON.

    :raise ValueError: where it is not a whole line of a journal.
    """
    if not line.endswith(b"\n"):
        raise ValueError("it has no end")
    try:
        text = line
        entry = json.loads(text)
        if isinstance(entry, dict) and "packed" in entry:
            text = _unpacked(entry["packed"])
            entry = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(entry, dict) or type(entry.get("n")) is not int:
        raise ValueError("it is no entry of a journal")
    return entry, len(text)


def _unpacked(packed: object) -> bytes:
    if not isinstance(packed, str):
        raise ValueError("what is packed is not text")
    unpacking = zlib.decompressobj()
    try:
        text = unpacking.decompress(base64.b64decode(packed, validate=True), LINE_BYTES_MAX)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    if not unpacking.eof:
        raise ValueError(f"what is packed is cut off, or has more than {LINE_BYTES_MAX:,} bytes")
    return text


def lines_of(data: bytes) -> Iterator[bytes]:
    """The lines, each with its end; the last may have none."""
    start = 0
    while start < len(data):
        end = data.find(b"\n", start) + 1 or len(data)
        yield data[start:end]
        start = end
