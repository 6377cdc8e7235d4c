"""Log of one partition: reads, writes, segments and truncation.

All methods run in the reactor thread and return quickly. The log directory runs blocking operations (opening with
recovery, ``Unsynced.sync``, compaction, ``close``) in other threads.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

from kreplica.errors import ErrorCode, KafkaError, StorageError, reason_of
from kreplica.model import ZERO_UUID, TopicPartition
from kreplica.runtime.disk import Disk, FileRange, is_out_of_descriptors, is_temporary
from kreplica.runtime.empty_dict import EMPTY_DICT
from kreplica.storage.durability.unflushed import Unsynced
from kreplica.storage.log.derived_state import DerivedState
from kreplica.storage.log.durability import Durability
from kreplica.storage.log.known_damage import KnownDamage
from kreplica.storage.log.last_stable_offset import last_stable_offset
from kreplica.storage.log.owner import LogOwner
from kreplica.storage.log.results import AppendRun, LogSlice
from kreplica.storage.log_config import LogConfig
from kreplica.storage.producers.producer_limits import ProducerLimits
from kreplica.storage.recovery.opened_log import Opened
from kreplica.storage.segments.damage import Damage
from kreplica.storage.segments.open_segments import OpenSegments
from kreplica.storage.segments.rolling import is_full
from kreplica.storage.segments.segment import Segment
from kreplica.wire.batches import LENGTH_END

_new_tuple = tuple.__new__

_UNWRITTEN_ENTRIES_MAX = 512
"""Maximum number of index entries in memory before they are written."""

_TAIL_POSITIONS_MAX = 16
"""Number of batches at the log end whose positions are cached for fetches of the tail."""


class Log:
    """Append-only log of one partition, owned by one log directory; not thread-safe.

    It accepts no records after a truncation until the state that recovery relies on is updated: ``derived_state`` and
    (``appends_blocked``) the checkpoints on disk.

    :ivar log_start_offset: the first readable offset.
    :ivar log_end_offset: the next offset to assign.
    :ivar segments: only modules of ``storage.log`` may change them.
    :ivar generation: number of truncations.
    :ivar topic_id: zero if the cluster has no topic IDs; set by the owner.
    :ivar failure: the failure that prevents writes, or None.
    :ivar appends_blocked: True while a checkpoint on disk contains too high an offset for this log; set by the owner.
    :ivar was_truncated: True if recovery removed records.
    """

    __slots__ = (
        "appends_blocked", "config", "damage", "derived_state", "disk", "durability", "failure", "generation",
        "leader_epochs", "log_end_offset", "log_start_offset", "owner", "path", "producers", "segments",
        "topic_id", "topic_partition", "was_truncated",
    )  # fmt: skip

    def __init__(
        self,
        path: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        disk: Disk,
        parts: Opened,
    ) -> None:
        self.path = path
        self.topic_partition = topic_partition
        self.topic_id = ZERO_UUID
        self.config = config
        self.disk = disk
        self.owner: LogOwner[Log] | None = None
        self.log_start_offset = parts.log_start_offset
        self.log_end_offset = parts.log_end_offset
        self.segments = parts.segments
        self.derived_state = DerivedState(parts)
        self.durability = Durability(parts, self.derived_state)
        self.leader_epochs = parts.leader_epochs
        self.producers = parts.producers
        self.damage = KnownDamage(topic_partition, parts.segments, parts.damages)
        self.generation = 0
        self.failure: StorageError | None = None
        self.was_truncated = parts.was_truncated
        self.appends_blocked = False

    def set_owner(self, owner: LogOwner[Log], open_segments: OpenSegments, producer_limits: ProducerLimits) -> None:
        """Set the owner, and count open files and producers towards its limits."""
        self.producers.set_limits(producer_limits)
        self.owner = owner
        self.segments.remover = self
        self.segments.count_in(open_segments)

    def remove_later(self, paths: list[str]) -> None:
        """Remove files after ``file.delete.delay.ms``."""
        if self.owner is not None:  # otherwise the next start removes them
            self.owner.remove(self, paths)

    # --- reading ---

    def last_stable_offset(self, high_watermark: int) -> int:
        """Return the last stable offset, the end of ``read_committed`` reads."""
        first_unstable = self.producers.first_unstable_offset(high_watermark)
        if first_unstable is None:
            return high_watermark  # without a call: this is the most frequent case
        return last_stable_offset(first_unstable, high_watermark, self.log_start_offset)

    def read(self, offset: int, *, size_max: int, offset_max: int, at_least_one: bool = True) -> LogSlice:
        """Return the file ranges of batches, starting with the one that contains ``offset``.

        A slice is within one segment; ``size_max`` may cut the last batch.

        :param offset_max: end of the readable offsets: high watermark, last stable offset or log end.
        :param at_least_one: return the first batch whole even if it exceeds ``size_max`` (KIP-74).
        :return: an empty slice if there are no records below ``offset_max``.
        :raise KafkaError: OFFSET_OUT_OF_RANGE outside the log; CORRUPT_MESSAGE for known damage.
        :raise Damage: the file has no valid batch at the expected position.
        """
        end_offset = self.log_end_offset
        if not self.log_start_offset <= offset <= end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"{offset} is not between {self.log_start_offset} and {end_offset}"
            )
        is_empty = offset >= offset_max or offset == end_offset
        found = None if is_empty else self.segments.locate(offset, offset_max, end_offset)
        if found is None:
            return LogSlice(offset, [], 0)
        segment, position, size, first = found
        if first is not None:
            offset = first.base_offset
        if size > size_max:
            first_size = (first or segment.header_at(position)).size
            if first_size > size_max:
                size = min(size, first_size) if at_least_one else 0
            else:
                size = size_max
        if self.damage.by_segment:
            size = self.damage.size_before(segment, position, size)
        if size <= 0:
            return LogSlice(offset, [], 0)
        return _new_tuple(LogSlice, (offset, [FileRange(segment.file, position, size)], size))

    # --- writing ---

    def check_writable(self) -> None:
        """Complete a pending truncation, and check that the log accepts appends.

        :raise KafkaError: KAFKA_STORAGE_ERROR if it does not.
        """
        if self.failure is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(self.failure))
        if self.derived_state.is_outdated:
            try:
                self._restore_derived_state()
            except OSError as error:
                if not is_temporary(error):
                    self.fail(error)
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.path}: {reason_of(error)}") from error
        if self.appends_blocked:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{self.path} was truncated or created again, and its checkpoints are not written yet",
            )

    def write(self, run: AppendRun, now_ms: int) -> None:
        """Write batches with assigned offsets to one segment, and update the derived state; see ``appending``.

        :raise KafkaError: KAFKA_STORAGE_ERROR; the log is unchanged.
        """
        pieces, size, headers, markers = run
        segment = self.segments.active
        size_before = segment.size
        try:
            if is_full(segment, size, headers[-1], self.config, now_ms):
                segment, size_before = self._start_segment(now_ms), 0
            epoch = self.leader_epochs.latest
            for header in headers:
                if header.partition_leader_epoch > epoch:
                    epoch = header.partition_leader_epoch
                    self.leader_epochs.assign(epoch, header.base_offset)
            position = segment.append(pieces, headers, self.config.index_interval_bytes)
        except OSError as error:
            raise self._write_failed(segment, size_before, error) from error
        tail = self.segments.tail_positions
        if not tail:
            tail = self.segments.tail_positions = {}
        for header, marker in zip(headers, markers, strict=True):
            tail[header.base_offset] = position
            position += header.length + LENGTH_END
            if header.producer_id >= 0:
                aborted = self.producers.apply(header, marker)
                if aborted is not None:
                    # The segment keeps the entry in memory and writes it before it is closed.
                    self._write_early(segment.aborted.append, aborted)
        excess = len(tail) - _TAIL_POSITIONS_MAX
        if excess > 0:
            for base_offset in list(islice(tail, excess)):
                del tail[base_offset]
        self.log_end_offset = header.next_offset
        if segment.unwritten_entries >= _UNWRITTEN_ENTRIES_MAX:
            self._write_early(self.derived_state.write_resume_point, segment, self.log_end_offset)
        self._flush_if_due()

    def _write_early(self, write: Callable[..., None], *arguments: Any) -> None:
        """Write files that are written again later; a transient error is ignored, other errors fail the log."""
        try:
            write(*arguments)
        except OSError as error:
            if not is_temporary(error):
                self.fail(error)

    def _write_failed(self, segment: Segment, size: int, error: OSError) -> KafkaError:
        """Truncate after a failed write; transient errors reject the append, other errors fail the log."""
        try:
            segment.undo_append(size)
        except OSError as second:
            error = second
        else:
            if is_temporary(error):
                if self.owner is not None:
                    self.owner.rejected(self, error)
                return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.path}: {error.strerror}")
        self.fail(error)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(self.failure))

    def begin_leader_epoch(self, epoch: int) -> None:
        """Record that an epoch starts at the log end."""
        self.leader_epochs.assign(epoch, self.log_end_offset)

    def advance_log_start_offset(self, offset: int) -> None:
        """Advance the log start offset for DeleteRecords or a follower; never decrease it.

        :raise KafkaError: OFFSET_OUT_OF_RANGE above the log end.
        """
        if offset > self.log_end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{offset} is above the log end {self.log_end_offset}")
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.leader_epochs.truncate_start(offset)
            if self.owner is not None:
                self.owner.start_offset_advanced(self)

    # --- segments ---

    def roll(self, now_ms: int) -> None:
        """Close the active segment and start a new one, unless the active one is empty.

        :raise OSError: the new segment cannot be created.
        """
        if self.segments.active.size > 0:
            self._start_segment(now_ms)

    def _start_segment(self, now_ms: int) -> Segment:
        """Close the active segment and start a new one at the log end.

        Recovery detects lost records at the end of a segment by a gap to the next one.
        """
        self._restore_derived_state()
        self.derived_state.close_segment(self.segments.active, self.log_end_offset)
        allocated_bytes = self.config.segment_bytes if self.config.preallocate else 0
        segment = self.segments.start(self.log_end_offset, now_ms, allocated_bytes)
        if self.owner is not None:
            self.owner.rolled(self)
        return segment

    # --- truncation ---

    def truncate_to(self, offset: int) -> int:
        """Remove the batch that contains ``offset`` and all later ones; does nothing at or above the log end.

        :return: the new log end offset: ``offset``, or the base offset of that batch.
        :raise OSError: the device failed; the log end is ``offset`` or above, and the call may be repeated.
        """
        if offset >= self.log_end_offset:
            return self.log_end_offset
        if offset <= self.segments.first.base_offset:
            self.truncate_fully_and_start_at(offset)
            return offset
        dropped_from = self.segments.drop_from(offset)
        try:
            end_offset = self.segments.truncate_active_to(offset)
        except OSError:
            if dropped_from is not None:
                self._set_end(dropped_from)
            raise
        self._set_end(end_offset)
        return end_offset

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove all records; the next one gets ``offset``.

        :raise OSError: the device failed.
        """
        segment = self.segments.restart_at(offset)
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
        self.segments.tail_positions = EMPTY_DICT
        self.generation += 1
        self.damage.clear_removed()
        self.log_end_offset = offset
        self.log_start_offset = min(self.log_start_offset, offset)
        self.leader_epochs.truncate_to(offset)
        self.durability.recovery_point = min(self.durability.recovery_point, offset)
        self.derived_state.is_outdated = True
        try:
            self._restore_derived_state()
        except OSError as error:
            if not is_temporary(error):
                raise
        finally:
            if self.owner is not None:
                self.owner.truncated(self)
        # The result of a pending sync will be ignored, and records below the new end may be unsynced.
        self._flush_if_due()

    def _restore_derived_state(self) -> None:
        self.derived_state.restore(self.log_start_offset, self.log_end_offset)

    # --- durability ---

    def _flush_if_due(self) -> None:
        unsynced = self.log_end_offset - self.durability.recovery_point
        if unsynced >= self.config.flush_messages and self.owner is not None:
            self.owner.flush_due(self)

    def unsynced(self) -> Unsynced:
        """Return the files to sync so that all records up to the log end are durable."""
        return self.durability.unsynced(self.log_end_offset, self.generation)

    def mark_synced(self, synced: Unsynced) -> None:
        """Advance the recovery point after a sync, unless the log has been truncated since."""
        if synced.generation == self.generation:
            self.durability.mark_synced(synced)

    def close(self) -> None:
        """Write indexes and producer snapshot, sync, and close all files; blocks.

        :raise OSError: the device failed; the directory must not get a clean-shutdown marker.
        """
        self._restore_derived_state()
        unsynced = self.durability.write_complete_state(self.log_end_offset, self.generation)
        if unsynced is not None:
            try:
                unsynced.sync()
            except OSError as error:
                if not is_out_of_descriptors(error):
                    self.fail(error)
                raise
            self.mark_synced(unsynced)
        self.segments.release()

    # --- failures ---

    def fail(self, error: OSError) -> None:
        """Mark the log as failed and notify the owner; later appends are rejected."""
        if self.failure is None:
            self.failure = StorageError(f"{self.path}: {error}; the replica is offline until the disk works again")
            if self.owner is not None:
                self.owner.failed(self, error)

    def report_damage(self, damage: Damage) -> None:
        """Report damage to the owner, each time it is found."""
        if self.failure is None and self.owner is not None:
            self.owner.damaged(self, damage)

    def take_offline(self, error: StorageError) -> None:
        """Stop using the log until ``bring_online``."""
        self.failure = error
        self.owner = None
        self.segments.release()

    def bring_online(self) -> None:
        """Use the log again, excluding known damage; the caller sets its owner."""
        if isinstance(self.failure, Damage):
            self.damage.exclude(self.failure)
        self.failure = None
