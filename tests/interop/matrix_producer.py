"""Matrix scenarios: producers."""

from __future__ import annotations

from collections import Counter
from functools import partial

from interop_records import sample
from matrix_reading import read, read_values
from matrix_table import scenario
from matrix_world import World, gather_results, outcome_of
from twisted.internet.defer import Deferred

from kreplica.client import Codec, Producer, ProducerOptions, RoundRobinPartitioner
from kreplica.client.errors import BufferFull
from kreplica.model import TopicPartition
from kreplica.wire.batches import TimestampType

SUBJECT = "producer"
VALUES = [b"%d" % number for number in range(100)]

JAVA_PARTITIONS = {"": 1, "a": 4, "key-0": 1, "key-1": 0, "key-2": 2, "schlüssel": 6, "0123456789": 8, "x" * 100: 8}
"""Partitions that Kafka's Java producer selects for these keys in a topic of this size."""

JAVA_PARTITION_COUNT = 10


async def acks(number: int, world: World) -> object:
    topic = await world.topic()
    async with Producer(world.cluster, ProducerOptions(acks=number)) as producer:
        written = await gather_results([producer.send(topic, value) for value in VALUES])
    while (values := await read_values(world, topic)) != VALUES:
        assert len(values) < len(VALUES), "more records than were written"
    return [each.offset for each in written] == list(range(len(VALUES))), {each.offset < 0 for each in written}


scenario(SUBJECT, "acks=all returns offsets", (True, {False}))(partial(acks, -1))
scenario(SUBJECT, "acks=1 returns offsets", (True, {False}))(partial(acks, 1))
scenario(SUBJECT, "acks=0 returns no offsets", (False, {True}))(partial(acks, 0))


async def produce_with_codec(one: Codec, world: World) -> object:
    topic = await world.topic()
    async with Producer(world.cluster, ProducerOptions(codec=one)) as producer:
        written = [
            producer.send(topic, sent.value, key=sent.key, headers=sent.headers, timestamp_ms=sent.timestamp_ms)
            for sent in sample()
        ]
        await gather_results(written)
    found = await read(world, topic)
    return len(found), [(r.key, r.value, tuple(r.headers), r.timestamp_ms) for r in found] == [
        tuple(s) for s in sample()
    ]


for each_codec in Codec:
    title = f"keys, values, nulls, headers, timestamps with codec {each_codec.name.lower()}"
    scenario(SUBJECT, title, (200, True))(partial(produce_with_codec, each_codec))


@scenario(SUBJECT, "a record without a timestamp gets the time of sending", (True, TimestampType.CREATE_TIME))
async def time_of_sending(world: World) -> object:
    topic = await world.topic()
    before = world.cluster.runtime.wall_clock_ms()
    async with Producer(world.cluster) as producer:
        written = await producer.send(topic, b"now")
    (record,) = await read(world, topic)
    after = world.cluster.runtime.wall_clock_ms()
    return before <= record.timestamp_ms == written.timestamp_ms <= after, record.timestamp_type


@scenario(SUBJECT, "LogAppendTime: the broker sets timestamps", (True, True, TimestampType.LOG_APPEND_TIME))
async def append_time(world: World) -> object:
    topic = await world.topic(configs={"message.timestamp.type": "LogAppendTime"})
    async with Producer(world.cluster) as producer:
        written = await producer.send(topic, b"now", timestamp_ms=1000)
    (record,) = await read(world, topic)
    return written.timestamp_ms == record.timestamp_ms, record.timestamp_ms > 1_600_000_000_000, record.timestamp_type


@scenario(SUBJECT, "a key selects the same partition as in the Java client", JAVA_PARTITIONS)
async def java_partitions(world: World) -> object:
    topic = await world.topic(JAVA_PARTITION_COUNT)
    async with Producer(world.cluster) as producer:
        sent = {key: producer.send(topic, b"", key=key.encode()) for key in JAVA_PARTITIONS}
        return {key: (await delivery).partition.partition for key, delivery in sent.items()}


@scenario(SUBJECT, "records without a key share a batch and a partition", (1, True))
async def sticky(world: World) -> object:
    topic = await world.topic(6)
    async with Producer(world.cluster, ProducerOptions(linger_s=0.02)) as producer:
        written = await gather_results([producer.send(topic, value) for value in VALUES])
        later = await gather_results([producer.send(topic, bytes(1000)) for _ in range(200)])
    return len({each.partition for each in written}), len({each.partition for each in later}) > 1


@scenario(SUBJECT, "round-robin partitioning", {0: 4, 1: 4, 2: 4})
async def round_robin(world: World) -> object:
    topic = await world.topic(3)
    options = ProducerOptions(partitioner=RoundRobinPartitioner)
    async with Producer(world.cluster, options) as producer:
        written = await gather_results([producer.send(topic, b"v", key=b"same") for _ in range(12)])
    return dict(sorted(Counter(each.partition.partition for each in written).items()))


@scenario(SUBJECT, "explicit partition", [(0, 0), (1, 0), (2, 0), (0, 1)])
async def named_partition(world: World) -> object:
    topic = await world.topic(3)
    async with Producer(world.cluster) as producer:
        written = await gather_results([producer.send(topic, b"v", partition=number % 3) for number in range(4)])
    return [(each.partition.partition, each.offset) for each in written]


@scenario(SUBJECT, "order with many batches in flight", (True, 3000))
async def order(world: World) -> object:
    topic = await world.topic()
    values = [b"%d" % number for number in range(3000)]
    async with Producer(world.cluster, ProducerOptions(batch_size=200)) as producer:
        written = await gather_results([producer.send(topic, value) for value in values])
    assert [each.offset for each in written] == list(range(3000))
    found = await read_values(world, topic)
    return found == values, len(found)


@scenario(SUBJECT, "full buffers reject records until space is free", ("BufferFull", True, True))
async def back_pressure(world: World) -> object:
    topic = await world.topic()
    sent: list[Deferred[object]] = []
    refused: object = None
    async with Producer(world.cluster, ProducerOptions(memory_size_max=64 << 10)) as producer:
        while refused is None:
            delivery = producer.send(topic, bytes(1000))
            if delivery.called and (error := getattr(delivery, "result", None)) is not None:
                refused = await outcome_of(delivery) if isinstance(getattr(error, "value", None), BufferFull) else None
            else:
                sent.append(delivery)
        await producer.room()
        more = await producer.send(topic, b"last")
        await gather_results(sent)
    return refused, len(sent) < 70, more.offset == len(sent)


@scenario(SUBJECT, "send_all of more records than fit in the buffers", (2000, True))
async def send_all(world: World) -> object:
    topic = await world.topic()
    values = [b"%d" % number * 20 for number in range(2000)]
    async with Producer(world.cluster, ProducerOptions(memory_size_max=32 << 10)) as producer:
        count = await producer.send_all(topic, values)
    return count, await read_values(world, topic) == values


@scenario(SUBJECT, "a record larger than a request is rejected locally", "RecordTooLarge")
async def oversized(world: World) -> object:
    topic = await world.topic()
    async with Producer(world.cluster) as producer:
        return await outcome_of(producer.send(topic, bytes(9 << 20)))


@scenario(
    SUBJECT,
    "a record larger than the topic allows is rejected by the broker; others are written",
    ("RecordTooLarge < BrokerRefused MESSAGE_TOO_LARGE", 0),
)
async def oversized_for_topic(world: World) -> object:
    topic = await world.topic(configs={"max.message.bytes": 2000})
    async with Producer(world.cluster) as producer:
        refused = await outcome_of(producer.send(topic, bytes(3000)))
        return refused, (await producer.send(topic, b"small")).offset


@scenario(SUBJECT, "unknown topic", "GaveUp < BrokerRefused UNKNOWN_TOPIC_OR_PARTITION")
async def unknown_topic(world: World) -> object:
    async with Producer(world.cluster, ProducerOptions(topic_timeout_s=0.5)) as producer:
        return await outcome_of(producer.send(world.new_name(), b"v"))


@scenario(SUBJECT, "unknown partition", "GaveUp < BrokerRefused UNKNOWN_TOPIC_OR_PARTITION")
async def unknown_partition(world: World) -> object:
    topic = await world.topic()
    async with Producer(world.cluster, ProducerOptions(topic_timeout_s=0.5)) as producer:
        return await outcome_of(producer.send(topic, b"v", partition=7))


@scenario(SUBJECT, "record without a key for a compacted topic", ("BrokerRefused INVALID_RECORD", 0))
async def compacted(world: World) -> object:
    topic = await world.topic(configs={"cleanup.policy": "compact"})
    async with Producer(world.cluster) as producer:
        refused = await outcome_of(producer.send(topic, b"v"))
        return refused, (await producer.send(topic, b"v", key=b"k")).offset


@scenario(SUBJECT, "timestamp outside the topic's limits", "BrokerRefused INVALID_TIMESTAMP")
async def wrong_time(world: World) -> object:
    topic = await world.topic(configs={"message.timestamp.after.max.ms": 3_600_000})
    async with Producer(world.cluster) as producer:
        late = world.cluster.runtime.wall_clock_ms() + 10 * 3_600_000
        return await outcome_of(producer.send(topic, b"v", timestamp_ms=late))


@scenario(SUBJECT, "close sends buffered records", (True, "ProducerUnusable"))
async def closing(world: World) -> object:
    topic = await world.topic()
    producer = Producer(world.cluster, ProducerOptions(linger_s=30.0))
    sent = [producer.send(topic, value) for value in VALUES]
    await producer.close()
    await gather_results(sent)
    return await read_values(world, topic) == VALUES, await outcome_of(producer.send(topic, b"late"))


@scenario(SUBJECT, "transactional and other producers write to the same topic", [b"1", b"2", b"3"])
async def transactional_and_plain(world: World) -> object:
    topic = await world.topic()
    async with Producer(world.cluster, ProducerOptions(idempotent=False)) as plain, Producer(world.cluster) as other:
        await plain.send(topic, b"1")
        await other.send(topic, b"2")
        await plain.send(topic, b"3")
    return await read_values(world, topic)


@scenario(SUBJECT, "a producer writes to many topics", 50)
async def many_topics(world: World) -> object:
    topics = [await world.topic(5) for _ in range(2)]
    async with Producer(world.cluster) as producer:
        sent = [
            producer.send(topic, b"%d" % number, partition=partition)
            for topic in topics
            for partition in range(5)
            for number in range(5)
        ]
        written = await gather_results(sent)
    return len({(TopicPartition(*each.partition), each.offset) for each in written})
