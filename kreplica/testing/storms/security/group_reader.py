"""Application that reads a topic as a member of a group, and joins again after each error."""

from __future__ import annotations

from collections.abc import Callable

from kreplica.client.cluster import Cluster
from kreplica.client.consumer import Consumer, ConsumerOptions
from kreplica.client_core.errors import ClientError
from kreplica.model import TopicPartition
from kreplica.testing.simulator.simulation import Host
from kreplica.testing.storms.applications.application import Application

RETRY_S = 0.3


class GroupReader(Application):
    """One member of the group.

    :param received: called with the partition, offset and value of each record.
    """

    def __init__(
        self,
        host: Host,
        name: str,
        bootstrap: str,
        topic: str,
        options: ConsumerOptions,
        received: Callable[[TopicPartition, int, bytes], None],
    ) -> None:
        super().__init__(host, name, bootstrap)
        self._topic = topic
        self._options = options
        self._received = received

    async def _work(self, cluster: Cluster) -> None:
        while True:
            try:
                async with Consumer(cluster, self._options, topics=[self._topic]) as consumer:
                    async for record in consumer:
                        self._received(record.topic_partition, record.offset, record.value or b"")
            except ClientError:
                await self.sleep(RETRY_S)
