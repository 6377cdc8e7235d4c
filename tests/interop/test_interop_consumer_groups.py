"""librdkafka's consumers of KIP-848 groups: assignment, joining, leaving, killed members, pattern subscriptions."""

import subprocess
import sys
import time
from collections import Counter

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupType, Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tests.support.standalone import StandaloneProcess

PARTITIONS = 6
DEADLINE_S = 40.0

QUICK = (
    "--override", "group.consumer.heartbeat.interval.ms=200",
    "--override", "group.consumer.session.timeout.ms=6000",
)  # fmt: skip
"""Members learn of changes by their heartbeats."""

CONSUMER_PROGRAM = """
import sys
from confluent_kafka import Consumer
servers, group, topic = sys.argv[1:]
consumer = Consumer({"bootstrap.servers": servers, "group.id": group, "group.protocol": "consumer"})
consumer.subscribe([topic], on_assign=lambda _, partitions: print(len(partitions), flush=True))
while True:
    consumer.poll(0.1)
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """A broker that asks members for frequent heartbeats."""
    with StandaloneProcess(tmp_path_factory.mktemp("groups"), arguments=QUICK) as process:
        yield process


@pytest.fixture
def admin(broker, topic):
    """An admin client; creates the topic."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(20)
    return admin


class Reader:
    """A consumer that records its assignments and losses."""

    def __init__(self, broker, group, *topics, **config):
        settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": group, "auto.offset.reset": "earliest"}
        self.consumer = Consumer({**settings, "group.protocol": "consumer", **config})
        self.lost = 0
        self.consumer.subscribe(list(topics), on_lost=self._lost)

    def _lost(self, consumer, partitions):
        self.lost += 1

    def poll(self):
        messages = self.consumer.consume(100, 0.05)
        assert [message.error() for message in messages if message.error()] == []
        return [message.value() for message in messages]

    @property
    def assigned(self):
        return sorted((row.topic, row.partition) for row in self.consumer.assignment())


def produce(broker, topic, count):
    """Write unique records."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    values = [f"{topic} {time.monotonic_ns()} {number}".encode() for number in range(count)]
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % PARTITIONS)
    assert producer.flush(20) == 0
    return values


def poll_until(readers, reached, received=None):
    end = time.monotonic() + DEADLINE_S
    while not reached():
        assert time.monotonic() < end, [reader.assigned for reader in readers]
        for reader in readers:
            values = reader.poll()
            if received is not None:
                received.update(values)


def are_shared(readers, partitions):
    """True if all partitions are assigned once and evenly."""
    shares = [reader.assigned for reader in readers]
    sizes = [len(share) for share in shares]
    return sorted(each for share in shares for each in share) == partitions and max(sizes) - min(sizes) <= 1


def partitions_of(topic, count=PARTITIONS):
    return [(topic, partition) for partition in range(count)]


def test_members_join_and_leave(broker, admin, topic):
    """Three members share a topic evenly; after some leave, the others continue at their committed offsets."""
    received, expected = Counter(), Counter(produce(broker, topic, 120))
    readers = []
    for count in (1, 2, 3):
        readers.append(Reader(broker, topic, topic))
        poll_until(readers, lambda: are_shared(readers, partitions_of(topic)), received)
        expected.update(produce(broker, topic, 60))
        poll_until(readers, lambda: received.keys() == expected.keys(), received)
        assert len(readers) == count
    while len(readers) > 1:
        readers.pop(0).consumer.close()
        poll_until(readers, lambda: are_shared(readers, partitions_of(topic)), received)
        expected.update(produce(broker, topic, 60))
        poll_until(readers, lambda: received.keys() == expected.keys(), received)
    assert received == expected
    assert readers[0].lost == 0
    readers[0].consumer.close()


def test_killed_member(broker, admin, topic):
    """The partitions of a killed member are reassigned after its session timeout."""
    command = [sys.executable, "-c", CONSUMER_PROGRAM, broker.bootstrap_servers, topic, topic]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline().strip() == b"6"
        reader = Reader(broker, topic, topic)
        poll_until([reader], lambda: len(reader.assigned) == 3)
        process.kill()
        poll_until([reader], lambda: reader.assigned == partitions_of(topic))
    reader.consumer.close()


def test_pattern_subscription(broker, admin, topic):
    """The coordinator matches a pattern, including topics and partitions that are created later."""
    reader = Reader(broker, topic, f"^{topic}.*")
    poll_until([reader], lambda: reader.assigned == partitions_of(topic))
    later = f"{topic}-later"
    admin.create_topics([NewTopic(later, 2, 1)])[later].result(20)
    poll_until([reader], lambda: reader.assigned == partitions_of(topic) + partitions_of(later, 2))
    admin.create_partitions([NewPartitions(topic, PARTITIONS + 1)])[topic].result(20)
    poll_until([reader], lambda: reader.assigned == partitions_of(topic, PARTITIONS + 1) + partitions_of(later, 2))
    admin.delete_topics([later])[later].result(20)
    poll_until([reader], lambda: reader.assigned == partitions_of(topic, PARTITIONS + 1))
    reader.consumer.close()


def test_restarted_static_member(broker, admin, topic):
    """A restarted static member gets its previous partitions back; the other member keeps its own throughout."""
    readers = [Reader(broker, topic, topic, **{"group.instance.id": f"i{number}"}) for number in range(2)]
    poll_until(readers, lambda: are_shared(readers, partitions_of(topic)))
    previous, other_member = (reader.assigned for reader in readers)
    readers[0].consumer.close()
    readers[0] = Reader(broker, topic, topic, **{"group.instance.id": "i0"})
    poll_until(readers, lambda: readers[0].assigned != [])
    assert (readers[0].assigned, readers[1].assigned) == (previous, other_member)
    for reader in readers:
        reader.consumer.close()


def test_listing_and_describing_a_group(broker, admin, topic):
    """A group is listed and described with its protocol and assignor, and can be deleted when it is empty."""
    reader = Reader(broker, topic, topic, **{"group.remote.assignor": "range", "client.id": "seen"})
    poll_until([reader], lambda: reader.assigned == partitions_of(topic))
    described = admin.describe_consumer_groups([topic])[topic].result(20)
    assert (described.state, described.type) == (ConsumerGroupState.STABLE, ConsumerGroupType.CONSUMER)
    assert described.partition_assignor == "range"
    (member,) = described.members
    assert (member.client_id, member.host) == ("seen", "/127.0.0.1")
    assert sorted(row.partition for row in member.assignment.topic_partitions) == list(range(PARTITIONS))
    assert member.target_assignment.topic_partitions == member.assignment.topic_partitions
    listed = {row.group_id: row for row in admin.list_consumer_groups().result(20).valid}
    assert listed[topic].type is ConsumerGroupType.CONSUMER
    reader.consumer.close()
    admin.delete_consumer_groups([topic])[topic].result(20)
    assert topic not in {row.group_id for row in admin.list_consumer_groups().result(20).valid}


def read_by(broker, topic, protocol, count):
    """Read ``count`` records with a consumer of that protocol, and poll for slightly longer."""
    received = Counter()
    reader = Reader(broker, topic, topic, **{"group.protocol": protocol})
    poll_until([reader], lambda: received.total() >= count, received)
    received.update(reader.poll())
    reader.consumer.close()
    return received


def test_empty_group_changes_its_protocol(broker, admin, topic):
    """An empty group can be used with the other protocol, and continues at its committed offsets."""
    for protocol in ("classic", "consumer", "classic"):
        produced = produce(broker, topic, 12)
        assert read_by(broker, topic, protocol, 12) == Counter(produced)
