"""What is in a topic, as the library's consumer reads it."""

from __future__ import annotations

from matrix_world import World

from kreplica.client import EARLIEST, Cluster, ConsumedRecord, Consumer, ConsumerOptions, Isolation
from kreplica.model import TopicPartition

POLL_S_MAX = 5.0
SHORT_POLL_S = 0.05
"""Where what is waited for may be no record, but the end of those that nobody may see."""


async def read(
    world: World, topic: str, isolation: Isolation = Isolation.READ_UNCOMMITTED, cluster: Cluster | None = None
) -> list[ConsumedRecord]:
    """All records of a topic up to where its partitions end now, by partition and offset."""
    seen = cluster or world.cluster
    view = await seen.find_topic(topic)
    partitions = [TopicPartition(topic, each.partition) for each in view.partitions]
    found: list[ConsumedRecord] = []
    async with Consumer(seen) as whole, Consumer(seen, ConsumerOptions(isolation=isolation)) as consumer:
        # Not up to where transactions are decided: a decision is made known to the partitions after it was answered.
        ends = await whole.end_offsets(partitions)
        await consumer.assign(dict.fromkeys(partitions, EARLIEST))
        while any((consumer.position(each) or 0) < ends[each] for each in partitions):
            for batch in await consumer.poll(SHORT_POLL_S):
                found += batch.records
    return sorted(found, key=lambda record: (record.partition, record.offset))


async def read_values(
    world: World, topic: str, isolation: Isolation = Isolation.READ_UNCOMMITTED
) -> list[bytes | None]:
    """The values of them."""
    return [record.value for record in await read(world, topic, isolation)]


async def read_some(consumer: Consumer, count: int) -> list[ConsumedRecord]:
    """So many records, at least, in the order in which they come."""
    found: list[ConsumedRecord] = []
    while len(found) < count:
        for batch in await consumer.poll(POLL_S_MAX):
            found += batch.records
    return found
