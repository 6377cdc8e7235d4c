"""Removal of a log's oldest segments, and replacement of segments by a compacted one."""

from __future__ import annotations

from collections.abc import Sequence

from kreplica.runtime.disk import is_temporary
from kreplica.storage.log.log import Log
from kreplica.storage.segments.segment import Segment


def remove_segments(log: Log, segments: Sequence[Segment]) -> None:
    """Remove the oldest segments, and advance the log start offset to the first remaining one."""
    for segment in segments:
        log.segments.drop(segment)
    log.damage.clear_removed()
    log.advance_log_start_offset(log.segments.first.base_offset)


def replace_segments(log: Log, old: Sequence[Segment], compacted: Segment) -> bool:
    """Replace segments with a compacted one, whose files end in ``.swap``.

    :return: False if the log no longer has all of these segments; in that case nothing is changed.
    :raise OSError: the device failed; the next start completes the replacement.
    """
    closed = log.segments.closed
    if any(segment not in closed for segment in old):
        return False
    new = log.segments.replace(old, compacted)
    try:
        log.derived_state.record_aborted(new)
    except OSError as error:
        if not is_temporary(error):  # the next start reads the aborted transactions from the batches
            raise
    log.damage.clear_removed({segment.base_offset for segment in old})
    return True
