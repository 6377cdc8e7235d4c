"""Opens a log's directory, and recovers the log after a kill or power loss.

After a clean shutdown only the end of the last segment is scanned. After a kill on a machine that stayed up, batches
after the last snapshot are read (``resume_points``). Otherwise all segments from the recovery point on are read.
Reading a batch checks its CRC and rebuilds its index entries; a torn batch at the end is removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from twisted.logger import Logger

from kreplica.model import NO_EPOCH, TopicPartition
from kreplica.runtime.disk import Disk
from kreplica.storage.formats.batch_scanning import header_after, scan_batches
from kreplica.storage.formats.leader_epochs import FILE_NAME as LEADER_EPOCHS_FILE
from kreplica.storage.formats.leader_epochs import LeaderEpochs
from kreplica.storage.log_config import LogConfig
from kreplica.storage.producers.producer_state import ProducerStates
from kreplica.storage.producers.snapshots import SnapshotFiles
from kreplica.storage.recovery.aborted_checkpoint import FILE_NAME as ABORTED_CHECKPOINT
from kreplica.storage.recovery.aborted_checkpoint import AbortedCheckpoint
from kreplica.storage.recovery.aborted_recovery import check_aborted_indexes
from kreplica.storage.recovery.epoch_recovery import restore_epochs
from kreplica.storage.recovery.leftovers import clear_leftovers
from kreplica.storage.recovery.opened_log import Opened
from kreplica.storage.recovery.producer_recovery import restore_producers
from kreplica.storage.recovery.resume_points import find_resume_point, write_resume_point
from kreplica.storage.segments.damage import Damage, damage_if_unreadable
from kreplica.storage.segments.open_segments import OpenSegments
from kreplica.storage.segments.segment import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    RELATIVE_OFFSET_MAX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    Segment,
)
from kreplica.storage.segments.segment_list import Segments
from kreplica.wire.batches import BatchHeader, verify_crc

_log = Logger()

_SCANNED_BYTES_MIN = 1024 * 1024
"""Number of bytes read after which a resume point is written, so that the next start does not read them again."""


class Loading:
    """Opens one log; call ``run`` once."""

    def __init__(self, path: str, topic_partition: TopicPartition, config: LogConfig, disk: Disk) -> None:
        self._path = path
        self._name = topic_partition
        self._config = config
        self._disk = disk
        self._open_segments = OpenSegments()
        self._segments: Segments
        self._now_ms: int
        self._must_rewrite: bool
        self._skips_damage: bool
        self._damages: dict[int, Damage] = {}
        self._names: frozenset[str]
        self._snapshots = SnapshotFiles(path, disk)
        self._aborted_checkpoint = AbortedCheckpoint(path, disk)
        self._is_intact = False
        self._rebuilt: dict[Segment, int] = {}
        """First rebuilt offset of each segment whose indexes are rebuilt."""
        self._scanned_ends: dict[Segment, int] = {}
        """End offset of each segment that recovery has read completely."""
        self._without_producers: set[Segment] = set()
        """Segments in which recovery has read no batch with a producer ID."""
        self._epochs: list[tuple[int, int]] = []
        """Leader epoch and offset of the batches read by recovery."""
        self._was_truncated = False
        self._scanned_bytes = 0

    def run(
        self,
        *,
        recovery_point: int,
        log_start_offset: int | None,
        clean_shutdown: bool,
        is_intact: bool,
        sync_failed: bool,
        skip_damage: bool,
        producer_expiration_ms: int,
        now_ms: int,
    ) -> Opened:
        """Open the log.

        :param log_start_offset: start offset from the checkpoint, or None.
        :param is_intact: the process was killed but the machine stayed up, so no written data is lost.
        :param sync_failed: rewrite unsynced data, because a sync would not write it (``durability.failed_syncs``).
        :param skip_damage: no better copy exists; skip damaged batches whose size and offsets are certain.
        :raise StorageError: a batch below the recovery point is damaged.
        """
        self._now_ms = now_ms
        self._skips_damage = skip_damage
        self._must_rewrite = sync_failed
        self._is_intact = is_intact and not (clean_shutdown or sync_failed or skip_damage)
        start_offset = log_start_offset or 0
        self._open_files(start_offset)
        self._check_indexes(self._segments if clean_shutdown else self._segments.closed)
        if not clean_shutdown:
            self._recover_from(recovery_point)
        end_offset = self._find_end(0 if clean_shutdown else recovery_point)
        start_offset = max(start_offset, self._segments.first.base_offset)
        if end_offset < start_offset:
            self._restart_empty(start_offset, end_offset)
            end_offset = start_offset
        epochs = self._load_epochs(start_offset, end_offset)
        producers = self._load_producers(producer_expiration_ms, start_offset, end_offset, now_ms)
        check_aborted_indexes(
            self._disk,
            self._segments,
            self._aborted_checkpoint,
            self._rebuilt,
            end_offset,
            clean_shutdown=clean_shutdown,
            compacted=self._config.compacted,
            name=self._name,
        )
        self._release_files(end_offset, epochs, producers)
        return Opened(
            self._segments,
            start_offset,
            end_offset,
            end_offset if clean_shutdown else min(recovery_point, end_offset),
            epochs,
            producers,
            self._snapshots,
            self._aborted_checkpoint,
            clean_shutdown and not self._rebuilt,
            self._was_truncated,
            self._damages,
        )

    def _open_files(self, start_offset: int) -> None:
        """List the files, and open the segments and the checkpoint of aborted transactions."""
        names = self._list_names()
        self._names = frozenset(names)
        self._snapshots.cache_names(names)
        self._segments = Segments(self._path, self._disk, self._open_segments, self._list_segments(names, start_offset))
        if ABORTED_CHECKPOINT in self._names:
            self._aborted_checkpoint.load()

    def _release_files(self, end_offset: int, epochs: LeaderEpochs, producers: ProducerStates) -> None:
        """Write a resume point if much was read, and close all files."""
        self._snapshots.forget_names()
        if self._scanned_bytes >= _SCANNED_BYTES_MIN:
            write_resume_point(self._segments.active, end_offset, epochs, producers, self._snapshots)
        for segment in self._segments:
            segment.release()  # most logs are not used soon, and open files are limited

    def _list_names(self) -> list[str]:
        """Create the directory if it is missing, complete interrupted operations, and return the names of the files."""
        try:
            return clear_leftovers(self._disk, self._path)
        except FileNotFoundError:
            self._disk.make_directories(self._path)
            return []

    def _list_segments(self, names: Sequence[str], start_offset: int) -> list[Segment]:
        bases = sorted(
            int(stem) for name in names if name.endswith(LOG_SUFFIX) and (stem := name[: -len(LOG_SUFFIX)]).isdecimal()
        )
        if not bases:
            segment = Segment(self._path, start_offset, self._disk, self._open_segments, size=0, new=True)
            segment.created_ms = self._now_ms
            if start_offset:
                segment.create()  # its name marks the log end
            return [segment]
        return [self._open_segment(base) for base in bases]

    def _open_segment(self, base_offset: int) -> Segment:
        segment = Segment(self._path, base_offset, self._disk, self._open_segments, size=0)
        segment.created_ms = self._now_ms
        segment.size = segment.file.size()
        stem = f"{base_offset:020d}"
        if self._names.isdisjoint((stem + INDEX_SUFFIX, stem + TIME_INDEX_SUFFIX, stem + TRANSACTION_INDEX_SUFFIX)):
            segment.note_no_indexes()
        return segment

    def _check_indexes(self, segments: Iterable[Segment]) -> None:
        """Rebuild the missing indexes of these segments."""
        for segment in segments:
            stem = f"{segment.base_offset:020d}"
            if segment.size and not {stem + INDEX_SUFFIX, stem + TIME_INDEX_SUFFIX} <= self._names:
                _log.info("{log}: rebuilding the indexes of segment {base}", log=self._name, base=segment.base_offset)
                segment.reindex(self._config.index_interval_bytes)
                segment.write_indexes()

    # --- recovery ---

    def _recover_from(self, recovery_point: int) -> None:
        """Scan the segments that may have unsynced records."""
        segments = list(self._segments.not_durable(recovery_point))
        self._is_intact = self._is_intact and all(self._is_sealed(each) for each in segments[:-1])
        for segment in segments[-1:] if self._is_intact else segments:
            whole = self._recover(segment, recovery_point) and not self._lacks_last_batches(segment)
            if segment is not self._segments.active:
                segment.seal()
            if not whole:
                self._was_truncated = True
                self._drop_after(segment)
                return

    def _is_sealed(self, segment: Segment) -> bool:
        """True if a closed segment ends with a whole batch directly before the next segment."""
        with damage_if_unreadable(segment.path(), segment.base_offset):
            end, next_offset = 0, segment.base_offset
            for position, header in segment.headers(segment.offset_index.last[1]):
                end, next_offset = position + header.size, header.next_offset
        return end == segment.size and (self._config.compacted or next_offset == self._segments.end_of(segment))

    def _recover(self, segment: Segment, recovery_point: int) -> bool:
        """Check every batch and rebuild the indexes.

        :return: True if nothing had to be removed.
        :raise Damage: durable data is damaged or unreadable.
        """
        with damage_if_unreadable(segment.path(), segment.base_offset):
            return self._recover_readable(segment, recovery_point)

    def _recover_readable(self, segment: Segment, recovery_point: int) -> bool:
        size = segment.size
        next_offset = self._rebuilt[segment] = self._prepare_scan(segment)
        has_producers = False
        if not size:
            return True
        latest_epoch = self._epochs[-1][0] if self._epochs else NO_EPOCH
        start = segment.size
        for position, header, data in scan_batches(segment.file, start, size):
            if self._has_wrong_offset(segment, position, header, next_offset):
                break
            if not verify_crc(data, header) and not self._may_skip(segment, position, header, recovery_point):
                break
            if header.last_offset - segment.base_offset > RELATIVE_OFFSET_MAX:
                break
            if 0 <= header.partition_leader_epoch < latest_epoch:
                break  # a power loss partly undid a truncation; later records belong to another history
            if self._must_rewrite and header.next_offset > recovery_point:
                segment.file.write_at(position, (data,))
            segment.add_batch(header, position, self._config.index_interval_bytes)
            if header.partition_leader_epoch > latest_epoch:
                latest_epoch = header.partition_leader_epoch
                self._epochs.append((latest_epoch, header.base_offset))
            has_producers = has_producers or header.producer_id >= 0
            next_offset = header.next_offset
        self._scanned_bytes += segment.size - start
        self._scanned_ends[segment] = next_offset
        if not has_producers:
            self._without_producers.add(segment)
        if segment.size == size:
            return True
        if next_offset < recovery_point:
            raise Damage(
                segment.path(),
                segment.base_offset,
                segment.size,
                f"the batch of offset {next_offset} or later is damaged, and is below the recovery point "
                f"{recovery_point}; it will be fetched again when another replica is the leader",
            )
        _log.warn(
            "{log}: removed {bytes} bytes of incomplete batches from segment {base}; the log now ends at offset {end}",
            log=self._name,
            bytes=size - segment.size,
            base=segment.base_offset,
            end=next_offset,
        )
        segment.truncate_file(segment.size)
        return False

    def _prepare_scan(self, segment: Segment) -> int:
        """Clear the part of the indexes that the scan rebuilds, and return the offset of the first batch to scan."""
        if self._is_intact and segment.size:
            point = find_resume_point(segment, self._snapshots, self._aborted_checkpoint)
            if point is not None:
                segment.resume(point.position, point.largest)
                return point.offset
        segment.reset()
        if not segment.has_no_indexes:
            segment.aborted.truncate_to(segment.base_offset)
        return segment.base_offset

    def _has_wrong_offset(self, segment: Segment, position: int, header: BatchHeader, next_offset: int) -> bool:
        """True if the batch's offset, which no checksum covers, must be wrong.

        Offsets are consecutive, except after compaction: then the offset of the next batch decides.
        """
        if header.base_offset <= next_offset:
            return header.base_offset < next_offset or header.last_offset_delta < 0
        next_header = header_after(segment.file, position, header)
        return not self._config.compacted or (next_header is not None and next_header.base_offset < header.next_offset)

    def _may_skip(self, segment: Segment, position: int, header: BatchHeader, recovery_point: int) -> bool:
        """Record a damaged batch and return True if it may be skipped, because the next batch confirms its offsets."""
        if not self._skips_damage or header.next_offset > recovery_point:
            return False
        next_header = header_after(segment.file, position, header)
        next_offset = next_header.base_offset if next_header is not None else recovery_point
        if next_offset != header.next_offset:
            return False
        why = f"wrong CRC in the batch of offset {header.base_offset}"
        damage = Damage(segment.path(), segment.base_offset, position, why)
        self._damages.setdefault(segment.base_offset, damage)
        _log.error(
            "{log} is damaged but stays in use, because no better copy exists: {why}",
            log=self._name,
            why=str(damage),
        )
        return True

    def _lacks_last_batches(self, segment: Segment) -> bool:
        """True if batches are missing at the end of a segment although later segments exist, as after a power loss.

        Not detected for compacted topics, because compaction also leaves gaps.
        """
        if self._config.compacted or segment is self._segments.active:
            return False
        next_offset, next_base = segment.find_end_offset(), self._segments.end_of(segment)
        if next_offset >= next_base:
            return False
        _log.warn(
            "{log}: offsets {first} to {last} are missing; the log now ends before them",
            log=self._name,
            first=next_offset,
            last=next_base - 1,
        )
        return True

    def _drop_after(self, segment: Segment) -> None:
        self._snapshots.forget_names()
        later_segments = [other for other in self._segments if other.base_offset > segment.base_offset]
        for other in reversed(later_segments):
            _log.warn("{log}: removed segment {base} after the truncation", log=self._name, base=other.base_offset)
            self._segments.drop(other)

    def _find_end(self, recovery_point: int) -> int:
        """Return the log end offset from the last batch of the active segment."""
        active = self._segments.active
        if not active.size:
            return active.base_offset
        with damage_if_unreadable(active.path(), active.base_offset):
            if active not in self._rebuilt:
                end, last = 0, None
                for position, last in active.headers(active.offset_index.last[1]):
                    end = position + last.size
                if end < active.size and not self._recover(active, recovery_point):
                    self._was_truncated = True
            if active in self._scanned_ends:
                return self._scanned_ends[active]
            active.find_largest()
            return active.find_end_offset()

    def _restart_empty(self, start_offset: int, end_offset: int) -> None:
        _log.warn(
            "{log}: ends at offset {end}, below its start offset {start}; it is now empty and starts at {start}",
            log=self._name,
            end=end_offset,
            start=start_offset,
        )
        self._snapshots.forget_names()
        self._rebuilt.clear()
        self._epochs.clear()
        self._segments.restart_at(start_offset).create()

    # --- derived state ---

    def _load_epochs(self, start_offset: int, end_offset: int) -> LeaderEpochs:
        return restore_epochs(
            self._disk,
            self._segments,
            self._epochs,
            min(self._rebuilt.values(), default=end_offset),
            start_offset,
            end_offset,
            has_file=LEADER_EPOCHS_FILE in self._names,
            rewrite=self._must_rewrite,
            name=self._name,
        )

    def _load_producers(
        self, expiration_ms: int, start_offset: int, end_offset: int, now_ms: int
    ) -> ProducerStates:
        last = min(self._rebuilt.values(), default=end_offset)
        self._snapshots.remove_strays((segment.base_offset for segment in self._segments), end_offset, last)
        producers = ProducerStates(expiration_ms)
        restore_producers(
            producers,
            self._snapshots,
            self._segments,
            start_offset,
            last,
            self._rebuilt,
            self._without_producers,
        )
        producers.expire(now_ms)
        return producers
