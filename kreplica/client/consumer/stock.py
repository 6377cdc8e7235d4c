"""What was fetched of a partition and not handed out yet; opened batch by batch, when it is wanted.

Pure: neither reactor nor clock.  Opening one batch takes well below a millisecond; a whole answer might take a second.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import repeat

from kreplica.client.consumer.records import ConsumedBatch, ConsumedRecord
from kreplica.errors import ProtocolError
from kreplica.model import TopicPartition
from kreplica.sansio.batches import FetchedRecords, visible_batches
from kreplica.sansio.errors import CorruptBatch
from kreplica.wire.batches import LOG_APPEND_TIME_BIT, BatchHeader, TimestampType
from kreplica.wire.record_columns import read_columns
from kreplica.wire.records import DECOMPRESSED_SIZE_MAX, open_records

_new = tuple.__new__
_TIMESTAMP_TYPES = {0: TimestampType.CREATE_TIME, LOG_APPEND_TIME_BIT: TimestampType.LOG_APPEND_TIME}


class Stock:
    """Of one partition, in order: records that were opened already, then answers that were not.

    :ivar size: bytes of the answers.
    """

    __slots__ = ("_batches", "_fetched", "_opened", "size")

    def __init__(self) -> None:
        self.size = 0
        self._opened: ConsumedBatch | None = None
        self._fetched: deque[FetchedRecords] = deque()
        self._batches: Iterator[tuple[BatchHeader, memoryview]] = iter(())

    def __len__(self) -> int:
        """How many answers there are."""
        return len(self._fetched)

    @property
    def is_empty(self) -> bool:
        return not self._fetched and self._opened is None

    def add(self, fetched: FetchedRecords) -> None:
        """Put an answer behind those that there are."""
        self._fetched.append(fetched)
        self.size += len(fetched.data)
        if len(self._fetched) == 1:
            self._batches = visible_batches(fetched)

    def put_back(self, batch: ConsumedBatch) -> None:
        """Put records before all others: they were opened, but not handed out."""
        assert self._opened is None
        self._opened = batch

    def clear(self) -> None:
        """Forget all."""
        self.size, self._opened, self._batches = 0, None, iter(())
        self._fetched.clear()

    def take(self, position: int) -> tuple[ConsumedBatch | None, int]:
        """The next records, at most a batch of them, and the position behind them.

        :param position: records before it are not wanted.
        :return: no records, where there are none up to that position: gaps, markers, and what was aborted.
        :raise CorruptBatch: something is not what was written; nothing behind it can be trusted, and all is forgotten.
        """
        opened, self._opened = self._opened, None
        if opened is not None:
            return opened, opened.next_offset
        fetched = self._fetched[0]
        try:
            for header, data in self._batches:
                batch = _open(fetched.partition, header, data, position)
                if batch is not None:
                    return batch, batch.next_offset
        except (ProtocolError, CorruptBatch) as error:
            self.clear()
            if isinstance(error, CorruptBatch):
                raise
            raise CorruptBatch(f"{fetched.partition} from offset {position} on: {error}") from error
        self._fetched.popleft()
        self.size -= len(fetched.data)
        if self._fetched:
            self._batches = visible_batches(self._fetched[0])
        return None, fetched.next_offset


def _open(key: TopicPartition, header: BatchHeader, data: memoryview, position: int) -> ConsumedBatch | None:
    epoch = header.partition_leader_epoch
    columns = read_columns(open_records(data, header, DECOMPRESSED_SIZE_MAX), header)
    offsets, timestamps, keys, values, headers = columns
    count = len(offsets)
    types = repeat(_TIMESTAMP_TYPES[header.attributes & LOG_APPEND_TIME_BIT], count)
    topics, partitions, epochs = repeat(key.topic, count), repeat(key.partition, count), repeat(epoch, count)
    rows = zip(topics, partitions, offsets, timestamps, types, keys, values, headers, epochs, strict=True)
    records = list(map(_new, repeat(ConsumedRecord), rows))
    if header.base_offset < position:
        records = [record for record in records if record.offset >= position]
    return ConsumedBatch(key, records, header.next_offset, epoch) if records else None
