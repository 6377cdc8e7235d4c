"""Checks of stored batches and indexes; those of whole segments run in other threads."""

from __future__ import annotations

from kreplica.errors import StorageError
from kreplica.storage.inspection.index_scrubbing import IndexesToCheck
from kreplica.storage.log.log import Log
from kreplica.storage.recovery.aborted_recovery import SegmentFile
from kreplica.storage.segments.damage import WHOLE_SEGMENT, BatchesToCheck, Damage, is_unreadable
from kreplica.storage.segments.segment import Segment


def check_batch(log: Log, offset: int) -> None:
    """Check the batch that contains ``offset``, and that a valid batch follows it.

    :raise Damage: the check failed.
    """
    try:
        found = log.segments.find(offset)
        if found is not None:
            segment, position, header = found
            batches_to_check(log, segment, position).check(header.size + 1)
    except OSError as error:
        raise read_error(log, offset, error) from error


def batches_to_check(log: Log, segment: Segment, position: int = 0, next_offset: int | None = None) -> BatchesToCheck:
    """Describe the batches of a segment from a position on, for a check in another thread."""
    is_active = segment is log.segments.active
    return BatchesToCheck(
        log.disk,
        segment.path(),
        segment.base_offset,
        position,
        segment.base_offset if next_offset is None else next_offset,
        segment.size,
        log.log_end_offset if is_active else log.segments.end_of(segment),
        log.leader_epochs.entries,
    )


def indexes_to_check(log: Log, segment: Segment) -> IndexesToCheck:
    """Describe the indexes of a closed segment, for a comparison with its batches in another thread."""
    files = [SegmentFile.of(each) for each in log.segments if each.base_offset <= segment.base_offset]
    return IndexesToCheck(log.disk, files, log.config.index_interval_bytes, log.config.compacted)


def read_error(log: Log, offset: int, error: OSError) -> StorageError:
    """Return the error to raise for a failed read at this offset."""
    if not is_unreadable(error):
        return StorageError(f"{log.path}: {error}")
    segment = log.segments[log.segments.index_of(offset)]
    return Damage(segment.path(), segment.base_offset, WHOLE_SEGMENT, str(error))
