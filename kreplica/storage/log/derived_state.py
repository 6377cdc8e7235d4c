"""State that is derived from the batches of a log, and its files."""

from __future__ import annotations

from collections.abc import Sequence

from kreplica.storage.durability.unflushed import index_paths
from kreplica.storage.formats.checkpoints import PARTITION_METADATA
from kreplica.storage.inspection.index_scrubbing import WrongIndexes
from kreplica.storage.recovery.opened_log import Opened
from kreplica.storage.recovery.producer_recovery import restore_producers
from kreplica.storage.segments.segment import Segment

_SNAPSHOT_PRODUCERS_MAX = 500
"""Maximum number of producers in an interim snapshot; encoding it takes about 2 ms."""


class DerivedState:
    """Leader epochs, producers and aborted transactions of one log; recovery relies on their files.

    :ivar is_outdated: True after a truncation, until ``restore`` succeeds.
    """

    __slots__ = ("_aborted_checkpoint", "_segments", "_snapshots", "is_outdated", "leader_epochs", "producers")

    def __init__(self, parts: Opened) -> None:
        self.leader_epochs = parts.leader_epochs
        self.producers = parts.producers
        self.is_outdated = False
        self._segments = parts.segments
        self._snapshots = parts.snapshots
        self._aborted_checkpoint = parts.aborted_checkpoint

    def close_segment(self, segment: Segment, end_offset: int) -> str:
        """Write the indexes of a segment that ends at ``end_offset``, and the state at that offset.

        :return: path of the snapshot of the producers.
        :raise OSError: a write failed.
        """
        segment.seal()
        self._snapshots.write(end_offset, self.producers.entries)
        self.record_aborted(segment)
        self.leader_epochs.write()  # must be on disk, because recovery does not read a synced segment
        return self._snapshots.path(end_offset)

    def write_resume_point(self, segment: Segment, end_offset: int) -> None:
        """Write a resume point: after a kill, recovery skips the batches before it (``recovery.resume_points``).

        A log with too many producers for a snapshot writes only its indexes.

        :raise OSError: a write failed.
        """
        if len(self.producers) > _SNAPSHOT_PRODUCERS_MAX:
            segment.write_indexes()
            return
        segment.seal()
        self.record_aborted(segment)
        self.leader_epochs.write()
        self._snapshots.write_interim(end_offset, self.producers.entries)

    def record_aborted(self, segment: Segment) -> None:
        """Record the checksum of a segment's index of aborted transactions.

        :raise OSError: the write failed.
        """
        self._aborted_checkpoint.update(segment)
        self._aborted_checkpoint.write(self._segments)

    def replace_indexes(self, segment: Segment, wrong: WrongIndexes) -> None:
        """Replace indexes of a closed segment that differ from its batches.

        :raise OSError: the write failed.
        """
        if wrong.rebuilt is not None:
            segment.replace_indexes(wrong.rebuilt)
        if wrong.aborted is not None:
            segment.aborted.replace(wrong.aborted)
            self.record_aborted(segment)

    def restore(self, log_start_offset: int, log_end_offset: int) -> None:
        """Restore producers, snapshots and leader epochs after a truncation, if that is still pending.

        :raise OSError: a write failed; the call must be repeated before the next append.
        """
        if self.is_outdated:
            is_empty = int(not self._segments.size_bytes)
            self._snapshots.remove_from(log_end_offset + 1 - is_empty)
            restore_producers(
                self.producers, self._snapshots, self._segments, log_start_offset, log_end_offset, rebuilt={}
            )
            self.leader_epochs.write()
            self._aborted_checkpoint.remove_from(self._segments.active.base_offset)
            self._aborted_checkpoint.write(self._segments)
            self.is_outdated = False

    def unsynced_paths(
        self, complete: Sequence[Segment], paths: tuple[str, ...], *, with_epochs: bool
    ) -> tuple[str, ...]:
        """Return the small files to sync with the batches.

        :param complete: segments whose indexes must be durable too; recovery rebuilds those of the active segment.
        :param paths: other files to sync.
        :param with_epochs: include the leader epochs and the topic ID.
        """
        if with_epochs:
            paths = (*paths, self.leader_epochs.path, f"{self._segments.directory}/{PARTITION_METADATA}")
        return (*index_paths(complete), *paths, *(self._aborted_checkpoint.paths if complete else ()))
