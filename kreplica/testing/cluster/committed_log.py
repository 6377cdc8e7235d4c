"""All batches that were ever committed in one partition; its replicas are compared with them."""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple
from zlib import crc32

from kreplica.storage.log.log import Log
from kreplica.storage.segments.segment import LOG_SUFFIX
from kreplica.testing.simulator.disk import MemoryDisk
from kreplica.wire.batches import parse_header


class CommittedBatch(NamedTuple):
    """Offsets, leader epoch and CRC of all bytes (``digest``) of one batch in a log."""

    base_offset: int
    end_offset: int
    leader_epoch: int
    digest: int


class OverlappingBatches(AssertionError):
    """A batch starts below the end offset of the previous batch."""


class _Reader:
    """Reads one replica's batches in order from its disk; injected disk faults do not affect it."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.offset = log.log_start_offset
        self._segment_base = -1
        self._position = 0
        self._end_offset = 0

    def seek(self, offset: int) -> None:
        """Continue at the offset of the first record of a batch."""
        if offset != self.offset:
            self.offset = offset
            self._segment_base = -1

    def next(self, disk: MemoryDisk) -> CommittedBatch:
        """Return the next complete batch.

        :raise OverlappingBatches: the offsets in the log do not increase.
        """
        segments = self.log.segments
        segment = segments[segments.index_of(self.offset)]
        if segment.base_offset != self._segment_base:
            self._segment_base, self._position = segment.base_offset, 0
            self._end_offset = segment.base_offset
        data = disk.stored(segment.path(LOG_SUFFIX))
        while True:
            position = self._position
            header = parse_header(data, position)
            self._position = end = position + header.size
            if header.base_offset < self._end_offset:
                raise OverlappingBatches(
                    f"{self.log.path}: a batch at {header.base_offset} follows one that ends at {self._end_offset}"
                )
            self._end_offset = header.next_offset
            if header.next_offset > self.offset:
                self.offset = header.next_offset
                return CommittedBatch(header[0], self.offset, header[2], crc32(data[position:end]))


class CommittedLog:
    """Batches committed by all leaders so far.

    :ivar end_offset: the first offset that was never committed.
    :ivar start_offset: the largest log start offset of any replica so far; records below it may be deleted.
    """

    def __init__(self) -> None:
        self.end_offset = self.start_offset = 0
        self._ends: dict[int, int] = {}
        self._batches: list[CommittedBatch] = []
        self._bases: list[int] = []
        self._readers: dict[int, _Reader] = {}

    def end_before(self, leader_epoch: int) -> int:
        """Return the end offset committed by leaders of earlier epochs; a new leader must hold all records below it.

        Commits of later epochs do not count: a leader that resumes after a pause may take over late.
        """
        return max((end for epoch, end in self._ends.items() if epoch < leader_epoch), default=0)

    def extend(self, leader: int, disk: MemoryDisk, log: Log, end_offset: int, leader_epoch: int) -> None:
        """Add the batches of a leader's log below ``end_offset``."""
        self._ends[leader_epoch] = end_offset
        reader = self._reader(leader, log)
        reader.seek(self.end_offset)
        while reader.offset < end_offset:
            batch = reader.next(disk)
            self._batches.append(batch)
            self._bases.append(batch.base_offset)
            self.end_offset = batch.end_offset

    def compare(self, replica: int, disk: MemoryDisk, log: Log, limit: int) -> str | None:
        """Compare a replica's new batches below ``limit``; return the first difference, or None."""
        reader = self._reader(replica, log)
        end_offset = log.log_end_offset
        if not log.log_start_offset <= reader.offset <= end_offset:
            reader.seek(log.log_start_offset)
        limit = min(limit, end_offset)
        while reader.offset < limit:
            batch = reader.next(disk)
            expected = self._batches[bisect_right(self._bases, batch.base_offset) - 1]
            if batch != expected:
                return f"found {batch} where {expected} was committed"
        return None

    def _reader(self, replica: int, log: Log) -> _Reader:
        reader = self._readers.get(replica)
        if reader is None or reader.log is not log:
            reader = self._readers[replica] = _Reader(log)
        return reader
