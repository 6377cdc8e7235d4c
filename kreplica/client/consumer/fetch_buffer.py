"""What was fetched of a partition and not handed out yet; opened a batch or a few at a time, when they are wanted.

Pure: neither reactor nor clock.  Opening those takes about a millisecond at most; a whole answer might take a second.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import repeat

from kreplica.client.consumer.records import ConsumedBatch, ConsumedRecord
from kreplica.client_core.errors import CorruptBatch
from kreplica.client_core.fetched_batches import FetchedRecords, visible_batches
from kreplica.errors import ProtocolError
from kreplica.model import NO_EPOCH, TopicPartition
from kreplica.wire.batches import LOG_APPEND_TIME_BIT, BatchHeader, TimestampType
from kreplica.wire.record_columns import read_columns
from kreplica.wire.records import DECOMPRESSED_SIZE_MAX, open_records

_new = tuple.__new__
_TIMESTAMP_TYPES = {0: TimestampType.CREATE_TIME, LOG_APPEND_TIME_BIT: TimestampType.LOG_APPEND_TIME}


RECORDS_ENOUGH = 256
BYTES_ENOUGH = 1 << 16
"""Batches that follow each other are handed out together, until there are so many records, or bytes of records."""


class Stock:
    """Of one partition, in order: records that were opened already, then answers that were not.

    :ivar size: bytes of the answers.
    """

    __slots__ = ("_batches", "_fetched", "_opened", "size")

    def __init__(self) -> None:
        self.size = 0
        self._opened: ConsumedBatch | None = None
        self._fetched: deque[FetchedRecords] = deque()
        self._batches: Iterator[ConsumedBatch] | None = None

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

    def put_back(self, batch: ConsumedBatch) -> None:
        """Put records before all others: they were opened, but not handed out."""
        assert self._opened is None
        self._opened = batch

    def clear(self) -> None:
        """Forget all."""
        self.size, self._opened, self._batches = 0, None, None
        self._fetched.clear()

    def take(self, position: int) -> tuple[ConsumedBatch | None, int]:
        """The next records, of a batch or a few small ones, and the position behind them.

        :param position: records before it are not wanted.
        :return: no records, where there are none up to that position: gaps, markers, and what was aborted.
        :raise CorruptBatch: something is not what was written; nothing behind it can be trusted, and all is forgotten.
        """
        opened, self._opened = self._opened, None
        if opened is not None:
            return opened, opened.next_offset
        fetched = self._fetched[0]
        if self._batches is None:
            self._batches = _open(fetched, position)
        try:
            for batch in self._batches:
                return batch, batch.next_offset
        except CorruptBatch:
            self.clear()
            raise
        self._batches = None
        self._fetched.popleft()
        self.size -= len(fetched.data)
        return None, fetched.next_offset


def _open(fetched: FetchedRecords, position: int) -> Iterator[ConsumedBatch]:
    """The records of an answer from a position on; small batches that one leader took are put together.

    :raise CorruptBatch: something is not what was written; what is before it was given.
    """
    key, records = fetched.partition, list[ConsumedRecord]()
    size, behind, epoch = 0, position, NO_EPOCH
    try:
        for header, data in visible_batches(fetched):
            if records and (
                len(records) >= RECORDS_ENOUGH or size >= BYTES_ENOUGH or header.partition_leader_epoch != epoch
            ):
                yield ConsumedBatch(key, records, behind, epoch)
                records, size = [], 0
            section = open_records(data, header, DECOMPRESSED_SIZE_MAX)
            opened = _records(key, header, section)
            if header.base_offset < position:
                opened = [record for record in opened if record.offset >= position]
            records += opened
            size, behind, epoch = size + len(section), header.next_offset, header.partition_leader_epoch
    except (ProtocolError, CorruptBatch) as error:
        if records:
            yield ConsumedBatch(key, records, behind, epoch)
        if isinstance(error, CorruptBatch):
            raise
        raise CorruptBatch(f"{key} from offset {behind} on: {error}") from error
    if records:
        yield ConsumedBatch(key, records, behind, epoch)


def _records(key: TopicPartition, header: BatchHeader, section: bytes) -> list[ConsumedRecord]:
    offsets, timestamps, keys, values, headers = read_columns(section, header)
    count = len(offsets)
    types = repeat(_TIMESTAMP_TYPES[header.attributes & LOG_APPEND_TIME_BIT], count)
    topics, partitions = repeat(key.topic, count), repeat(key.partition, count)
    epochs = repeat(header.partition_leader_epoch, count)
    rows = zip(topics, partitions, offsets, timestamps, types, keys, values, headers, epochs, strict=True)
    return list(map(_new, repeat(ConsumedRecord), rows))
