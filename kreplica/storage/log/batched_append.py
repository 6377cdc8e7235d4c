"""Assigns offsets to consecutive batches that are written with one system call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kreplica.runtime.disk import Buffer
from kreplica.storage.log.results import AppendResult
from kreplica.storage.segments.append_validation import Checked
from kreplica.wire.batches import CONTROL_BIT, LENGTH_END, SEQUENCE_MASK, TRANSACTIONAL_BIT, BatchHeader, stamp_checked
from kreplica.wire.control_records import EndMarker

_ALWAYS_CHECKED = TRANSACTIONAL_BIT | CONTROL_BIT
_new_tuple = tuple.__new__


class AppendRun(NamedTuple):
    """Batches with assigned offsets.

    :ivar pieces: buffers to write, with one or several batches each.
    :ivar size: total size in bytes.
    :ivar headers: header of each batch.
    :ivar markers: end marker of each batch, or None.
    """

    pieces: Sequence[Buffer]
    size: int
    headers: Sequence[BatchHeader]
    markers: Sequence[EndMarker | None]


def continues_previous(header: BatchHeader, last: BatchHeader) -> bool:
    """True if a batch needs no check against its producer's state if it is written directly after ``last``.

    It either has no producer ID or continues the sequence of ``last``, which was checked already.
    """
    producer_id = header.producer_id
    return producer_id < 0 or (
        producer_id == last.producer_id
        and header.producer_epoch == last.producer_epoch
        and not (header.attributes | last.attributes) & _ALWAYS_CHECKED
        and header.base_sequence == (last.last_sequence + 1) & SEQUENCE_MASK
    )


def assign_offsets(
    batches: Sequence[Checked], offset: int, leader_epoch: int, append_time_ms: int
) -> tuple[AppendRun, list[AppendResult]]:
    """Assign consecutive offsets to batches, in place, and return them with the results to report after the write."""
    pieces, checked, markers = zip(*batches, strict=True)
    size = 0
    headers: list[BatchHeader] = []
    results: list[AppendResult] = []
    for data, header in zip(pieces, checked, strict=True):
        headers.append(stamp_checked(data, header, offset, leader_epoch))
        next_offset = offset + header[6] + 1
        batch_size = header[1] + LENGTH_END
        results.append(_new_tuple(AppendResult, (offset, next_offset - 1, append_time_ms, False, batch_size)))
        size += batch_size
        offset = next_offset
    return _new_tuple(AppendRun, (pieces, size, headers, markers)), results
