"""aiokafka: default and idempotent producers, every codec, keys, headers, timestamps, admin calls."""

import asyncio

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from interop_records import CODECS, Sent, sample


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("idempotent", [False, True])
def test_records_are_returned_unchanged(broker, topic, codec, idempotent):
    """Every record is read once, in order."""
    records = sample()

    async def run():
        compression = None if codec == "none" else codec
        producer = AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap_servers,
            compression_type=compression,
            enable_idempotence=idempotent,
            linger_ms=20,
        )
        await producer.start()
        sent = [
            await producer.send(
                topic, r.value, r.key, partition=0, timestamp_ms=r.timestamp_ms, headers=list(r.headers)
            )
            for r in records
        ]
        assert [(await future).offset for future in sent] == list(range(len(records)))
        await producer.stop()
        consumer = AIOKafkaConsumer(bootstrap_servers=broker.bootstrap_servers, enable_auto_commit=False)
        await consumer.start()
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        await consumer.seek_to_beginning(partition)
        received = []
        while len(received) < len(records):
            message = await asyncio.wait_for(consumer.getone(), 10)
            received.append(Sent(message.key, message.value, tuple(message.headers), message.timestamp))
        await consumer.stop()
        return received

    assert asyncio.run(run()) == records


def test_admin(broker, topic):

    async def run():
        admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
        await admin.start()
        await admin.create_topics([NewTopic(topic, num_partitions=2, replication_factor=1)])
        (described,) = await admin.describe_topics([topic])
        await admin.delete_topics([topic])
        topics = await admin.list_topics()
        await admin.close()
        return described, topics

    described, topics = asyncio.run(run())
    assert len(described["partitions"]) == 2
    assert topic not in topics
