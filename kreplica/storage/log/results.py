"""Results of appends and reads."""

from __future__ import annotations

from typing import NamedTuple

from kreplica.runtime.disk import FileRange


class AppendResult(NamedTuple):
    """Offsets of appended records.

    :param log_append_time_ms: -1 unless the topic uses LogAppendTime.
    :param duplicate: True if an idempotent producer sent the batch again; nothing was written.
    :param size: bytes written.
    """

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    duplicate: bool
    size: int


class LogSlice(NamedTuple):
    """File ranges of whole batches from the one that contains the requested offset; the last batch may be incomplete.
    """

    first_offset: int
    ranges: list[FileRange]
    size: int
