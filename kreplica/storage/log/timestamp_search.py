"""Exact search of offsets by timestamp (ListOffsets): finds the batch by headers, then reads its records."""

from __future__ import annotations

from typing import NamedTuple

from kreplica.storage.log.log import Log
from kreplica.storage.segments.batch_search import find_batch
from kreplica.storage.segments.damage import damage_if_unreadable
from kreplica.storage.segments.segment import Segment
from kreplica.storage.segments.segment_list import Segments
from kreplica.wire.records import iter_records, max_timestamp_record

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4


class FoundOffset(NamedTuple):
    """Offset of a record; ``timestamp_ms`` is -1 for the earliest and latest offset."""

    timestamp_ms: int
    offset: int
    leader_epoch: int


def offset_for_timestamp(log: Log, timestamp_ms: int, offset_max: int) -> FoundOffset | None:
    """Return the first record with a timestamp of at least ``timestamp_ms``.

    :param timestamp_ms: milliseconds since 1970, or ``LATEST`` (-1), ``EARLIEST`` (-2), ``MAX_TIMESTAMP`` (-3,
        KIP-734) or ``EARLIEST_LOCAL`` (-4).
    :param offset_max: end of the offsets considered.
    :return: None if no such record is below ``offset_max``.
    :raise ProtocolError: a batch is malformed.
    """
    if timestamp_ms == LATEST:
        return FoundOffset(-1, offset_max, log.leader_epochs.epoch_of(offset_max))
    if timestamp_ms in (EARLIEST, EARLIEST_LOCAL):
        return FoundOffset(-1, log.log_start_offset, log.leader_epochs.epoch_of(log.log_start_offset))
    if timestamp_ms == MAX_TIMESTAMP:
        found = find_max_timestamp(log.segments, log.log_start_offset)
    else:
        found = find_by_timestamp(log.segments, timestamp_ms, log.log_start_offset)
    return found if found is not None and found.offset < offset_max else None


def find_by_timestamp(segments: Segments, timestamp_ms: int, start_offset: int) -> FoundOffset | None:
    """Return the first record at or after ``start_offset`` with a timestamp of at least ``timestamp_ms``, or None.

    :raise Damage: a segment cannot be read.
    """
    for segment in segments.starting_from(start_offset):
        if segment.largest[0] < timestamp_ms:
            continue
        with damage_if_unreadable(segment.path(), segment.base_offset):
            found = _find_in(segment, timestamp_ms, start_offset)
        if found is not None:
            return found
    return None


def _find_in(segment: Segment, timestamp_ms: int, start_offset: int) -> FoundOffset | None:
    first = max(segment.time_index.lookup(timestamp_ms), start_offset)
    for position, header in segment.headers(segment.offset_index.lookup(first)):
        if header.max_timestamp < timestamp_ms or header.last_offset < start_offset:
            continue
        for record in iter_records(segment.file.read_at(position, header.size)):
            if record.timestamp_ms >= timestamp_ms and record.offset >= start_offset:
                return FoundOffset(record.timestamp_ms, record.offset, header.partition_leader_epoch)
    return None


def find_max_timestamp(segments: Segments, start_offset: int) -> FoundOffset | None:
    """Return the first record with the highest timestamp of the log (KIP-734), or None if no record has one.

    :raise Damage: the segment cannot be read.
    """
    best = max(segments.starting_from(start_offset), key=lambda segment: segment.largest[0])
    timestamp_ms, last_offset = best.largest
    if timestamp_ms < 0 or last_offset < start_offset:
        return None
    with damage_if_unreadable(best.path(), best.base_offset):
        found = find_batch(best, last_offset)
        if found is None:
            return None
        position, header = found
        record = max_timestamp_record(best.file.read_at(position, header.size))
    return FoundOffset(record[1], record[0], header.partition_leader_epoch) if record is not None else None
