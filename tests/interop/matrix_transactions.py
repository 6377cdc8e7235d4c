"""Matrix scenarios: transactions."""

from __future__ import annotations

from matrix_reading import read_some, read_values
from matrix_table import scenario
from matrix_world import World, outcome_of

from kreplica.client import EARLIEST, Consumer, ConsumerOptions, Isolation, Producer, ProducerOptions
from kreplica.model import TopicPartition

SUBJECT = "transactions"


def transactional(world: World, name: str = "", **options: object) -> Producer:
    return Producer(world.cluster, ProducerOptions(transactional_id=name or world.new_name("x"), **options))  # type: ignore[arg-type]


@scenario(SUBJECT, "committed records are visible, aborted ones are not", [b"0", b"2", b"4"])
async def committed_and_aborted(world: World) -> object:
    topic = await world.topic(2)
    async with transactional(world) as producer:
        for number in range(6):
            await producer.begin()
            producer.send(topic, b"%d" % number, partition=number // 3).addErrback(lambda _: None)
            await (producer.abort() if number % 2 else producer.commit())
    return await read_values(world, topic, Isolation.READ_COMMITTED)


@scenario(SUBJECT, "read_uncommitted returns aborted records", ([b"a", b"b"], [b"b"]))
async def uncommitted(world: World) -> object:
    topic = await world.topic()
    async with transactional(world) as producer:
        await producer.begin()
        await producer.send(topic, b"a")
        await producer.abort()
        async with producer.transaction():
            producer.send(topic, b"b")
    return await read_values(world, topic), await read_values(world, topic, Isolation.READ_COMMITTED)


@scenario(SUBJECT, "an exception in the block aborts", ("KeyError", [b"after"]))
async def block_with_error(world: World) -> object:
    topic = await world.topic()
    caught = ""
    async with transactional(world) as producer:
        try:
            async with producer.transaction():
                await producer.send(topic, b"before")
                raise KeyError
        except KeyError as error:
            caught = type(error).__name__
        async with producer.transaction():
            await producer.send(topic, b"after")
    return caught, await read_values(world, topic, Isolation.READ_COMMITTED)


@scenario(SUBJECT, "an open transaction delays read_committed consumers", (0, 3, [b"a", b"b", b"c"]))
async def open_transaction(world: World) -> object:
    topic = await world.topic()
    place = TopicPartition(topic, 0)
    async with (
        transactional(world) as producer,
        Producer(world.cluster) as plain,
        Consumer(world.cluster, ConsumerOptions(isolation=Isolation.READ_COMMITTED)) as reader,
        Consumer(world.cluster) as eager,
    ):
        await producer.begin()
        await producer.send(topic, b"a")
        await plain.send(topic, b"b")
        await producer.send(topic, b"c")
        stable = (await reader.end_offsets([place]))[place]
        ends = (await eager.end_offsets([place]))[place]
        await reader.assign({place: EARLIEST})
        held = await reader.poll(0.2)
        assert not held
        await producer.commit()
        return stable, ends, [record.value for record in await read_some(reader, 3)]


@scenario(SUBJECT, "a producer with the same transactional ID fences the old one", ("ProducerUnusable", [b"second"]))
async def fencing(world: World) -> object:
    topic, name = await world.topic(), world.new_name("x")
    first, second = transactional(world, name), transactional(world, name)
    await first.begin()
    await first.send(topic, b"first")
    async with second, second.transaction():
        await second.send(topic, b"second")
    outcome = str(await outcome_of(first.commit())).split(" ", 1)[0]
    await first.close()
    return outcome, await read_values(world, topic, Isolation.READ_COMMITTED)


@scenario(SUBJECT, "offsets are committed with the transaction or not at all", (5, 5))
async def offsets(world: World) -> object:
    topic, group = await world.topic(), world.new_name("g")
    place = TopicPartition(topic, 0)
    seen = []
    async with transactional(world) as producer, Consumer(world.cluster, ConsumerOptions(group_id=group)) as consumer:
        async with producer.transaction():
            await producer.send(topic, b"v")
            await producer.send_offsets({place: 5}, group)
        seen.append((await consumer.committed([place]))[place].offset)
        await producer.begin()
        await producer.send_offsets({place: 9}, group)
        await producer.abort()
        seen.append((await consumer.committed([place]))[place].offset)
    return tuple(seen)


@scenario(SUBJECT, "consume, transform, produce: each record once", (True, 20, {0: 10, 1: 10}))
async def read_change_write(world: World) -> object:
    source, sink, group = await world.topic(2), await world.topic(2), world.new_name("g")
    async with Producer(world.cluster) as producer:
        for number in range(20):
            await producer.send(source, b"%d" % number, partition=number % 2)
    options = ConsumerOptions(group_id=group, auto_commit_s=None)
    count = 0
    async with (
        Consumer(world.cluster, options, topics=[source]) as consumer,
        transactional(world) as producer,
    ):
        while count < 20:
            batches = await consumer.poll(5.0)
            async with producer.transaction():
                for batch in batches:
                    for record in batch.records:
                        producer.send(sink, b"new " + (record.value or b""), partition=record.partition)
                        count += 1
                offsets = {batch.partition: batch.next_offset for batch in batches}
                await producer.send_offsets(offsets, consumer.identity)
        places = world.partitions(source, 2)
        committed = {place.partition: found.offset for place, found in (await consumer.committed(places)).items()}
    found = await read_values(world, sink, Isolation.READ_COMMITTED)
    return sorted(found, key=str) == sorted((b"new %d" % n for n in range(20)), key=str), len(found), committed


@scenario(SUBJECT, "empty transaction", "committed")
async def empty(world: World) -> object:
    async with transactional(world) as producer:
        async with producer.transaction():
            pass
        await producer.begin()
        await producer.abort()
    return "committed"


@scenario(SUBJECT, "transaction timeout above the broker's maximum", "BrokerRefused INVALID_TRANSACTION_TIMEOUT")
async def timeout_above_maximum(world: World) -> object:
    topic = await world.topic()
    async with transactional(world, transaction_timeout_s=36_000) as producer:

        async def run_transaction() -> object:
            await producer.begin()
            await producer.send(topic, b"v")
            await producer.commit()
            return None

        return await outcome_of(run_transaction())


@scenario(SUBJECT, "the coordinator aborts a transaction after its timeout", (True, []))
async def timed_out(world: World) -> object:
    topic = await world.topic()
    place = TopicPartition(topic, 0)
    producer = transactional(world, transaction_timeout_s=1)
    await producer.begin()
    await producer.send(topic, b"late")
    async with Consumer(world.cluster, ConsumerOptions(isolation=Isolation.READ_COMMITTED)) as reader:
        while (await reader.end_offsets([place]))[place] < 2:
            await world.pause(0.1)
    outcome = await outcome_of(producer.commit())
    await producer.close()
    return outcome is not None, await read_values(world, topic, Isolation.READ_COMMITTED)
