"""Values that a log writes and returns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, final

from kreplica.errors import KafkaError
from kreplica.runtime.disk import Buffer, FileRange
from kreplica.wire.batches import BatchHeader
from kreplica.wire.control_records import EndMarker


@final
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


Outcome = AppendResult | KafkaError
"""Result of the append of one batch, or its error if the batch was rejected."""


def only_result(outcomes: Sequence[Outcome]) -> AppendResult:
    """Return the result of an append of one batch.

    :raise KafkaError: the batch was rejected.
    """
    (outcome,) = outcomes
    if type(outcome) is AppendResult:
        return outcome
    raise outcome


class AppendRun(NamedTuple):
    """Batches with assigned offsets, to be written to one segment.

    :ivar pieces: buffers to write, with one or several batches each.
    :ivar size: total size in bytes.
    :ivar headers: header of each batch.
    :ivar markers: end marker of each batch, or None.
    """

    pieces: Sequence[Buffer]
    size: int
    headers: Sequence[BatchHeader]
    markers: Sequence[EndMarker | None]


class LogSlice(NamedTuple):
    """File ranges of batches, starting with the one that contains the requested offset; the last may be incomplete."""

    first_offset: int
    ranges: list[FileRange]
    size: int
