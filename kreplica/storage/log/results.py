"""What a log answers: to an append and to a read."""

from __future__ import annotations

from typing import NamedTuple

from kreplica.runtime.disk import FileRange


class AppendResult(NamedTuple):
    """Where records are in the log now.

    :param log_append_time_ms: -1 unless the topic has LogAppendTime.
    :param duplicate: they were there already, as a retry of an idempotent producer; nothing was written.
    :param size: bytes written.
    """

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    duplicate: bool
    size: int


class LogSlice(NamedTuple):
    """Bytes of whole batches (the last may be cut short) that start at or before the offset that was asked."""

    first_offset: int
    ranges: list[FileRange]
    size: int
