"""Appends batches that a produce interceptor changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kreplica.errors import ErrorCode, KafkaError
from kreplica.replication.partition import Partition
from kreplica.runtime.disk import Buffer
from kreplica.storage.log.results import AppendResult, only_result
from kreplica.storage.producers.producer_entry import NO_OFFSET
from kreplica.storage.producers.producer_state import Origin
from kreplica.storage.segments.batch_validation import check_as_leader
from kreplica.wire.batches import BatchHeader
from kreplica.wire.interceptor_notes import Note, build_notes


class InterceptedAppend(NamedTuple):
    """Result of appending an intercepted batch.

    :param result: result for the batch.
    :param note_offset: offset of its first note; -1 if no note was appended.
    """

    result: AppendResult
    note_offset: int = NO_OFFSET


def append_intercepted(
    partition: Partition, records: Buffer, notes: Sequence[Note], now_ms: int, *, all_in_sync: bool
) -> InterceptedAppend:
    """Append a batch that an interceptor changed, preceded by the interceptor's notes.

    The notes contain the CRC of the batch, unless it has no records left. If the append of the batch fails, readers
    ignore the notes, because no batch with this CRC follows them.

    :param records: one batch that was validated as a client's batch before the interceptor changed it.
    :raise KafkaError: an error of ``Partition.append``; INVALID_RECORD if notes are not allowed in this batch or topic.
    """

    def append(batch: Buffer) -> AppendResult:
        outcomes = partition.append((batch,), now_ms, all_in_sync=all_in_sync, origin=Origin.INTERCEPTED)
        return only_result(outcomes)

    if not notes:
        return InterceptedAppend(append(records))
    log = partition.log
    # Topic settings may change the batch and its checksum; the notes must name the checksum that is stored.
    data, header, _ = check_as_leader(records, log.config, Origin.INTERCEPTED, now_ms)
    _check_notes_allowed(partition, header)
    if header.producer_id >= 0 and log.producers.check(header, None, Origin.INTERCEPTED) is not None:
        return InterceptedAppend(append(data))  # a duplicate, whose notes are already in the log
    all_removed = not header.record_count and header.producer_id < 0
    note_result = partition.append_own(build_notes(notes, None if all_removed else header.crc, now_ms), now_ms)
    if all_removed:
        return InterceptedAppend(note_result, note_result.base_offset)
    return InterceptedAppend(append(data), note_result.base_offset)


def _check_notes_allowed(partition: Partition, header: BatchHeader) -> None:
    if header.is_transactional:
        raise KafkaError(ErrorCode.INVALID_RECORD, "records of a transaction cannot be held back")
    if partition.log.config.compacted:
        raise KafkaError(ErrorCode.INVALID_RECORD, "records of a compacted topic cannot be held back")
