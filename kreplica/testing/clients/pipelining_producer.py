"""An idempotent producer of several partitions that treats errors as librdkafka or the Java client does.

Up to five batches of a partition are in flight.  After an error the partition waits until no request of it is in
flight, and sends everything unacknowledged again, in order.  OUT_OF_ORDER_SEQUENCE_NUMBER for a batch that is not the
oldest one means that the broker skipped a batch:

* librdkafka waits until no request of any partition is in flight, raises the producer epoch and numbers everything
  unacknowledged from 0; a batch that is in a log but was not acknowledged is written again then.
* The Java client only sends the batch again.  It raises the epoch of one partition if its oldest batch is out of order
  (KIP-360); librdkafka stops for good then.
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
from kreplica.testing.anomalies.history import NO_OFFSET
from kreplica.testing.clients.idempotent_producer import (
    FORGOTTEN,
    IN_FLIGHT_MAX,
    RETRY_S_MAX,
    RETRY_S_MIN,
    Batch,
    Load,
    new_producer_id,
)
from kreplica.testing.clients.wire_client import WireClient, cancel, name_of, sleep
from kreplica.testing.histories.record_history import Listener
from kreplica.wire import messages
from kreplica.wire.batch_building import BatchBuilder

SAME_LEADER = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT)
"""Errors after which clients do not look for another leader."""


class Style(Enum):
    """Which client's reaction to OUT_OF_ORDER_SEQUENCE_NUMBER is simulated."""

    LIBRDKAFKA = "librdkafka"
    JAVA = "java"


class BatchRefused(KafkaError):
    """A broker refused a batch; counted when its answer came."""


class EpochWanted(KafkaError):
    """The pipeline ends so that the producer epoch can be raised."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "the producer epoch is about to be raised")


class Lane:
    """One partition of a producer.

    :ivar unacknowledged: batches in the order of their sequences, sent or to be sent again.
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
        """Number everything unacknowledged from 0 in that epoch."""
        self.epoch, self.must_restart = epoch, False
        sequence = 0
        for index, batch in enumerate(self.unacknowledged):
            self.unacknowledged[index] = batch._replace(base_sequence=sequence)
            sequence += len(batch.values)
        self.next_sequence = sequence


class PipeliningProducer:
    """Writes numbered values to all partitions of its load until ``finish``.

    :param client: makes the client of a partition's leader.
    :param history: records what was sent and what was acknowledged.
    :ivar resets: number of times a broker refused the oldest unacknowledged batch of a partition as out of order.
    :ivar raised: number of times the producer epoch was raised.
    :ivar errors: number of errors by name; of refusals by their code.
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
        self._lanes = [Lane(partition, client(partition)) for partition in load.partitions]
        self._running: Deferred[Any] | None = None

    def start(self) -> None:
        """Begin to write."""
        self._running = Deferred.fromCoroutine(self._run())

    def wind_up(self) -> None:
        """Stop writing new values; continue until everything sent is acknowledged."""
        self.is_finishing = True
        for lane in self._lanes:
            if lane.pipeline is not None:
                lane.pipeline.check_done()

    @property
    def is_done(self) -> bool:
        """Whether everything is acknowledged and nothing more will be written."""
        return all(self.is_lane_done(lane) for lane in self._lanes)

    def is_lane_done(self, lane: Lane) -> bool:
        """Whether everything of a partition is acknowledged and nothing more will be written to it."""
        return self.is_finishing and not lane.unacknowledged

    async def finish(self) -> None:
        """Stop writing new values, and wait until everything sent is acknowledged."""
        assert self._running is not None, "the producer was not started"
        self.wind_up()
        await self._running

    async def abandon(self) -> None:
        """Stop at once, without waiting for acknowledgements."""
        assert self._running is not None, "the producer was not started"
        self.wind_up()
        await cancel(self._running)

    # --- lanes -------------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            await self._identify()
            await gatherResults([Deferred.fromCoroutine(self._write_on(lane)) for lane in self._lanes])
        finally:
            for lane in self._lanes:
                await lane.client.close()

    async def _identify(self) -> None:
        client = self._lanes[0].client
        while self.producer_id < 0:
            try:
                self.producer_id = await new_producer_id(client, self.load.answer_timeout_s)
            except (ClientError, KafkaError) as error:
                self.errors[name_of(error)] += 1
                await client.close()
                await sleep(self.reactor, RETRY_S_MAX)

    async def _write_on(self, lane: Lane) -> None:
        retry_s = RETRY_S_MIN
        while not self.is_lane_done(lane):
            if self._is_raising:
                await self._epoch_raised()
            if lane.must_restart:
                self._epoch += 1
                self.raised += 1
                lane.restart(self._epoch)
            before = len(lane.unacknowledged) and lane.unacknowledged[0].number
            try:
                connection = await lane.client.connection()
                if not self._is_raising:
                    await Pipeline(self, lane, connection).run()
            except EpochWanted:
                continue
            except (ClientError, KafkaError) as error:
                self.errors[name_of(error)] += not isinstance(error, BatchRefused)
                if not (isinstance(error, KafkaError) and error.code in SAME_LEADER):
                    await lane.client.close()
                if lane.unacknowledged and lane.unacknowledged[0].number != before:
                    retry_s = RETRY_S_MIN
                await sleep(self.reactor, self.random.uniform(0, retry_s))
                retry_s = min(retry_s * 2, RETRY_S_MAX)

    # --- epochs ------------------------------------------------------------------------------------------------------

    def out_of_order(self, lane: Lane, *, oldest: bool) -> None:
        """A broker answered that a batch is out of order.

        :param oldest: it is the oldest unacknowledged batch of its partition.
        """
        self.resets += oldest
        if self._style is Style.JAVA:
            lane.must_restart = oldest
        elif not self._is_raising:
            self._is_raising = True
            for each in self._lanes:
                if each.pipeline is not None:
                    each.pipeline.stop(EpochWanted())

    def drained(self) -> None:
        """A request ended: raise the epoch if that is due and no request of any partition is in flight."""
        if self._is_raising and not any(lane.in_flight for lane in self._lanes):
            self._is_raising = False
            self._epoch += 1
            self.raised += 1
            for lane in self._lanes:
                lane.restart(self._epoch)
            waiting, self._waiting = self._waiting, []
            for each in waiting:
                each.callback(None)

    def _epoch_raised(self) -> Deferred[None]:
        raised: Deferred[None] = Deferred()
        self._waiting.append(raised)
        return raised


class Pipeline:
    """The requests of one partition on one connection, until the first error and the end of all that are in flight."""

    def __init__(self, producer: PipeliningProducer, lane: Lane, connection: Connection) -> None:
        self._producer = producer
        self._lane = lane
        self._connection = connection
        self._error: Exception | None = None
        self._over: Deferred[None] = Deferred()

    async def run(self) -> None:
        """Send everything unacknowledged, then new batches.

        :raise ClientError: the connection failed.
        :raise KafkaError: a batch was refused.
        """
        lane = self._lane
        lane.pipeline = self
        try:
            for batch in list(lane.unacknowledged):
                self._send(batch)
            self._go_on()
            self.check_done()
            await self._over
        finally:
            lane.pipeline = None

    def stop(self, error: Exception) -> None:
        """Stop sending; ``run`` raises this once nothing is in flight, unless it has another error already."""
        if self._error is None:
            self._error = error
        if not self._lane.in_flight and not self._over.called:
            self._over.errback(Failure(self._error))

    def check_done(self) -> None:
        """End if everything is acknowledged and nothing more will be written."""
        if not self._over.called and self._error is None and self._producer.is_lane_done(self._lane):
            self._over.callback(None)

    def _go_on(self) -> None:
        """Send a new batch after a while, if there may be one more in flight."""
        if len(self._lane.unacknowledged) < IN_FLIGHT_MAX:
            wait_s = self._producer.random.expovariate(1 / self._producer.load.interval_s)
            self._producer.reactor.callLater(wait_s, self._next)

    def _next(self) -> None:
        if self._over.called or self._error is not None or self._producer.is_finishing:
            return
        lane, load, random, history = self._lane, self._producer.load, self._producer.random, self._producer.history
        sizes = [int(random.random() * (load.value_size_max + 1)) for _ in range(random.randint(1, load.records_max))]
        values = [history.next_value(lane.partition, size) for size in sizes]
        number = history.sending(lane.client.client_id, lane.partition, values)
        batch = Batch(lane.next_sequence, values, number)
        lane.next_sequence += len(values)
        lane.unacknowledged.append(batch)
        self._send(batch)
        self._go_on()

    def _send(self, batch: Batch) -> None:
        lane, load, now_ms = self._lane, self._producer.load, self._producer.wall_clock_ms()
        builder = BatchBuilder(
            producer_id=self._producer.producer_id, producer_epoch=lane.epoch, base_sequence=batch.base_sequence
        )
        for value in batch.values:
            builder.append(now_ms, None, value)
        row = {"index": lane.partition, "records": builder.build()}
        body = {
            "transactional_id": None,
            "acks": load.acks,
            "timeout_ms": int(load.answer_timeout_s * 500),
            "topic_data": [{"name": load.topic, "partition_data": [row]}],
        }
        lane.in_flight += 1
        version = self._connection.version(messages.PRODUCE)
        answer = self._connection.request(messages.PRODUCE, version, body, timeout_s=load.answer_timeout_s)
        answer.addCallbacks(self._answered, self._lost, callbackArgs=(batch,))
        answer.addBoth(self._ended)

    def _answered(self, answer: dict[str, Any], batch: Batch) -> None:
        lane = self._lane
        row = answer["responses"][0]["partition_responses"][0]
        code = ErrorCode.of(row["error_code"])
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            was_full = len(lane.unacknowledged) >= IN_FLIGHT_MAX
            lane.unacknowledged.remove(batch)
            base_offset = NO_OFFSET if code else row["base_offset"]
            self._producer.history.acknowledged(lane.partition, base_offset, batch.values, batch.number)
            if was_full and self._error is None:
                self._go_on()
            return
        self._producer.errors[code.name] += 1
        if self._error is None:
            self._error = BatchRefused(code)
        if code in FORGOTTEN:
            self._producer.out_of_order(lane, oldest=batch is lane.unacknowledged[0])

    def _lost(self, failure: Failure) -> None:
        failure.trap(ClientError)
        if self._error is None:
            assert isinstance(failure.value, ClientError)
            self._error = failure.value

    def _ended(self, result: Failure | None) -> Failure | None:
        self._lane.in_flight -= 1
        if self._error is not None:
            self.stop(self._error)
        self.check_done()
        self._producer.drained()
        return result
