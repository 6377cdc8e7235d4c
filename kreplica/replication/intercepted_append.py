"""Appending what a produce interceptor made of a client's batch."""

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
    """What was appended.

    :param result: of the batch.
    :param note_offset: where its first note is; -1 where none was appended now.
    """

    result: AppendResult
    note_offset: int = NO_OFFSET


def append_intercepted(
    partition: Partition, records: Buffer, notes: Sequence[Note], now_ms: int, *, all_in_sync: bool
) -> Intercepted:
    """Append what is left of a batch, its notes before it.

    Both are one to every reader: where the notes are in the log and the batch could not be appended, they name a batch
    that does not follow, and mean nothing.

    :param records: one batch that was checked as a client's before it was changed.
    :raise KafkaError: as ``Partition.append``; INVALID_RECORD, notes have no place here.
    """
    if not notes:
        return Intercepted(partition.append(records, now_ms, all_in_sync=all_in_sync, origin=Origin.INTERCEPTED))
    log = partition.log
    # The rules of the topic may change the batch, and its checksum: that comes first, to have the one that is stored.
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
