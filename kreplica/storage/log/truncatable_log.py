"""Cutting the end off a log: what goes, what has to be made again, and what has to wait for it."""

from __future__ import annotations

from kreplica.errors import ErrorCode, KafkaError
from kreplica.runtime.disk import is_passing
from kreplica.storage.log.durable_log import DurableLog
from kreplica.storage.recovery.loading import restore_producers
from kreplica.storage.segments.segment import Segment
from kreplica.storage.segments.segment_list import remove_files


class TruncatableLog(DurableLog):
    """The part of a ``Log`` that makes it shorter.

    Nothing is appended to a log that was cut until what the next start relies on says so too: the leader epochs, and
    (``hold``) the recovery point that is on disk.
    """

    _is_cut_unfinished = False
    """Whether producers, snapshots and leader epochs still have to be brought to where the log ends."""
    _is_held = False

    def hold(self) -> None:
        """Take no records until ``let_go``: the recovery point on disk is beyond what is durable."""
        self._is_held = True

    def let_go(self) -> None:
        """Take records again."""
        self._is_held = False

    def truncate_to(self, offset: int) -> int:
        """Remove everything from ``offset`` on, with the batch that holds it; beyond the end it changes nothing.

        :return: the new log end offset: ``offset``, or the base offset of that batch.
        :raise OSError: the device fails; the log ends at ``offset`` or beyond, and it may be tried again.
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
                self._ends_at(dropped[0].base_offset)
            raise
        self._ends_at(end_offset)
        return end_offset

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove everything; the next record gets ``offset``.

        :raise OSError: the device fails.
        """
        segment = Segment(self.path, offset, self._disk, self._open_segments, size=0, new=True)
        for old in reversed(list(self._segments)):
            self._segments.drop(old)
        self._segments.push(segment)
        self.log_start_offset = offset
        self.leader_epochs.clear()
        self._ends_at(offset)
        if self.owner is not None:
            self.owner.start_offset_advanced(self)
        try:
            segment.create()
        except OSError as error:
            # The first record makes it, and a start before that finds where the log begins in the checkpoint.
            if not is_passing(error):
                raise

    def _ends_at(self, offset: int) -> None:
        self._recent.clear()
        self._generation += 1
        self.forget_damage_removed()
        self.log_end_offset = offset
        self.log_start_offset = min(self.log_start_offset, offset)
        self.leader_epochs.truncate_to(offset)
        self.recovery_point = min(self.recovery_point, offset)
        self._is_cut_unfinished = True
        try:
            self._finish_cut()
        except OSError as error:
            if not is_passing(error):
                raise
        finally:
            if self.owner is not None:
                self.owner.truncated(self)
        # A sync under way is void by now, and an end that no append led to may be beyond what was ever synced.
        self._flush_if_due()

    def _finish_cut(self) -> None:
        """Bring what was remembered of the records to where the log ends now, where that is still to be done.

        :raise OSError: it could not be; to be tried again before anything is appended.
        """
        if self._is_cut_unfinished:
            of_nothing = int(not self._segments.size_bytes)
            self._snapshots.remove_from(self.log_end_offset + 1 - of_nothing)
            restore_producers(
                self.producers, self._snapshots, self._segments, self.log_start_offset, self.log_end_offset, rebuilt=()
            )
            self.leader_epochs.write()
            self._aborted_checkpoint.forget_from(self._segments.active.base_offset)
            self._aborted_checkpoint.write(self._segments)
            self._is_cut_unfinished = False

    def _check_writable(self) -> None:
        """:raise KafkaError: KAFKA_STORAGE_ERROR, nothing can be appended (yet)."""
        if self._failure is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(self._failure))
        if self._is_cut_unfinished:
            try:
                self._finish_cut()
            except OSError as error:
                if not is_passing(error):
                    self.fail(error)
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.path}: {error}") from error
        if self._is_held:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.path} was cut, which is not noted durably yet")

    def _flush_if_due(self) -> None:
        if self.log_end_offset - self.recovery_point >= self.config.flush_messages and self.owner is not None:
            self.owner.flush_due(self)

    def _remove(self, paths: list[str]) -> None:
        if self.owner is not None:
            self.owner.remove(self, paths)
        else:
            remove_files(self._disk, paths)

    def close(self) -> None:
        self._finish_cut()
        super().close()
