"""Fetched records of one partition that have not been delivered yet; decoded in small parts when needed.

Decoding a part takes at most about a millisecond; decoding a whole response might take a second.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import partial

from kreplica.client.consumer.records import ConsumedBatch, ConsumedRecord
from kreplica.client_core.errors import CorruptBatch
from kreplica.client_core.fetched_batches import FetchedRecords, visible_batches
from kreplica.errors import ProtocolError
from kreplica.model import NO_EPOCH, TopicPartition
from kreplica.wire.batches import LOG_APPEND_TIME_BIT, TimestampType
from kreplica.wire.plain_batches import RowRun, read_plain_batches
from kreplica.wire.record_columns import RowShape, open_rows
from kreplica.wire.records import DECOMPRESSED_SIZE_MAX

_TIMESTAMP_TYPES = {0: TimestampType.CREATE_TIME, LOG_APPEND_TIME_BIT: TimestampType.LOG_APPEND_TIME}

_PLACES = bytes(map(ConsumedRecord._fields.index, ("offset", "timestamp_ms", "key", "value", "headers")))

RECORDS_ENOUGH = 256
BYTES_ENOUGH = 1 << 16
"""Consecutive batches are delivered together until they contain this many records or bytes."""


class FetchBuffer:
    """Buffer of one partition's records in order: decoded records, then responses that are not decoded yet.

    :ivar size: bytes of the responses.
    """

    __slots__ = ("_batches", "_decoded", "_fetched", "size")

    def __init__(self) -> None:
        self.size = 0
        self._decoded: ConsumedBatch | None = None
        self._fetched: deque[FetchedRecords] = deque()
        self._batches: Iterator[ConsumedBatch] | None = None

    def __len__(self) -> int:
        """Return the number of responses."""
        return len(self._fetched)

    @property
    def is_empty(self) -> bool:
        return not self._fetched and self._decoded is None

    def add(self, fetched: FetchedRecords) -> None:
        """Append a response."""
        self._fetched.append(fetched)
        self.size += len(fetched.data)

    def put_back(self, batch: ConsumedBatch) -> None:
        """Put decoded records that were not delivered back at the front of the buffer."""
        assert self._decoded is None
        self._decoded = batch

    def clear(self) -> None:
        """Remove all records."""
        self.size, self._decoded, self._batches = 0, None, None
        self._fetched.clear()

    def take(self, position: int) -> tuple[ConsumedBatch | None, int]:
        """Return the next records, from one batch or several small ones, and the position after them.

        :param position: earlier records are skipped.
        :return: None instead of records if only gaps, markers and aborted records precede the returned position.
        :raise CorruptBatch: a batch is damaged; the buffer is cleared.
        """
        decoded, self._decoded = self._decoded, None
        if decoded is not None:
            return decoded, decoded.next_offset
        fetched = self._fetched[0]
        if self._batches is None:
            self._batches = _decode(fetched, position)
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


def _decode(fetched: FetchedRecords, position: int) -> Iterator[ConsumedBatch]:
    """Yield the records of a response from a position on; consecutive small batches of one leader epoch are merged.

    :raise CorruptBatch: a batch is damaged; the records before it have been yielded.
    """
    key, records = fetched.partition, list[ConsumedRecord]()
    size, next_offset, epoch = 0, position, NO_EPOCH
    try:
        for decoded, decoded_size, decoded_end, decoded_epoch in _runs(fetched, position):
            if records and decoded_epoch != epoch:
                yield ConsumedBatch(key, records, next_offset, epoch)
                records, size = [], 0
            if records:
                records += decoded
            else:
                records, size = decoded, 0
            size, next_offset, epoch = size + decoded_size, decoded_end, decoded_epoch
            if records and (len(records) >= RECORDS_ENOUGH or size >= BYTES_ENOUGH):
                yield ConsumedBatch(key, records, next_offset, epoch)
                records, size = [], 0
    except (ProtocolError, CorruptBatch) as error:
        if records:
            yield ConsumedBatch(key, records, next_offset, epoch)
        if isinstance(error, CorruptBatch):
            raise
        raise CorruptBatch(f"{key} from offset {next_offset}: {error}") from error
    if records:
        yield ConsumedBatch(key, records, next_offset, epoch)


def _runs(fetched: FetchedRecords, position: int) -> Iterator[RowRun[ConsumedRecord]]:
    """Yield the visible records of a response from a position on.

    :raise CorruptBatch, ProtocolError: a batch is damaged.
    """
    shape_of = partial(_shape, fetched.partition)
    end = yield from read_plain_batches(fetched.data, position, shape_of, RECORDS_ENOUGH, BYTES_ENOUGH)
    for header, data in visible_batches(fetched._replace(data=fetched.data[end:])):
        epoch = header.partition_leader_epoch
        shape = _shape(fetched.partition, epoch, header.attributes)
        records, size = open_rows(data, header, DECOMPRESSED_SIZE_MAX, shape)
        if header.base_offset < position:
            records = [record for record in records if record.offset >= position]
        yield records, size, header.next_offset, epoch


def _shape(key: TopicPartition, epoch: int, attributes: int) -> RowShape[ConsumedRecord]:
    timestamp_type = _TIMESTAMP_TYPES[attributes & LOG_APPEND_TIME_BIT]
    return RowShape(ConsumedRecord, (*key, None, None, timestamp_type, None, None, (), epoch), _PLACES)
