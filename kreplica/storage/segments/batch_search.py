"""Finds the batch that contains an offset in a segment; rebuilds a wrong offset index."""

from __future__ import annotations

from twisted.logger import Logger

from kreplica.storage.segments.damage import Damage
from kreplica.storage.segments.segment import Segment
from kreplica.wire.batches import BatchHeader

_log = Logger()


def find_batch(segment: Segment, offset: int) -> tuple[int, BatchHeader] | None:
    """Return position and header of the first batch that ends at or after ``offset``; None beyond the last batch.

    :raise Damage: the search reached an invalid batch.
    """
    start = end = segment.offset_index.lookup(offset)
    for position, header in segment.headers(start):
        if header.last_offset >= offset:
            if position == start and start and header.base_offset > offset:
                break  # the index is wrong: an entry for an offset never points beyond it
            return position, header
        end = position + header.size
    if end == start and start:
        return _find_after_reindex(segment, offset, start)
    if end < segment.size:
        raise Damage(segment.path(), segment.base_offset, end, "no valid batch at this position")
    return None


def _find_after_reindex(segment: Segment, offset: int, position: int) -> tuple[int, BatchHeader] | None:
    """Rebuild a wrong index and search again."""
    _log.warn(
        "{path}: the index points to position {position}, but no batch at or below offset {offset} starts there; "
        "rebuilding it",
        path=segment.path(),
        position=position,
        offset=offset,
    )
    segment.reindex()
    for batch_position, header in segment.headers(segment.offset_index.lookup(offset)):
        if header.last_offset >= offset:
            return batch_position, header
        position = batch_position + header.size
    if position < segment.size:
        raise Damage(segment.path(), segment.base_offset, position, "no valid batch at this position")
    return None
