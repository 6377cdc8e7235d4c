"""Records to send, and the batches that collect them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import count, repeat
from typing import Any, NamedTuple, Self, TypeAlias, cast

from kreplica.client.producer.completion_counter import CompletionCounter
from kreplica.client.producer.record_deferreds import RecordDeferred, complete_records, fail_record
from kreplica.client.producer.written_record import Written
from kreplica.client_core.delivery import UNKNOWN_OFFSET
from kreplica.client_core.partition_queue import ORDER_STEP, OutgoingBatch
from kreplica.model import TopicPartition
from kreplica.wire.batches import HEADER_SIZE, NO_SEQUENCE, SEQUENCE_MASK, stamp_producer
from kreplica.wire.compression import Codec
from kreplica.wire.producer_batches import build_producer_batch
from kreplica.wire.records import Headers, Record, iter_records

RECORD_OVERHEAD = 14
"""Maximum overhead of a small record in bytes, if its timestamp is close to that of the batch's first record."""

LARGE = 8192
LARGE_OVERHEAD = 16
"""Additional overhead in bytes of a record larger than ``LARGE``."""

FIELDS = 5
"""Number of list entries per record in an open batch."""

HEADER_OVERHEAD = 10
UTF8_SIZE_MAX = 4


class OutgoingRecord(NamedTuple):
    """A record for ``Producer.send_all``; for its fields, see ``Producer.send``."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    partition: int | None = None
    timestamp_ms: int | None = None


_new_written = cast(Callable[[tuple[TopicPartition, int, int]], Written], partial(tuple.__new__, Written))


Waiter: TypeAlias = RecordDeferred | CompletionCounter
"""Receives the outcome of a record."""


class GatheredBatch(OutgoingBatch):
    """A batch that collects records until it is closed.

    :ivar size: maximum size of the batch before compression.
    :ivar fields: timestamp, key, value, headers and waiter of each record while the batch is open, in a flat list
        without tuples that the garbage collector would have to visit.
    :ivar timestamps: timestamps of the records once the batch is closed; ``waiters`` has the same order.
    :ivar flushes: waiters for the batch as a whole.
    :ivar span: number of consecutive ``order`` values that are reserved for this batch and its parts.
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
        self.flushes: list[CompletionCounter] = []
        self.span = ORDER_STEP

    def close(self) -> None:
        """Stop accepting records and encode the batch."""
        fields, self.fields = self.fields, []
        self.timestamps, self.waiters = fields[::FIELDS], fields[4::FIELDS]
        self._build(fields[1::FIELDS], fields[2::FIELDS], fields[3::FIELDS])

    def _build(self, keys: list[bytes | None], values: list[bytes | None], headers: list[Headers]) -> None:
        self.count = len(self.timestamps)
        self.data = build_producer_batch(
            self.timestamps, keys, values, headers, self.codec, transactional=self.is_transactional
        )

    def split(self) -> tuple[Self, Self] | None:
        """Split the batch into halves, which keep the sequence numbers; return None for a single record."""
        half = self.count // 2
        if not half:
            return None
        records = list(iter_records(self.data))
        lower, upper = self._part(records, 0, half), self._part(records, half, self.count)
        for flush in self.flushes:
            flush.pending += 1
        lower.size = self.size - upper.size + HEADER_SIZE  # so that the sizes add up to the whole
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
        own_records = records[begin:end]
        part._build(
            [each.key for each in own_records],
            [each.value for each in own_records],
            [each.headers for each in own_records],
        )
        if self.sequence != NO_SEQUENCE and self.identity is not None:
            part.identity, part.sequence = self.identity, (self.sequence + begin) & SEQUENCE_MASK
            stamp_producer(part.data, *part.identity, part.sequence)
        return part

    def notify_waiters(self) -> None:
        """Notify all waiters of the outcome; called once."""
        timestamps, waiters, flushes = self.timestamps or self.fields[::FIELDS], self.waiters, self.flushes
        waiters = waiters or self.fields[4::FIELDS]
        self.fields, self.timestamps, self.waiters, self.flushes, self.data = [], [], [], [], bytearray()
        error = self.outcome.error
        if error is None:
            self._notify_written(timestamps, waiters)
        else:
            for waiter in waiters:
                fail_record(waiter, error)
        for flush in flushes:
            flush.complete(None)

    def _notify_written(self, timestamps: list[int], waiters: list[Waiter]) -> None:
        first = waiters[0] if waiters else None
        if isinstance(first, CompletionCounter) and waiters.count(first) == len(waiters):
            first.complete(None, len(waiters))
            return
        outcome = self.outcome
        offsets = count(outcome.base_offset) if outcome.base_offset >= 0 else repeat(UNKNOWN_OFFSET)
        stamps = timestamps if outcome.log_append_time_ms < 0 else repeat(outcome.log_append_time_ms)
        rows = map(_new_written, zip(repeat(outcome.partition), offsets, stamps, strict=False))
        complete_records(waiters, rows)


def as_bytes(data: object) -> bytes:
    """Return an immutable copy of bytes.

    :raise TypeError: the value is not bytes.
    """
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data)
    raise TypeError(f"keys and values must be bytes, not {type(data).__name__}")


def checked_headers(headers: Iterable[tuple[str, bytes | None]]) -> tuple[Headers, int]:
    """Return immutable headers and their maximum size in bytes.

    :raise TypeError: a header is not a pair of name and bytes.
    """
    checked = tuple((name, None if data is None else as_bytes(data)) for name, data in headers)
    size = sum(UTF8_SIZE_MAX * len(name) + len(data or b"") + HEADER_OVERHEAD for name, data in checked)
    if not all(isinstance(name, str) for name, _ in checked):
        raise TypeError("header names must be str")
    return checked, size
