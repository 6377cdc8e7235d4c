"""Replays a partition of an internal topic in chunks, so that the reactor is not blocked."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kreplica.runtime import Runtime
from kreplica.runtime.disk import FileRange
from kreplica.runtime.time_slice import TimeSlice
from kreplica.storage.segments.batch_validation import read_marker
from kreplica.wire.batches import BatchHeader, iter_headers
from kreplica.wire.records import iter_records

if TYPE_CHECKING:
    from kreplica.replication.partition import Partition

CHUNK_BYTES = 1024 * 1024

Replay = Callable[[bytes, bytes | None, BatchHeader], None]
EndTransaction = Callable[[int, bool], None]


class Loading:
    """Replay of one partition.

    :param replay: called with every record that has a key, in log order.
    :param end_transaction: called for every transaction marker with the producer id and True for a commit.
    :ivar offset: all records below this offset have been replayed.
    """

    def __init__(self, runtime: Runtime, partition: Partition, replay: Replay, end_transaction: EndTransaction) -> None:
        self._runtime = runtime
        self._log = partition.log
        self._replay = replay
        self._end_transaction = end_transaction
        self._time_slice = TimeSlice(runtime.reactor)
        self.offset = self._log.log_start_offset
        self.record_count = 0

    @property
    def is_at_end(self) -> bool:
        """True if all records in the log have been replayed."""
        return self.offset >= self._log.log_end_offset

    async def read_to_end(self) -> None:
        """Replay everything up to the log end, including records appended during the replay.

        :raise KreplicaError: records are damaged or have an unknown format.
        :raise OSError: the device fails.
        """
        while not self.is_at_end:
            self.offset = max(self.offset, self._log.log_start_offset)
            end_offset = self._log.log_end_offset
            chunk = self._log.read(self.offset, size_max=CHUNK_BYTES, offset_max=end_offset)
            if not chunk.ranges:
                self.offset = end_offset  # compaction has removed all records from here on
                return
            data = await self._runtime.offload.run(_read, chunk.ranges)
            await self._replay_batches(memoryview(data))

    async def _replay_batches(self, data: memoryview) -> None:
        for position, header in iter_headers(data, incomplete_last=True):
            if header.last_offset >= self.offset:
                batch = data[position : position + header.size]
                if header.is_control:
                    marker = read_marker(batch)
                    if marker is not None:
                        self._end_transaction(header.producer_id, marker.committed)
                else:
                    self._replay_batch(batch, header)
                self.offset = header.next_offset
            if self._time_slice.is_over:
                await self._time_slice.next()

    def _replay_batch(self, batch: memoryview, header: BatchHeader) -> None:
        for record in iter_records(batch):
            if record.key is not None:
                self.record_count += 1
                self._replay(record.key, record.value, header)


def _read(ranges: list[FileRange]) -> bytes:
    return b"".join(each.read() for each in ranges)
