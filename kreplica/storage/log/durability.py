"""Durable end of a log, and the files that must be synced to advance it."""

from __future__ import annotations

from collections.abc import Sequence

from kreplica.storage.durability.unflushed import Unsynced
from kreplica.storage.log.derived_state import DerivedState
from kreplica.storage.recovery.opened_log import Opened
from kreplica.storage.segments.segment import Segment


class Durability:
    """Recovery point of one log.

    :ivar recovery_point: end of the durable records.
    """

    __slots__ = ("_complete_end", "_derived_state", "_segments", "recovery_point")

    def __init__(self, parts: Opened, derived_state: DerivedState) -> None:
        self.recovery_point = parts.recovery_point
        self._segments = parts.segments
        self._derived_state = derived_state
        self._complete_end = parts.log_end_offset if parts.closed_in_order else -1
        """Log end offset at which all files are complete on disk, unless the log was truncated; -1 if unknown."""

    def unsynced(self, log_end_offset: int, generation: int) -> Unsynced:
        """Return the files to sync so that all records up to the log end are durable."""
        active = self._segments.active
        closed = [segment for segment in self._segments.not_durable(self.recovery_point) if segment is not active]
        return self._unsynced(log_end_offset, generation, [*closed, active], closed)

    def write_complete_state(self, log_end_offset: int, generation: int) -> Unsynced | None:
        """Write the files that a start after a clean shutdown relies on.

        :return: the files to sync, or None if all of them are complete on disk already.
        :raise OSError: a write failed.
        """
        self._derived_state.leader_epochs.write()
        if log_end_offset == self._complete_end and generation == 0:
            return None
        active = self._segments.active
        snapshot = (self._derived_state.close_segment(active, log_end_offset),) if active.size else ()
        segments = self._segments.not_durable(self.recovery_point)
        return self._unsynced(log_end_offset, generation, segments, segments, *snapshot)

    def _unsynced(
        self,
        log_end_offset: int,
        generation: int,
        segments: Sequence[Segment],
        complete: Sequence[Segment],
        *paths: str,
    ) -> Unsynced:
        """Return these segments as files to sync.

        :param complete: segments whose indexes must be durable too; recovery rebuilds those of the active segment.
        :param paths: other files to sync.
        """
        is_new = bool(complete) or self.recovery_point <= segments[0].base_offset
        paths = self._derived_state.unsynced_paths(complete, paths, with_epochs=is_new)
        files = tuple(segment.file for segment in segments)
        return Unsynced(files, paths, self._segments.directory, log_end_offset, generation, self._segments.disk)

    def mark_synced(self, synced: Unsynced) -> None:
        """Advance the recovery point after a sync of a log that has not been truncated since."""
        self.recovery_point = max(self.recovery_point, synced.end_offset)
