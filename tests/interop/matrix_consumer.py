"""Matrix scenarios: a consumer with assigned partitions."""

from __future__ import annotations

from matrix_reading import read_some
from matrix_table import scenario
from matrix_world import World, outcome_of
from twisted.internet.defer import Deferred

from kreplica.client import EARLIEST, LATEST, Consumer, ConsumerOptions, OffsetReset, Producer
from kreplica.client.admin import Admin
from kreplica.model import TopicPartition

SUBJECT = "consumer"
VALUES = [b"%d" % number for number in range(10)]
FIRST_MS = 1_700_000_000_000


async def create_filled_topic(world: World, partitions: int = 1, count: int = 10) -> str:
    """Create a topic with ``count`` numbered records in each partition, one second apart."""
    topic = await world.topic(partitions)
    async with Producer(world.cluster) as producer:
        for number in range(count):
            for partition in range(partitions):
                producer.send(topic, b"%d" % number, partition=partition, timestamp_ms=FIRST_MS + 1000 * number)
        await producer.flush()
    return topic


@scenario(
    SUBJECT, "reads from the beginning, an offset and the end", ([*VALUES], VALUES[7:], [b"new"], (10, 10, 11))
)
async def starts(world: World) -> object:
    topic = await create_filled_topic(world)
    place = TopicPartition(topic, 0)
    seen: list[list[bytes | None]] = []
    positions = []
    async with Consumer(world.cluster) as consumer, Producer(world.cluster) as producer:
        for start, count in ((EARLIEST, 10), (7, 3), (LATEST, 1)):
            await consumer.assign({place: start})
            if start == LATEST:
                await consumer.poll(0.05)
                await producer.send(topic, b"new")
            seen.append([record.value for record in await read_some(consumer, count)])
            positions.append(consumer.position(place))
    return (*seen, tuple(positions))


@scenario(SUBJECT, "returns start and end offsets of partitions", ({0: 0, 1: 0}, {0: 10, 1: 10}))
async def start_and_end_offsets(world: World) -> object:
    topic = await create_filled_topic(world, 2)
    places = world.partitions(topic, 2)
    async with Consumer(world.cluster) as consumer:
        first, last = await consumer.beginning_offsets(places), await consumer.end_offsets(places)
    return {p.partition: at for p, at in first.items()}, {p.partition: at for p, at in last.items()}


@scenario(SUBJECT, "finds offsets by timestamp", [(0, FIRST_MS), (5, FIRST_MS + 5000), None])
async def offsets_by_timestamp(world: World) -> object:
    topic = await create_filled_topic(world)
    place = TopicPartition(topic, 0)
    seen = []
    async with Consumer(world.cluster) as consumer:
        for time_ms in (0, FIRST_MS + 4001, FIRST_MS + 60_000):
            found = (await consumer.offsets_for_times({place: time_ms})).get(place)
            seen.append(None if found is None or found.offset < 0 else (found.offset, found.timestamp_ms))
    return seen


@scenario(SUBJECT, "seeks", [b"9", b"3", b"0", b"new"])
async def seeks(world: World) -> object:
    topic = await create_filled_topic(world)
    place = TopicPartition(topic, 0)
    seen = []
    async with Consumer(world.cluster) as consumer, Producer(world.cluster) as producer:
        await consumer.assign({place: 9})
        for target in (9, 3, EARLIEST, LATEST):
            await consumer.seek(place, target)
            if target == LATEST:
                await producer.send(topic, b"new")
            seen.append((await read_some(consumer, 1))[0].value)
    return seen


@scenario(SUBJECT, "paused partitions are returned after resume", ({1}, {0, 1}, 20))
async def pausing(world: World) -> object:
    topic = await create_filled_topic(world, 2)
    places = world.partitions(topic, 2)
    async with Consumer(world.cluster) as consumer:
        await consumer.assign(dict.fromkeys(places, EARLIEST))
        consumer.pause(places[:1])
        found = await read_some(consumer, 10)
        found += [record for batch in await consumer.poll(0.1) for record in batch.records]
        first = {record.partition for record in found}
        consumer.resume(places[:1])
        found += await read_some(consumer, 10)
    return first, {record.partition for record in found}, len(found)


async def beyond_the_log(world: World, policy: OffsetReset, offset: int) -> object:
    """Read from an offset that does not exist: records 0 to 4 of 10 are deleted."""
    topic = await create_filled_topic(world)
    place = TopicPartition(topic, 0)
    await Admin(world.cluster).delete_records({place: 5})
    async with Consumer(world.cluster, ConsumerOptions(offset_reset=policy)) as consumer:
        await consumer.assign({place: offset})

        async def values() -> object:
            return [record.value for record in await read_some(consumer, 1)]

        return await outcome_of(values())


@scenario(SUBJECT, "offset out of range: reset to earliest", VALUES[5:])
async def reset_to_first(world: World) -> object:
    return await beyond_the_log(world, OffsetReset.EARLIEST, 2)


@scenario(SUBJECT, "offset out of range: error", ["OffsetOutOfRange OFFSET_OUT_OF_RANGE"] * 2)
async def out_of_range(world: World) -> object:
    return [await beyond_the_log(world, OffsetReset.FAIL, offset) for offset in (2, 50)]


@scenario(SUBJECT, "offset out of range: reset to latest", [b"new"])
async def reset_to_end(world: World) -> object:
    topic = await create_filled_topic(world)
    place = TopicPartition(topic, 0)
    async with Consumer(world.cluster, ConsumerOptions(offset_reset="latest")) as consumer:
        await consumer.assign({place: 50})
        async with Producer(world.cluster) as producer:
            while consumer.position(place) != 10:
                await consumer.poll(0.05)
            await producer.send(topic, b"new")
        return [record.value for record in await read_some(consumer, 1)]


@scenario(SUBJECT, "returns its lag", ([10, 6], 0))
async def lag(world: World) -> object:
    topic = await create_filled_topic(world)
    place = TopicPartition(topic, 0)
    async with Consumer(world.cluster) as consumer:
        await consumer.assign({place: EARLIEST})
        first = (await consumer.lag())[place]
        await consumer.seek(place, 4)
        second = (await consumer.lag())[place]
        await read_some(consumer, 6)
        return [first, second], (await consumer.lag())[place]


@scenario(SUBJECT, "reads a topic that is created later", [b"first"])
async def topic_created_later(world: World) -> object:
    name = world.new_name()
    place = TopicPartition(name, 0)
    async with (
        Consumer(world.cluster, ConsumerOptions(offset_reset="earliest")) as consumer,
        Producer(world.cluster) as producer,
    ):
        reading = Deferred.fromCoroutine(_assign_and_read(consumer, place))
        await world.pause(0.2)
        await world.topic(name=name)
        await producer.send(name, b"first")
        return [record.value for record in await reading]


async def _assign_and_read(consumer: Consumer, place: TopicPartition) -> list[object]:
    await consumer.assign({place: 0})
    return await read_some(consumer, 1)  # type: ignore[return-value]


@scenario(SUBJECT, "iterates over records and batches", (VALUES, True))
async def iterating(world: World) -> object:
    topic = await create_filled_topic(world)
    place = TopicPartition(topic, 0)
    values = []
    async with Consumer(world.cluster) as consumer:
        await consumer.assign({place: EARLIEST})
        async for record in consumer:
            values.append(record.value)
            if len(values) == 10:
                break
    async with Consumer(world.cluster) as consumer:
        await consumer.assign({place: EARLIEST})
        async for batch in consumer.batches():
            return values, batch.next_offset == batch.records[-1].offset + 1
    return values, None


@scenario(SUBJECT, "reads a record larger than the fetch size", [300_000, 1])
async def oversized_record(world: World) -> object:
    topic = await world.topic()
    async with Producer(world.cluster) as producer:
        await producer.send(topic, bytes(300_000))
        await producer.send(topic, bytes(1))
    options = ConsumerOptions(partition_size_max=1000)
    async with Consumer(world.cluster, options) as consumer:
        await consumer.assign({TopicPartition(topic, 0): EARLIEST})
        return [len(record.value or b"") for record in await read_some(consumer, 2)]


@scenario(SUBJECT, "handles partitions concurrently, each in order", (True, 2))
async def concurrent_handlers(world: World) -> object:
    topic = await create_filled_topic(world, 2)
    seen: dict[int, list[bytes | None]] = {0: [], 1: []}
    most = now = 0

    async def handle(record: object) -> None:
        nonlocal most, now
        now += 1
        most = max(most, now)
        await world.pause(0.01)
        seen[record.partition].append(record.value)  # type: ignore[attr-defined]
        now -= 1

    async with Consumer(world.cluster) as consumer:
        await consumer.assign(dict.fromkeys(world.partitions(topic, 2), EARLIEST))
        going = Deferred.fromCoroutine(consumer.run(handle))
        going.addErrback(lambda _: None)
        await world.wait_until(lambda: all(len(values) == 10 for values in seen.values()))
        going.cancel()
    return all(values == VALUES for values in seen.values()), most
