"""A record, as plugins see and make it."""

from __future__ import annotations

from typing import NamedTuple

Headers = tuple[tuple[str, bytes | None], ...]
"""Of a record, in their order; names may repeat."""


class LogRecord(NamedTuple):
    """A record.  ``offset`` is its place in the batch until it is in a log; -1 where that does not matter yet."""

    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    offset: int = -1
