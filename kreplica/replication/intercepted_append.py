"""Appends batches that a produce interceptor changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kreplica.errors import ErrorCode, KafkaError
from kreplica.replication.partition import Partition
from kreplica.runtime.disk import Buffer
from kreplica.storage.log.results import AppendResult
from kreplica.storage.producers.producer_state import NO_OFFSET, Origin
from kreplica.storage.segments.append_validation import check_as_leader
from kreplica.wire.batches import BatchHeader
from kreplica.wire.notes import Note, build_notes


class Intercepted(NamedTuple):
    """Result of appending an intercepted batch.

    :param result: result for the batch.
    :param note_offset: offset of its first note; -1 if no note was appended.
    """

    result: AppendResult
    note_offset: int = NO_OFFSET


def append_intercepted(
    partition: Partition, records: Buffer, notes: Sequence[Note], now_ms: int, *, all_in_sync: bool
) -> Intercepted:
    """Append the rest of a batch after its notes.

    Readers treat both as one unit: if the batch could not be appended, the notes name a batch that does not follow and
    are ignored.

    :param records: one batch that was validated as a client's batch before the interceptor changed it.
    :raise KafkaError: as for ``Partition.append``; INVALID_RECORD if notes are not allowed in this batch or topic.
    """
    if not notes:
        return Intercepted(partition.append(records, now_ms, all_in_sync=all_in_sync, origin=Origin.INTERCEPTED))
    log = partition.log
    # Topic settings may change the batch and its checksum; the notes must name the checksum that is stored.
    data, header, _ = check_as_leader(records, log.config, Origin.INTERCEPTED, now_ms)
    _check_notes_have_a_place(partition, header)
    if header.producer_id >= 0 and log.producers.check(header, None, Origin.INTERCEPTED) is not None:
        return Intercepted(partition.append(data, now_ms, all_in_sync=all_in_sync, origin=Origin.INTERCEPTED))
    is_all = not header.record_count and header.producer_id < 0
    noted = partition.append_own(build_notes(notes, None if is_all else header.crc, now_ms), now_ms)
    if is_all:
        return Intercepted(noted, noted.base_offset)
    appended = partition.append(data, now_ms, all_in_sync=all_in_sync, origin=Origin.INTERCEPTED)
    return Intercepted(appended, noted.base_offset)


def _check_notes_have_a_place(partition: Partition, header: BatchHeader) -> None:
    if header.is_transactional:
        raise KafkaError(ErrorCode.INVALID_RECORD, "records of a transaction cannot be held back")
    if partition.log.config.compacted:
        raise KafkaError(ErrorCode.INVALID_RECORD, "records of a compacted topic cannot be held back")
