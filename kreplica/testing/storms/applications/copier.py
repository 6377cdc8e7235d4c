"""An application that reads, transforms and writes in transactions, exactly once."""

from __future__ import annotations

from collections.abc import Sequence

from twisted.internet.defer import CancelledError

from kreplica.client.cluster import Cluster
from kreplica.client.consumer import ConsumedBatch, Consumer, ConsumerOptions
from kreplica.client.producer import Producer, ProducerOptions
from kreplica.client_core.errors import ClientError
from kreplica.testing.simulator.simulation import Host
from kreplica.testing.storms.applications.application import Application
from kreplica.testing.storms.applications.history import GroupTellings
from kreplica.testing.storms.applications.worker import Listener

POLL_S, POLLED_MAX = 0.5, 12
ABORTED = 0.1
SLOW, SLOW_S_MAX = 0.05, 3.0
AGAIN_S = 0.2


class ChangedItsMind(Exception):
    """The application aborts a transaction for reasons of its own."""


class Carrier(Application):
    """Carries each record of the source over to the partition of the target that has its number.

    :param transactional_id: that of its place.
    :ivar carried: transactions that were committed.
    """

    def __init__(
        self,
        host: Host,
        name: str,
        bootstrap: str,
        told: GroupTellings,
        topics: tuple[str, str],
        transactional_id: str,
        options: ConsumerOptions,
        timeout_s: float,
    ) -> None:
        super().__init__(host, name, bootstrap)
        self.carried = 0
        self._told = told
        self._source, self._target = topics
        self._consuming = options
        self._producing = ProducerOptions(transactional_id=transactional_id, transaction_timeout_s=timeout_s)

    async def _work(self, cluster: Cluster) -> None:
        incarnation = 0
        while not self.is_superseded:
            incarnation += 1
            member = f"{self.name}.{incarnation}"
            listener = Listener(self._told, member)
            try:
                async with Consumer(cluster, self._consuming) as consumer:
                    await consumer.subscribe([self._source], listener=listener)
                    async with Producer(cluster, self._producing) as producer:
                        await self._carry_on(consumer, producer)
            except ClientError:
                # Whatever became of the transaction: who begins anew finds it decided, and the offsets with it.
                await self.sleep(AGAIN_S)
            finally:
                self._told.gone(member)

    async def _carry_on(self, consumer: Consumer, producer: Producer) -> None:
        while True:
            batches = await consumer.poll(POLL_S, POLLED_MAX)
            if not batches:
                continue
            try:
                await self._carry(consumer, producer, batches)
            except ChangedItsMind:
                await self._go_back(consumer)

    async def _carry(self, consumer: Consumer, producer: Producer, batches: Sequence[ConsumedBatch]) -> None:
        async with producer.transaction():
            for batch in batches:
                for record in batch.records:
                    delivery = producer.send(
                        self._target, b"of " + (record.value or b""), partition=batch.partition.partition
                    )
                    delivery.addErrback(lambda failure: failure.trap(ClientError, CancelledError))
            if self.random.random() < SLOW:
                await self.sleep(self.random.uniform(0, SLOW_S_MAX))
            if self.random.random() < ABORTED:
                raise ChangedItsMind
            offsets = {batch.partition: batch.next_offset for batch in batches}
            await producer.send_offsets(offsets, consumer.identity)
        self.carried += 1

    async def _go_back(self, consumer: Consumer) -> None:
        """To where the group is, with all that is assigned still."""
        assigned = sorted(consumer.assignment)
        committed = await consumer.committed(assigned)
        for partition in assigned:
            if partition in consumer.assignment:  # what was given since begins where the group is by itself
                place = committed.get(partition)
                await consumer.seek(partition, place.offset if place is not None else 0)
