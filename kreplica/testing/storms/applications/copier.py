"""Application that copies records to another topic in transactions, exactly once."""

from __future__ import annotations

from collections.abc import Sequence

from twisted.internet.defer import CancelledError

from kreplica.client.cluster import Cluster
from kreplica.client.consumer import ConsumedBatch, Consumer, ConsumerOptions
from kreplica.client.producer import Producer, ProducerOptions
from kreplica.client_core.errors import ClientError
from kreplica.testing.simulator.simulation import Host
from kreplica.testing.storms.applications.application import Application
from kreplica.testing.storms.applications.history import MemberHistory
from kreplica.testing.storms.applications.worker import Listener

POLL_S, POLLED_MAX = 0.5, 12
ABORTED = 0.1
SLOW, SLOW_S_MAX = 0.05, 3.0
RETRY_S = 0.2


class Abort(Exception):
    """Raised by the application to abort a transaction."""


class Copier(Application):
    """Copies each record of the source to the target's partition of the same number."""

    def __init__(
        self,
        host: Host,
        name: str,
        bootstrap: str,
        history: MemberHistory,
        topics: tuple[str, str],
        transactional_id: str,
        options: ConsumerOptions,
        timeout_s: float,
    ) -> None:
        super().__init__(host, name, bootstrap)
        self._history = history
        self._source, self._target = topics
        self._consuming = options
        self._producing = ProducerOptions(transactional_id=transactional_id, transaction_timeout_s=timeout_s)

    async def _work(self, cluster: Cluster) -> None:
        incarnation = 0
        while not self.is_superseded:
            incarnation += 1
            member = f"{self.name}.{incarnation}"
            listener = Listener(self._history, member)
            try:
                async with Consumer(cluster, self._consuming) as consumer:
                    await consumer.subscribe([self._source], listener=listener)
                    async with Producer(cluster, self._producing) as producer:
                        await self._copy_all(consumer, producer)
            except ClientError:
                # The next incarnation aborts the transaction if it is open, and resumes at the committed offsets.
                await self.sleep(RETRY_S)
            finally:
                self._history.ended(member)

    async def _copy_all(self, consumer: Consumer, producer: Producer) -> None:
        while True:
            batches = await consumer.poll(POLL_S, POLLED_MAX)
            if not batches:
                continue
            try:
                await self._copy(consumer, producer, batches)
            except Abort:
                await self._seek_to_committed(consumer)

    async def _copy(self, consumer: Consumer, producer: Producer, batches: Sequence[ConsumedBatch]) -> None:
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
                raise Abort
            offsets = {batch.partition: batch.next_offset for batch in batches}
            await producer.send_offsets(offsets, consumer.identity)

    async def _seek_to_committed(self, consumer: Consumer) -> None:
        assigned = sorted(consumer.assignment)
        committed = await consumer.committed(assigned)
        for partition in assigned:
            if partition in consumer.assignment:  # a partition assigned since starts at the committed offset anyway
                position = committed.get(partition)
                await consumer.seek(partition, position.offset if position is not None else 0)
