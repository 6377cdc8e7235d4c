"""Log of one partition: appends, segments and retention.

All methods run in the reactor thread and return quickly. The log directory runs blocking operations (``open`` with
recovery, ``Unsynced.sync``, compaction, ``close``) in other threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kreplica.errors import ErrorCode, KafkaError, StorageError
from kreplica.model import TopicPartition
from kreplica.runtime.disk import Buffer, Disk, is_temporary
from kreplica.storage.log.batched_append import AppendRun, assign_offsets, continues_previous
from kreplica.storage.log.owner import LogOwner
from kreplica.storage.log.results import AppendResult, Outcome, only_result
from kreplica.storage.log.retention import expired_segments
from kreplica.storage.log.truncatable_log import TruncatableLog
from kreplica.storage.log_config import DAY_MS, LogConfig
from kreplica.storage.producers.aborted_transactions import AbortedTransaction
from kreplica.storage.producers.producer_limits import ProducerLimits
from kreplica.storage.producers.producer_state import Origin
from kreplica.storage.recovery.loading import Loading
from kreplica.storage.recovery.opened_log import empty_log
from kreplica.storage.segments.append_validation import (
    Checked,
    check_as_follower,
    check_as_leader,
    read_markers,
    split_runs,
)
from kreplica.storage.segments.open_segments import OpenSegments
from kreplica.storage.segments.segment import Segment
from kreplica.wire.batches import LENGTH_END

_UNWRITTEN_ENTRIES_MAX = 512
"""Maximum number of index entries in memory before they are written."""

_SNAPSHOT_PRODUCERS_MAX = 500
"""Maximum number of producers in an interim snapshot; encoding it takes about 2 ms."""

_RECENT_MAX = 16
"""Number of batches at the log end whose positions are cached for fetches of the tail."""


class Log(TruncatableLog):
    """Append-only log of one partition, owned by one log directory; not thread-safe."""

    @classmethod
    def open(
        cls,
        path: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        disk: Disk,
        wall_clock_ms: Callable[[], int],
        *,
        recovery_point: int = 0,
        log_start_offset: int | None = None,
        clean_shutdown: bool = False,
        is_intact: bool = False,
        sync_failed: bool = False,
        skip_damage: bool = False,
        producer_expiration_ms: int = DAY_MS,
    ) -> Log:
        """Open a log's directory, creating it if necessary; blocks during recovery.

        :param recovery_point: end of the durable records according to the checkpoint.
        :param log_start_offset: start offset according to the checkpoint.
        :param clean_shutdown: the log was closed cleanly; only the end of the last segment is scanned.
        :param is_intact: the process was killed but the machine stayed up, so no written data is lost.
        :param skip_damage: no better copy exists; serve all records except the damaged ones.
        :param sync_failed: rewrite unsynced data, which may be only in memory although the kernel considers it written.
        :raise StorageError: durable data is damaged.
        :raise OSError: the device failed.
        """
        open_segments = OpenSegments()
        parts = Loading(path, topic_partition, config, disk, open_segments).run(
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            clean_shutdown=clean_shutdown,
            is_intact=is_intact,
            sync_failed=sync_failed,
            skip_damage=skip_damage,
            producer_expiration_ms=producer_expiration_ms,
            now_ms=wall_clock_ms(),
        )
        log = cls(path, topic_partition, config, disk, open_segments, parts)
        log._segments.remove = log._remove
        return log

    @classmethod
    def create(
        cls,
        path: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        disk: Disk,
        wall_clock_ms: Callable[[], int],
        *,
        producer_expiration_ms: int = DAY_MS,
    ) -> Log:
        """Return a new, empty log in an existing, empty directory.

        No file is created before the first append, so that a topic with 1,000 partitions can be created quickly.
        """
        open_segments = OpenSegments()
        parts = empty_log(path, disk, open_segments, producer_expiration_ms, wall_clock_ms())
        log = cls(path, topic_partition, config, disk, open_segments, parts)
        log._segments.remove = log._remove
        return log

    def set_owner(self, owner: LogOwner[Any], open_segments: OpenSegments, producer_limits: ProducerLimits) -> None:
        """Set the owner, and count open files and producers towards its limits."""
        self.producers.set_limits(producer_limits)
        self.owner = owner
        self._open_segments = open_segments
        for segment in self._segments:
            segment.count_in(open_segments)

    # --- appending ---

    def append_as_leader(
        self, records: Buffer, leader_epoch: int, *, now_ms: int, origin: Origin = Origin.CLIENT
    ) -> AppendResult:
        """Append one batch as ``append_all_as_leader`` does.

        :raise KafkaError: the batch is rejected and the log is unchanged; KAFKA_STORAGE_ERROR if the write failed.
        """
        return only_result(self.append_all_as_leader((records,), leader_epoch, now_ms=now_ms, origin=origin))

    def append_all_as_leader(
        self,
        batches: Sequence[Buffer],
        leader_epoch: int,
        *,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
    ) -> list[Outcome]:
        """Validate batches, assign the next offsets, and write consecutive batches with one system call.

        :param batches: one batch in each buffer; offset, epoch and (LogAppendTime) timestamp are set in place, or in a
            copy if the memory is read-only.
        :return: result or error of each batch, in order. If a write fails, none of its batches is appended.
        """
        outcomes: list[Outcome] = []
        pending: list[Checked] = []
        size = 0
        for records in batches:
            try:
                if not pending:
                    self._check_writable()  # before the producer state is read, which may be stale after a truncation
                checked = check_as_leader(records, self.config, origin, now_ms)
                header = checked[1]
                batch_size = header[1] + LENGTH_END
                if pending and (
                    size + batch_size > self.config.segment_bytes or not continues_previous(header, pending[-1][1])
                ):
                    outcomes += self._write_batches(pending, leader_epoch, now_ms)
                    pending = []
                    self._check_writable()
                if header.producer_id >= 0 and not pending:
                    duplicate = self._find_duplicate(checked, origin)
                    if duplicate is not None:
                        outcomes.append(duplicate)
                        continue
            except KafkaError as error:
                if pending:
                    outcomes += self._write_batches(pending, leader_epoch, now_ms)
                    pending = []
                self.producers.note_refusal(records, error, now_ms)
                outcomes.append(error)
                continue
            if pending:
                pending.append(checked)
                size += batch_size
            else:
                pending, size = [checked], batch_size
        if pending:
            outcomes += self._write_batches(pending, leader_epoch, now_ms)
        return outcomes

    def _write_batches(self, batches: Sequence[Checked], leader_epoch: int, now_ms: int) -> Sequence[Outcome]:
        """Assign offsets to valid batches and write them with one system call."""
        append_time_ms = now_ms if self.config.log_append_time else -1
        run, results = assign_offsets(batches, self.log_end_offset, leader_epoch, append_time_ms)
        try:
            self._write(run, now_ms)
        except KafkaError as error:
            for data, _, _ in batches:
                self.producers.note_refusal(data, error, now_ms)
            return [error] * len(batches)
        return results

    def _find_duplicate(self, checked: Checked, origin: Origin) -> AppendResult | None:
        """Return the result of the original append if an idempotent producer sent the batch again.

        :raise KafkaError: the batch does not continue its producer's sequence.
        """
        _, header, marker = checked
        duplicate = self.producers.check(header, marker, origin)
        if duplicate is None:
            return None
        append_time_ms = duplicate.timestamp_ms if self.config.log_append_time else -1
        return AppendResult(duplicate.first_offset, duplicate.last_offset, append_time_ms, True, 0)

    def append_as_follower(
        self, records: bytes | bytearray | memoryview, *, now_ms: int, leader_epoch: int | None = None
    ) -> AppendResult:
        """Append batches from the leader unchanged; an incomplete last batch is ignored.

        If the disk becomes full, the batches that were already written stay in the log.

        :param leader_epoch: batches of later epochs are ignored.
        :return: the offsets; size 0 if there was no whole batch.
        :raise KafkaError: CORRUPT_MESSAGE (wrong CRC or invalid batch) or OFFSET_OUT_OF_RANGE (a batch starts below the
            log end offset), with the log unchanged; KAFKA_STORAGE_ERROR if the write failed.
        """
        data = memoryview(records)
        compacted = self.config.compacted
        headers = check_as_follower(data, self.log_end_offset, leader_epoch, gaps_expected=compacted)
        base_offset = headers[0].base_offset if headers else self.log_end_offset
        markers = read_markers(data, headers)
        position = 0
        for first, last, size in split_runs(headers, self.config.segment_bytes):
            self._check_writable()
            piece = data[position : position + size]
            self._write(AppendRun((piece,), size, headers[first:last], markers[first:last]), now_ms)
            position += size
        return AppendResult(base_offset, self.log_end_offset - 1, -1, False, position)

    def _write(self, run: AppendRun, now_ms: int) -> None:
        """Write batches with assigned offsets to one segment, and update the derived state.

        :raise KafkaError: KAFKA_STORAGE_ERROR; the log is unchanged.
        """
        pieces, size, headers, markers = run
        segment = self._segments.active
        size_before = segment.size
        try:
            if segment.is_full(size, headers[-1], self.config, now_ms):
                segment = self._start_segment(now_ms)
                size_before = 0
            epoch = self.leader_epochs.latest
            for header in headers:
                if header.partition_leader_epoch > epoch:
                    epoch = header.partition_leader_epoch
                    self.leader_epochs.assign(epoch, header.base_offset)
            position = segment.append(pieces, headers, self.config.index_interval_bytes)
        except OSError as error:
            raise self._write_failed(segment, size_before, error) from error
        recent = self._recent
        for header, marker in zip(headers, markers, strict=True):
            if len(recent) >= _RECENT_MAX:
                del recent[next(iter(recent))]
            recent[header.base_offset] = position
            position += header[1] + LENGTH_END
            if header.producer_id >= 0:
                aborted = self.producers.apply(header, marker)
                if aborted is not None:
                    self._note_aborted(segment, aborted)
        self.log_end_offset = header.next_offset
        if segment.unwritten_entries >= _UNWRITTEN_ENTRIES_MAX:
            self._write_resume_point(segment)
        self._flush_if_due()

    def _write_resume_point(self, segment: Segment) -> None:
        """Write a resume point: after a kill, recovery skips the batches before it (``recovery.resume_points``)."""
        try:
            if len(self.producers) > _SNAPSHOT_PRODUCERS_MAX:
                segment.write_indexes()
                return
            segment.seal()
            self._record_aborted(segment)
            self.leader_epochs.write()
            self._snapshots.write_interim(self.log_end_offset, self.producers.entries)
        except OSError as error:
            # The append succeeded; these files are written later.
            if not is_temporary(error):
                self.fail(error)

    def _note_aborted(self, segment: Segment, aborted: AbortedTransaction) -> None:
        try:
            segment.aborted.append(aborted)
        except OSError as error:
            # The segment keeps the entry in memory and writes it before it is closed.
            if not is_temporary(error):
                self.fail(error)

    def _write_failed(self, segment: Segment, size: int, error: OSError) -> KafkaError:
        """Truncate after a failed write; transient errors reject the append, others fail the log."""
        try:
            segment.undo_append(size)
        except OSError as second:
            error = second
        else:
            if is_temporary(error):
                if self.owner is not None:
                    self.owner.refused(self, error)
                return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.path}: {error.strerror}")
        self.fail(error)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(self._failure))

    def begin_leader_epoch(self, epoch: int) -> None:
        """Record that an epoch starts at the log end."""
        self.leader_epochs.assign(epoch, self.log_end_offset)

    # --- segments ---

    def roll(self, now_ms: int) -> None:
        """Close the active segment and start a new one, unless the active one is empty.

        :raise OSError: the new segment cannot be created.
        """
        if self._segments.active.size > 0:
            self._start_segment(now_ms)

    def _start_segment(self, now_ms: int) -> Segment:
        """Close the active segment and start a new one at the log end.

        Recovery detects lost records at the end of a segment by a gap to the next one.
        """
        self._finish_truncation()
        base_offset = self.log_end_offset
        closed = self._segments.active
        closed.seal()
        self._snapshots.write(base_offset, self.producers.entries)
        self._record_aborted(closed)
        self.leader_epochs.write()  # must be on disk, because recovery does not read a synced segment
        segment = Segment(self.path, base_offset, self._disk, self._open_segments, size=0, new=True)
        segment.created_ms = now_ms
        segment.create()
        try:
            if self.config.preallocate:
                segment.file.allocate(self.config.segment_bytes)
        except OSError:
            segment.forget()
            self._disk.remove(segment.path())  # otherwise recovery would take its name for the log end
            raise
        self._segments.push(segment)
        self._recent.clear()
        if self.owner is not None:
            self.owner.rolled(self)
        return segment

    def delete_expired(self, now_ms: int, high_watermark: int) -> int:
        """Remove segments according to age, total size and log start offset, never above the high watermark.

        :return: number of bytes removed.
        """
        # Called for its side effect: it forgets completed transactions below the high watermark.
        self.producers.first_unstable_offset(high_watermark)
        self.producers.expire(now_ms)
        expired = expired_segments(
            self._segments, self.config, now_ms, high_watermark, self.log_start_offset, self.log_end_offset
        )
        if not expired:
            return 0
        if expired[-1] is self._segments.active:
            try:
                self.roll(now_ms)
            except OSError as error:
                if not is_temporary(error):
                    raise
                expired.pop()  # removing the others frees space
        for segment in expired:
            self._segments.drop(segment)
        self.clear_removed_damage()
        self._raise_start(self._segments.first.base_offset)
        return sum(segment.size for segment in expired)

    def replace_segments(self, old: Sequence[Segment], compacted: Segment) -> bool:
        """Replace segments with a compacted one, whose files end in ``.swap``.

        :return: False if the log no longer has all of these segments; nothing is changed then.
        :raise OSError: the device failed; the next start completes the replacement.
        """
        closed = self._segments.closed
        if any(segment not in closed for segment in old):
            return False
        for segment in old:
            self._remove(self._segments.retire(segment))
        new = compacted.renamed(self._disk, self._open_segments)
        self._segments.replace(old, new)
        try:
            self._record_aborted(new)
        except OSError as error:
            if not is_temporary(error):  # the next start reads the aborted transactions from the batches
                raise
        self.clear_removed_damage({segment.base_offset for segment in old})
        return True

    def advance_log_start_offset(self, offset: int) -> None:
        """Advance the log start offset for DeleteRecords or a follower; never decreases.

        :raise KafkaError: OFFSET_OUT_OF_RANGE above the log end.
        """
        if offset > self.log_end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{offset} is above the log end {self.log_end_offset}")
        self._raise_start(offset)

    def _raise_start(self, offset: int) -> None:
        if offset <= self.log_start_offset:
            return
        self.log_start_offset = offset
        self.leader_epochs.truncate_start(offset)
        if self.owner is not None:
            self.owner.start_offset_advanced(self)

    # --- deletion ---

    def rename_for_deletion(self, path: str) -> None:
        """Rename the directory before its deletion, and stop using the log.

        :raise OSError: the device failed.
        """
        self.release()
        self._failure = StorageError(f"{self.path} is deleted")
        self.owner = None
        self._disk.rename(self.path, path)
