"""Finds the position in the active segment at which recovery starts after the process was killed.

A killed process loses no written data while the machine stays up. A growing log regularly writes its index entries,
leader epochs and a producer snapshot. All batches before a snapshot were written completely.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

from kreplica.runtime.disk import is_temporary
from kreplica.storage.formats.leader_epochs import LeaderEpochs
from kreplica.storage.producers.producer_state import ProducerStates
from kreplica.storage.producers.snapshots import SnapshotFiles
from kreplica.storage.recovery.aborted_checkpoint import AbortedCheckpoint
from kreplica.storage.segments.damage import Damage
from kreplica.storage.segments.segment import Segment


class ResumePoint(NamedTuple):
    """Position before which all batches are whole and indexed."""

    offset: int
    position: int
    largest: tuple[int, int]


def find_resume_point(
    segment: Segment, snapshots: SnapshotFiles, aborted_checkpoint: AbortedCheckpoint
) -> ResumePoint | None:
    """Return the position of the latest snapshot within a segment, and truncate the indexes to it.

    :return: None if there is no snapshot, or if snapshot, indexes and batches disagree; then the whole segment must be
        read.
    """
    found = snapshots.load_latest(segment.base_offset + 1, sys.maxsize)
    if found is None:
        return None
    offset = found[0]
    segment.offset_index.truncate_to(offset)
    segment.time_index.truncate_to(offset)
    segment.aborted.truncate_to(offset)
    if not aborted_checkpoint.matches(segment):
        return None
    try:
        position = _end_before(segment, offset)
        largest = segment.time_index.last
        is_exact = position is not None and _has_timestamp(segment, *largest)
    except Damage:
        return None
    return ResumePoint(offset, position, largest) if position is not None and is_exact else None


def write_resume_point(
    segment: Segment, end_offset: int, epochs: LeaderEpochs, producers: ProducerStates, snapshots: SnapshotFiles
) -> None:
    """Write a resume point at the end of a log that was just read; omit it if there is no disk space.

    :raise OSError: the device failed.
    """
    if segment.size:
        try:
            segment.seal()
            epochs.write()
            snapshots.write_interim(end_offset, producers.entries)
        except OSError as error:
            if not is_temporary(error):
                raise


def _end_before(segment: Segment, offset: int) -> int | None:
    """Return the end position of the batch whose next offset is ``offset``, or None if no batch ends there."""
    last_offset, position = segment.offset_index.last
    if position and segment.header_at(position).last_offset != last_offset:
        return None
    next_offset = -1
    for batch_position, header in segment.headers(position):
        if header.base_offset >= offset:
            break
        next_offset = header.next_offset
        position = batch_position + header.size
    return position if next_offset == offset else None


def _has_timestamp(segment: Segment, timestamp_ms: int, offset: int) -> bool:
    """Return True if the batch that ends with ``offset`` has this largest timestamp."""
    for _, header in segment.headers(segment.offset_index.lookup(offset)):
        if header.last_offset >= offset:
            return header.last_offset == offset and header.max_timestamp == timestamp_ms
    return False
