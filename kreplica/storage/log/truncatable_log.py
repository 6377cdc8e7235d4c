"""Truncates a log, and restores its derived state afterwards."""

from __future__ import annotations

from kreplica.errors import ErrorCode, KafkaError
from kreplica.runtime.disk import is_temporary
from kreplica.storage.log.durable_log import DurableLog
from kreplica.storage.recovery.producer_recovery import restore_producers
from kreplica.storage.segments.segment import Segment
from kreplica.storage.segments.segment_list import remove_files


class TruncatableLog(DurableLog):
    """The truncation part of a ``Log``.

    A truncated log accepts no records until the state that recovery relies on is updated: the leader epochs and
    (``block_appends``) the recovery point on disk.
    """

    _is_truncation_unfinished = False
    """True if producers, snapshots and leader epochs do not match the log end yet."""
    _appends_blocked = False

    def block_appends(self) -> None:
        """Reject appends until ``allow_appends``, because the recovery point on disk is beyond the durable records."""
        self._appends_blocked = True

    def allow_appends(self) -> None:
        """Accept appends again."""
        self._appends_blocked = False

    def truncate_to(self, offset: int) -> int:
        """Remove the batch that contains ``offset`` and all later ones; does nothing at or above the log end.

        :return: the new log end offset: ``offset``, or the base offset of that batch.
        :raise OSError: the device failed; the log end is ``offset`` or above, and the call may be repeated.
        """
        if offset >= self.log_end_offset:
            return self.log_end_offset
        if offset <= self._segments.first.base_offset:
            self.truncate_fully_and_start_at(offset)
            return offset
        dropped = [segment for segment in self._segments if segment.base_offset >= offset]
        for segment in reversed(dropped):
            self._segments.drop(segment)
        try:
            end_offset = self._segments.active.truncate_to(offset)
        except OSError:
            if dropped:
                self._set_end(dropped[0].base_offset)
            raise
        self._set_end(end_offset)
        return end_offset

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove all records; the next one gets ``offset``.

        :raise OSError: the device failed.
        """
        segment = Segment(self.path, offset, self._disk, self._open_segments, size=0, new=True)
        for old in reversed(list(self._segments)):
            self._segments.drop(old)
        self._segments.push(segment)
        self.log_start_offset = offset
        self.leader_epochs.clear()
        self._set_end(offset)
        if self.owner is not None:
            self.owner.start_offset_advanced(self)
        try:
            segment.create()
        except OSError as error:
            # The first append creates the file; until then a restart finds the start offset in the checkpoint.
            if not is_temporary(error):
                raise

    def _set_end(self, offset: int) -> None:
        self._recent.clear()
        self._generation += 1
        self.clear_removed_damage()
        self.log_end_offset = offset
        self.log_start_offset = min(self.log_start_offset, offset)
        self.leader_epochs.truncate_to(offset)
        self.recovery_point = min(self.recovery_point, offset)
        self._is_truncation_unfinished = True
        try:
            self._finish_truncation()
        except OSError as error:
            if not is_temporary(error):
                raise
        finally:
            if self.owner is not None:
                self.owner.truncated(self)
        # The result of a pending sync will be ignored, and records below the new end may be unsynced.
        self._flush_if_due()

    def _finish_truncation(self) -> None:
        """Restore producers, snapshots and leader epochs after a truncation, if that is still pending.

        :raise OSError: a write failed; the call must be repeated before the next append.
        """
        if self._is_truncation_unfinished:
            is_empty = int(not self._segments.size_bytes)
            self._snapshots.remove_from(self.log_end_offset + 1 - is_empty)
            restore_producers(
                self.producers, self._snapshots, self._segments, self.log_start_offset, self.log_end_offset, rebuilt=()
            )
            self.leader_epochs.write()
            self._aborted_checkpoint.remove_from(self._segments.active.base_offset)
            self._aborted_checkpoint.write(self._segments)
            self._is_truncation_unfinished = False

    def _check_writable(self) -> None:
        """Complete a pending truncation, and check that the log accepts appends.

        :raise KafkaError: KAFKA_STORAGE_ERROR if it does not.
        """
        if self._failure is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(self._failure))
        if self._is_truncation_unfinished:
            try:
                self._finish_truncation()
            except OSError as error:
                if not is_temporary(error):
                    self.fail(error)
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.path}: {error}") from error
        if self._appends_blocked:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{self.path} was truncated, and the new recovery point is not durable yet",
            )

    def _flush_if_due(self) -> None:
        if self.log_end_offset - self.recovery_point >= self.config.flush_messages and self.owner is not None:
            self.owner.flush_due(self)

    def _remove(self, paths: list[str]) -> None:
        if self.owner is not None:
            self.owner.remove(self, paths)
        else:
            remove_files(self._disk, paths)

    def close(self) -> None:
        self._finish_truncation()
        super().close()
