"""Selects the segments that retention removes."""

from __future__ import annotations

from kreplica.storage.log_config import LogConfig
from kreplica.storage.segments.segment import Segment
from kreplica.storage.segments.segment_list import Segments


def expired_segments(
    segments: Segments, config: LogConfig, now_ms: int, high_watermark: int, log_start_offset: int, log_end_offset: int
) -> list[Segment]:
    """Return the oldest segments that may be removed; if the active one is included, it must be rolled first.

    A segment that extends beyond the high watermark is kept, and so is an empty active one. Time and size apply only if
    ``cleanup.policy`` includes ``delete``; segments below the log start offset are always removed.
    """
    expired: list[Segment] = []
    surplus = segments.size_bytes - config.retention_bytes
    by_size = config.deleted and config.retention_bytes >= 0
    by_time = config.deleted and config.retention_ms >= 0
    for index, segment in enumerate(segments):
        end_offset = segments.end_offset(index, log_end_offset)
        if end_offset > high_watermark or (segment is segments.active and segment.size == 0):
            break
        too_old = by_time and now_ms - segment.age_timestamp_ms() > config.retention_ms
        too_much = by_size and surplus >= segment.size
        before_start = end_offset <= log_start_offset and segment is not segments.active
        if not (too_old or too_much or before_start):
            break
        expired.append(segment)
        surplus -= segment.size
    return expired
