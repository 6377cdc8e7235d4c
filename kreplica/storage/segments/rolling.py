"""Rules that decide when batches must go to a new segment."""

from __future__ import annotations

from kreplica.storage.log_config import LogConfig
from kreplica.storage.segments.indexes import OFFSET_ENTRY_SIZE, TIME_ENTRY_SIZE
from kreplica.storage.segments.segment import RELATIVE_OFFSET_MAX, Segment
from kreplica.wire.batches import BatchHeader


def is_full(segment: Segment, size: int, last: BatchHeader, config: LogConfig, now_ms: int) -> bool:
    """Return True if batches must go to a new segment because of size, age, offset range or index size.

    :param size: total size of the batches.
    :param last: header of the last batch.
    """
    if segment.size == 0:
        return False
    if segment.size + size > config.segment_bytes:
        return True
    if last.last_offset - segment.base_offset > RELATIVE_OFFSET_MAX or are_indexes_full(segment, config):
        return True
    first_ms = segment.first_timestamp_ms
    age_ms = last.max_timestamp - first_ms if first_ms >= 0 else now_ms - segment.created_ms
    return age_ms > config.segment_ms - config.segment_jitter_ms


def are_indexes_full(segment: Segment, config: LogConfig) -> bool:
    """Return True if the next entries may not fit; sealing adds a second entry to the time index."""
    size_max = config.segment_index_bytes
    if segment.size < config.index_interval_bytes * (size_max // (2 * TIME_ENTRY_SIZE)):
        return False
    return (
        segment.offset_index.size_bytes + OFFSET_ENTRY_SIZE > size_max
        or segment.time_index.size_bytes + 2 * TIME_ENTRY_SIZE > size_max
    )
