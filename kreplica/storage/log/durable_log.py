"""What of a log is durable, and how all of it becomes so: syncing, closing, and what a failure of the device means."""

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
    """The part of a ``Log`` that changes no record, and makes those last that are there."""

    def unsynced(self) -> Unsynced:
        """What has to be synced for everything up to the log end to be durable."""
        active = self._segments.active
        closed = [segment for segment in self._segments.not_durable(self.recovery_point) if segment is not active]
        return self._to_sync([*closed, active], closed)

    def _to_sync(self, segments: Sequence[Segment], complete: Sequence[Segment], *paths: str) -> Unsynced:
        """
        :param complete: segments whose indexes must last too (recovery makes those of the active one again).
        """
        if complete or self.recovery_point <= segments[0].base_offset:
            paths = (*paths, self.leader_epochs.path, f"{self.path}/{PARTITION_METADATA}")
        paths = (*index_paths(complete), *paths, *(self._aborted_checkpoint.paths if complete else ()))
        files = tuple(segment.file for segment in segments)
        return Unsynced(files, paths, self.path, self.log_end_offset, self._generation, self._disk)

    def mark_synced(self, synced: Unsynced) -> None:
        """Note that its ``sync`` came back; a truncation since then makes it void."""
        if synced.generation == self._generation and synced.end_offset > self.recovery_point:
            self.recovery_point = synced.end_offset

    def flush(self) -> None:
        """Make everything durable now; blocks.

        :raise OSError: and then the log has failed, unless a file could not even be opened.
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
        """Write indexes and producers, make everything durable, and let go of all files; blocks.

        :raise OSError: the device fails; the directory must not be marked as closed in order.
        """
        self.leader_epochs.write()
        if (self.log_end_offset, self._generation) != self._closed_as:
            self._close_anew()
        self.release()

    def _close_anew(self) -> None:
        paths = []
        if self._segments.active.size:
            self._segments.active.seal()
            self._note_complete(self._segments.active)
            self._snapshots.write(self.log_end_offset, self.producers.entries)
            paths.append(self._snapshots.path(self.log_end_offset))
        segments = self._segments.not_durable(self.recovery_point)
        self._sync(self._to_sync(segments, segments, *paths))

    def _note_complete(self, segment: Segment) -> None:
        """Note what a segment's index of aborted transactions holds.

        :raise OSError: the device fails, or is full.
        """
        self._aborted_checkpoint.note(segment)
        self._aborted_checkpoint.write(self._segments)

    def release(self) -> None:
        """Let go of all files; what is still being sent keeps its own."""
        for segment in self._segments:
            segment.forget()

    def fail(self, error: OSError) -> None:
        """Accept nothing more: the device failed."""
        if self._failure is None:
            self._failure = StorageError(f"{self.path}: {error}; the replica is offline until the disk works again")
            if self.owner is not None:
                self.owner.failed(self, error)

    # --- damage ---

    def replace_indexes(self, segment: Segment, wrong: WrongIndexes) -> None:
        """Put right what a comparison of a closed segment's indexes with its batches found.

        :raise OSError: the device fails, or is full.
        """
        for reason in wrong.reasons:
            _log.error("{log}: index rebuilt: {reason}", log=str(self.topic_partition), reason=reason)
        if wrong.made is not None:
            segment.adopt_indexes(wrong.made)
        if wrong.aborted is not None:
            segment.aborted.replace(wrong.aborted)
            self._note_complete(segment)

    def found_damage(self, damage: Damage) -> None:
        """Tell whoever can decide whether others have what is damaged here; found again, it is told again."""
        if self._failure is None and self.owner is not None:
            self.owner.damaged(self, damage)

    def keep_damage(self, damage: Damage) -> None:
        """Go on with it, for want of a better copy: what is damaged is not served, the rest is."""
        if damage.base_offset not in self._damages:
            _log.error(
                "{log} is damaged, and no other replica in sync has it; all but that is served: {damage}",
                log=str(self.topic_partition),
                damage=str(damage),
            )
        self._damages[damage.base_offset] = damage

    def is_whole_again(self, base_offset: int) -> None:
        """A segment was read from end to end, and nothing is wrong with it (any more)."""
        if self._damages.pop(base_offset, None) is not None:
            _log.info("{log}: segment {base} is whole again", log=str(self.topic_partition), base=base_offset)

    def forget_damage_removed(self, replaced: Collection[int] = ()) -> None:
        """Segments are gone, cut, or written anew: what stands there now is not what was damaged.

        :param replaced: base offsets of those that were written anew.
        """
        if self._damages:
            sizes = {each.base_offset: each.size for each in self._segments if each.base_offset not in replaced}
            self._damages = {
                base: damage for base, damage in self._damages.items() if max(damage.position, 0) < sizes.get(base, 0)
            }

    def take_out(self, error: StorageError) -> None:
        """Be of no use until ``put_back``."""
        self._failure = error
        self.owner = None
        self.release()

    def put_back(self) -> None:
        """Be of use again, as it was; its owner is to be set anew."""
        if isinstance(self._failure, Damage):
            self.keep_damage(self._failure)
        self._failure = None
