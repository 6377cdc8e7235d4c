"""Simulated brokers, and consumers on their own hosts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from kreplica.client.client_runtime import runtime_of
from kreplica.client.cluster import Cluster
from kreplica.client.consumer.consumer import Consumer
from kreplica.client.consumer.options import ConsumerOptions
from kreplica.client.consumer.records import ConsumedBatch, ConsumedRecord
from kreplica.client_core.errors import ConnectionFailed, ConnectionLost
from kreplica.client_core.options import ClientOptions
from kreplica.model import TopicPartition
from kreplica.runtime.pause import pause
from kreplica.testing.clients.leader_client import LeaderClient
from kreplica.testing.cluster.cluster import SimulatedCluster
from kreplica.wire.batch_building import NEXT_OFFSET, build_batch
from kreplica.wire.records import Record


class Scene:
    """A simulated cluster with topics, and clients that write and read them."""

    def __init__(self, seed: int, brokers: int = 1, **options: Any) -> None:
        self.brokers = SimulatedCluster(seed, brokers=brokers, **options)
        self.brokers.start()
        self._clusters: list[Cluster] = []
        self._consumers: list[Consumer] = []

    def close(self) -> None:
        """Close all consumers and clients, and stop the brokers."""
        for each in (*self._consumers, *self._clusters):
            self.run_until(each.close())
        self.brokers.stop()

    def run(self, seconds: float) -> None:
        self.brokers.run(seconds)

    def run_until(self, goal: Any, timeout_s: float = 60.0) -> Any:
        return self.brokers.run_until(goal, timeout_s)

    # --- topics ---

    def create(self, topic: str, partitions: int = 1, replicas: int = 1, **options: Any) -> None:
        """Create a topic, and wait until all its replicas are in sync."""
        client = self.brokers.client()
        self.run_until(client.create_topic(topic, partitions, replication_factor=replicas, **options))
        self.run_until(client.close())
        self.brokers.wait_in_sync(topic, range(partitions))

    def write(
        self,
        topic: str,
        partition: int,
        values: Sequence[str],
        *,
        batch: int = 100,
        timestamp_ms: int = 5,
        **options: Any,
    ) -> None:
        """Write values in batches of a given size."""
        records = [Record(NEXT_OFFSET, timestamp_ms, b"k", value.encode(), (("h", b"v"),)) for value in values]
        client = self.brokers.leader_client(topic, partition, name="writer")
        for start in range(0, len(records), batch):
            part = build_batch(records[start : start + batch], **options)
            self.run_until(self._produce(client, topic, partition, part))
        self.run_until(client.close())

    async def _produce(self, client: LeaderClient, topic: str, partition: int, batch: bytes) -> None:
        """Write a batch; retry if the leader has just changed."""
        while True:
            try:
                await client.produce(topic, partition, batch)
            except (ConnectionFailed, ConnectionLost):
                await client.close()
                await pause(client.reactor, 0.5)
            else:
                return

    # --- consumers ---

    def cluster(self, host: str = "application", **options: Any) -> Cluster:
        """Return a cluster client on a host."""
        runtime = runtime_of(self.brokers.host(host).runtime)
        cluster = Cluster(
            self.brokers.bootstrap_servers,
            options=ClientOptions(client_id=host, **options),
            runtime=runtime,
        )
        self._clusters.append(cluster)
        return cluster

    def consumer(
        self,
        host: str = "application",
        *,
        topics: Iterable[str] | re.Pattern[str] | None = None,
        cluster: Cluster | None = None,
        **options: Any,
    ) -> Consumer:
        """Return a consumer on a host."""
        consumer = Consumer(cluster or self.cluster(host), ConsumerOptions(**options), topics=topics)
        self._consumers.append(consumer)
        return consumer

    def read(self, consumer: Consumer, count: int, timeout_s: float = 60.0) -> list[ConsumedRecord]:
        """Iterate over the consumer and return its next records."""
        return self.run_until(take(consumer, count), timeout_s)

    def poll(self, consumer: Consumer, **options: Any) -> list[ConsumedBatch]:
        return self.run_until(consumer.poll(**options))


def partition_keys(topic: str, count: int) -> list[TopicPartition]:
    """Return the first partitions of a topic."""
    return [TopicPartition(topic, number) for number in range(count)]


async def take(consumer: Consumer, count: int) -> list[ConsumedRecord]:
    """Return the consumer's next records."""
    records: list[ConsumedRecord] = []
    async for record in consumer:
        records.append(record)
        if len(records) == count:
            break
    return records


def values(records: Iterable[ConsumedRecord]) -> list[str]:
    return [(record.value or b"").decode() for record in records]
