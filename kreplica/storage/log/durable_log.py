"""Durability of a log: syncing, closing, and handling of device failures and damage."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from twisted.logger import Logger

from kreplica.errors import StorageError
from kreplica.runtime.disk import is_out_of_descriptors
from kreplica.storage.durability.unflushed import Unsynced, index_paths
from kreplica.storage.formats.checkpoints import PARTITION_METADATA
from kreplica.storage.inspection.index_scrubbing import WrongIndexes
from kreplica.storage.log.readable_log import ReadableLog
from kreplica.storage.segments.damage import Damage
from kreplica.storage.segments.segment import Segment

_log = Logger()


class DurableLog(ReadableLog):
    """The part of a ``Log`` that makes records durable and handles damage."""

    def unsynced(self) -> Unsynced:
        """Return the files to sync so that all records up to the log end are durable."""
        active = self._segments.active
        closed = [segment for segment in self._segments.not_durable(self.recovery_point) if segment is not active]
        return self._unsynced_files([*closed, active], closed)

    def _unsynced_files(self, segments: Sequence[Segment], complete: Sequence[Segment], *paths: str) -> Unsynced:
        """Return these segments as files to sync.

        :param complete: segments whose indexes must be durable too; recovery rebuilds those of the active segment.
        :param paths: further files to sync.
        """
        if complete or self.recovery_point <= segments[0].base_offset:
            paths = (*paths, self.leader_epochs.path, f"{self.path}/{PARTITION_METADATA}")
        paths = (*index_paths(complete), *paths, *(self._aborted_checkpoint.paths if complete else ()))
        files = tuple(segment.file for segment in segments)
        return Unsynced(files, paths, self.path, self.log_end_offset, self._generation, self._disk)

    def mark_synced(self, synced: Unsynced) -> None:
        """Advance the recovery point after a sync, unless the log has been truncated since."""
        if synced.generation == self._generation and synced.end_offset > self.recovery_point:
            self.recovery_point = synced.end_offset

    def flush(self) -> None:
        """Sync all records now; blocks.

        :raise OSError: a file could not be opened, or the sync failed and the log is marked as failed.
        """
        self._sync(self.unsynced())

    def _sync(self, unsynced: Unsynced) -> None:
        try:
            unsynced.sync()
        except OSError as error:
            if not is_out_of_descriptors(error):
                self.fail(error)
            raise
        self.mark_synced(unsynced)

    def close(self) -> None:
        """Write indexes and producer snapshot, sync, and close all files; blocks.

        :raise OSError: the device failed; the directory must not get a clean-shutdown marker.
        """
        self.leader_epochs.write()
        if (self.log_end_offset, self._generation) != self._complete_state:
            self._write_close_state()
        self.release()

    def _write_close_state(self) -> None:
        paths = []
        if self._segments.active.size:
            self._segments.active.seal()
            self._record_aborted(self._segments.active)
            self._snapshots.write(self.log_end_offset, self.producers.entries)
            paths.append(self._snapshots.path(self.log_end_offset))
        segments = self._segments.not_durable(self.recovery_point)
        self._sync(self._unsynced_files(segments, segments, *paths))

    def _record_aborted(self, segment: Segment) -> None:
        """Record the checksum of a segment's index of aborted transactions.

        :raise OSError: the write failed.
        """
        self._aborted_checkpoint.update(segment)
        self._aborted_checkpoint.write(self._segments)

    def release(self) -> None:
        """Close all files; responses that are being sent keep their own references."""
        for segment in self._segments:
            segment.forget()

    def fail(self, error: OSError) -> None:
        """Mark the log as failed and notify the owner; later appends are rejected."""
        if self._failure is None:
            self._failure = StorageError(f"{self.path}: {error}; the replica is offline until the disk works again")
            if self.owner is not None:
                self.owner.failed(self, error)

    # --- damage ---

    def replace_indexes(self, segment: Segment, wrong: WrongIndexes) -> None:
        """Replace indexes of a closed segment that differ from its batches.

        :raise OSError: the write failed.
        """
        for reason in wrong.reasons:
            _log.error("{log}: index rebuilt: {reason}", log=str(self.topic_partition), reason=reason)
        if wrong.rebuilt is not None:
            segment.replace_indexes(wrong.rebuilt)
        if wrong.aborted is not None:
            segment.aborted.replace(wrong.aborted)
            self._record_aborted(segment)

    def report_damage(self, damage: Damage) -> None:
        """Report damage to the owner, each time it is found."""
        if self._failure is None and self.owner is not None:
            self.owner.damaged(self, damage)

    def exclude_damage(self, damage: Damage) -> None:
        """Exclude damaged batches from reads and keep using the log, because no better copy exists."""
        if damage.base_offset not in self._damages:
            _log.error(
                "{log} is damaged and no other in-sync replica has the data; all other records are served: {damage}",
                log=str(self.topic_partition),
                damage=str(damage),
            )
        self._damages[damage.base_offset] = damage

    def clear_damage(self, base_offset: int) -> None:
        """Forget known damage of a segment, because it was read without errors."""
        if self._damages.pop(base_offset, None) is not None:
            _log.info(
                "{log}: segment {base} was read without errors; all its records are served again",
                log=str(self.topic_partition),
                base=base_offset,
            )

    def clear_removed_damage(self, replaced: Collection[int] = ()) -> None:
        """Forget known damage in segments that were removed, truncated or rewritten.

        :param replaced: base offsets of rewritten segments.
        """
        if self._damages:
            sizes = {each.base_offset: each.size for each in self._segments if each.base_offset not in replaced}
            self._damages = {
                base: damage for base, damage in self._damages.items() if max(damage.position, 0) < sizes.get(base, 0)
            }

    def take_offline(self, error: StorageError) -> None:
        """Stop using the log until ``bring_online``."""
        self._failure = error
        self.owner = None
        self.release()

    def bring_online(self) -> None:
        """Use the log again, excluding known damage; the caller sets its owner."""
        if isinstance(self._failure, Damage):
            self.exclude_damage(self._failure)
        self._failure = None
