"""Partitions that are removed and added again while clients of each kind write and read."""

import asyncio
import json
import threading
import time

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PythonPartition
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from kreplica.wire.messages import METADATA
from tests.support.blocking_client import BlockingClient

PARTITIONS = range(3)
LAST = 2
ANSWER_S_MAX = 30.0
IMPATIENT_S = 3
"""Delivery timeout of a producer that gives up early."""
AN_HOUR_MS = 3_600_000


class Removal:
    """The operator's requests in ZooKeeper, and the state of the topic's znode."""

    def __init__(self, broker, topic):
        self._topic = topic
        self._port = broker.port
        self._zookeeper = KazooClient(f"127.0.0.1:{broker.coordinator_port}")
        self._admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        self._zookeeper.start()
        self._admin.create_topics([NewTopic(topic, len(PARTITIONS), 1)])[topic].result()

    def request_removal(self, wait_ms):
        request = json.dumps({"version": 1, "wait_ms": wait_ms}).encode()
        self._zookeeper.create(self._request, request, makepath=True)

    def cancel_removal(self):
        self._zookeeper.delete(self._request)

    def add_again(self):
        """Send requests until all brokers have deleted the files of the previous partition."""
        end = time.monotonic() + ANSWER_S_MAX
        while True:
            try:
                self._admin.create_partitions([NewPartitions(self._topic, len(PARTITIONS))])[self._topic].result()
                return
            except KafkaException as error:
                if "may still have its files" not in str(error) or time.monotonic() > end:
                    raise
            time.sleep(0.05)

    def wait_until(self, state):
        """Wait until the last partition is ``writable``, ``read-only`` or ``gone``, also on the broker."""
        end = time.monotonic() + ANSWER_S_MAX
        while self._partition_state() != state:
            assert time.monotonic() < end, f"it is {self._partition_state()}, not {state}"
            time.sleep(0.02)

    def close(self):
        self._zookeeper.stop()
        self._zookeeper.close()

    @property
    def _request(self):
        return f"/admin/partitions_remove/{self._topic}/{LAST}"

    def _partition_state(self):
        document = self._document()
        listed = self._listed_epochs()
        if LAST not in listed and str(LAST) not in document["partitions"]:
            return "gone"
        if listed.get(LAST) != self._document(f"/partitions/{LAST}/state").get("leader_epoch"):
            return "changing"
        return "read-only" if LAST in document.get("kreplica_read_only", ()) else "writable"

    def _document(self, path=""):
        try:
            return json.loads(self._zookeeper.get(f"/brokers/topics/{self._topic}{path}")[0])
        except NoNodeError:
            return {}

    def _listed_epochs(self):
        """Return the leader epochs in the metadata, after the broker has executed the controller's command."""
        with BlockingClient("127.0.0.1", self._port) as client:
            answer = client.request(METADATA, {"topics": None, "allow_auto_topic_creation": False})
        (topic,) = (row for row in answer["topics"] if row["name"] == self._topic)
        return {row["partition_index"]: row["leader_epoch"] for row in topic["partitions"]}


@pytest.fixture
def removal(broker, topic):
    operator = Removal(broker, topic)
    yield operator
    operator.close()


class Confluent:
    """confluent-kafka (librdkafka)."""

    def __init__(self, broker, topic, delivery_s=120):
        self._topic = topic
        self._answers = {}
        servers = {"bootstrap.servers": broker.bootstrap_servers}
        self._producer = Producer(servers | {"enable.idempotence": True, "delivery.timeout.ms": 1000 * delivery_s})
        self._consumer = Consumer(servers | {"group.id": "none", "enable.auto.commit": False})
        self._consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in PARTITIONS])

    def send(self, partition):
        number = len(self._answers)
        self._answers[number] = None

        def answered(error, message):
            self._answers[number] = error or message.offset()

        self._producer.produce(self._topic, b"v", partition=partition, on_delivery=answered)
        return number

    def is_answered(self, number):
        self._producer.poll(0)
        return self._answers[number] is not None

    def offset(self, number):
        end = time.monotonic() + ANSWER_S_MAX
        while self._answers[number] is None:
            assert time.monotonic() < end, "no delivery report"
            self._producer.poll(0.1)
        assert isinstance(self._answers[number], int), self._answers[number]
        return self._answers[number]

    def read(self, count):
        messages = self._consumer.consume(count, ANSWER_S_MAX)
        assert [message.error() for message in messages] == [None] * count
        return sorted((message.partition(), message.offset()) for message in messages)

    def close(self):
        self._producer.purge()
        self._consumer.close()


class KafkaPython:
    """kafka-python; after it gives up a record, it continues only without idempotence."""

    def __init__(self, broker, topic, delivery_s=120):
        self._topic = topic
        self._producer = KafkaProducer(
            bootstrap_servers=broker.bootstrap_servers,
            delivery_timeout_ms=1000 * delivery_s,
            request_timeout_ms=1000 * delivery_s // 2,
            enable_idempotence=delivery_s > IMPATIENT_S,
        )
        self._consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap_servers, enable_auto_commit=False)
        partitions = [PythonPartition(topic, p) for p in PARTITIONS]
        self._consumer.assign(partitions)
        self._consumer.seek_to_beginning(*partitions)

    def send(self, partition):
        return self._producer.send(self._topic, b"v", partition=partition)

    def is_answered(self, future):
        return future.is_done

    def offset(self, future):
        return future.get(ANSWER_S_MAX).offset

    def read(self, count):
        read, end = [], time.monotonic() + ANSWER_S_MAX
        while len(read) < count:
            assert time.monotonic() < end, f"only {len(read)} of {count} arrived"
            for messages in self._consumer.poll(timeout_ms=200).values():
                read += [(message.partition, message.offset) for message in messages]
        return sorted(read)

    def close(self):
        self._producer.close(timeout=0)
        self._consumer.close()


class Aiokafka:
    """aiokafka, in its own event loop; with idempotence it retries as long as the partition exists."""

    def __init__(self, broker, topic, delivery_s=120):
        self._topic = topic
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._run(self._start(broker.bootstrap_servers, delivery_s))

    async def _start(self, servers, delivery_s):
        self._producer = AIOKafkaProducer(
            bootstrap_servers=servers,
            request_timeout_ms=1000 * delivery_s,
            enable_idempotence=delivery_s > IMPATIENT_S,
        )
        self._consumer = AIOKafkaConsumer(bootstrap_servers=servers, enable_auto_commit=False)
        await self._producer.start()
        await self._consumer.start()
        partitions = [AioPartition(self._topic, p) for p in PARTITIONS]
        self._consumer.assign(partitions)
        await self._consumer.seek_to_beginning(*partitions)

    def _run(self, awaitable):
        return asyncio.run_coroutine_threadsafe(awaitable, self._loop).result(ANSWER_S_MAX)

    def send(self, partition):
        return self._run(self._producer.send(self._topic, b"v", partition=partition))

    def is_answered(self, future):
        return future.done()

    def offset(self, future):
        async def answer():
            return (await future).offset

        return self._run(answer())

    def read(self, count):
        async def messages():
            return [await self._consumer.getone() for _ in range(count)]

        return sorted((message.partition, message.offset) for message in self._run(messages()))

    def close(self):
        self._run(self._consumer.stop())
        self._run(self._producer.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@pytest.fixture(params=[Confluent, KafkaPython, Aiokafka])
def start_client(request, broker, topic, removal):
    """Return a function that starts a client of one kind; all clients are closed at the end."""
    clients = []

    def start(**settings):
        clients.append(request.param(broker, topic, **settings))
        return clients[-1]

    yield start
    for client in clients:
        client.close()


def test_writing_and_reading_continue(start_client, removal):
    """While a partition is read-only, removed and added again, the other partitions lose or duplicate no record."""
    client = start_client()
    assert [client.offset(client.send(p)) for p in PARTITIONS] == [0, 0, 0]
    assert client.read(3) == [(0, 0), (1, 0), (2, 0)]

    removal.request_removal(wait_ms=AN_HOUR_MS)
    removal.wait_until("read-only")
    waiting = client.send(LAST)
    assert client.offset(client.send(0)) == 1
    assert client.read(1) == [(0, 1)]
    assert not client.is_answered(waiting)
    assert start_client().read(4) == [(0, 0), (0, 1), (1, 0), (2, 0)]

    removal.cancel_removal()
    assert client.offset(waiting) == 1
    assert client.read(1) == [(2, 1)]

    removal.request_removal(wait_ms=0)
    removal.wait_until("gone")
    assert [client.offset(client.send(p)) for p in (0, 1)] == [2, 1]
    assert client.read(2) == [(0, 2), (1, 1)]

    removal.add_again()
    removal.wait_until("writable")
    another = start_client()
    assert another.offset(another.send(LAST)) == 0
    assert another.read(6) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (2, 0)]


def test_record_for_a_removed_partition(start_client, removal):
    """A record for a read-only partition fails with the client's timeout; the other partitions are still writable."""
    removal.request_removal(wait_ms=AN_HOUR_MS)
    removal.wait_until("read-only")
    client = start_client(delivery_s=IMPATIENT_S)
    late = client.send(LAST)
    with pytest.raises(Exception, match=r"(?i)time|NotEnoughReplicas"):
        client.offset(late)
    assert [client.offset(client.send(p)) for p in (0, 1)] == [0, 0]
    assert client.read(2) == [(0, 0), (1, 0)]
