"""Removal of the segments that retention no longer keeps."""

from __future__ import annotations

from kreplica.runtime.disk import is_temporary
from kreplica.storage.log.log import Log
from kreplica.storage.log.segment_replacement import remove_segments
from kreplica.storage.log_config import LogConfig
from kreplica.storage.segments.segment import Segment
from kreplica.storage.segments.segment_list import Segments


def delete_expired(log: Log, now_ms: int, high_watermark: int) -> int:
    """Remove segments according to age, total size and log start offset, never above the high watermark.

    :return: number of bytes removed.
    :raise Damage: a segment cannot be read.
    :raise OSError: the device failed.
    """
    # Called for its side effect: it forgets completed transactions below the high watermark.
    log.producers.first_unstable_offset(high_watermark)
    log.producers.expire(now_ms)
    expired = expired_segments(
        log.segments, log.config, now_ms, high_watermark, log.log_start_offset, log.log_end_offset
    )
    if not expired:
        return 0
    if expired[-1] is log.segments.active:
        try:
            log.roll(now_ms)
        except OSError as error:
            if not is_temporary(error):
                raise
            expired.pop()  # removing the other segments frees space
    remove_segments(log, expired)
    return sum(segment.size for segment in expired)


def expired_segments(
    segments: Segments, config: LogConfig, now_ms: int, high_watermark: int, log_start_offset: int, log_end_offset: int
) -> list[Segment]:
    """Return the oldest segments that may be removed; if the active one is included, it must be rolled first.

    A segment that extends beyond the high watermark is kept, and so is an empty active one. Time and size apply only if
    ``cleanup.policy`` includes ``delete``; segments below the log start offset are always removed.
    """
    expired: list[Segment] = []
    surplus = segments.size_bytes - config.retention_bytes
    limits_size = config.deletes_segments and config.retention_bytes >= 0
    limits_age = config.deletes_segments and config.retention_ms >= 0
    for index, segment in enumerate(segments):
        end_offset = segments.end_offset(index, log_end_offset)
        if end_offset > high_watermark or (segment is segments.active and segment.size == 0):
            break
        is_too_old = limits_age and now_ms - segment.age_timestamp_ms() > config.retention_ms
        is_surplus = limits_size and surplus >= segment.size
        is_below_start = end_offset <= log_start_offset and segment is not segments.active
        if not (is_too_old or is_surplus or is_below_start):
            break
        expired.append(segment)
        surplus -= segment.size
    return expired
