"""Application that reads partitions from their beginning, without a group."""

from __future__ import annotations

from collections.abc import Sequence

from kreplica.client.cluster import Cluster
from kreplica.client.consumer import ConsumedRecord, Consumer, ConsumerOptions
from kreplica.client_core.fetched_batches import Isolation
from kreplica.model import TopicPartition
from kreplica.testing.histories.transaction_history import TransactionHistory
from kreplica.testing.simulator.simulation import Host
from kreplica.testing.storms.applications.application import Application
from kreplica.testing.storms.applications.history import ReadHistory

PAUSE_CHANCE, PAUSE_S_MAX = 0.01, 3.0


class Reader(Application):
    """Reads the given partitions; each process starts at the first record.

    :param target: name of the topic that ``transactions`` describes.
    """

    def __init__(
        self,
        host: Host,
        name: str,
        bootstrap: str,
        history: ReadHistory,
        partitions: Sequence[TopicPartition],
        target: str,
        transactions: TransactionHistory,
    ) -> None:
        super().__init__(host, name, bootstrap)
        self.history = history
        self._partitions = partitions
        self._target = target
        self._transactions = transactions

    async def _work(self, cluster: Cluster) -> None:
        isolation = Isolation.READ_COMMITTED if self.history.read_committed else Isolation.READ_UNCOMMITTED
        async with Consumer(cluster, ConsumerOptions(isolation=isolation)) as consumer:
            await consumer.assign(dict.fromkeys(self._partitions, 0))
            async for record in consumer:
                self._received(record)
                if self.random.random() < PAUSE_CHANCE:
                    await self.sleep(self.random.uniform(0, PAUSE_S_MAX))

    def _received(self, record: ConsumedRecord) -> None:
        key, value, history = record.topic_partition, record.value or b"", self.history
        history.received(key, record.offset, value)
        if key.topic == self._target:
            self._transactions.received(
                key.partition, [(record.offset, value)], history.reader, read_committed=history.read_committed
            )
