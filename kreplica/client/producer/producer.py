"""``Producer``: writes records in batches."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable, Mapping
from types import TracebackType
from typing import Self

from twisted.internet.defer import Deferred, fail

from kreplica.client.cluster import Cluster
from kreplica.client.producer.accumulator import Accumulator
from kreplica.client.producer.completion_counter import CompletionCounter
from kreplica.client.producer.options import ProducerOptions
from kreplica.client.producer.producer_id import IdempotentIdentity
from kreplica.client.producer.record_batch import GatheredBatch, OutgoingRecord
from kreplica.client.producer.record_deferreds import RecordDeferred
from kreplica.client.producer.sender import Sender
from kreplica.client.producer.transactions import Transactions
from kreplica.client.producer.written_record import Written
from kreplica.client_core.errors import BufferFull, ClientError, DeliveryFailed, ProducerUnusable, TransactionFailed
from kreplica.client_core.offsets import CommittedOffset, GroupIdentity
from kreplica.client_core.partition_queue import ProducerIdentity
from kreplica.client_core.transactions import Phase
from kreplica.model import TopicPartition
from kreplica.runtime.pause import pause
from kreplica.wire.records import Headers

YIELD_SIZE = 128 << 10
"""Number of bytes in closed batches after which a sending coroutine yields to the reactor, so that they are sent."""


class Producer:
    """Writes records; use it as an asynchronous context manager, or call ``close``.

    Records of one partition are written in the order in which they were sent, unless one fails.  If the body of the
    ``async with`` statement raises an error, pending records fail and an open transaction is aborted.

    :param cluster: stays open when the producer is closed; the producer has its own connections.
    """

    def __init__(self, cluster: Cluster, options: ProducerOptions | None = None) -> None:
        self._cluster = cluster
        self._options = options = options or ProducerOptions()
        self._reactor = cluster.runtime.reactor
        self._unusable: ProducerUnusable | None = None
        self._idempotent: IdempotentIdentity | None = None
        self._transactions: Transactions | None = None
        if options.transactional_id is not None:
            timeout_s = options.transaction_timeout_s
            self._transactions = Transactions(cluster, options.transactional_id, timeout_s, self._identity_changed)
        elif options.is_idempotent:
            self._idempotent = IdempotentIdentity(cluster, self._identity_changed)
        self._accumulator = Accumulator(
            cluster, options, lambda queue: self._sender.mark(queue), self._not_written
        )
        identity_source = self._transactions or self._idempotent
        self._sender = Sender(cluster, options, identity_source, self._accumulator.close_due, self._on_settled)
        self._add = self._accumulator.add
        self._is_guarded = self._transactions is not None

    # --- records ---

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Deferred[Written]:
        """Send a record; it has been queued or rejected when this method returns.

        Cancelling the Deferred does not cancel the record.  The Deferred may be ignored; Twisted then logs a failure.

        :param value: None deletes the key from a compacted topic.
        :param partition: by default, the partitioner chooses the partition.
        :param timestamp_ms: by default, the current time.
        :return: fires when the record has been written; fails with a ``ClientError`` if it was not written, or with
            ``OutcomeUnknown`` if it may have been written.  Fails with ``BufferFull`` if the memory is full: wait for
            ``room``, then send the record again.
        :raise TypeError: key, value or a header is not bytes.
        :raise ValueError: the producer is transactional, and no transaction is open.
        """
        written = RecordDeferred()
        error = self._sending_error() if self._is_guarded else None
        if error is None:
            error = self._add(topic, key, value, headers, partition, timestamp_ms, written)
        return written if error is None else fail(error)

    async def room(self) -> None:
        """Wait until there is memory for more records; also yield to the reactor, so that full batches are sent."""
        if self._accumulator.closed_size >= YIELD_SIZE:
            self._accumulator.closed_size = 0
            await pause(self._reactor, 0)
        while self._unusable is None and not self._accumulator.has_room:
            await self._accumulator.room()

    async def send_all(
        self, topic: str, records: Iterable[bytes | OutgoingRecord] | AsyncIterable[bytes | OutgoingRecord]
    ) -> int:
        """Send records as fast as memory allows, and wait until all have been written.

        :param records: values or ``OutgoingRecord``.
        :return: number of records.
        :raise DeliveryFailed: some records were not written.
        :raise ClientError: a record was rejected; earlier records were sent.
        """
        counter = CompletionCounter()
        count = 0
        if isinstance(records, AsyncIterable):
            async for record in records:
                await self._send_one(topic, record, counter)
                count += 1
        else:
            add, accumulator = self._add, self._accumulator
            for count, record in enumerate(records, 1):  # noqa: B007 - returned
                if self._is_guarded or accumulator.closed_size >= YIELD_SIZE or record.__class__ is not bytes:
                    await self._send_one(topic, record, counter)
                    continue
                counter.pending += 1
                if add(topic, None, record, (), None, None, counter) is not None:
                    counter.pending -= 1
                    await self._send_one(topic, record, counter)
        await counter.wait()
        if counter.first_error is not None:
            raise DeliveryFailed(counter.failures, counter.first_error) from counter.first_error
        return count

    async def _send_one(self, topic: str, record: bytes | OutgoingRecord, counter: CompletionCounter) -> None:
        value, key, headers, partition, timestamp_ms = (
            record if isinstance(record, OutgoingRecord) else OutgoingRecord(record)
        )
        await self.room()
        while True:
            error = self._sending_error() if self._is_guarded else None
            if error is None:
                counter.pending += 1
                error = self._add(topic, key, value, headers, partition, timestamp_ms, counter)
                if error is None:
                    return
                counter.pending -= 1
            if not isinstance(error, BufferFull):
                raise error
            await self._accumulator.room()

    async def flush(self) -> None:
        """Wait until each record sent so far has been written or has failed; errors are reported by its Deferred."""
        for lookup in self._accumulator.lookups():
            await lookup
        await self._accumulator.flush().wait()

    async def close(self, *, flush: bool = True) -> None:
        """Flush and close the connections; may be called repeatedly.

        :param flush: if False, pending records fail.  An open transaction is aborted in either case.
        :raise ClientError: the transaction could not be aborted; the producer is closed nevertheless.
        """
        if self._unusable is not None:
            return
        transactions = self._transactions
        try:
            if transactions is not None and transactions.phase is Phase.OPEN and transactions.unusable is None:
                await self.abort()
            elif flush:
                await self.flush()
        except GeneratorExit:
            raise
        except BaseException:
            await self._close_resources()
            raise
        await self._close_resources()

    async def _close_resources(self) -> None:
        error = self._unusable = ProducerUnusable("the producer is closed")
        self._is_guarded = True
        if self._transactions is not None:
            self._transactions.close(error)
        if self._idempotent is not None:
            self._idempotent.close()
        self._accumulator.close(error)
        await self._sender.close(error)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not GeneratorExit:
            await self.close(flush=error is None)

    # --- transactions ---

    async def begin(self) -> None:
        """Begin a transaction; the first one fences earlier producers of the transactional id.

        :raise ProducerUnusable: another producer took over the transactional id.
        """
        self._restart_sequences(await self._transactional().begin())

    async def commit(self) -> None:
        """Flush, and commit the transaction: its records become visible to read_committed consumers.

        :raise TransactionFailed: a record was not written: ``abort`` and begin again.
        :raise OutcomeUnknown: the coordinator did not respond.  This producer is unusable; a new producer of the
            transactional id can begin a transaction when the outcome is decided.
        :raise ProducerUnusable: another producer took over the transactional id.
        """
        transactions = self._transactional()
        transactions.expect(Phase.OPEN)
        transactions.phase = Phase.ENDING
        try:
            await self.flush()
            transactions.check()
            await transactions.commit()
        finally:
            if transactions.phase is Phase.ENDING:
                transactions.phase = Phase.OPEN

    async def abort(self) -> None:
        """Abort the transaction: its records never become visible to read_committed consumers.

        Records that were not sent fail with ``TransactionFailed``.

        :raise ProducerUnusable: another producer took over the transactional id.
        :raise ClientError: the abort failed: call it again.
        """
        transactions = self._transactional()
        transactions.expect(Phase.OPEN)
        transactions.phase = Phase.ENDING
        error = transactions.broken = transactions.broken or TransactionFailed("the transaction was aborted")
        try:
            self._accumulator.drop(error)
            self._sender.drop(error)
            await self.flush()
            is_uncertain = any(queue.must_restart for queue in self._accumulator.queues())
            self._restart_sequences(await transactions.abort(is_uncertain=is_uncertain))
        finally:
            if transactions.phase is Phase.ENDING:
                transactions.phase = Phase.OPEN

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, int | CommittedOffset], group: GroupIdentity | str
    ) -> None:
        """Commit a group's offsets with the transaction.

        :param offsets: offsets of the next records of the group.
        :param group: a consumer's ``identity``, so that the offsets are rejected if it lost its partitions (KIP-447);
            or a group id.
        :raise TransactionFailed: the offsets were rejected: ``abort``.
        :raise ProducerUnusable: another producer took over the transactional id.
        """
        transactions = self._transactional()
        transactions.expect(Phase.OPEN)
        if offsets:
            await transactions.add_offsets(offsets, GroupIdentity(group) if isinstance(group, str) else group)

    def transaction(self) -> TransactionContext:
        """Return an asynchronous context manager that commits at its end, or aborts after an error."""
        return TransactionContext(self)

    def _transactional(self) -> Transactions:
        if self._unusable is not None:
            raise self._unusable
        if self._transactions is None:
            raise ValueError("the producer's options have no transactional_id")
        return self._transactions

    def _restart_sequences(self, identity: ProducerIdentity | None) -> None:
        if identity is not None:
            for queue in self._accumulator.queues():
                queue.restart_with(identity)

    # --- internals ---

    def _sending_error(self) -> ClientError | None:
        """Return the error that prevents sending, or None."""
        if self._unusable is not None:
            return self._unusable
        transactions = self._transactions
        if transactions is None:
            return None
        if transactions.unusable is None and transactions.phase is not Phase.OPEN:
            raise ValueError(
                f"records of a transactional producer require an open transaction: {transactions.phase.value}"
            )
        return transactions.error

    def _identity_changed(self) -> None:
        self._sender.unblock_queues()

    def _not_written(self, error: ClientError) -> None:
        if self._transactions is not None:
            self._transactions.fail(error)

    def _on_settled(self, batches: list[GatheredBatch]) -> None:
        if self._transactions is not None:
            for batch in batches:
                if batch.outcome.error is not None:
                    self._transactions.fail(batch.outcome.error)
        self._accumulator.release(batches)


class TransactionContext:
    """Context of ``Producer.transaction``."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer

    async def __aenter__(self) -> Producer:
        await self._producer.begin()
        return self._producer

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            await self._producer.commit()
        elif kind is not GeneratorExit and not isinstance(error, ProducerUnusable):
            await self._producer.abort()
