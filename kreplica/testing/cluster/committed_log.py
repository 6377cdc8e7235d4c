"""All that was ever committed in one partition, batch by batch, to compare replicas with."""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple
from zlib import crc32

from kreplica.storage.log.log import Log
from kreplica.storage.segments.segment import LOG_SUFFIX
from kreplica.testing.simulator.disk import MemoryDisk
from kreplica.wire.batches import parse_header


class CommittedBatch(NamedTuple):
    """A batch as it lies in a log; ``digest`` is of all its bytes."""

    base_offset: int
    end_offset: int
    leader_epoch: int
    digest: int


class TwiceInLog(AssertionError):
    """A batch begins before the end of the one that lies before it."""


class _Reader:
    """Reads one replica's batches in order, from where it stopped; straight from its disk, whatever fails there."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.offset = log.log_start_offset
        self._segment_base = -1
        self._position = 0
        self._end_offset = 0

    def go_to(self, offset: int) -> None:
        """Go on at an offset at which a batch begins."""
        if offset != self.offset:
            self.offset = offset
            self._segment_base = -1

    def next(self, disk: MemoryDisk) -> CommittedBatch:
        """The next whole batch.

        :raise TwiceInLog: what lies there is not what an append leaves.
        """
        segments = self.log.segments
        segment = segments[segments.index_of(self.offset)]
        if segment.base_offset != self._segment_base:
            self._segment_base, self._position = segment.base_offset, 0
            self._end_offset = segment.base_offset
        data = disk.stored(segment.path(LOG_SUFFIX))
        while True:
            at = self._position
            header = parse_header(data, at)
            self._position = end = at + header.size
            if header.base_offset < self._end_offset:
                raise TwiceInLog(f"{self.log.path}: a batch of {header.base_offset} stands behind {self._end_offset}")
            self._end_offset = header.next_offset
            if header.next_offset > self.offset:
                self.offset = header.next_offset
                return CommittedBatch(header[0], self.offset, header[2], crc32(data[at:end]))


class CommittedLog:
    """Grows with the high watermarks of leaders, and never shrinks.

    :ivar end_offset: the first offset that was never committed.
    :ivar start_offset: the greatest offset that any replica's log ever began at: what is below may be deleted.
    """

    def __init__(self) -> None:
        self.end_offset = self.start_offset = 0
        self._ends: dict[int, int] = {}
        self._batches: list[CommittedBatch] = []
        self._bases: list[int] = []
        self._readers: dict[int, _Reader] = {}

    def end_before(self, leader_epoch: int) -> int:
        """Up to where leaders of earlier epochs have committed: what a leader of this one must have from the start.

        It may begin late, woken from a pause: then its successors have committed more, and it never will.
        """
        return max((end for epoch, end in self._ends.items() if epoch < leader_epoch), default=0)

    def extend(self, leader: int, disk: MemoryDisk, log: Log, end_offset: int, leader_epoch: int) -> None:
        """Take in what a leader's log has up to there."""
        self._ends[leader_epoch] = end_offset
        reader = self._reader(leader, log)
        reader.go_to(self.end_offset)
        while reader.offset < end_offset:
            batch = reader.next(disk)
            self._batches.append(batch)
            self._bases.append(batch.base_offset)
            self.end_offset = batch.end_offset

    def compare(self, replica: int, disk: MemoryDisk, log: Log, limit: int) -> str | None:
        """What differs below an offset in a replica, of what was not compared yet; None where nothing does."""
        reader = self._reader(replica, log)
        end_offset = log.log_end_offset
        if not log.log_start_offset <= reader.offset <= end_offset:
            reader.go_to(log.log_start_offset)
        limit = min(limit, end_offset)
        while reader.offset < limit:
            batch = reader.next(disk)
            expected = self._batches[bisect_right(self._bases, batch.base_offset) - 1]
            if batch != expected:
                return f"{batch} stands where {expected} was committed"
        return None

    def _reader(self, replica: int, log: Log) -> _Reader:
        reader = self._readers.get(replica)
        if reader is None or reader.log is not log:
            reader = self._readers[replica] = _Reader(log)
        return reader
