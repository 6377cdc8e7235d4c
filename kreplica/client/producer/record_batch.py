"""Records on their way in, and the batches that they are gathered in."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import count, repeat
from typing import Any, NamedTuple, Self, TypeAlias, cast

from kreplica.client.producer.completion_counter import Countdown
from kreplica.client.producer.record_deferreds import Promise, break_promise, keep_promises
from kreplica.client.producer.written import Written
from kreplica.client_core.delivery import UNKNOWN_OFFSET
from kreplica.client_core.partition_queue import ORDERS_BETWEEN, OutgoingBatch
from kreplica.model import TopicPartition
from kreplica.wire.batches import HEADER_SIZE, NO_SEQUENCE, SEQUENCE_MASK, stamp_producer
from kreplica.wire.compression import Codec
from kreplica.wire.producer_batches import build_producer_batch
from kreplica.wire.records import Headers, Record, iter_records

RECORD_OVERHEAD = 14
"""Bytes that a record without headers takes at most besides key and value, where it is small and made just now."""

LARGE = 8192
LARGE_OVERHEAD = 16
"""So many more where it is larger than that."""

FIELDS = 5
"""Of a record, in a batch that is being gathered."""

HEADER_OVERHEAD = 10
UTF8_SIZE_MAX = 4


class OutgoingRecord(NamedTuple):
    """A record for ``Producer.send_all``; what each field means, ``Producer.send`` says."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    partition: int | None = None
    timestamp_ms: int | None = None


_as_written = cast(Callable[[tuple[TopicPartition, int, int]], Written], partial(tuple.__new__, Written))


Waiter: TypeAlias = Promise | Countdown
"""Who wants to know what becomes of a record."""


class GatheredBatch(OutgoingBatch):
    """A batch that keeps its records as they came until it is closed, and then until it has an outcome.

    :ivar size: of the batch, at most, before compression.
    :ivar fields: of the records, until it is closed: timestamp, key, value, headers and who waits, of one after the
        other.  One list of all has nothing in it that the garbage collector would have to visit for each.
    :ivar timestamps: of the records, once it is closed; ``waiters`` are in the same order.
    :ivar flushes: who waits for this batch as a whole.
    :ivar span: orders from this one on that no other batch of the partition has.
    """

    __slots__ = ("codec", "fields", "flushes", "is_transactional", "span", "timestamps", "waiters")

    def __init__(
        self,
        partition: TopicPartition,
        order: int,
        times: tuple[float, float],
        codec: Codec,
        *,
        is_transactional: bool,
    ) -> None:
        super().__init__(partition, order, None, *times)
        self.size = HEADER_SIZE
        self.codec = codec
        self.is_transactional = is_transactional
        self.fields: list[Any] = []
        self.timestamps: list[int] = []
        self.waiters: list[Waiter] = []
        self.flushes: list[Countdown] = []
        self.span = ORDERS_BETWEEN

    def close(self) -> None:
        """Take no more records: build the batch."""
        fields, self.fields = self.fields, []
        self.timestamps, self.waiters = fields[::FIELDS], fields[4::FIELDS]
        self._build(fields[1::FIELDS], fields[2::FIELDS], fields[3::FIELDS])

    def _build(self, keys: list[bytes | None], values: list[bytes | None], headers: list[Headers]) -> None:
        self.count = len(self.timestamps)
        self.data = build_producer_batch(
            self.timestamps, keys, values, headers, self.codec, transactional=self.is_transactional
        )

    def split(self) -> tuple[Self, Self] | None:
        """Its halves, with the numbers that the whole had."""
        half = self.count // 2
        if not half:
            return None
        records = list(iter_records(self.data))
        lower, upper = self._part(records, 0, half), self._part(records, half, self.count)
        for flush in self.flushes:
            flush.pending += 1
        lower.size = self.size - upper.size + HEADER_SIZE  # so that both delay what the whole did
        return lower, upper

    def _part(self, records: list[Record], begin: int, end: int) -> Self:
        span = self.span // 2
        part = type(self)(
            self.outcome.partition,
            self.order + span if begin else self.order,
            (self.due_s, self.deadline_s),
            self.codec,
            is_transactional=self.is_transactional,
        )
        part.timestamps, part.waiters = self.timestamps[begin:end], self.waiters[begin:end]
        part.flushes = list(self.flushes)
        part.span = span
        part.size = self.size * (end - begin) // self.count
        of_part = records[begin:end]
        part._build(
            [each.key for each in of_part], [each.value for each in of_part], [each.headers for each in of_part]
        )
        if self.sequence != NO_SEQUENCE and self.identity is not None:
            part.identity, part.sequence = self.identity, (self.sequence + begin) & SEQUENCE_MASK
            stamp_producer(part.data, *part.identity, part.sequence)
        return part

    def tell(self) -> None:
        """Tell all who wait what became of their records; called once, when the batch is settled."""
        timestamps, waiters, flushes = self.timestamps or self.fields[::FIELDS], self.waiters, self.flushes
        waiters = waiters or self.fields[4::FIELDS]
        self.fields, self.timestamps, self.waiters, self.flushes, self.data = [], [], [], [], bytearray()
        error = self.outcome.error
        if error is None:
            self._tell_written(timestamps, waiters)
        else:
            for waiter in waiters:
                break_promise(waiter, error)
        for flush in flushes:
            flush.told(None)

    def _tell_written(self, timestamps: list[int], waiters: list[Waiter]) -> None:
        first = waiters[0] if waiters else None
        if isinstance(first, Countdown) and waiters.count(first) == len(waiters):
            first.told(None, len(waiters))
            return
        outcome = self.outcome
        offsets = count(outcome.base_offset) if outcome.base_offset >= 0 else repeat(UNKNOWN_OFFSET)
        stamps = timestamps if outcome.log_append_time_ms < 0 else repeat(outcome.log_append_time_ms)
        rows = map(_as_written, zip(repeat(outcome.partition), offsets, stamps, strict=False))
        keep_promises(waiters, rows)


def as_bytes(data: object) -> bytes:
    """Bytes that stay as they are now.

    :raise TypeError: these are none.
    """
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data)
    raise TypeError(f"{type(data).__name__}: keys and values are bytes")


def checked_headers(headers: Iterable[tuple[str, bytes | None]]) -> tuple[Headers, int]:
    """Headers that stay as they are now, and how many bytes they take at most.

    :raise TypeError: they are not pairs of a name and bytes.
    """
    checked = tuple((name, None if data is None else as_bytes(data)) for name, data in headers)
    size = sum(UTF8_SIZE_MAX * len(name) + len(data or b"") + HEADER_OVERHEAD for name, data in checked)
    if not all(isinstance(name, str) for name, _ in checked):
        raise TypeError("names of headers are text")
    return checked, size
