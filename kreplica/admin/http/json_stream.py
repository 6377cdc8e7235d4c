"""Encodes long JSON documents in slices that do not block the reactor.

A worker thread would not help: it would hold the GIL and delay the reactor.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kreplica.runtime import Reactor
from kreplica.runtime.time_slice import TimeSlice

ROWS_AT_ONCE = 50
"""Number of rows that are encoded between two checks of the clock, which takes a fraction of a millisecond."""

ROWS_WHOLE_MAX = 200
"""Longer lists are split."""


async def json_pieces(reactor: Reactor, document: Any) -> list[bytes]:
    """Return the document as one line of JSON, in parts.

    :param document: long lists of an object are split; other values are encoded at once.
    """
    if not isinstance(document, Mapping) or not any(map(_is_long, document.values())):
        return [dumped(document) + b"\n"]
    time_slice = TimeSlice(reactor)
    pieces = [b"{"]
    for name, value in document.items():
        pieces.append((b"" if len(pieces) == 1 else b",") + dumped(str(name)) + b":")
        if not _is_long(value):
            pieces.append(dumped(value))
            continue
        for start in range(0, len(value), ROWS_AT_ONCE):
            rows = dumped(value[start : start + ROWS_AT_ONCE])
            pieces.append((b"[" if start == 0 else b",") + rows[1:-1])
            if time_slice.is_over:
                await time_slice.next()
        pieces.append(b"]")
    pieces.append(b"}\n")
    return pieces


def _is_long(value: object) -> bool:
    return isinstance(value, list) and len(value) > ROWS_WHOLE_MAX


def dumped(value: Any) -> bytes:
    """Return a value as compact JSON."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
