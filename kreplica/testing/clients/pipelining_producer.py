"""Idempotent producer of several partitions that handles errors like librdkafka or the Java client.

Up to five batches of a partition are in flight.  After an error, the partition waits until none of its requests is in
flight, and sends all unacknowledged batches again, in order.  OUT_OF_ORDER_SEQUENCE_NUMBER for a batch that is not the
oldest one means that the broker skipped a batch:

* librdkafka waits until no request of any partition is in flight, raises the producer epoch and renumbers all
  unacknowledged batches from 0; this duplicates a batch that is in the log but was not acknowledged.
* The Java client only sends the batch again.  If the oldest batch of a partition is out of order, it raises the epoch
  of that partition (KIP-360), whereas librdkafka fails permanently.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from enum import Enum
from random import Random
from typing import Any

from twisted.internet.defer import Deferred, gatherResults
from twisted.python.failure import Failure

from kreplica.client.connection import Connection
from kreplica.client.errors import ClientError
from kreplica.errors import ErrorCode, KafkaError
from kreplica.runtime import Runtime
from kreplica.runtime.pause import pause
from kreplica.testing.anomalies.history import NO_OFFSET
from kreplica.testing.clients.idempotent_producer import (
    IN_FLIGHT_MAX,
    RETRY_S_MAX,
    RETRY_S_MIN,
    STATE_LOST,
    Batch,
    Load,
    new_producer_id,
)
from kreplica.testing.clients.wire_client import WireClient, cancel, name_of
from kreplica.testing.histories.record_history import Listener
from kreplica.wire import messages
from kreplica.wire.batch_building import BatchBuilder

SAME_LEADER = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT)
"""Errors after which clients do not look up the leader."""


class Style(Enum):
    """Client whose reaction to OUT_OF_ORDER_SEQUENCE_NUMBER is simulated."""

    LIBRDKAFKA = "librdkafka"
    JAVA = "java"


class BatchRejected(KafkaError):
    """A broker rejected a batch; the error has been counted already."""


class EpochBumpPending(KafkaError):
    """The pipeline ends so that the producer epoch can be raised."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "the producer epoch is about to be raised")


class PartitionQueue:
    """Batches of one partition.

    :ivar unacknowledged: batches in the order of their sequences, sent or waiting to be sent again.
    :ivar in_flight: number of requests without a response.
    :ivar must_restart: the next pipeline starts with a higher epoch and sequence 0.
    """

    def __init__(self, partition: int, client: WireClient) -> None:
        self.partition = partition
        self.client = client
        self.unacknowledged: deque[Batch] = deque()
        self.epoch = 0
        self.next_sequence = 0
        self.in_flight = 0
        self.must_restart = False
        self.pipeline: Pipeline | None = None

    def restart(self, epoch: int) -> None:
        """Renumber all unacknowledged batches from 0 in a new epoch."""
        self.epoch, self.must_restart = epoch, False
        sequence = 0
        for index, batch in enumerate(self.unacknowledged):
            self.unacknowledged[index] = batch._replace(base_sequence=sequence)
            sequence += len(batch.values)
        self.next_sequence = sequence


class PipeliningProducer:
    """Writes numbered values to all partitions of its load until ``finish``.

    :param client: function that creates the client of a partition's leader.
    :param history: is notified of sent and acknowledged batches.
    :ivar resets: number of times a broker rejected the oldest unacknowledged batch of a partition as out of order.
    :ivar raised: number of times the producer epoch was raised.
    :ivar errors: number of errors by name.
    """

    def __init__(
        self,
        runtime: Runtime,
        client: Callable[[int], WireClient],
        load: Load,
        history: Listener,
        style: Style = Style.LIBRDKAFKA,
    ) -> None:
        self.resets = 0
        self.raised = 0
        self.errors: Counter[str] = Counter()
        self.load = load
        self.history = history
        self.reactor = runtime.reactor
        self.random: Random = runtime.random
        self.wall_clock_ms = runtime.wall_clock_ms
        self.producer_id = -1
        self.is_finishing = False
        self._style = style
        self._epoch = 0
        self._is_raising = False
        self._waiting: list[Deferred[None]] = []
        self._queues = [PartitionQueue(partition, client(partition)) for partition in load.partitions]
        self._running: Deferred[Any] | None = None

    def start(self) -> None:
        self._running = Deferred.fromCoroutine(self._run())

    def drain(self) -> None:
        self.is_finishing = True
        for queue in self._queues:
            if queue.pipeline is not None:
                queue.pipeline.check_done()

    @property
    def is_done(self) -> bool:
        return all(self.is_partition_done(queue) for queue in self._queues)

    def is_partition_done(self, queue: PartitionQueue) -> bool:
        return self.is_finishing and not queue.unacknowledged

    async def finish(self) -> None:
        assert self._running is not None, "the producer was not started"
        self.drain()
        await self._running

    async def abandon(self) -> None:
        assert self._running is not None, "the producer was not started"
        self.drain()
        await cancel(self._running)

    # --- partitions --------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            await self._identify()
            await gatherResults([Deferred.fromCoroutine(self._write_until_done(queue)) for queue in self._queues])
        finally:
            for queue in self._queues:
                await queue.client.close()

    async def _identify(self) -> None:
        client = self._queues[0].client
        while self.producer_id < 0:
            try:
                self.producer_id = await new_producer_id(client, self.load.request_timeout_s)
            except (ClientError, KafkaError) as error:
                self.errors[name_of(error)] += 1
                await client.close()
                await pause(self.reactor, RETRY_S_MAX)

    async def _write_until_done(self, queue: PartitionQueue) -> None:
        retry_s = RETRY_S_MIN
        while not self.is_partition_done(queue):
            if self._is_raising:
                await self._wait_for_epoch_raise()
            if queue.must_restart:
                self._epoch += 1
                self.raised += 1
                queue.restart(self._epoch)
            oldest_number = len(queue.unacknowledged) and queue.unacknowledged[0].number
            try:
                connection = await queue.client.connection()
                if not self._is_raising:
                    await Pipeline(self, queue, connection).run()
            except EpochBumpPending:
                continue
            except (ClientError, KafkaError) as error:
                self.errors[name_of(error)] += not isinstance(error, BatchRejected)
                if not (isinstance(error, KafkaError) and error.code in SAME_LEADER):
                    await queue.client.close()
                if queue.unacknowledged and queue.unacknowledged[0].number != oldest_number:
                    retry_s = RETRY_S_MIN
                await pause(self.reactor, self.random.uniform(0, retry_s))
                retry_s = min(retry_s * 2, RETRY_S_MAX)

    # --- epochs ------------------------------------------------------------------------------------------------------

    def out_of_order(self, queue: PartitionQueue, *, is_oldest: bool) -> None:
        """Handle an out-of-order error from a broker.

        :param is_oldest: true for the oldest unacknowledged batch of its partition.
        """
        self.resets += is_oldest
        if self._style is Style.JAVA:
            queue.must_restart = is_oldest
        elif not self._is_raising:
            self._is_raising = True
            for other_queue in self._queues:
                if other_queue.pipeline is not None:
                    other_queue.pipeline.stop(EpochBumpPending())

    def raise_epoch_if_drained(self) -> None:
        """Raise the epoch if this is pending and no request of any partition is in flight."""
        if self._is_raising and not any(queue.in_flight for queue in self._queues):
            self._is_raising = False
            self._epoch += 1
            self.raised += 1
            for queue in self._queues:
                queue.restart(self._epoch)
            waiting, self._waiting = self._waiting, []
            for deferred in waiting:
                deferred.callback(None)

    def _wait_for_epoch_raise(self) -> Deferred[None]:
        raised: Deferred[None] = Deferred()
        self._waiting.append(raised)
        return raised


class Pipeline:
    """Requests of one partition on one connection; it ends after an error, when no request is in flight."""

    def __init__(self, producer: PipeliningProducer, queue: PartitionQueue, connection: Connection) -> None:
        self._producer = producer
        self._queue = queue
        self._connection = connection
        self._error: Exception | None = None
        self._done: Deferred[None] = Deferred()

    async def run(self) -> None:
        """Send all unacknowledged batches, then new batches.

        :raise ClientError: the connection failed.
        :raise KafkaError: a batch was rejected.
        """
        queue = self._queue
        queue.pipeline = self
        try:
            for batch in list(queue.unacknowledged):
                self._send(batch)
            self._schedule_next()
            self.check_done()
            await self._done
        finally:
            queue.pipeline = None

    def stop(self, error: Exception) -> None:
        """Stop sending; when nothing is in flight, ``run`` raises the first error."""
        if self._error is None:
            self._error = error
        if not self._queue.in_flight and not self._done.called:
            self._done.errback(Failure(self._error))

    def check_done(self) -> None:
        """End if all batches are acknowledged and no further batches will be written."""
        if not self._done.called and self._error is None and self._producer.is_partition_done(self._queue):
            self._done.callback(None)

    def _schedule_next(self) -> None:
        """Schedule a new batch if fewer than the maximum are in flight."""
        if len(self._queue.unacknowledged) < IN_FLIGHT_MAX:
            wait_s = self._producer.random.expovariate(1 / self._producer.load.interval_s)
            self._producer.reactor.callLater(wait_s, self._send_next)

    def _send_next(self) -> None:
        if self._done.called or self._error is not None or self._producer.is_finishing:
            return
        queue, load, random, history = self._queue, self._producer.load, self._producer.random, self._producer.history
        sizes = [int(random.random() * (load.value_size_max + 1)) for _ in range(random.randint(1, load.records_max))]
        values = [history.next_value(queue.partition, size) for size in sizes]
        number = history.sending(queue.client.client_id, queue.partition, values)
        batch = Batch(queue.next_sequence, values, number)
        queue.next_sequence += len(values)
        queue.unacknowledged.append(batch)
        self._send(batch)
        self._schedule_next()

    def _send(self, batch: Batch) -> None:
        queue, load, now_ms = self._queue, self._producer.load, self._producer.wall_clock_ms()
        builder = BatchBuilder(
            producer_id=self._producer.producer_id, producer_epoch=queue.epoch, base_sequence=batch.base_sequence
        )
        for value in batch.values:
            builder.append(now_ms, None, value)
        row = {"index": queue.partition, "records": builder.build()}
        body = {
            "transactional_id": None,
            "acks": load.acks,
            "timeout_ms": int(load.request_timeout_s * 500),
            "topic_data": [{"name": load.topic, "partition_data": [row]}],
        }
        queue.in_flight += 1
        version = self._connection.version(messages.PRODUCE)
        response = self._connection.request(messages.PRODUCE, version, body, timeout_s=load.request_timeout_s)
        response.addCallbacks(self._responded, self._on_lost, callbackArgs=(batch,))
        response.addBoth(self._on_end)

    def _responded(self, response: dict[str, Any], batch: Batch) -> None:
        queue = self._queue
        row = response["responses"][0]["partition_responses"][0]
        code = ErrorCode.of(row["error_code"])
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            was_full = len(queue.unacknowledged) >= IN_FLIGHT_MAX
            queue.unacknowledged.remove(batch)
            base_offset = NO_OFFSET if code else row["base_offset"]
            self._producer.history.acknowledged(queue.partition, base_offset, batch.values, batch.number)
            if was_full and self._error is None:
                self._schedule_next()
            return
        self._producer.errors[code.name] += 1
        if self._error is None:
            self._error = BatchRejected(code)
        if code in STATE_LOST:
            self._producer.out_of_order(queue, is_oldest=batch is queue.unacknowledged[0])

    def _on_lost(self, failure: Failure) -> None:
        failure.trap(ClientError)
        if self._error is None:
            assert isinstance(failure.value, ClientError)
            self._error = failure.value

    def _on_end(self, result: Failure | None) -> Failure | None:
        self._queue.in_flight -= 1
        if self._error is not None:
            self.stop(self._error)
        self.check_done()
        self._producer.raise_epoch_if_drained()
        return result
