"""Collects records in batches by partition, within the memory limit and the linger time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import TypeAlias

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall

from kreplica.client.cluster import Cluster
from kreplica.client.producer.completion_counter import CompletionCounter
from kreplica.client.producer.options import ProducerOptions
from kreplica.client.producer.pending_metadata import PendingRecord, PendingRecords
from kreplica.client.producer.record_batch import (
    LARGE,
    LARGE_OVERHEAD,
    RECORD_OVERHEAD,
    GatheredBatch,
    Waiter,
    as_bytes,
    checked_headers,
)
from kreplica.client.producer.record_deferreds import fail_record
from kreplica.client_core.errors import BufferFull, ClientError, RecordTooLarge
from kreplica.client_core.metadata import TopicView
from kreplica.client_core.partition_queue import IN_FLIGHT_MAX, ORDER_STEP, PartitionQueue
from kreplica.model import TopicPartition
from kreplica.wire.batches import HEADER_SIZE
from kreplica.wire.records import Headers

OutgoingQueue: TypeAlias = PartitionQueue[GatheredBatch]

FREE_FRACTION = 8
"""Waiting senders continue when at least 1/8 of the memory is free."""


class _Topic:
    """A topic and its queues.

    :ivar view: the topic's metadata at the time when a batch was last opened.
    :ivar queues: by partition number.
    """

    __slots__ = ("name", "queues", "view")

    def __init__(self, name: str, view: TopicView) -> None:
        self.name = name
        self.view = view
        self.queues: dict[int, OutgoingQueue] = {}


class Accumulator:
    """Collects records; owned by a producer.  Closed batches belong to the sender.

    :param wake: called with a queue that may have a batch to send.
    :param not_written: called with the error of a record that fails before it is in a batch.
    :ivar closed_size: bytes of batches closed since the caller reset it to 0.
    """

    def __init__(
        self,
        cluster: Cluster,
        options: ProducerOptions,
        wake: Callable[[OutgoingQueue], None],
        not_written: Callable[[ClientError], None],
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._reactor = cluster.runtime.reactor
        self._wall_clock_ms = cluster.runtime.wall_clock_ms
        self._wake = wake
        self._not_written = not_written
        self._memory_size_max = options.memory_size_max
        self._record_size_max = min(options.request_size_max, options.memory_size_max)
        self._batch_size = options.batch_size
        self._partitioner = options.partitioner(cluster.runtime.random)
        self._choose_partition = self._partitioner.partition
        self._topics: dict[str, _Topic] = {}
        self._pending = PendingRecords(
            cluster, options.topic_timeout_s, self._on_metadata_found, self._on_metadata_missing
        )
        self._used_size = 0
        self.closed_size = 0
        self._room_waiters: deque[Deferred[None]] = deque()
        self._last_order = 0
        self._lingering: deque[tuple[GatheredBatch, OutgoingQueue]] = deque()
        self._due_call: IDelayedCall | None = None

    # --- adding records ---

    def add(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        partition: int | None,
        timestamp_ms: int | None,
        waiter: Waiter,
    ) -> ClientError | None:
        """Add a record.

        :return: the error if the record was not accepted, otherwise None.
        """
        # Runs for each record, so function calls are avoided.
        size = RECORD_OVERHEAD
        if value is not None:
            if value.__class__ is not bytes:
                value = as_bytes(value)
            size += len(value)
        if key is not None:
            if key.__class__ is not bytes:
                key = as_bytes(key)
            size += len(key)
        if headers:
            headers, headers_size = checked_headers(headers)
            size += headers_size
        if size > LARGE:
            size += LARGE_OVERHEAD
        used_size = self._used_size + size
        if used_size > self._memory_size_max or size > self._record_size_max:
            return self._rejection(size)
        if timestamp_ms is None:
            timestamp_ms = self._wall_clock_ms()
        entry = self._topics.get(topic) or self._topic_entry(topic)
        chosen = partition
        if chosen is None and entry is not None:
            chosen = self._choose_partition(entry.view, key)
        queue = None if entry is None or chosen is None else entry.queues.get(chosen) or self._new_queue(entry, chosen)
        if queue is None:
            lookup_key = topic, None if entry is None else chosen
            record = PendingRecord(topic, key, value, headers, partition, timestamp_ms, size, waiter)
            self._pending.add(lookup_key, record)
            self._used_size += size
            return None
        batch = queue.open
        if batch is None or batch.size + size > self._batch_size:
            batch = self._next_batch(queue, key, partition)
        self._used_size = used_size
        batch.size += size
        batch.fields += (timestamp_ms, key, value, headers, waiter)
        return None

    def _rejection(self, size: int) -> ClientError:
        if size > self._record_size_max:
            error = RecordTooLarge(f"a record of {size:,} bytes exceeds the limit of {self._record_size_max:,}")
            self._not_written(error)
            return error
        used = f"{self._used_size:,} of {self._memory_size_max:,} bytes"
        return BufferFull(f"{used} of memory are used by pending records")

    def _topic_entry(self, name: str) -> _Topic | None:
        view = self._cluster.view.topics.get(name)
        if view is None or (name, None) in self._pending:
            return None
        entry = self._topics[name] = _Topic(name, view)
        return entry

    def _new_queue(self, topic: _Topic, partition: int) -> OutgoingQueue | None:
        """Create the queue of a partition; return None while the partition is unknown."""
        topic.view = self._cluster.view.topics.get(topic.name, topic.view)
        if topic.view.partition(partition) is None or (topic.name, partition) in self._pending:
            return None
        in_flight_max = IN_FLIGHT_MAX if self._options.is_idempotent else 1
        queue = topic.queues[partition] = OutgoingQueue(TopicPartition(topic.name, partition), in_flight_max)
        return queue

    def _next_batch(self, queue: OutgoingQueue, key: bytes | None, partition: int | None) -> GatheredBatch:
        """Open a batch; if the previous one is full, the partitioner may choose another partition for it."""
        name = queue.partition.topic
        if queue.open is not None:
            self.close_batch(queue)
            topic = self._topics[name]
            topic.view = self._cluster.view.topics.get(name, topic.view)
            if partition is None:
                chosen = self._choose_partition(topic.view, key)
                queue = topic.queues.get(chosen) or self._new_queue(topic, chosen) or queue
        if queue.open is not None:
            return queue.open
        now_s, options = self._reactor.seconds(), self._options
        self._last_order += ORDER_STEP
        times = now_s + options.linger_s, now_s + options.delivery_timeout_s
        is_transactional = options.transactional_id is not None
        order = self._last_order
        batch = GatheredBatch(queue.partition, order, times, options.codec, is_transactional=is_transactional)
        queue.open = batch
        if options.linger_s:
            self._lingering.append((batch, queue))
            self._set_due_call()
        else:
            self._wake(queue)
        return batch

    # --- closing batches ---

    def queues(self) -> Iterator[OutgoingQueue]:
        """Yield all queues."""
        for topic in self._topics.values():
            yield from topic.queues.values()

    def close_due(self, queue: OutgoingQueue, now_s: float) -> None:
        """Close a queue's open batch if its linger time is over and the queue has no earlier batches."""
        batch = queue.open
        if batch is not None and batch.due_s <= now_s and not queue.in_flight and not queue.waiting:
            self.close_batch(queue)

    def close_batch(self, queue: OutgoingQueue) -> None:
        """Close a queue's open batch, if there is one."""
        batch, queue.open = queue.open, None
        if batch is None:
            return
        self._partitioner.full(*queue.partition)
        self.closed_size += batch.size
        batch.close()
        queue.waiting.append(batch)
        self._wake(queue)

    def release(self, batches: list[GatheredBatch]) -> None:
        """Free the memory of completed batches and notify their waiters."""
        self._used_size -= sum(batch.size - HEADER_SIZE for batch in batches)
        for batch in batches:
            batch.notify_waiters()
        self._notify_room_waiters()

    def flush(self) -> CompletionCounter:
        """Close all open batches.

        :return: counts the batches without an outcome; records that wait for metadata (see ``lookups``) are not
            included.
        """
        flush = CompletionCounter()
        for queue in self.queues():
            self.close_batch(queue)
            for batch in (*queue.waiting, *queue.in_flight):
                batch.flushes.append(flush)
                flush.pending += 1
        return flush

    def lookups(self) -> list[Deferred[None]]:
        """Return a Deferred for each pending metadata lookup; it fires when the lookup is complete."""
        return self._pending.lookups()

    def drop(self, error: ClientError) -> None:
        """Fail the records that wait for metadata and those in open batches."""
        self._pending.drop(error)
        dropped = []
        for queue in self.queues():
            batch, queue.open = queue.open, None
            if batch is not None:
                batch.outcome.error, batch.outcome.is_settled = error, True
                dropped.append(batch)
        self.release(dropped)

    def close(self, error: ClientError) -> None:
        """Fail unsent records and waiting senders, and cancel timers."""
        self.drop(error)
        if self._due_call is not None:
            self._due_call.cancel()
            self._due_call = None
        waiting, self._room_waiters = self._room_waiters, deque()
        for waiter in waiting:
            if not waiter.called:
                waiter.errback(error)

    # --- memory ---

    @property
    def has_room(self) -> bool:
        """True if enough memory is free for waiting senders to continue."""
        memory = self._options.memory_size_max
        return self._used_size <= memory - memory // FREE_FRACTION

    def room(self) -> Deferred[None]:
        """Return a Deferred that fires when enough memory is free."""
        waiter: Deferred[None] = Deferred()
        self._room_waiters.append(waiter)
        self._close_batches_if_idle()
        return waiter

    def _notify_room_waiters(self) -> None:
        while self._room_waiters and self.has_room:
            waiter = self._room_waiters.popleft()
            if not waiter.called:
                waiter.callback(None)
        if self._room_waiters:
            self._close_batches_if_idle()

    def _close_batches_if_idle(self) -> None:
        """Close open batches if no closed batch is pending; only the outcome of a batch frees memory."""
        if not any(queue.waiting or queue.in_flight for queue in self.queues()):
            for queue in self.queues():
                self.close_batch(queue)

    # --- topics without metadata ---

    def _on_metadata_found(self, records: list[PendingRecord]) -> None:
        """Add records whose topic or partition has become known."""
        self._used_size -= sum(record.size for record in records)
        for topic, key, value, headers, partition, timestamp_ms, _, waiter in records:
            error = self.add(topic, key, value, headers, partition, timestamp_ms, waiter)
            if error is not None:
                self._not_written(error)
                fail_record(waiter, error)

    def _on_metadata_missing(self, records: list[PendingRecord], error: ClientError) -> None:
        self._used_size -= sum(record.size for record in records)
        self._not_written(error)
        for record in records:
            fail_record(record.waiter, error)
        self._notify_room_waiters()

    # --- time ---

    def _set_due_call(self) -> None:
        if self._due_call is None and self._lingering:
            wait_s = self._lingering[0][0].due_s - self._reactor.seconds()
            self._due_call = self._reactor.callLater(max(0.0, wait_s), self._on_due)

    def _on_due(self) -> None:
        self._due_call = None
        now_s = self._reactor.seconds()
        while self._lingering:
            batch, queue = self._lingering[0]
            if batch.due_s > now_s and queue.open is batch:
                break
            self._lingering.popleft()
            if queue.open is batch:
                self._wake(queue)
        self._set_due_call()
