"""Records as plugins read and write them."""

from __future__ import annotations

from typing import NamedTuple

Headers = tuple[tuple[str, bytes | None], ...]
"""Headers of a record in order; keys may repeat."""


class LogRecord(NamedTuple):
    """A record; before it is in a log, ``offset`` is its index in the batch, or -1 if it has none."""

    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    offset: int = -1
