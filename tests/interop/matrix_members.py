"""Members of groups for matrix scenarios."""

from __future__ import annotations

import re
from typing import Any

from matrix_world import World
from twisted.internet.defer import Deferred

from kreplica.client import Cluster, Consumer, ConsumerOptions, Producer
from kreplica.client.errors import ClientError, ConsumerClosed
from kreplica.client.group.options import GroupOptions
from kreplica.model import TopicPartition

EAGER = {"protocol": "classic", "assignors": ("range",)}
COOPERATIVE = {"protocol": "classic", "assignors": ("cooperative-sticky",)}


def member(
    world: World,
    group: str,
    *topics: str,
    pattern: re.Pattern[str] | None = None,
    cluster: Cluster | None = None,
    reset: str = "earliest",
    auto_commit_s: float | None = 5.0,
    **options: Any,
) -> Consumer:
    """Create a member that starts at the first record, with short timeouts.

    :param options: options of the member's group protocol.
    """
    how = GroupOptions(group_id=group, **{"session_timeout_s": 6.0, "heartbeat_interval_s": 0.1, **options})
    given = ConsumerOptions(group=how, offset_reset=reset, auto_commit_s=auto_commit_s, pattern_refresh_s=0.2)
    return Consumer(cluster or world.cluster, given, topics=pattern or topics or None)


async def create_filled_topic(world: World, partitions: int = 4, count: int = 10, name: str = "") -> str:
    """Create a topic with ``count`` numbered records in each partition."""
    topic = await world.topic(partitions, name=name)
    async with Producer(world.cluster) as producer:
        for number in range(partitions * count):
            producer.send(topic, b"%d" % number, partition=number % partitions)
        await producer.flush()
    return topic


class RevocationListener:
    """Listener that records revocations.

    :ivar partitions: partitions of each revocation.
    """

    def __init__(self) -> None:
        self.partitions: list[frozenset[TopicPartition]] = []

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        self.partitions.append(partitions)

    async def on_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        pass

    def on_lost(self, partitions: frozenset[TopicPartition]) -> None:
        self.partitions.append(partitions)

    def on_ended(self, error: Exception) -> None:
        pass


class Reader:
    """A member that reads until it is stopped; each record is considered processed when the next one is requested."""

    def __init__(self, consumer: Consumer, *topics: str, listener: RevocationListener | None = None) -> None:
        self.consumer = consumer
        self.values: list[bytes | None] = []
        self.error: Exception | None = None
        self._topics, self._listener = topics, listener
        self._going = Deferred.fromCoroutine(self._read())

    async def _read(self) -> None:
        try:
            async with self.consumer:
                await self.consumer.subscribe(self._topics, listener=self._listener)
                async for record in self.consumer:
                    self.values.append(record.value)
        except ConsumerClosed:
            pass
        except ClientError as error:
            self.error = error

    @property
    def share(self) -> int:
        """Number of partitions that the member owns."""
        return len(self.consumer.assignment)

    async def stop(self) -> None:
        await self.consumer.close()
        await self._going
