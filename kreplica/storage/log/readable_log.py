"""State of a log, and its read operations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kreplica.errors import ErrorCode, KafkaError, StorageError
from kreplica.model import TopicPartition
from kreplica.runtime.disk import Disk, FileRange
from kreplica.storage.inspection.index_scrubbing import IndexesToCheck
from kreplica.storage.log.owner import LogOwner
from kreplica.storage.log.results import LogSlice
from kreplica.storage.log.timestamp_search import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    MAX_TIMESTAMP,
    FoundOffset,
    find_by_timestamp,
    find_max_timestamp,
)
from kreplica.storage.log_config import LogConfig
from kreplica.storage.producers.aborted_transactions import AbortedTransaction
from kreplica.storage.recovery.aborted_recovery import SegmentFile
from kreplica.storage.recovery.opened_log import Opened
from kreplica.storage.segments.damage import WHOLE_SEGMENT, BatchesToCheck, Damage, is_unreadable
from kreplica.storage.segments.open_segments import OpenSegments
from kreplica.storage.segments.segment import Segment
from kreplica.storage.segments.segment_list import Segments


class ReadableLog:
    """The part of a ``Log`` that reads.

    ``log_start_offset`` is the first readable offset, ``log_end_offset`` the next one to assign, ``recovery_point`` the
    end of the durable records.
    """

    def __init__(
        self,
        path: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        disk: Disk,
        open_segments: OpenSegments,
        parts: Opened,
    ) -> None:
        self.path = path
        self.topic_partition = topic_partition
        self.config = config
        self.owner: LogOwner[Any] | None = None
        self.log_start_offset = parts.log_start_offset
        self.log_end_offset = parts.log_end_offset
        self.recovery_point = parts.recovery_point
        self.leader_epochs = parts.leader_epochs
        self.producers = parts.producers
        self.was_truncated = parts.was_truncated
        """True if recovery removed records."""
        self._segments = parts.segments
        self._snapshots = parts.snapshots
        self._aborted_checkpoint = parts.aborted_checkpoint
        self._disk = disk
        self._open_segments = open_segments
        self._recent: dict[int, int] = {}
        self._generation = 0
        self._complete_state = (parts.log_end_offset, 0) if parts.closed_in_order else None
        """Log end offset and generation at which all files are complete on disk; None if unknown."""
        self._failure: StorageError | None = None
        self._damages = dict(parts.damages)
        """Known damage that is excluded from reads because no better copy exists, by base offset of the segment."""

    @property
    def size_bytes(self) -> int:
        """Total size of all batches, including those below the log start offset."""
        return self._segments.size_bytes

    @property
    def segments(self) -> Segments:
        """The segments; only the log may change them."""
        return self._segments

    @property
    def failure(self) -> StorageError | None:
        """The failure that prevents writes, or None."""
        return self._failure

    @property
    def generation(self) -> int:
        """Number of truncations."""
        return self._generation

    @property
    def damages(self) -> Iterable[Damage]:
        """Known damage, which is not served."""
        return self._damages.values()

    def last_stable_offset(self, high_watermark: int) -> int:
        """Return the last stable offset: the high watermark or the start of the first open transaction.

        It is the log start offset if the start of that transaction was deleted already.
        """
        first_unstable = self.producers.first_unstable_offset(high_watermark)
        if first_unstable is None:
            return high_watermark
        return max(min(first_unstable, high_watermark), self.log_start_offset)

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
                ErrorCode.OFFSET_OUT_OF_RANGE, f"{offset} is not within {self.log_start_offset} to {end_offset}"
            )
        if offset >= offset_max or offset == end_offset:
            return LogSlice(offset, [], 0)
        segment = self._segments.active
        position = self._recent.get(offset)
        header = None
        if position is None:
            found = self._segments.find(offset)
            if found is None:
                return LogSlice(offset, [], 0)
            segment, position, header = found
            offset = header.base_offset
        size = self._position_of_end(segment, offset_max) - position
        if size > size_max:
            first_size = (header or segment.header_at(position)).size
            if first_size > size_max:
                size = min(size, first_size) if at_least_one else 0
            else:
                size = size_max
        if self._damages:
            size = self._size_before_damage(segment, position, size)
        if size <= 0:
            return LogSlice(offset, [], 0)
        return LogSlice(offset, [FileRange(segment.file, position, size)], size)

    def _size_before_damage(self, segment: Segment, position: int, size: int) -> int:
        """Return the size of the part of a range that precedes known damage.

        :raise KafkaError: CORRUPT_MESSAGE if the range starts with damage.
        """
        damage = self._damages.get(segment.base_offset)
        if damage is None:
            return size
        if damage.position in (WHOLE_SEGMENT, position):
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(damage))
        return damage.position - position if position < damage.position < position + size else size

    # --- damage ---

    def check_batch(self, offset: int) -> None:
        """Check the batch that contains ``offset``, and that a valid batch follows it.

        :raise Damage: the check failed.
        """
        try:
            found = self._segments.find(offset)
            if found is not None:
                segment, position, header = found
                self.batches_to_check(segment, position).check(header.size + 1)
        except OSError as error:
            raise self.unreadable(offset, error) from error

    def batches_to_check(self, segment: Segment, position: int = 0, next_offset: int | None = None) -> BatchesToCheck:
        """Describe the batches of a segment from a position on, for a check in another thread."""
        is_active = segment is self._segments.active
        return BatchesToCheck(
            self._disk,
            segment.path(),
            segment.base_offset,
            position,
            segment.base_offset if next_offset is None else next_offset,
            segment.size,
            self.log_end_offset if is_active else self._segments.end_of(segment),
            self.leader_epochs.entries,
        )

    def indexes_to_check(self, segment: Segment) -> IndexesToCheck:
        """Describe the indexes of a closed segment, for a comparison with its batches in another thread."""
        files = [SegmentFile.of(each) for each in self._segments if each.base_offset <= segment.base_offset]
        return IndexesToCheck(self._disk, files, self.config.index_interval_bytes, self.config.compacted)

    def unreadable(self, offset: int, error: OSError) -> StorageError:
        """Return the error to raise for a failed read at this offset."""
        if not is_unreadable(error):
            return StorageError(f"{self.path}: {error}")
        segment = self._segments[self._segments.index_of(offset)]
        return Damage(segment.path(), segment.base_offset, WHOLE_SEGMENT, str(error))

    def _position_of_end(self, segment: Segment, offset_max: int) -> int:
        """Return the end position of the segment's batches that are entirely below ``offset_max``."""
        if offset_max >= self.log_end_offset:
            return segment.size
        if segment is self._segments.active:
            position = self._recent.get(offset_max)
            if position is not None:
                return position
        elif offset_max >= self._segments.end_of(segment):
            return segment.size
        found = segment.find(offset_max)
        return found[0] if found is not None else segment.size

    def offset_for_timestamp(self, timestamp_ms: int, offset_max: int) -> FoundOffset | None:
        """Return the first record with a timestamp of at least ``timestamp_ms``.

        :param timestamp_ms: milliseconds since 1970, or ``LATEST`` (-1), ``EARLIEST`` (-2), ``MAX_TIMESTAMP`` (-3,
            KIP-734) or ``EARLIEST_LOCAL`` (-4).
        :param offset_max: end of the offsets considered.
        :return: None if no such record is below ``offset_max``.
        :raise ProtocolError: a batch is malformed.
        """
        if timestamp_ms == LATEST:
            return FoundOffset(-1, offset_max, self.leader_epochs.epoch_of(offset_max))
        if timestamp_ms in (EARLIEST, EARLIEST_LOCAL):
            return FoundOffset(-1, self.log_start_offset, self.leader_epochs.epoch_of(self.log_start_offset))
        if timestamp_ms == MAX_TIMESTAMP:
            found = find_max_timestamp(self._segments, self.log_start_offset)
        else:
            found = find_by_timestamp(self._segments, timestamp_ms, self.log_start_offset)
        return found if found is not None and found.offset < offset_max else None

    def end_offset_bound(self, log_slice: LogSlice) -> int:
        """Return an upper bound for the offsets of the records in a slice just returned by ``read``."""
        segment = self._segments[self._segments.index_of(log_slice.first_offset)]
        last = log_slice.ranges[-1]
        offset = segment.offset_index.offset_beyond(last.position + last.size)
        if offset is not None:
            return offset
        return self.log_end_offset if segment is self._segments.active else self._segments.end_of(segment)

    def aborted_transactions(self, from_offset: int, to_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions with records in [from, to), for read_committed consumers (KIP-98)."""
        found = []
        for segment in self._segments.starting_from(from_offset):
            for aborted in segment.aborted.ended_from(from_offset):
                if aborted.first_offset < to_offset:
                    found.append(aborted)
                if aborted.last_stable_offset >= to_offset:
                    return found
        return found
