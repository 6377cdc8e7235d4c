"""Delivers records at the time in their header ``deliver-at`` (milliseconds since 1970).

kreplica.produce.interceptors=deliver-at
kreplica.plugin.deliver-at.topics=reminders,retries
kreplica.plugin.deliver-at.delay.ms.max=604800000

Mechanism.  The interceptor removes such records from their batch and stores them in a note: a control record in the
same partition, directly before the rest of the batch, replicated with it and invisible to consumers.  The leader keeps
the held records in memory and appends them as a new batch when they are due.  Each record gets a header ``held-at``
with the position of its note.  A new leader reads the log once: the records in notes to which no
``held-at`` header in the log refers are still held.  The interceptor removes ``held-at`` headers that clients send.

Guarantees.  A record that was acknowledged with ``acks=all`` is delivered once, because the batch that delivers it also
records the delivery.  It is delivered at or after its time; after a failover, once the new leader has read its log.
Records with the same delivery time keep their order.

Limits.  The acknowledged offset of a held record stays empty; the delivered record has a new offset, and its timestamp
is the delivery time.  A new leader reads the whole log of the partition in a thread, at about 500 MB/s.  A delay longer
than ``retention.ms`` is rejected, but ``retention.bytes`` can delete a note before its records are due.  Records of
transactions and of compacted topics are rejected if they have the header.  All brokers need the same settings.
"""

from __future__ import annotations

import base64
import heapq
import json
from typing import Any, NamedTuple

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from zope.interface import implementer

from kreplica.errors import ErrorCode, KafkaError
from kreplica.interfaces import (
    IProduceInterceptor,
    LedPartitions,
    LogRecord,
    Plugin,
    PluginContext,
    ProducedBatch,
    RejectBatch,
    ReplaceRecords,
)
from kreplica.model import TopicPartition
from kreplica.runtime import Runtime

log = Logger()

DELIVER_AT = "deliver-at"
HELD_AT = "held-at"

DELAY_MS_MAX = 7 * 86_400_000
HELD_MAX = 100_000
DELIVERED_AT_ONCE = 500
RETRY_S = 1.0
WAIT_S_MAX = 60.0
"""Maximum delay of the timer, because the wall clock may be adjusted."""

ADDED_BYTES = 100
"""Maximum number of bytes that ``held-at`` and the header of a separate batch add to a record."""

deliver_at = Plugin(
    "deliver-at",
    IProduceInterceptor,
    "kreplica.plugins.deliver_at:DeliverAt",
    "Holds records back until the time in their header deliver-at.",
    {
        "topics": "Topics with delayed delivery, separated by commas.",
        "delay.ms.max": "The maximum delay (default: seven days).",
        "held.records.max": "The maximum number of held records per broker (default: 100000).",
    },
)


class Held(NamedTuple):
    """A held record, ordered by its time and then by its position.

    :ivar id: the value of its ``held-at`` header: the offset of the note and the index of the record in it.
    """

    deliver_at_ms: int
    note_offset: int
    number: int
    record: LogRecord

    @property
    def id(self) -> bytes:
        return b"%d.%d" % (self.note_offset, self.number)


@implementer(IProduceInterceptor)
class DeliverAt:
    """Holds records of the partitions that this broker leads."""

    def __init__(self, context: PluginContext) -> None:
        """:raise ValueError: a setting is missing or not a number."""
        settings = context.settings
        self._topics = tuple(name.strip() for name in settings.get("topics", "").split(",") if name.strip())
        if not self._topics:
            raise ValueError("topics: at least one topic is required")
        self._delay_ms_max = int(settings.get("delay.ms.max", DELAY_MS_MAX))
        self._held_max = int(settings.get("held.records.max", HELD_MAX))
        self._context = context
        self._partitions: dict[TopicPartition, HeldBack] = {}
        self._taken: tuple[ProducedBatch, list[tuple[int, LogRecord]]] | None = None
        for topic in self._topics:
            context.broker.led.on_leadership_change(topic, self._role_changed)

    @property
    def held_count(self) -> int:
        """Number of held records on this broker."""
        return sum(len(each.waiting) for each in self._partitions.values())

    # --- producing ---------------------------------------------------------------------------------------------------

    def intercept(self, batch: ProducedBatch) -> RejectBatch | ReplaceRecords | None:
        topic = batch.topic_partition.topic
        if topic not in self._topics:
            return None
        held: list[tuple[int, LogRecord]] = []
        stays, wrong = [], {}
        for record in map(_without_held_at, batch.records):
            try:
                due_ms = _due_ms(record)
                if due_ms is None or due_ms <= batch.now_ms:
                    stays.append(record)
                    continue
                self._check(topic, record, due_ms - batch.now_ms)
                held.append((due_ms, record))
            except ValueError as error:
                wrong[record.offset] = str(error)
        if wrong:
            return RejectBatch(f"{len(wrong)} records cannot be held back", wrong)
        if not held:
            return None if stays == list(batch.records) else ReplaceRecords(stays)
        if batch.is_transactional or batch.is_compacted:
            return RejectBatch("records of transactions and of compacted topics cannot be held back")
        if self.held_count + len(held) > self._held_max:
            return RejectBatch(f"this broker holds {self.held_count} records, the maximum is {self._held_max}")
        self._taken = batch, held
        return ReplaceRecords(stays, _encode(held))

    def _check(self, topic: str, record: LogRecord, delay_ms: int) -> None:
        longest_ms = self._delay_ms_max
        retention_ms = int(self._context.broker.topic_setting(topic, "retention.ms") or -1)
        if retention_ms >= 0:
            longest_ms = min(longest_ms, retention_ms)
        if delay_ms > longest_ms:
            raise ValueError(f"a delay of {delay_ms} ms; the maximum is {longest_ms} ms")
        size_max = int(self._context.broker.topic_setting(topic, "max.message.bytes") or 2**31)
        if _size(record) + ADDED_BYTES > size_max:
            raise ValueError("the record is too large to be held back")

    def appended(self, batch: ProducedBatch, note_offset: int) -> None:
        taken, self._taken = self._taken, None
        back = self._partitions.get(batch.topic_partition)
        if taken is not None and taken[0] is batch and back is not None:
            back.add(note_offset, taken[1])

    # --- roles -------------------------------------------------------------------------------------------------------

    def _role_changed(self, partition: TopicPartition, leads: bool) -> None:
        before = self._partitions.pop(partition, None)
        if before is not None:
            before.stop()
        if leads:
            back = HeldBack(self._context.runtime, self._context.broker.led, partition)
            self._partitions[partition] = back
            back.start()


class HeldBack:
    """Held records of one partition while this broker leads it in one leader epoch.

    :ivar waiting: held records by ID.
    :ivar is_loaded: True once the log has been read; records are delivered only then.
    """

    def __init__(self, runtime: Runtime, led: LedPartitions, partition: TopicPartition) -> None:
        self.waiting: dict[bytes, Held] = {}
        self.is_loaded = False
        self._runtime = runtime
        self._led = led
        self._partition = partition
        self._order: list[Held] = []
        self._timer: IDelayedCall | None = None
        self._loading: Deferred[None] | None = None
        self._is_stopped = False

    def start(self) -> None:
        """Read the log, and then deliver records when they are due."""
        loading = self._loading = Deferred.fromCoroutine(self._load())
        loading.addErrback(self._load_failed)

    def stop(self) -> None:
        """Stop delivering: the leader or its epoch changed."""
        self._is_stopped = True
        if self._loading is not None:
            self._loading.cancel()
        self._cancel_timer()

    def add(self, note_offset: int, held: list[tuple[int, LogRecord]]) -> None:
        """Add the records of an appended note; while the log is being read, the reader finds the note itself."""
        if self.is_loaded:
            self._remember(note_offset, held)
            self._schedule()

    def _remember(self, note_offset: int, held: list[tuple[int, LogRecord]]) -> None:
        for index, (due_ms, record) in enumerate(held):
            one = Held(due_ms, note_offset, index, record)
            self.waiting[one.id] = one
            heapq.heappush(self._order, one)

    # --- loading -----------------------------------------------------------------------------------------------------

    async def _load(self) -> None:
        offset, end = self._led.bounds(self._partition)
        while offset < end:
            batches = await self._led.read(self._partition, offset)
            for batch in batches:
                if batch.note is not None:
                    self._remember(batch.base_offset, _decode(batch.note))
                elif self.waiting and batch.may_hold(HELD_AT.encode()):
                    for record in batch.records():
                        self.waiting.pop(_held_at(record), None)
            start, end = self._led.bounds(self._partition)
            offset = max(batches[-1].next_offset, start) if batches else end
        self.is_loaded = True
        self._schedule()

    def _load_failed(self, failure: Any) -> None:
        if self._is_stopped or failure.check(CancelledError) is not None:
            return
        log.failure("deliver-at: reading {partition} failed; retrying", failure, partition=str(self._partition))
        self.waiting.clear()
        self._order.clear()
        self._timer = self._runtime.reactor.callLater(RETRY_S, self.start)

    # --- delivering --------------------------------------------------------------------------------------------------

    def _schedule(self, wait_s: float | None = None) -> None:
        self._cancel_timer()
        while self._order and self._order[0].id not in self.waiting:
            heapq.heappop(self._order)
        if self._order and not self._is_stopped:
            if wait_s is None:
                left_ms = self._order[0].deliver_at_ms - self._runtime.wall_clock_ms()
                wait_s = min(max(left_ms / 1000, 0.0), WAIT_S_MAX)
            self._timer = self._runtime.reactor.callLater(wait_s, self._deliver)

    def _cancel_timer(self) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None

    def _deliver(self) -> None:
        now_ms = self._runtime.wall_clock_ms()
        due = self._due(now_ms)
        try:
            while due:
                self._append(due, now_ms)
                due = []
        except KafkaError as error:
            for one in due:
                heapq.heappush(self._order, one)
            if error.code is not ErrorCode.NOT_LEADER_OR_FOLLOWER:
                log.info("deliver-at: retrying {partition}: {error}", partition=str(self._partition), error=error)
            self._schedule(RETRY_S)
            return
        self._schedule()

    def _due(self, now_ms: int) -> list[Held]:
        due: list[Held] = []
        while self._order and len(due) < DELIVERED_AT_ONCE and self._order[0].deliver_at_ms <= now_ms:
            one = heapq.heappop(self._order)
            if one.id in self.waiting:
                due.append(one)
        return due

    def _append(self, due: list[Held], now_ms: int) -> None:
        """Append the records as one batch, or as several if the batch is too large."""
        records = [
            one.record._replace(timestamp_ms=now_ms, headers=(*one.record.headers, (HELD_AT, one.id))) for one in due
        ]
        try:
            self._led.append(self._partition, records)
        except KafkaError as error:
            if error.code not in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE) or len(due) == 1:
                raise
            half = len(due) // 2
            self._append(due[:half], now_ms)
            self._append(due[half:], now_ms)
            return
        for one in due:
            del self.waiting[one.id]


def _due_ms(record: LogRecord) -> int | None:
    for name, value in reversed(record.headers):
        if name == DELIVER_AT:
            text = (value or b"").decode(errors="replace")
            if not (text.isascii() and text.isdigit() and len(text) < 16):
                raise ValueError(f"{DELIVER_AT}: {text!r} is not a time in milliseconds since 1970")
            return int(text)
    return None


def _without_held_at(record: LogRecord) -> LogRecord:
    """Return the record without ``held-at`` headers: with one, a client could mark another record as delivered."""
    if not any(name == HELD_AT for name, _ in record.headers):
        return record
    return record._replace(headers=tuple(header for header in record.headers if header[0] != HELD_AT))


def _held_at(record: LogRecord) -> bytes:
    return next((value or b"" for name, value in reversed(record.headers) if name == HELD_AT), b"")


def _size(record: LogRecord) -> int:
    headers = sum(len(name) + len(value or b"") + 10 for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers


def _encode(held: list[tuple[int, LogRecord]]) -> bytes:
    rows = [
        [due_ms, record.timestamp_ms, _text(record.key), _text(record.value)]
        + [[name, _text(value)] for name, value in record.headers]
        for due_ms, record in held
    ]
    return json.dumps(rows, separators=(",", ":")).encode()


def _decode(note: bytes) -> list[tuple[int, LogRecord]]:
    return [
        (due_ms, LogRecord(made_ms, _bytes(key), _bytes(value), tuple((n, _bytes(v)) for n, v in headers)))
        for due_ms, made_ms, key, value, *headers in json.loads(note)
    ]


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
