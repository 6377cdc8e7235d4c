"""``Producer``: records in, in batches, with retries that write nothing twice."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable, Mapping
from types import TracebackType
from typing import Self

from twisted.internet.defer import Deferred, fail

from kreplica.client.cluster import Cluster
from kreplica.client.producer.accumulator import Gathering
from kreplica.client.producer.completion_counter import Countdown
from kreplica.client.producer.options import ProducerOptions
from kreplica.client.producer.producer_id import IdempotentIdentity
from kreplica.client.producer.record_batch import GatheredBatch, OutgoingRecord
from kreplica.client.producer.record_deferreds import Promise
from kreplica.client.producer.sender import Sender
from kreplica.client.producer.transactions import Transactions
from kreplica.client.producer.written import Written
from kreplica.client_core.errors import BufferFull, ClientError, DeliveryFailed, ProducerUnusable, TransactionFailed
from kreplica.client_core.offsets import CommittedOffset, GroupIdentity
from kreplica.client_core.partition_queue import ProducerIdentity
from kreplica.client_core.transactions import Phase
from kreplica.model import TopicPartition
from kreplica.runtime.pause import pause
from kreplica.wire.records import Headers

LEAVE_SIZE = 128 << 10
"""When so many bytes are in batches that could leave, whoever sends on and on is to let them."""


class Producer:
    """Writes records; use it as an asynchronous context manager, or ``close`` it.

    Records of one partition are written in the order in which they were sent, as long as none fails.  Leaving its
    context by an error does not wait for what is on its way, and aborts an open transaction.

    :param cluster: not closed with the producer, which has connections of its own.
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
        self._gathering = Gathering(cluster, options, lambda queue: self._sender.mark(queue))
        identity_source = self._transactions or self._idempotent
        self._sender = Sender(cluster, options, identity_source, self._gathering.close_due, self._settled)
        self._take = self._gathering.take
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
        """Give a record to the producer; it is on its way when this returns, or never will be.

        Whoever cancels the Deferred stops waiting; the record goes its way.  Nobody has to keep the Deferred: but when
        it fails and nobody looks, Twisted logs that.

        :param value: None deletes the key from a compacted topic.
        :param partition: the partitioner chooses, unless given.
        :param timestamp_ms: now, unless given.
        :return: fires once the record is written; fails with a ``ClientError`` where it was not, and with
            ``OutcomeUnknown`` where nobody can tell.  With ``BufferFull`` at once, where the memory is full: wait for
            ``room``, then send it again.
        :raise TypeError: what is not bytes.
        :raise ValueError: the producer is transactional, and no transaction is open.
        """
        written = Promise()
        error = self._problem() if self._is_guarded else None
        if error is None:
            error = self._take(topic, key, value, headers, partition, timestamp_ms, written)
        return written if error is None else fail(error)

    async def room(self) -> None:
        """Wait until there is room for more records; lets what was sent leave."""
        if self._gathering.closed_size >= LEAVE_SIZE:
            self._gathering.closed_size = 0
            await pause(self._reactor, 0)
        while self._unusable is None and not self._gathering.has_room:
            await self._gathering.room()

    async def send_all(
        self, topic: str, records: Iterable[bytes | OutgoingRecord] | AsyncIterable[bytes | OutgoingRecord]
    ) -> int:
        """Send records as fast as there is room for them, and wait until all are written.

        :param records: values, or records with all that belongs to them.
        :return: how many.
        :raise DeliveryFailed: some were not written.
        :raise ClientError: one could not be taken; those before it went their way.
        """
        countdown = Countdown()
        count = 0
        if isinstance(records, AsyncIterable):
            async for record in records:
                await self._send_one(topic, record, countdown)
                count += 1
        else:
            take, gathering = self._take, self._gathering
            for count, record in enumerate(records, 1):  # noqa: B007 - it is returned
                if self._is_guarded or gathering.closed_size >= LEAVE_SIZE or record.__class__ is not bytes:
                    await self._send_one(topic, record, countdown)
                    continue
                countdown.pending += 1
                if take(topic, None, record, (), None, None, countdown) is not None:
                    countdown.pending -= 1
                    await self._send_one(topic, record, countdown)
        await countdown.wait()
        if countdown.first is not None:
            raise DeliveryFailed(countdown.failures, countdown.first) from countdown.first
        return count

    async def _send_one(self, topic: str, record: bytes | OutgoingRecord, countdown: Countdown) -> None:
        value, key, headers, partition, timestamp_ms = (
            record if isinstance(record, OutgoingRecord) else OutgoingRecord(record)
        )
        await self.room()
        while True:
            error = self._problem() if self._is_guarded else None
            if error is None:
                countdown.pending += 1
                error = self._take(topic, key, value, headers, partition, timestamp_ms, countdown)
                if error is None:
                    return
                countdown.pending -= 1
            if not isinstance(error, BufferFull):
                raise error
            await self._gathering.room()

    async def flush(self) -> None:
        """Wait until each record that was sent has an outcome, which its Deferred tells.

        Records that are sent meanwhile are not waited for.
        """
        for arrival in self._gathering.arrivals():
            await arrival
        await self._gathering.flush().wait()

    async def close(self, *, flush: bool = True) -> None:
        """Flush, and close the connections; again does nothing.

        :param flush: False: what is on its way fails.  An open transaction is aborted in any case.
        :raise ClientError: the transaction could not be aborted; the producer is closed anyway.
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
            await self._shut()
            raise
        await self._shut()

    async def _shut(self) -> None:
        error = self._unusable = ProducerUnusable("the producer is closed")
        self._is_guarded = True
        if self._transactions is not None:
            self._transactions.close(error)
        if self._idempotent is not None:
            self._idempotent.close()
        self._gathering.close(error)
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
        """Begin a transaction; the first one makes this the producer of its transactional id, and fences others.

        :raise ProducerUnusable: another producer took the transactional id.
        """
        self._begin_anew(await self._transactional().begin())

    async def commit(self) -> None:
        """Flush, and commit the transaction: all its records become visible to readers of committed ones.

        :raise TransactionFailed: a record was not written: ``abort`` and begin again.
        :raise OutcomeUnknown: the coordinator never said whether it is committed.  This producer is of no use any more;
            the next one of the transactional id begins when that is decided.
        :raise ProducerUnusable: another producer took the transactional id.
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
        """Abort the transaction: readers of committed records never see any of it.

        What of it was not sent fails with ``TransactionFailed``.

        :raise ProducerUnusable: another producer took the transactional id.
        :raise ClientError: that did not go well: abort again.
        """
        transactions = self._transactional()
        transactions.expect(Phase.OPEN)
        transactions.phase = Phase.ENDING
        error = transactions.broken = transactions.broken or TransactionFailed("the transaction was aborted")
        try:
            self._gathering.drop(error)
            self._sender.drop(error)
            await self.flush()
            doubtful = any(queue.must_restart for queue in self._gathering.queues())
            self._begin_anew(await transactions.abort(doubtful=doubtful))
        finally:
            if transactions.phase is Phase.ENDING:
                transactions.phase = Phase.OPEN

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, int | CommittedOffset], group: GroupIdentity | str
    ) -> None:
        """Let a group's offsets be committed with the transaction, or not at all.

        :param offsets: of the next records that the group is to read.
        :param group: a consumer's ``identity``, so that one that lost its partitions is refused (KIP-447); or a name.
        :raise TransactionFailed: they were refused: ``abort``.
        :raise ProducerUnusable: another producer took the transactional id.
        """
        transactions = self._transactional()
        transactions.expect(Phase.OPEN)
        if offsets:
            await transactions.add_offsets(offsets, GroupIdentity(group) if isinstance(group, str) else group)

    def transaction(self) -> TransactionContext:
        """A transaction as an asynchronous context manager: committed at its end, aborted where an error leaves it."""
        return TransactionContext(self)

    def _transactional(self) -> Transactions:
        if self._unusable is not None:
            raise self._unusable
        if self._transactions is None:
            raise ValueError("the producer's options name no transactional_id")
        return self._transactions

    def _begin_anew(self, identity: ProducerIdentity | None) -> None:
        if identity is not None:
            for queue in self._gathering.queues():
                queue.begin_with(identity)

    # --- internals ---

    def _problem(self) -> ClientError | None:
        """Why no record may be sent."""
        if self._unusable is not None:
            return self._unusable
        transactions = self._transactions
        if transactions is None:
            return None
        if transactions.unusable is None and transactions.phase is not Phase.OPEN:
            raise ValueError(
                f"records of a transactional producer need an open transaction: {transactions.phase.value}"
            )
        return transactions.error

    def _identity_changed(self) -> None:
        self._sender.identity_changed()

    def _settled(self, batches: list[GatheredBatch]) -> None:
        if self._transactions is not None:
            for batch in batches:
                if batch.outcome.error is not None:
                    self._transactions.fail(batch.outcome.error)
        self._gathering.settled(batches)


class TransactionContext:
    """What ``Producer.transaction`` gives."""

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
