"""Groups of two members of real clients: they share partitions, one leaves, the other takes over."""

import asyncio
import os
import queue
import subprocess
import threading
import time
from collections import Counter
from contextlib import ExitStack, suppress

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer

PARTITIONS = 4
RECORDS = 200
DEADLINE_S = 45.0
"""Members learn of a rebalance by their heartbeats every three seconds; this is more than twice that and a session."""


@pytest.fixture
def group(topic):
    return f"group-of-{topic}"


@pytest.fixture
def records(broker, topic):
    """Create the topic, and return a function that writes more records and returns them."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(20)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    written = 0

    def more():
        nonlocal written
        values = [f"{topic} {number}".encode() for number in range(written, written + RECORDS)]
        for number, value in enumerate(values):
            producer.produce(topic, value, partition=number % PARTITIONS)
        assert producer.flush(20) == 0
        written += RECORDS
        return values

    return more


class ConfluentReader:
    def __init__(self, broker, topic, group, **config):
        settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": group, "auto.offset.reset": "earliest"}
        self.consumer = Consumer(settings | config)
        self.consumer.subscribe([topic])

    def poll(self):
        messages = self.consumer.consume(100, 0.1)
        assert [message.error() for message in messages if message.error()] == []
        return [message.value() for message in messages]

    @property
    def partitions(self):
        return {row.partition for row in self.consumer.assignment()}

    def close(self):
        self.consumer.close()


class KafkaPythonReader:
    """A consumer with its own polling thread, because version 3.0.12 restarts a join that completes between two polls.

    Two members that are polled alternately rebalance forever, because one's join completes while the other is polled.
    """

    def __init__(self, broker, topic, group):
        self.consumer = KafkaConsumer(
            bootstrap_servers=broker.bootstrap_servers, group_id=group, auto_offset_reset="earliest"
        )
        # A group leader without metadata of the topic would assign no partitions, and keep this assignment.
        end = time.monotonic() + DEADLINE_S
        while not self.consumer.partitions_for_topic(topic):
            assert time.monotonic() < end, f"{topic} does not appear in the metadata"
        self.consumer.subscribe([topic])
        self._values = queue.SimpleQueue()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        try:
            while not self._closing.is_set():
                polled = self.consumer.poll(timeout_ms=1000)
                for messages in polled.values():
                    for message in messages:
                        self._values.put(message.value)
        except Exception as error:
            self._values.put(error)

    def poll(self):
        values = []
        with suppress(queue.Empty):
            values.append(self._values.get(timeout=0.1))
            while True:
                values.append(self._values.get_nowait())
        for value in values:
            if isinstance(value, Exception):
                raise value
        return values

    @property
    def partitions(self):
        return {row.partition for row in self.consumer.assignment()}

    def close(self):
        self._closing.set()
        self._thread.join()
        self.consumer.close()


def poll_until(readers, reached, received):
    """Poll all readers until the condition is true, and count their records."""
    end = time.monotonic() + DEADLINE_S
    while not reached():
        assert time.monotonic() < end, [sorted(reader.partitions) for reader in readers]
        for reader in readers:
            received.update(reader.poll())


def check_sharing_and_takeover(make, records):
    """Two readers share a topic; one leaves, and the other continues at its committed offsets."""
    received = Counter()
    expected = Counter(records())
    first, second = make(), make()

    def is_shared():
        return sorted([*first.partitions, *second.partitions]) == list(range(PARTITIONS)) and all(
            len(reader.partitions) == PARTITIONS // 2 for reader in (first, second)
        )

    poll_until([first, second], is_shared, received)
    poll_until([first, second], lambda: received.keys() == expected.keys(), received)
    expected.update(records())
    poll_until([first, second], lambda: received.keys() == expected.keys(), received)
    second.close()
    poll_until([first], lambda: first.partitions == set(range(PARTITIONS)), received)
    expected.update(records())
    poll_until([first], lambda: received.keys() == expected.keys(), received)
    first.close()
    assert received == expected  # each record was read once, thanks to the commits of leaving members


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_confluent(broker, topic, group, records, strategy):
    """confluent-kafka with eager and cooperative assignors."""
    config = {"partition.assignment.strategy": strategy}
    check_sharing_and_takeover(lambda: ConfluentReader(broker, topic, group, **config), records)


def test_kafka_python(broker, topic, group, records):
    check_sharing_and_takeover(lambda: KafkaPythonReader(broker, topic, group), records)


def test_aiokafka(broker, topic, group, records):

    async def run():
        received = Counter()
        expected = Counter(records())

        async def make():
            consumer = AIOKafkaConsumer(
                topic, bootstrap_servers=broker.bootstrap_servers, group_id=group, auto_offset_reset="earliest"
            )
            await consumer.start()
            return consumer

        def partitions(consumer):
            return {row.partition for row in consumer.assignment()}

        async def poll_until(consumers, reached):
            end = time.monotonic() + DEADLINE_S
            while not reached():
                assert time.monotonic() < end, [partitions(consumer) for consumer in consumers]
                for consumer in consumers:
                    for messages in (await consumer.getmany(timeout_ms=100)).values():
                        received.update(message.value for message in messages)

        first = await make()
        await poll_until([first], lambda: received == expected)
        second = await make()
        both = [first, second]
        await poll_until(both, lambda: {len(partitions(consumer)) for consumer in both} == {PARTITIONS // 2})
        expected.update(records())
        await poll_until(both, lambda: received == expected)
        await second.stop()
        await poll_until([first], lambda: partitions(first) == set(range(PARTITIONS)))
        expected.update(records())
        await poll_until([first], lambda: received == expected)
        await first.stop()

    asyncio.run(run())


@pytest.mark.needs_program("kcat")
def test_kcat(broker, topic, group, records):
    """``kcat -G`` shares partitions, and takes over the partitions of a kcat that ends."""
    expected = set(records())
    command = ["kcat", "-b", broker.bootstrap_servers, "-G", group, "-X", "auto.offset.reset=earliest", "-u", topic]
    with ExitStack() as stack:
        readers = [stack.enter_context(KcatMember(command)) for _ in range(2)]
        readers[0].read_until(lambda: readers[0].values | readers[1].values == expected, *readers)
        readers[1].stop()
        expected |= set(records())
        readers[0].read_until(lambda: readers[0].values | readers[1].values == expected, *readers)


class KcatMember:
    """A running ``kcat -G`` whose lines are recorded."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.values = set()
        self._rest = b""
        os.set_blocking(self.process.stdout.fileno(), False)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        self.process.terminate()
        self.process.wait(20)
        self.read()

    def read(self):
        *lines, self._rest = (self._rest + (self.process.stdout.read() or b"")).split(b"\n")
        self.values.update(lines)

    @staticmethod
    def read_until(reached, *readers):
        end = time.monotonic() + DEADLINE_S
        while not reached():
            assert time.monotonic() < end
            for reader in readers:
                reader.read()
            time.sleep(0.05)


def test_static_member_restarts(broker, topic, group, records):
    """A restarted static member gets its partitions back, and the other member is not disturbed (KIP-345)."""
    received = Counter()
    expected = Counter(records())
    revoked = []

    def make(name):
        return ConfluentReader(broker, topic, group, **{"group.instance.id": name})

    first, second = make("one"), make("two")
    first.consumer.unsubscribe()
    first.consumer.subscribe([topic], on_revoke=lambda _, partitions: revoked.append(partitions))
    both = [first, second]
    poll_until(both, lambda: [len(reader.partitions) for reader in both] == [2, 2], received)
    poll_until(both, lambda: received == expected, received)
    revoked.clear()
    previous = second.partitions
    second.close()  # a static member does not leave
    second = make("two")
    poll_until([first, second], lambda: second.partitions == previous, received)
    expected.update(records())
    poll_until([first, second], lambda: received == expected, received)
    assert revoked == []
    first.close()
    second.close()


def test_simple_consumer(broker, topic, group, records):
    """A consumer with assigned partitions can commit offsets for a group that has no members."""
    expected = records()
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": group, "auto.offset.reset": "earliest"}
    )
    consumer.assign([TopicPartition(topic, 0)])
    received = []
    while len(received) < RECORDS // PARTITIONS:
        received += [message.value() for message in consumer.consume(100, 0.5)]
    assert received == expected[::PARTITIONS]
    consumer.commit(asynchronous=False)
    assert consumer.committed([TopicPartition(topic, 0)], 10)[0].offset == RECORDS // PARTITIONS
    consumer.close()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    listed = {row.group_id: row.state for row in admin.list_consumer_groups().result(20).valid}
    assert listed[group] is ConsumerGroupState.EMPTY


def test_tools(broker, topic, group, records):
    """Groups are listed, described, read, and deleted when they are empty."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    received = Counter()
    expected = Counter(records())
    reader = ConfluentReader(broker, topic, group, **{"client.id": "the reader"})
    poll_until([reader], lambda: received == expected, received)
    described = admin.describe_consumer_groups([group])[group].result(20)
    assert (described.state, described.partition_assignor) == (ConsumerGroupState.STABLE, "range")
    (member,) = described.members
    assert (member.client_id, member.host) == ("the reader", "/127.0.0.1")
    assert {row.partition for row in member.assignment.topic_partitions} == set(range(PARTITIONS))
    with pytest.raises(Exception, match=r"NON_EMPTY_GROUP|not empty"):
        admin.delete_consumer_groups([group])[group].result(20)
    reader.close()
    offsets = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(20)
    assert {row.partition: row.offset for row in offsets.topic_partitions} == dict.fromkeys(
        range(PARTITIONS), RECORDS // PARTITIONS
    )
    admin.delete_consumer_groups([group])[group].result(20)
    assert group not in {row.group_id for row in admin.list_consumer_groups().result(20).valid}
