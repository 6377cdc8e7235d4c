"""Idempotent producer with several batches in flight and unlimited retries."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred

from kreplica.client.connection import Connection
from kreplica.client.errors import ClientError
from kreplica.errors import ErrorCode, KafkaError
from kreplica.runtime import Runtime
from kreplica.runtime.pause import pause
from kreplica.testing.anomalies.history import NO_OFFSET
from kreplica.testing.clients.wire_client import WireClient, cancel, name_of, run_and_close
from kreplica.testing.histories.record_history import Listener
from kreplica.wire import messages
from kreplica.wire.batch_building import BatchBuilder

IN_FLIGHT_MAX = 5
"""Maximum number of unacknowledged batches per partition; a broker remembers as many per producer (KIP-98)."""

RETRY_S_MIN, RETRY_S_MAX = 0.05, 1.0

STATE_LOST = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID)
"""Errors for the oldest unacknowledged batch which mean that the broker has lost earlier batches."""


@dataclass(frozen=True, slots=True)
class Load:
    """Workload of a producer.

    :param acks: -1 or 1.
    :param interval_s: mean time between two batches of one partition.
    :param records_max: maximum number of records per batch.
    :param value_size_max: maximum size of a record's value in bytes.
    :param idempotent: false to send without sequence numbers, so that a retry may duplicate a batch.
    :param request_timeout_s: response timeout; half of it is the timeout in the request.
    """

    topic: str
    partitions: Sequence[int] = (0,)
    acks: int = -1
    interval_s: float = 0.005
    records_max: int = 4
    value_size_max: int = 300
    idempotent: bool = True
    request_timeout_s: float = 10.0


class Batch(NamedTuple):
    """Values with their sequence numbers, sent unchanged until they are acknowledged.

    :param number: the batch's number in the history.
    """

    base_sequence: int
    values: list[bytes]
    number: int


async def new_producer_id(client: WireClient, timeout_s: float) -> int:
    """Request a producer ID.

    :raise ClientError: no response.
    :raise KafkaError: the broker rejected the request.
    """
    body = {"transactional_id": None, "transaction_timeout_ms": 0, "producer_id": -1, "producer_epoch": -1}
    response = await client.request(messages.INIT_PRODUCER_ID, body, timeout_s=timeout_s)
    if response["error_code"]:
        raise KafkaError(ErrorCode(response["error_code"]))
    return int(response["producer_id"])


class IdempotentProducer:
    """Writes numbered values until ``finish``; after any error, it reconnects and resends in order.

    :param history: is notified of sent and acknowledged batches.
    :ivar resets: number of new producer IDs requested because the broker had lost earlier records.
    :ivar errors: number of errors by name.
    :ivar resent: numbers of batches that were sent more than once; an earlier attempt may still arrive.
    """

    def __init__(self, runtime: Runtime, client: WireClient, load: Load, history: Listener) -> None:
        self.resets = 0
        self.errors: Counter[str] = Counter()
        self.resent: set[int] = set()
        self._reactor = runtime.reactor
        self._random: Random = runtime.random
        self._wall_clock_ms = runtime.wall_clock_ms
        self._client = client
        self._load = load
        self._history = history
        self._producer_id = -1
        self._unacknowledged: dict[int, deque[Batch]] = {partition: deque() for partition in load.partitions}
        self._sequences = dict.fromkeys(load.partitions, 0)
        self._retry_s = RETRY_S_MIN
        self._finishing = False
        self._running: Deferred[None] | None = None

    def start(self) -> None:
        self._running = Deferred.fromCoroutine(self._run())

    def drain(self) -> None:
        """Stop writing new batches, and continue until all sent batches are acknowledged."""
        self._finishing = True

    @property
    def is_done(self) -> bool:
        return self._finishing and not any(self._unacknowledged.values())

    async def finish(self) -> None:
        """Stop writing new batches, and wait until all sent batches are acknowledged."""
        assert self._running is not None, "the producer was not started"
        self.drain()
        await self._running

    async def abandon(self) -> None:
        """Stop at once, without waiting for acknowledgements."""
        assert self._running is not None, "the producer was not started"
        self.drain()
        await cancel(self._running)

    async def _run(self) -> None:
        await run_and_close(self._client, self._write_until_done())

    async def _write_until_done(self) -> None:
        while not self.is_done:
            try:
                await self._write(await self._client.connection())
            except (ClientError, KafkaError) as error:
                self.errors[name_of(error)] += 1
                # Sent batches may be in the log; the broker recognizes duplicates.
                await self._client.close()
                await pause(self._reactor, self._random.uniform(0, self._retry_s))
                self._retry_s = min(self._retry_s * 2, RETRY_S_MAX)

    async def _write(self, connection: Connection) -> None:
        """Use one connection until an error occurs or all batches are acknowledged."""
        if self._producer_id < 0 and self._load.idempotent:
            self._producer_id = await new_producer_id(self._client, self._load.request_timeout_s)
        done: Deferred[None] = Deferred()
        for partition, batches in self._unacknowledged.items():
            for batch in batches:
                self.resent.add(batch.number)
                self._send(connection, partition, batch, done)
        for partition, batches in self._unacknowledged.items():
            if len(batches) < IN_FLIGHT_MAX:
                self._schedule_next(connection, partition, done)
        if not self.is_done:
            await done

    def _schedule_next(self, connection: Connection, partition: int, done: Deferred[None]) -> None:
        wait_s = self._random.expovariate(1 / self._load.interval_s)
        self._reactor.callLater(wait_s, self._send_next, connection, partition, done)

    def _send_next(self, connection: Connection, partition: int, done: Deferred[None]) -> None:
        if done.called:
            return
        if self._finishing:
            if self.is_done:
                done.callback(None)
            return
        count = self._random.randint(1, self._load.records_max)
        values = [self._history.next_value(partition, self._size()) for _ in range(count)]
        number = self._history.sending(self._client.client_id, partition, values)
        batch = Batch(self._sequences[partition], values, number)
        self._sequences[partition] += count
        self._unacknowledged[partition].append(batch)
        self._send(connection, partition, batch, done)
        if len(self._unacknowledged[partition]) < IN_FLIGHT_MAX:
            self._schedule_next(connection, partition, done)

    def _size(self) -> int:
        return int(self._random.random() * (self._load.value_size_max + 1))

    def _send(self, connection: Connection, partition: int, batch: Batch, done: Deferred[None]) -> None:
        builder = self._builder(batch)
        now_ms = self._wall_clock_ms()
        for value in batch.values:
            builder.append(now_ms, None, value)
        row = {"index": partition, "records": builder.build()}
        body = {
            "transactional_id": None,
            "acks": self._load.acks,
            "timeout_ms": int(self._load.request_timeout_s * 500),
            "topic_data": [{"name": self._load.topic, "partition_data": [row]}],
        }
        version = connection.version(messages.PRODUCE)
        response = connection.request(messages.PRODUCE, version, body, timeout_s=self._load.request_timeout_s)
        response.addCallback(self._responded, connection, partition, batch, done)
        response.addErrback(lambda failure: None if done.called else done.errback(failure))

    def _builder(self, batch: Batch) -> BatchBuilder:
        if not self._load.idempotent:
            return BatchBuilder()
        return BatchBuilder(producer_id=self._producer_id, producer_epoch=0, base_sequence=batch.base_sequence)

    def _responded(
        self, response: dict[str, Any], connection: Connection, partition: int, batch: Batch, done: Deferred[None]
    ) -> None:
        if done.called:
            return  # an earlier batch failed, so this batch is sent again, too
        row = response["responses"][0]["partition_responses"][0]
        code = ErrorCode.of(row["error_code"])
        if code in STATE_LOST and batch is self._unacknowledged[partition][0]:
            self._reset_producer_id()
        if code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            row["base_offset"] = NO_OFFSET  # it is in the log, but too old for the broker to know its offset
        elif code:
            done.errback(KafkaError(code))
            return
        unacknowledged = self._unacknowledged[partition]
        if len(unacknowledged) == IN_FLIGHT_MAX:
            self._schedule_next(connection, partition, done)
        acknowledged = unacknowledged.popleft()
        assert acknowledged is batch, "responses arrive in the order of the requests"
        self._history.acknowledged(partition, row["base_offset"], batch.values, batch.number)
        self._retry_s = RETRY_S_MIN
        if self.is_done:
            done.callback(None)

    def _reset_producer_id(self) -> None:
        """Request a new producer ID and restart sequences at 0, because earlier records are lost (KIP-360)."""
        self.resets += 1
        self._producer_id = -1
        for partition, batches in self._unacknowledged.items():
            sequence = 0
            for index, batch in enumerate(batches):
                batches[index] = batch._replace(base_sequence=sequence)
                sequence += len(batch.values)
            self._sequences[partition] = sequence
