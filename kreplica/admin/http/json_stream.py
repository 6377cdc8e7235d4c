"""JSON of answers, however many rows they have, without keeping the reactor from its work.

It is not made on another thread: one that computes holds the interpreter, and each thing that the reactor does with a
socket would then wait its turn.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kreplica.runtime import Reactor
from kreplica.runtime.turns import Turns

ROWS_AT_ONCE = 200
"""Rows of a list that are put into JSON in one go: about a millisecond."""


async def json_pieces(reactor: Reactor, document: Any) -> list[bytes]:
    """What, put together, is the document as one line of JSON.

    :param document: an object's long lists are taken apart; anything else is done at once.
    """
    if not isinstance(document, Mapping) or not any(map(_is_long, document.values())):
        return [dumped(document) + b"\n"]
    turns = Turns(reactor)
    pieces = [b"{"]
    for name, value in document.items():
        pieces.append((b"" if len(pieces) == 1 else b",") + dumped(str(name)) + b":")
        if not _is_long(value):
            pieces.append(dumped(value))
            continue
        for start in range(0, len(value), ROWS_AT_ONCE):
            rows = dumped(value[start : start + ROWS_AT_ONCE])
            pieces.append((b"[" if start == 0 else b",") + rows[1:-1])
            if turns.is_over:
                await turns.next()
        pieces.append(b"]")
    pieces.append(b"}\n")
    return pieces


def _is_long(value: object) -> bool:
    return isinstance(value, list) and len(value) > ROWS_AT_ONCE


def dumped(value: Any) -> bytes:
    """JSON in its shortest form."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
