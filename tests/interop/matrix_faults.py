"""Matrix scenarios: brokers are killed while the library is in use."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from matrix_members import EAGER, Reader, create_filled_topic, member
from matrix_reading import read, read_values
from matrix_table import scenario
from matrix_world import World, gather_results, outcome_of

from kreplica.client import EARLIEST, Consumer, Isolation, Producer, ProducerOptions
from kreplica.client.errors import ClientError, TransactionFailed
from kreplica.client_core.metadata import CoordinatorKind
from kreplica.model import TopicPartition

SUBJECT = "faults"


@scenario(SUBJECT, "leader killed during produce: each record once, in order", (True, 2000))
async def while_producing(world: World) -> object:
    topic = await world.topic()
    sent = []
    async with Producer(world.cluster, ProducerOptions(batch_size=500)) as producer:
        for number in range(2000):
            if number == 1000:
                await sent[500]
                await world.kill_leader(topic)
            sent.append(producer.send(topic, b"%d" % number))
        await gather_results(sent)
    values = await read_values(world, topic)
    return values == [b"%d" % number for number in range(2000)], len(values)


@scenario(SUBJECT, "too few in-sync replicas for acks=all", ("GaveUp < BrokerRefused NOT_ENOUGH_REPLICAS", True))
async def not_enough_replicas(world: World) -> object:
    topic = await world.topic(configs={"min.insync.replicas": 3})
    place = TopicPartition(topic, 0)
    leader = await world.cluster.leader(place)
    await world.kill(1 + leader % 3)
    while len((await world.cluster.refresh()).topics[topic].partitions[0].in_sync) == 3:
        await world.pause(0.05)
    async with (
        Producer(world.cluster, ProducerOptions(delivery_timeout_s=0.5)) as careful,
        Producer(world.cluster, ProducerOptions(acks=1)) as other,
    ):
        outcome = await outcome_of(careful.send(topic, b"v"))
        if str(outcome).startswith("OutcomeUnknown"):
            # The leader learned of it later than the queried broker, and wrote one record before it rejected others.
            outcome = await outcome_of(careful.send(topic, b"v"))
        return outcome, (await other.send(topic, b"v")).offset >= 0


@scenario(SUBJECT, "leader killed during consume", (True, 200))
async def while_consuming(world: World) -> object:
    topic = await world.topic()
    place = TopicPartition(topic, 0)
    found: list[bytes | None] = []
    async with Producer(world.cluster) as producer, Consumer(world.cluster) as consumer:
        await gather_results([producer.send(topic, b"%d" % number) for number in range(100)])
        await consumer.assign({place: EARLIEST})
        async for record in consumer:
            found.append(record.value)
            if len(found) == 100:
                await world.kill_leader(topic)
                for number in range(100, 200):
                    producer.send(topic, b"%d" % number)
                await producer.flush()
            if len(found) == 200:
                break
    return found == [b"%d" % number for number in range(200)], len(found)


async def group_coordinator(options: Mapping[str, object], world: World) -> object:
    topic, group = await create_filled_topic(world, 4, 5), world.new_name("g")
    reader = Reader(member(world, group, **options), topic)
    await world.wait_until(lambda: len(reader.values) == 20)
    await world.kill_coordinator(CoordinatorKind.GROUP, group)
    async with Producer(world.cluster) as producer:
        for number in range(20):
            producer.send(topic, b"later %d" % number, partition=number % 4)
        await producer.flush()
    await world.wait_until(lambda: len(set(reader.values)) == 40)
    seen = len(set(reader.values)), reader.share, reader.error
    await reader.stop()
    return seen


for name, options in (("classic", EAGER), ("KIP-848 if available", {})):
    title = f"group coordinator killed: members continue ({name})"
    scenario(SUBJECT, title, (40, 4, None))(partial(group_coordinator, options))


@scenario(SUBJECT, "transaction coordinator killed: transactions are atomic", True)
async def transaction_coordinator(world: World) -> object:
    topic, name = await world.topic(3), world.new_name("x")
    committed: list[bytes] = []
    async with Producer(world.cluster, ProducerOptions(transactional_id=name)) as producer:
        for number in range(10):
            if number == 5:
                await world.kill_coordinator(CoordinatorKind.TRANSACTION, name)
            values = [b"%d-%d" % (number, partition) for partition in range(3)]
            try:
                async with producer.transaction():
                    await gather_results(
                        [producer.send(topic, value, partition=partition) for partition, value in enumerate(values)]
                    )
            except (TransactionFailed, ClientError):
                continue
            committed += values
    found = await read(world, topic, Isolation.READ_COMMITTED)
    return len(committed) >= 27 and sorted(r.value or b"" for r in found) == sorted(committed)
