"""Reads a topic with the library's consumer."""

from __future__ import annotations

from matrix_world import World

from kreplica.client import EARLIEST, Cluster, ConsumedRecord, Consumer, ConsumerOptions, Isolation
from kreplica.model import TopicPartition

POLL_S_MAX = 5.0
SHORT_POLL_S = 0.05
"""Timeout of a poll that may return no record, because only invisible records are left."""


async def read(
    world: World, topic: str, isolation: Isolation = Isolation.READ_UNCOMMITTED, cluster: Cluster | None = None
) -> list[ConsumedRecord]:
    """Read all records of a topic below the current end offsets, ordered by partition and offset."""
    seen = cluster or world.cluster
    view = await seen.find_topic(topic)
    partitions = [TopicPartition(topic, each.partition) for each in view.partitions]
    found: list[ConsumedRecord] = []
    async with Consumer(seen) as whole, Consumer(seen, ConsumerOptions(isolation=isolation)) as consumer:
        # Not up to the last stable offset: the markers reach the partitions after the response to the commit.
        ends = await whole.end_offsets(partitions)
        await consumer.assign(dict.fromkeys(partitions, EARLIEST))
        while any((consumer.position(each) or 0) < ends[each] for each in partitions):
            for batch in await consumer.poll(SHORT_POLL_S):
                found += batch.records
    return sorted(found, key=lambda record: (record.partition, record.offset))


async def read_values(
    world: World, topic: str, isolation: Isolation = Isolation.READ_UNCOMMITTED
) -> list[bytes | None]:
    """Return the values of all records of a topic."""
    return [record.value for record in await read(world, topic, isolation)]


async def read_some(consumer: Consumer, count: int) -> list[ConsumedRecord]:
    """Read at least ``count`` records, in the order in which the consumer returns them."""
    found: list[ConsumedRecord] = []
    while len(found) < count:
        for batch in await consumer.poll(POLL_S_MAX):
            found += batch.records
    return found
