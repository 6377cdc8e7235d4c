"""A partition's log: what may be appended and removed.

Everything here is synchronous and quick, and runs on the reactor's thread; what blocks (``open`` of a log that has to
be recovered, ``Unsynced.sync``, compaction, ``close``) is called through ``Offload`` by the log directory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kreplica.errors import ErrorCode, KafkaError, StorageError
from kreplica.model import TopicPartition
from kreplica.runtime.disk import Buffer, Disk, is_passing
from kreplica.storage.log.batched_append import AppendRun, may_join, place
from kreplica.storage.log.owner import LogOwner
from kreplica.storage.log.results import AppendResult
from kreplica.storage.log.retention import expired_segments
from kreplica.storage.log.truncatable_log import TruncatableLog
from kreplica.storage.log_config import DAY_MS, LogConfig
from kreplica.storage.producers.aborted_transactions import AbortedTransaction
from kreplica.storage.producers.producer_state import Origin
from kreplica.storage.recovery.loading import Loading, nothing_yet
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

_ENTRIES_WAITING_MAX = 512
"""Index entries that may wait in memory before they are written."""

_SNAPSHOT_PRODUCERS_MAX = 500
"""Largest number of producers of which an interim snapshot is written: encoding it takes about 2 ms."""

_RECENT_MAX = 16
"""Batches at the end of the log whose positions are kept: a fetch of the tail finds its position at once."""


class Log(TruncatableLog):
    """Opened by ``open``; owned by one log directory; used on one thread."""

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
        keep_damage: bool = False,
        producer_expiration_ms: int = DAY_MS,
    ) -> Log:
        """Open a log's directory, making it where it is missing; blocks while it recovers.

        :param recovery_point: up to where the checkpoint says it was durable.
        :param log_start_offset: as the checkpoint has it.
        :param clean_shutdown: the directory was closed in order: nothing is scanned.
        :param is_intact: the process was killed and its machine stayed up: what it had written is there.
        :param keep_damage: there is no better copy: what is damaged is not served, and the rest is.
        :param sync_failed: what was not synced may be in memory only, and clean to the kernel: it is written anew.
        :raise StorageError: something that was durable is damaged.
        :raise OSError: the device fails.
        """
        open_segments = OpenSegments()
        parts = Loading(path, topic_partition, config, disk, open_segments).run(
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            clean_shutdown=clean_shutdown,
            is_intact=is_intact,
            sync_failed=sync_failed,
            keep_damage=keep_damage,
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
        """A new, empty log in a directory that is there and empty.

        Nothing is read, and no file made until there is a record: a topic may have a thousand partitions, all of them
        wanted now.
        """
        open_segments = OpenSegments()
        parts = nothing_yet(path, disk, open_segments, producer_expiration_ms, wall_clock_ms())
        log = cls(path, topic_partition, config, disk, open_segments, parts)
        log._segments.remove = log._remove
        return log

    def owned_by(self, owner: LogOwner[Any], open_segments: OpenSegments) -> None:
        """Report to this owner, and count open files there, from now on."""
        self.owner = owner
        self._open_segments = open_segments
        for segment in self._segments:
            segment.share(open_segments)

    # --- appending ---

    def append_as_leader(
        self,
        records: Buffer,
        leader_epoch: int,
        *,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
    ) -> AppendResult:
        """Check one batch, give it the next offsets, and write it.

        :param records: exactly one batch; its offset, epoch and (LogAppendTime) timestamp are set in place, or in a
            copy where the memory is read-only.
        :raise KafkaError: it is refused, and nothing has changed; KAFKA_STORAGE_ERROR where it could not be written.
        """
        try:
            self._check_writable()  # before the producers are asked: what they say may be about what was cut off
            checked = check_as_leader(records, self.config, origin, now_ms)
            if checked[1].producer_id >= 0 and (duplicate := self._find_duplicate(checked, origin)) is not None:
                return duplicate
            append_time_ms = now_ms if self.config.log_append_time else -1
            run, (result,) = place((checked,), self.log_end_offset, leader_epoch, append_time_ms)
            self._write(run, now_ms)
        except KafkaError as error:
            self.producers.note_refusal(records, error, now_ms)
            raise
        return result

    def append_all_as_leader(
        self,
        batches: Sequence[Buffer],
        leader_epoch: int,
        *,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
    ) -> list[AppendResult | KafkaError]:
        """As ``append_as_leader`` one after the other, with one system call for those that follow each other.

        :return: of each, in their order, where it is, or why it is not there; a write that fails fails for all that
            were to be written by it, and they leave no trace.
        """
        outcomes: list[AppendResult | KafkaError] = []
        together: list[Checked] = []
        size = 0
        append_time_ms = now_ms if self.config.log_append_time else -1

        def write() -> None:
            """What was put together; others may be, after it."""
            nonlocal size
            run, results = place(together, self.log_end_offset, leader_epoch, append_time_ms)
            try:
                self._write(run, now_ms)
                outcomes.extend(results)
            except KafkaError as error:
                outcomes.extend([error] * len(results))
                for data, _, _ in together:
                    self.producers.note_refusal(data, error, now_ms)
            together.clear()
            size = 0

        segment_bytes = self.config.segment_bytes
        for records in batches:
            try:
                if not together:
                    self._check_writable()
                checked = check_as_leader(records, self.config, origin, now_ms)
                data, header, _ = checked
                if together and (size + len(data) > segment_bytes or not may_join(header, together[-1][1])):
                    write()
                    self._check_writable()
                if header.producer_id >= 0 and not together:
                    duplicate = self._find_duplicate(checked, origin)
                    if duplicate is not None:
                        outcomes.append(duplicate)
                        continue
            except KafkaError as error:
                if together:
                    write()
                self.producers.note_refusal(records, error, now_ms)
                outcomes.append(error)
                continue
            together.append(checked)
            size += len(data)
        if together:
            write()
        return outcomes

    def _find_duplicate(self, checked: Checked, origin: Origin) -> AppendResult | None:
        """Where a batch is already that an idempotent producer sends again.

        :raise KafkaError: it may not follow what its producer wrote before.
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
        """Write batches as the leader has them; a last one that is cut short is left out.

        Where a disk fills up half-way, those before the one that did not fit stay.

        :param leader_epoch: nothing that a later epoch wrote is taken.
        :return: where they are; size 0 where there was no whole batch.
        :raise KafkaError: CORRUPT_MESSAGE (a CRC, or bytes that are no batch), OFFSET_OUT_OF_RANGE (a batch starts
            below the log end offset); nothing has changed.  KAFKA_STORAGE_ERROR where it could not be written.
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
        """Write batches that have their offsets, into one segment, and take in what they say.

        :raise KafkaError: KAFKA_STORAGE_ERROR; the log is as it was.
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
                aborted = self.producers.take_in(header, marker)
                if aborted is not None:
                    self._note_aborted(segment, aborted)
        self.log_end_offset = header.next_offset
        if segment.entries_waiting >= _ENTRIES_WAITING_MAX:
            self._write_resume_point(segment)
        self._flush_if_due()

    def _write_resume_point(self, segment: Segment) -> None:
        """Write what a start after a kill needs to read only the batches that follow (``resuming``)."""
        try:
            if len(self.producers) > _SNAPSHOT_PRODUCERS_MAX:
                segment.write_indexes()
                return
            segment.seal()
            self._note_complete(segment)
            self.leader_epochs.write()
            self._snapshots.write_interim(self.log_end_offset, self.producers.entries)
        except OSError as error:
            # The records are in the log, and there may be room (or a descriptor) for these files later.
            if not is_passing(error):
                self.fail(error)

    def _note_aborted(self, segment: Segment, aborted: AbortedTransaction) -> None:
        try:
            segment.aborted.append(aborted)
        except OSError as error:
            # The segment keeps it in memory, as index entries: it is written before the segment is closed.
            if not is_passing(error):
                self.fail(error)

    def _write_failed(self, segment: Segment, size: int, error: OSError) -> KafkaError:
        """Take back what a write left; it is refused where something ran out, any other failure ends the log's use."""
        try:
            segment.take_back(size)
        except OSError as second:
            error = second
        else:
            if is_passing(error):
                if self.owner is not None:
                    self.owner.refused(self, error)
                return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.path}: {error.strerror}")
        self.fail(error)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(self._failure))

    def begin_leader_epoch(self, epoch: int) -> None:
        """Note that an epoch starts at the log's end."""
        self.leader_epochs.assign(epoch, self.log_end_offset)

    # --- segments ---

    def roll(self, now_ms: int) -> None:
        """Close the active segment and start the next one at the log end; an empty one stays.

        :raise OSError: the new segment cannot be made.
        """
        if self._segments.active.size > 0:
            self._start_segment(now_ms)

    def _start_segment(self, now_ms: int) -> Segment:
        """Close the active segment, and start one at the log end: each begins exactly where the one before it ends.

        Recovery relies on that to see that the end of a segment was lost.
        """
        self._finish_cut()
        base_offset = self.log_end_offset
        closed = self._segments.active
        closed.seal()
        self._snapshots.write(base_offset, self.producers.entries)
        self._note_complete(closed)
        self.leader_epochs.write()  # recovery will not read this segment's batches once it is synced
        segment = Segment(self.path, base_offset, self._disk, self._open_segments, size=0, new=True)
        segment.created_ms = now_ms
        segment.create()
        try:
            if self.config.preallocate:
                segment.file.allocate(self.config.segment_bytes)
        except OSError:
            segment.forget()
            self._disk.remove(segment.path())  # else it would say that the log ends there
            raise
        self._segments.push(segment)
        self._recent.clear()
        if self.owner is not None:
            self.owner.rolled(self)
        return segment

    def delete_expired(self, now_ms: int, high_watermark: int) -> int:
        """Remove segments by time, size and log start offset (never beyond the high watermark).

        :return: the bytes removed.
        """
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
                if not is_passing(error):
                    raise
                expired.pop()  # the others make room for it
        for segment in expired:
            self._segments.drop(segment)
        self.forget_damage_removed()
        self._raise_start(self._segments.first.base_offset)
        return sum(segment.size for segment in expired)

    def replace_segments(self, old: Sequence[Segment], compacted: Segment) -> bool:
        """Put a compacted segment, whose files end in ``.swap``, in the place of those it was made of.

        :return: false where those are no longer in the log as they were, and nothing was changed.
        :raise OSError: the device fails; the next start finishes what was begun.
        """
        closed = self._segments.closed
        if any(segment not in closed for segment in old):
            return False
        for segment in old:
            self._remove(self._segments.retire(segment))
        new = compacted.renamed(self._disk, self._open_segments)
        self._segments.replace(old, new)
        try:
            self._note_complete(new)
        except OSError as error:
            if not is_passing(error):  # without the row, the next start finds the aborted transactions in the batches
                raise
        self.forget_damage_removed({segment.base_offset for segment in old})
        return True

    def advance_log_start_offset(self, offset: int) -> None:
        """Let nothing below ``offset`` be read any more (DeleteRecords, or what the leader says); never goes back.

        :raise KafkaError: OFFSET_OUT_OF_RANGE, it is beyond the log end.
        """
        if offset > self.log_end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{offset} is beyond the log end {self.log_end_offset}")
        self._raise_start(offset)

    def _raise_start(self, offset: int) -> None:
        if offset <= self.log_start_offset:
            return
        self.log_start_offset = offset
        self.leader_epochs.truncate_start(offset)
        if self.owner is not None:
            self.owner.start_offset_advanced(self)

    # --- the end ---

    def rename_for_deletion(self, path: str) -> None:
        """Move its directory to where it is to be deleted; the log is of no use any more.

        :raise OSError: the device fails.
        """
        self.release()
        self._failure = StorageError(f"{self.path} is deleted")
        self.owner = None
        self._disk.rename(self.path, path)
