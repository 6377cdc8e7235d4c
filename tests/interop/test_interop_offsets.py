"""Real clients commit offsets and fetch their own and each other's."""

import asyncio

import aiokafka
import confluent_kafka
import kafka
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient, NewTopic
from kafka.admin import KafkaAdminClient

METADATA = "where I was: ☃"
OFFSETS = {0: (5, METADATA), 1: (7, ""), 2: (0, "start")}
TIMEOUT_S = 10
NUL = "\0"


class Confluent:
    """confluent-kafka, which commits metadata with a trailing NUL and expects one in fetched metadata.

    Other clients commit none, so only offsets are compared.
    """

    def __init__(self, servers):
        self._config = {"bootstrap.servers": servers, "enable.auto.commit": False}

    def commit(self, group, topic):
        consumer = confluent_kafka.Consumer(self._config | {"group.id": group})
        offsets = [
            confluent_kafka.TopicPartition(topic, index, offset, metadata)
            for index, (offset, metadata) in OFFSETS.items()
        ]
        committed = consumer.commit(offsets=offsets, asynchronous=False)
        consumer.close()
        assert [row.error for row in committed] == [None] * len(OFFSETS)

    def fetch(self, group, topic):
        consumer = confluent_kafka.Consumer(self._config | {"group.id": group})
        partitions = [confluent_kafka.TopicPartition(topic, index) for index in OFFSETS]
        rows = consumer.committed(partitions, TIMEOUT_S)
        consumer.close()
        return with_metadata({row.partition: row.offset for row in rows})

    def list_all(self, group, topic):
        admin = AdminClient(self._config)
        (listing,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
        rows = listing.result(TIMEOUT_S).topic_partitions
        assert {row.topic for row in rows} == {topic}
        return with_metadata({row.partition: row.offset for row in rows})


class KafkaPython:
    """kafka-python."""

    def __init__(self, servers):
        self._servers = servers

    def _consumer(self, group):
        return kafka.KafkaConsumer(bootstrap_servers=self._servers, group_id=group, enable_auto_commit=False)

    def commit(self, group, topic):
        consumer = self._consumer(group)
        consumer.commit(
            {
                kafka.TopicPartition(topic, index): kafka.OffsetAndMetadata(offset, metadata, -1)
                for index, (offset, metadata) in OFFSETS.items()
            }
        )
        consumer.close()

    def fetch(self, group, topic):
        consumer = self._consumer(group)
        found = {index: consumer.committed(kafka.TopicPartition(topic, index), metadata=True) for index in OFFSETS}
        consumer.close()
        return {index: (row.offset, row.metadata.rstrip(NUL)) for index, row in found.items()}

    def list_all(self, group, topic):
        admin = KafkaAdminClient(bootstrap_servers=self._servers)
        rows = admin.list_group_offsets(group)
        admin.close()
        if group in rows:
            rows = rows[group]
        assert {key.topic for key in rows} == {topic}
        return {key.partition: (row.offset, row.metadata.rstrip(NUL)) for key, row in rows.items()}


class AioKafka:
    """aiokafka, whose consumers commit only assigned partitions, and fetch offsets without metadata."""

    def __init__(self, servers):
        self._servers = servers

    def commit(self, group, topic):
        async def run():
            consumer = await self._consumer(group, topic)
            await consumer.commit(
                {aiokafka.TopicPartition(topic, index): given for index, given in OFFSETS.items()}
            )
            await consumer.stop()

        asyncio.run(run())

    def fetch(self, group, topic):
        async def run():
            consumer = await self._consumer(group, topic)
            keys = {index: aiokafka.TopicPartition(topic, index) for index in OFFSETS}
            found = {index: await consumer.committed(key) for index, key in keys.items()}
            await consumer.stop()
            return found

        return with_metadata(asyncio.run(run()))

    def list_all(self, group, topic):
        async def run():
            admin = AIOKafkaAdminClient(bootstrap_servers=self._servers)
            await admin.start()
            rows = await admin.list_consumer_group_offsets(group)
            await admin.close()
            return rows

        rows = asyncio.run(run())
        assert {key.topic for key in rows} == {topic}
        return {key.partition: (row.offset, row.metadata.rstrip(NUL)) for key, row in rows.items()}

    async def _consumer(self, group, topic):
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=self._servers, group_id=group, enable_auto_commit=False
        )
        await consumer.start()
        consumer.assign([aiokafka.TopicPartition(topic, index) for index in OFFSETS])
        return consumer


def with_metadata(offsets):
    """Add the metadata that the client cannot fetch."""
    return {index: (offset, OFFSETS[index][1]) for index, offset in offsets.items()}


CLIENTS = [Confluent, KafkaPython, AioKafka]


@pytest.fixture
def three_partitions(broker, topic):
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for future in admin.create_topics([NewTopic(topic, len(OFFSETS), 1)]).values():
        future.result(TIMEOUT_S)
    return topic


@pytest.mark.parametrize("writer", CLIENTS)
def test_every_client_fetches_offsets_of_any_client(broker, three_partitions, writer):
    """Offsets and metadata are the committed ones, for any reading client and request."""
    group = f"group-of-{three_partitions}"
    writer(broker.bootstrap_servers).commit(group, three_partitions)
    for reader in CLIENTS:
        client = reader(broker.bootstrap_servers)
        assert client.fetch(group, three_partitions) == OFFSETS
        assert client.list_all(group, three_partitions) == OFFSETS


def test_offsets_are_changed_and_deleted_by_tools(broker, three_partitions):
    """A tool sets a group's offsets, and a deleted group has none."""
    group = f"group-of-{three_partitions}"
    client = Confluent(broker.bootstrap_servers)
    client.commit(group, three_partitions)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    wanted = ConsumerGroupTopicPartitions(group, [confluent_kafka.TopicPartition(three_partitions, 1, 2)])
    (altering,) = admin.alter_consumer_group_offsets([wanted]).values()
    assert [row.error for row in altering.result(TIMEOUT_S).topic_partitions] == [None]
    assert client.fetch(group, three_partitions)[1] == (2, "")
    (deleting,) = admin.delete_consumer_groups([group]).values()
    deleting.result(TIMEOUT_S)
    none = dict.fromkeys(OFFSETS, confluent_kafka.OFFSET_INVALID)
    assert client.fetch(group, three_partitions) == with_metadata(none)


def test_a_consumer_continues_where_it_stopped(broker, three_partitions):
    """A group that commits while it reads receives every record once, over two lifetimes of its consumer."""
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(90):
        producer.produce(three_partitions, b"%d" % number, partition=number % 3)
    assert producer.flush(TIMEOUT_S) == 0
    seen = []
    for count in (40, 50):
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": f"group-of-{three_partitions}",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe([three_partitions])
        for message in consumer.consume(count, 30):
            assert message.error() is None
            seen.append(int(message.value()))
            consumer.commit(message, asynchronous=False)
        consumer.close()
    assert sorted(seen) == list(range(90))
