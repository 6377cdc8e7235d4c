"""Transactional producers of three client libraries: committed records are visible, aborted ones never; fencing."""

import asyncio
import uuid

import aiokafka
import kafka
import pytest
from aiokafka.errors import ProducerFenced
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

# librdkafka requires a group ID even without a group.
NO_GROUP = {"group.id": "none", "enable.auto.commit": False, "isolation.level": "read_committed"}


@pytest.fixture
def transactional_id():
    """An unused transactional ID."""
    return f"tx-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def wide_topic(broker, topic):
    """A topic of three partitions."""
    admin = kafka.KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    admin.create_topics([kafka.admin.NewTopic(topic, 3, 1)])
    admin.close()
    return topic


def committed_values(broker, topic, partitions=3):
    """Return all values below the last stable offsets as a consumer of committed records reads them, sorted."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, **NO_GROUP, "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)])
    values, ended = [], set()
    while len(ended) < partitions:
        message = consumer.poll(20) or pytest.fail(f"{topic}: only {sorted(values)} arrived, and no end")
        if message.error() is None:
            values.append(message.value())
        else:
            ended.add(message.partition())
    consumer.close()
    return sorted(values)


def open_transactions(broker, topic):
    """Return the number of records in open transactions: those between the last stable and the log end offset."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    asked = {TopicPartition(topic, number): OffsetSpec.latest() for number in range(3)}
    answered = [
        admin.list_offsets(asked, isolation_level=level).values()
        for level in (IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED)
    ]
    log_ends, stable_offsets = (sum(future.result().offset for future in answer) for answer in answered)
    return log_ends - stable_offsets


# --- confluent-kafka ---


def confluent(broker, transactional_id, **config):
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": transactional_id, **config})
    producer.init_transactions(30)
    return producer


def send(producer, topic, *values):
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % 3)


def test_confluent_commits_and_aborts(broker, wide_topic, transactional_id):
    """Consecutive transactions over three partitions: all records of committed ones are visible."""
    producer = confluent(broker, transactional_id)
    expected = []
    for number in range(10):
        producer.begin_transaction()
        values = [b"%d-%d" % (number, each) for each in range(4)]
        send(producer, wide_topic, *values)
        if number % 3 == 1:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
            expected += values
    assert committed_values(broker, wide_topic) == sorted(expected)
    assert open_transactions(broker, wide_topic) == 0


def test_confluent_zombie_is_fenced(broker, wide_topic, transactional_id):
    """A second producer with the same ID aborts the open transaction of the first, which can no longer end it."""
    zombie = confluent(broker, transactional_id)
    zombie.begin_transaction()
    send(zombie, wide_topic, b"lost", b"lost", b"lost")
    zombie.flush(30)
    assert open_transactions(broker, wide_topic) >= 3
    successor = confluent(broker, transactional_id)
    successor.begin_transaction()
    send(successor, wide_topic, b"kept")
    successor.commit_transaction(30)
    with pytest.raises(KafkaException) as fenced:
        zombie.commit_transaction(30)
    assert fenced.value.args[0].fatal()
    assert committed_values(broker, wide_topic) == [b"kept"]


def test_confluent_commits_offsets_in_transactions(broker, wide_topic, transactional_id):
    """A group's offsets take effect if the transaction commits, and are discarded if it aborts."""
    group = f"g-{uuid.uuid4().hex[:12]}"
    source = confluent(broker, f"{transactional_id}-source")
    source.begin_transaction()
    send(source, wide_topic, b"a", b"b", b"c")
    source.commit_transaction(30)
    producer = confluent(broker, transactional_id)
    for commits in (False, True):
        consumer = Consumer(
            {"bootstrap.servers": broker.bootstrap_servers, **NO_GROUP, "group.id": group}
            | {"auto.offset.reset": "earliest"}
        )
        consumer.subscribe([wide_topic])
        taken = [consumer.poll(30) for _ in range(3)]
        assert sorted(message.value() for message in taken) == [b"a", b"b", b"c"]
        producer.begin_transaction()
        done = [TopicPartition(wide_topic, message.partition(), message.offset() + 1) for message in taken]
        producer.send_offsets_to_transaction(done, consumer.consumer_group_metadata(), 30)
        if commits:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
        consumer.close()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    (future,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    assert {each.partition: each.offset for each in future.result().topic_partitions} == {0: 1, 1: 1, 2: 1}


def test_confluent_transaction_is_aborted_after_its_timeout(broker, wide_topic, transactional_id):
    """Readers of committed records continue after the timeout."""
    slow = confluent(broker, transactional_id, **{"transaction.timeout.ms": 1000, "message.timeout.ms": 1000})
    slow.begin_transaction()
    send(slow, wide_topic, b"late", b"late")
    slow.flush(30)
    other = confluent(broker, f"{transactional_id}-other")
    other.begin_transaction()
    send(other, wide_topic, b"in time", b"in time", b"in time")
    other.commit_transaction(30)
    assert committed_values_after(broker, wide_topic, 3) == [b"in time"] * 3
    with pytest.raises(KafkaException):
        slow.commit_transaction(30)


def committed_values_after(broker, topic, count):
    """Return the first ``count`` committed values, waiting as long as they are delayed."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, **NO_GROUP})
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(3)])
    values = [(consumer.poll(40) or pytest.fail("no record was received")).value() for _ in range(count)]
    consumer.close()
    return values


# --- kafka-python ---


def test_kafka_python_commits_and_aborts(broker, wide_topic, transactional_id):
    """kafka-python, which uses newer API versions, commits and aborts transactions."""
    producer = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap_servers, transactional_id=transactional_id)
    producer.init_transactions()
    expected = []
    for number in range(6):
        producer.begin_transaction()
        values = [b"%d-%d" % (number, each) for each in range(3)]
        for partition, value in enumerate(values):
            producer.send(wide_topic, value, partition=partition)
        if number % 2:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
            expected += values
    producer.close()
    assert committed_values(broker, wide_topic) == sorted(expected)


def test_kafka_python_zombie_is_fenced(broker, wide_topic, transactional_id):
    """The older of two producers with one ID receives a fencing error."""
    producers = []
    for _ in range(2):
        producer = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap_servers, transactional_id=transactional_id)
        producer.init_transactions()
        producers.append(producer)
    zombie, successor = producers
    zombie.begin_transaction()
    zombie.send(wide_topic, b"lost", partition=0)
    with pytest.raises(kafka.errors.KafkaError):
        zombie.commit_transaction()
    successor.begin_transaction()
    successor.send(wide_topic, b"kept", partition=0)
    successor.commit_transaction()
    assert committed_values(broker, wide_topic) == [b"kept"]
    successor.close()


# --- aiokafka ---


def test_aiokafka_commits_aborts_and_fences(broker, wide_topic, transactional_id):
    """aiokafka, which uses the oldest API versions, commits and aborts; a second producer fences the first."""

    async def scenario():
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap_servers, transactional_id=transactional_id
        )
        await producer.start()
        async with producer.transaction():
            await producer.send_and_wait(wide_topic, b"committed", partition=0)
        await producer.begin_transaction()
        await producer.send_and_wait(wide_topic, b"aborted", partition=1)
        await producer.abort_transaction()
        successor = aiokafka.AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap_servers, transactional_id=transactional_id
        )
        await successor.start()
        async with successor.transaction():
            await successor.send_and_wait(wide_topic, b"kept", partition=2)
        await producer.begin_transaction()
        with pytest.raises(ProducerFenced):
            await producer.send_and_wait(wide_topic, b"lost", partition=2)
        await successor.stop()
        await producer.stop()

    asyncio.run(scenario())
    assert committed_values(broker, wide_topic) == [b"committed", b"kept"]
