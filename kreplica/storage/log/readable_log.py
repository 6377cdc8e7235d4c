"""The state of a log, and everything that only reads it."""

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
from kreplica.storage.recovery.loading import Opened
from kreplica.storage.segments.damage import WHOLE_SEGMENT, Damage, Stretch, is_unreadable
from kreplica.storage.segments.open_segments import OpenSegments
from kreplica.storage.segments.segment import Segment
from kreplica.storage.segments.segment_list import Segments


class ReadableLog:
    """The half of a ``Log`` that changes nothing.

    Offsets: ``log_start_offset`` is the first that can be read, ``log_end_offset`` the next that will be given,
    ``recovery_point`` the end of what is known to be durable.
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
        self.was_cut = parts.was_cut
        """Whether the opening found something lost."""
        self._segments = parts.segments
        self._snapshots = parts.snapshots
        self._aborted_checkpoint = parts.aborted_checkpoint
        self._disk = disk
        self._open_segments = open_segments
        self._recent: dict[int, int] = {}
        self._generation = 0
        self._closed_as = (parts.log_end_offset, 0) if parts.closed_in_order else None
        """Log end offset and generation with which everything of it is on disk, ready for the next start."""
        self._failure: StorageError | None = None
        self._damages = dict(parts.damages)
        """By base offset of the segment: what is known to be damaged, and is kept for want of a better copy."""

    @property
    def size_bytes(self) -> int:
        """The bytes of all batches, those before the log start offset included while their segment is there."""
        return self._segments.size_bytes

    @property
    def segments(self) -> Segments:
        """Its segments; changed by the log alone."""
        return self._segments

    @property
    def failure(self) -> StorageError | None:
        """Why it can no longer be written, or None."""
        return self._failure

    @property
    def generation(self) -> int:
        """Grows with each truncation."""
        return self._generation

    @property
    def damages(self) -> Iterable[Damage]:
        """What is known to be damaged in it, and is not served."""
        return self._damages.values()

    def last_stable_offset(self, high_watermark: int) -> int:
        """Up to where readers of committed records may read: the high watermark or the first undecided transaction.

        Where the beginning of that transaction is deleted already it is the log's start: nothing may be read.
        """
        first_unstable = self.producers.first_unstable_offset(high_watermark)
        if first_unstable is None:
            return high_watermark
        return max(min(first_unstable, high_watermark), self.log_start_offset)

    def read(self, offset: int, *, size_max: int, offset_max: int, at_least_one: bool = True) -> LogSlice:
        """Where the batches lie that start with the one that holds ``offset``.

        One slice stays within one segment; the last batch may be cut short by ``size_max``.

        :param offset_max: nothing from this offset on: the high watermark, last stable offset or log end.
        :param at_least_one: give the first batch whole also where it is larger than ``size_max`` (KIP-74).
        :return: an empty slice where there is nothing below ``offset_max`` yet.
        :raise KafkaError: OFFSET_OUT_OF_RANGE, outside the log; CORRUPT_MESSAGE, known to be damaged.
        :raise Damage: no batch stands where one has to be.
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
            size = self._leave_out_damage(segment, position, size)
        if size <= 0:
            return LogSlice(offset, [], 0)
        return LogSlice(offset, [FileRange(segment.file, position, size)], size)

    def _leave_out_damage(self, segment: Segment, position: int, size: int) -> int:
        """How much of a range comes before what is known to be damaged.

        :raise KafkaError: CORRUPT_MESSAGE, nothing does.
        """
        damage = self._damages.get(segment.base_offset)
        if damage is None:
            return size
        if damage.position in (WHOLE_SEGMENT, position):
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(damage))
        return damage.position - position if position < damage.position < position + size else size

    # --- damage ---

    def check_batch(self, offset: int) -> None:
        """See that the batch that holds ``offset`` is the one that was written, and that the next one follows it.

        :raise Damage: it is not.
        """
        try:
            found = self._segments.find(offset)
            if found is not None:
                segment, position, header = found
                self.stretch(segment, position).check(header.size + 1)
        except OSError as error:
            raise self.unreadable(offset, error) from error

    def stretch(self, segment: Segment, position: int = 0, next_offset: int | None = None) -> Stretch:
        """The batches of a segment from a position on as they are now, to be checked."""
        is_active = segment is self._segments.active
        return Stretch(
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
        """The indexes of a closed segment as they are now, to be compared with its batches."""
        files = [SegmentFile.of(each) for each in self._segments if each.base_offset <= segment.base_offset]
        return IndexesToCheck(self._disk, files, self.config.index_interval_bytes, self.config.compacted)

    def unreadable(self, offset: int, error: OSError) -> StorageError:
        """What it means that a read from an offset on fails with this error."""
        if not is_unreadable(error):
            return StorageError(f"{self.path}: {error}")
        segment = self._segments[self._segments.index_of(offset)]
        return Damage(segment.path(), segment.base_offset, WHOLE_SEGMENT, str(error))

    def _position_of_end(self, segment: Segment, offset_max: int) -> int:
        """Where the batches of a segment end that lie wholly below ``offset_max``."""
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
        """The first record that is not earlier than a time, exactly.

        :param timestamp_ms: milliseconds since 1970, or ``search.LATEST`` (-1), ``EARLIEST`` (-2), ``MAX_TIMESTAMP``
            (-3, KIP-734) or ``EARLIEST_LOCAL`` (-4).
        :param offset_max: nothing from this offset on.
        :return: None where there is no such record below ``offset_max``.
        :raise ProtocolError: the records of a batch are malformed.
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

    def end_bound_of(self, slice_: LogSlice) -> int:
        """An offset beyond all records of a slice that ``read`` gave just now, but not far beyond."""
        segment = self._segments[self._segments.index_of(slice_.first_offset)]
        last = slice_.ranges[-1]
        offset = segment.offset_index.offset_beyond(last.position + last.size)
        if offset is not None:
            return offset
        return self.log_end_offset if segment is self._segments.active else self._segments.end_of(segment)

    def aborted_transactions(self, from_offset: int, to_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions with records in [from, to), for readers of committed records (KIP-98)."""
        found = []
        for segment in self._segments.starting_from(from_offset):
            for aborted in segment.aborted.ended_from(from_offset):
                if aborted.first_offset < to_offset:
                    found.append(aborted)
                if aborted.last_stable_offset >= to_offset:
                    return found
        return found
