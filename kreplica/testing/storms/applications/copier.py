"""Applications that copy records to another topic in transactions, exactly once."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from twisted.internet.defer import CancelledError
from twisted.python.failure import Failure

from kreplica.client.cluster import Cluster
from kreplica.client.consumer import ConsumedBatch, Consumer, ConsumerOptions
from kreplica.client.producer import Producer, ProducerOptions, Written
from kreplica.client_core.errors import ClientError
from kreplica.model import TopicPartition
from kreplica.testing.clients.coordinator_client import GROUP, TRANSACTION, CoordinatorClient, RequestRejected
from kreplica.testing.clients.leader_client import LeaderClient
from kreplica.testing.clients.transactional_producer import TransactionalProducer, TransactionSettings
from kreplica.testing.histories.transaction_history import TransactionHistory
from kreplica.testing.simulator.simulation import Host
from kreplica.testing.storms.applications.application import Application
from kreplica.testing.storms.applications.history import MemberHistory
from kreplica.testing.storms.applications.worker import Listener

POLL_S, POLL_RECORDS_MAX = 0.5, 12
ABORT_CHANCE = 0.1
PROCESSING_S_MAX = 0.5
"""Transactions are long enough that most faults of copiers interrupt one of them."""

SLOW_CHANCE, SLOW_PROCESSING_S_MAX = 0.05, 3.0
RETRY_S = 0.2
SEPARATOR = b" copies "

Batches = Sequence[ConsumedBatch]


class Abort(Exception):
    """Raised by the application to abort a transaction."""


@dataclass(frozen=True, slots=True)
class CopyTask:
    """Configuration of a copier.

    :param brokers: hosts and ports of all brokers.
    :param consumer_options: options of the consumer.
    """

    source: str
    target: str
    brokers: Sequence[tuple[str, int]]
    transactional_id: str
    transaction_timeout_s: float
    consumer_options: ConsumerOptions


class Copier(Application):
    """Copies each record of the source to the target's partition of the same number.

    Copies contain the name of their transaction, so that the copies of different attempts differ.
    """

    def __init__(
        self,
        host: Host,
        name: str,
        bootstrap: str,
        task: CopyTask,
        history: MemberHistory,
        transactions: TransactionHistory,
    ) -> None:
        super().__init__(host, name, bootstrap)
        self._task = task
        self._history = history
        self._transactions = transactions

    async def _work(self, cluster: Cluster) -> None:
        incarnation = 0
        while not self.is_superseded:
            incarnation += 1
            member = f"{self.name}.{incarnation}"
            listener = Listener(self._history, member)
            try:
                async with Consumer(cluster, self._task.consumer_options) as consumer:
                    listener.watch(consumer, self._task.consumer_options)
                    await consumer.subscribe([self._task.source], listener=listener)
                    await self._copy_from(cluster, consumer)
            except (ClientError, RequestRejected):
                # The next incarnation aborts the transaction if it is open, and resumes at the committed offsets.
                await self.sleep(RETRY_S)
            finally:
                self._history.ended(member)

    @abstractmethod
    async def _copy_from(self, cluster: Cluster, consumer: Consumer) -> None:
        """Copy with a new producer until an error occurs."""

    async def _copy_all(self, consumer: Consumer, copy: Callable[[Batches], Awaitable[None]]) -> None:
        while True:
            batches = await consumer.poll(POLL_S, POLL_RECORDS_MAX)
            if not batches:
                continue
            try:
                await copy(batches)
            except Abort:
                await self._seek_to_committed(consumer)

    async def _process(self) -> None:
        """Sleep for a random time.

        :raise Abort: at random.
        """
        is_slow = self.random.random() < SLOW_CHANCE
        await self.sleep(self.random.uniform(0, SLOW_PROCESSING_S_MAX if is_slow else PROCESSING_S_MAX))
        if self.random.random() < ABORT_CHANCE:
            raise Abort

    def _target(self, batch: ConsumedBatch) -> TopicPartition:
        return TopicPartition(self._task.target, batch.partition.partition)

    async def _seek_to_committed(self, consumer: Consumer) -> None:
        assigned = sorted(consumer.assignment)
        committed = await consumer.committed(assigned)
        for partition in assigned:
            if partition in consumer.assignment:  # a newly assigned partition starts at the committed offset anyway
                position = committed.get(partition)
                await consumer.seek(partition, position.offset if position is not None else 0)


class LibraryCopier(Copier):
    """Copies with the producer of the client library, whose epoch stays the same between transactions."""

    _has_begun = False

    async def _copy_from(self, cluster: Cluster, consumer: Consumer) -> None:
        task = self._task
        options = ProducerOptions(
            transactional_id=task.transactional_id, transaction_timeout_s=task.transaction_timeout_s
        )
        async with Producer(cluster, options) as producer:
            self._has_begun = False
            await self._copy_all(consumer, partial(self._copy, consumer, producer))

    async def _copy(self, consumer: Consumer, producer: Producer, batches: Batches) -> None:
        history, transactional_id = self._transactions, self._task.transactional_id
        async with producer.transaction():
            if not self._has_begun:
                self._has_begun = True
                history.fenced(transactional_id)  # the first transaction of a producer fences earlier producers
            transaction = history.begin(transactional_id)
            try:
                for batch in batches:
                    for record in batch.records:
                        self._send(producer, transaction, self._target(batch), copy_of(record.value, transaction))
                await self._process()
                await producer.send_offsets(next_offsets(batches), consumer.identity)
            except Exception:
                history.ending(transaction, commit=False)
                raise
            history.ending(transaction, commit=True)
        history.ended(transaction, committed=True)

    def _send(self, producer: Producer, transaction: str, target: TopicPartition, value: bytes) -> None:
        history, partition = self._transactions, target.partition
        number = history.sending_in(transaction, partition, [value])

        def written(result: Written) -> None:
            history.acknowledged(partition, result.offset, [value], number)

        def failed(failure: Failure) -> None:
            failure.trap(ClientError, CancelledError)

        producer.send(target.topic, value, partition=partition).addCallbacks(written, failed)


class EpochBumpCopier(Copier):
    """Copies with Kafka 4's transaction protocol (KIP-890, part 2), which the client library does not speak.

    The producer's epoch is raised with every transaction, and partitions are added by the first write to them.
    """

    async def _copy_from(self, cluster: Cluster, consumer: Consumer) -> None:
        task = self._task
        settings = TransactionSettings(
            task.transactional_id, round(task.transaction_timeout_s * 1000), bumps_epoch=True
        )
        coordinator = self._coordinator_client(task.transactional_id, TRANSACTION)
        producer = TransactionalProducer(
            self.host.runtime, settings, coordinator, self._leader_client, self._transactions
        )
        group = self._coordinator_client(consumer.identity.group_id, GROUP)
        try:
            await producer.start()
            await self._copy_all(consumer, partial(self._copy, consumer, producer, group))
        except Exception:
            # At once, because a second cancellation would interrupt the wait for an orderly end.
            producer.abort_connections()
            group.abort_connection()
            raise

    async def _copy(
        self, consumer: Consumer, producer: TransactionalProducer, group: CoordinatorClient, batches: Batches
    ) -> None:
        await producer.begin()
        assert producer.transaction is not None
        try:
            for batch in batches:
                values = [copy_of(record.value, producer.transaction) for record in batch.records]
                await producer.send(self._target(batch), values)
            await self._process()
        except Abort:
            await producer.abort()
            raise
        await producer.send_offsets(next_offsets(batches), consumer.identity, group)
        await producer.commit()

    def _coordinator_client(self, key: str, kind: int) -> CoordinatorClient:
        return CoordinatorClient(self.host.reactor, self._task.brokers, key, kind, client_id=self.name)

    def _leader_client(self, key: TopicPartition) -> LeaderClient:
        return LeaderClient(self.host.reactor, self._task.brokers, *key, client_id=self.name)


def copy_of(value: bytes | None, transaction: str) -> bytes:
    return transaction.encode() + SEPARATOR + (value or b"")


def original(copy: bytes) -> bytes:
    """Return the value of the original of a copy."""
    return copy.partition(SEPARATOR)[2]


def next_offsets(batches: Batches) -> dict[TopicPartition, int]:
    return {batch.partition: batch.next_offset for batch in batches}
