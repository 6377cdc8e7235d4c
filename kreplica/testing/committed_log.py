"""All that was ever committed in one partition, batch by batch, to compare replicas with."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple
from zlib import crc32

from kreplica.storage.log import Log
from kreplica.storage.segment import LOG_SUFFIX
from kreplica.testing.disk import MemoryDisk
from kreplica.wire.batches import HEADER_SIZE, parse_header


class CommittedBatch(NamedTuple):
    """A batch as it lies in a log; ``digest`` is of all its bytes."""

    base_offset: int
    end_offset: int
    leader_epoch: int
    digest: int


class _Reader:
    """Reads one replica's batches in order, from where it stopped; straight from its disk, whatever fails there."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.offset = -1
        self._segment = -1
        self._position = 0

    def batches(self, disk: MemoryDisk, offset: int, limit: int) -> Iterator[CommittedBatch]:
        """Whole batches from an offset on which one begins."""
        if offset != self.offset:
            self._segment = -1
        self.offset = offset
        while self.offset < limit:
            batch = self._next(disk)
            self.offset = batch.end_offset
            if batch.base_offset >= offset:
                yield batch

    def _next(self, disk: MemoryDisk) -> CommittedBatch:
        segments = self.log.segments
        index = segments.index_of(self.offset)
        segment = segments[index]
        if segment.base_offset != self._segment:
            self._segment, self._position = segment.base_offset, 0
        data = disk.stored(segment.path(LOG_SUFFIX))
        while True:
            header = parse_header(data[self._position : self._position + HEADER_SIZE])
            at, self._position = self._position, self._position + header.size
            if header.next_offset > self.offset:
                digest = crc32(data[at : self._position])
                return CommittedBatch(header.base_offset, header.next_offset, header.partition_leader_epoch, digest)


class CommittedLog:
    """Grows with the high watermarks of leaders, and never shrinks.

    :ivar end_offset: the first offset that was never committed.
    """

    def __init__(self) -> None:
        self.end_offset = 0
        self._ends: dict[int, int] = {}
        self._batches: list[CommittedBatch] = []
        self._bases: list[int] = []
        self._leader: _Reader | None = None
        self._readers: dict[int, _Reader] = {}
        self._compared: dict[int, int] = {}

    def end_before(self, leader_epoch: int) -> int:
        """Up to where leaders of earlier epochs have committed: what a leader of this one must have from the start.

        It may begin late, woken from a pause: then its successors have committed more, and it never will.
        """
        return max((end for epoch, end in self._ends.items() if epoch < leader_epoch), default=0)

    def extend(self, disk: MemoryDisk, log: Log, end_offset: int, leader_epoch: int) -> None:
        """Take in what a leader's log has up to there."""
        self._ends[leader_epoch] = end_offset
        if self._leader is None or self._leader.log is not log:
            self._leader = _Reader(log)
        for batch in self._leader.batches(disk, self.end_offset, end_offset):
            self._batches.append(batch)
            self._bases.append(batch.base_offset)
            self.end_offset = batch.end_offset

    def compare(self, replica: int, disk: MemoryDisk, log: Log, limit: int) -> str | None:
        """What differs below an offset in a replica, of what was not compared yet; None where nothing does."""
        reader = self._readers.get(replica)
        if reader is None or reader.log is not log:
            reader = self._readers[replica] = _Reader(log)
            self._compared[replica] = log.log_start_offset
        if log.log_end_offset < self._compared[replica]:
            self._compared[replica] = log.log_start_offset
        begin = self._compared[replica]
        if begin >= min(limit, log.log_end_offset):
            return None
        for batch in reader.batches(disk, begin, min(limit, log.log_end_offset)):
            expected = self._batches[bisect_right(self._bases, batch.base_offset) - 1]
            if batch != expected:
                return f"{batch} stands where {expected} was committed"
            self._compared[replica] = batch.end_offset
        return None
