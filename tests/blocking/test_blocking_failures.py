"""The blocking client while brokers of a real cluster die, and together with third-party clients."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer
from confluent_kafka import Producer as PeerProducer
from confluent_kafka import TopicPartition as PeerPartition

from kreplica.blocking import (
    Cluster,
    Codec,
    Isolation,
    Producer,
    ProducerOptions,
    Reader,
    ReaderOptions,
    TopicPartition,
)
from kreplica.blocking.admin import (
    change_topic_settings,
    create_topic,
    delete_topic,
    replica_sizes,
    topic_names,
    topic_settings,
)
from kreplica.blocking.offsets import commit_offsets, committed_offsets, end_offsets, offsets_by_time, topic_partitions
from kreplica.client_core.errors import BrokerRefused, ProducerUnusable, TransactionFailed
from kreplica.client_core.offsets import EARLIEST, LATEST
from kreplica.errors import ErrorCode
from kreplica.testing.fixtures.kafka_cluster import KafkaCluster
from kreplica.wire.partitioning import partition_of_key

PARTITIONS = 4
RECORDS = 6000


@pytest.fixture(scope="module")
def shared_cluster(kafka_cluster_factory: Callable[..., KafkaCluster]) -> Iterator[KafkaCluster]:
    """A cluster that is shared by tests that do not damage it."""
    with kafka_cluster_factory(3) as cluster:
        yield cluster


@pytest.fixture
def client(shared_cluster: KafkaCluster) -> Iterator[Cluster]:
    with Cluster(shared_cluster.bootstrap_servers) as cluster:
        yield cluster


def read_values(
    cluster: Cluster, topic: str, isolation: Isolation = Isolation.READ_UNCOMMITTED
) -> dict[int, list[bytes | None]]:
    """Return all values by partition, in order."""
    partitions = topic_partitions(cluster, topic)
    ends = end_offsets(cluster, partitions)
    found: dict[int, list[bytes | None]] = {each.partition: [] for each in partitions}
    start = dict.fromkeys(partitions, EARLIEST)
    with Reader(cluster, start, ends=ends, options=ReaderOptions(isolation=isolation)) as reader:
        for record in reader.records():
            found[record.partition].append(record.value)
    return found


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait until the condition holds, because brokers learn of changes at different times."""
    while not condition():
        pass


def sent_values() -> dict[int, list[bytes]]:
    return {each: [b"%d" % n for n in range(RECORDS) if n % PARTITIONS == each] for each in range(PARTITIONS)}


@pytest.mark.parametrize("fault", ["kill", "stop", "pause"])
def test_broker_fails_during_writes(kafka_cluster: KafkaCluster, fault: str) -> None:
    """While a leader is killed, stopped or suspended, no record is lost, duplicated or reordered."""
    kafka_cluster.create_topic("t", PARTITIONS, min_insync_replicas=2)
    victim = kafka_cluster.leader_of("t", 0)
    options = ProducerOptions(batch_size=2000, linger_s=0.001)
    with Cluster(kafka_cluster.bootstrap_servers) as cluster:
        with Producer(cluster, options) as producer:
            for number in range(RECORDS):
                if number == RECORDS // 2:
                    getattr(kafka_cluster, fault)(victim)
                    if fault == "pause":
                        threading.Timer(2.5, kafka_cluster.resume, (victim,)).start()
                producer.send("t", b"%d" % number, partition=number % PARTITIONS)
        assert producer.written == RECORDS
        assert read_values(cluster, "t") == sent_values()


def test_broker_fails_during_reads(kafka_cluster: KafkaCluster) -> None:
    """A reader continues with the new leader, and returns each record once."""
    kafka_cluster.create_topic("t", PARTITIONS, min_insync_replicas=2)
    with Cluster(kafka_cluster.bootstrap_servers) as cluster:
        with Producer(cluster, ProducerOptions(batch_size=500)) as producer:
            for number in range(RECORDS):
                producer.send("t", b"%d" % number, partition=number % PARTITIONS)
        partitions = topic_partitions(cluster, "t")
        options = ReaderOptions(partition_size_max=2000, fetch_size_max=4000)
        found: dict[int, list[bytes | None]] = {each: [] for each in range(PARTITIONS)}
        ends = end_offsets(cluster, partitions)
        with Reader(cluster, dict.fromkeys(partitions, 0), ends=ends, options=options) as reader:
            for number, record in enumerate(reader.records()):
                if number == RECORDS // 2:
                    kafka_cluster.kill(kafka_cluster.leader_of("t", 0))
                found[record.partition].append(record.value)
    assert found == sent_values()


def test_broker_fails_during_a_transaction(kafka_cluster: KafkaCluster) -> None:
    """Each transaction is visible completely or not at all, even if its coordinator and leaders die."""
    kafka_cluster.create_topic("t", PARTITIONS, min_insync_replicas=2)
    committed: list[bytes] = []
    with Cluster(kafka_cluster.bootstrap_servers) as cluster:
        with Producer(cluster, ProducerOptions(transactional_id="x")) as producer:
            for number in range(30):
                values = [b"%d-%d" % (number, each) for each in range(PARTITIONS)]
                producer.begin()
                for partition, value in enumerate(values):
                    producer.send("t", value, partition=partition)
                if number == 10:
                    producer.flush()
                    kafka_cluster.kill(kafka_cluster.leader_of("t", 0))
                if number % 3 == 2:
                    producer.abort()
                    continue
                try:
                    producer.commit()
                    committed += values
                except TransactionFailed:
                    producer.abort()
        found = read_values(cluster, "t", Isolation.READ_COMMITTED)
    assert sorted(value for values in found.values() for value in values if value) == sorted(committed)
    assert len(committed) >= 19 * PARTITIONS


def test_successor_fences_a_producer(client: Cluster) -> None:
    """A second producer with the same transactional ID aborts the open transaction of the first."""
    create_topic(client, "fenced", 1)
    first = Producer(client, ProducerOptions(transactional_id="f"))
    first.begin()
    first.send("fenced", b"first", partition=0)
    first.flush()
    with Producer(client, ProducerOptions(transactional_id="f")) as second:
        second.begin()
        second.send("fenced", b"second", partition=0)
        second.commit()
    first.send("fenced", b"late", partition=0)
    with pytest.raises(ProducerUnusable):
        first.commit()
    first.close()
    assert read_values(client, "fenced", Isolation.READ_COMMITTED) == {0: [b"second"]}


def test_topics_settings_and_sizes(client: Cluster) -> None:
    """A topic is created, described, changed and deleted."""
    view = create_topic(client, "made", 2, 3, {"retention.ms": "5000"})
    assert [len(each.replicas) for each in view.partitions] == [3, 3]
    with pytest.raises(BrokerRefused) as failure:
        create_topic(client, "made", 2)
    assert failure.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
    assert "made" in topic_names(client)
    assert topic_settings(client, "made")["retention.ms"].value == "5000"
    change_topic_settings(client, "made", {"retention.ms": None, "segment.bytes": "1048576"})
    wait_until(lambda: topic_settings(client, "made")["retention.ms"].is_default)
    wait_until(lambda: topic_settings(client, "made")["segment.bytes"].value == "1048576")
    with Producer(client) as producer:
        producer.send("made", bytes(1000), partition=1)
    sizes = replica_sizes(client, ["made"])
    assert sorted({size.broker_id for size in sizes}) == [1, 2, 3]
    assert all(size.size_bytes > 1000 for size in sizes if size.partition.partition == 1 and not size.offset_lag)
    delete_topic(client, "made")
    wait_until(lambda: "made" not in topic_names(client))


def test_offsets_by_time_and_of_groups(client: Cluster) -> None:
    """Offsets by time and committed offsets of groups are returned."""
    create_topic(client, "timed", 2)
    one, other = topic_partitions(client, "timed")
    with Producer(client) as producer:
        for number in range(10):
            producer.send("timed", b"v", partition=0, timestamp_ms=1000 * number)
    found = offsets_by_time(client, {one: 4500, other: 4500})
    assert (found[one].offset, found[one].timestamp_ms, found[other].offset) == (5, 5000, -1)
    assert offsets_by_time(client, {one: EARLIEST, other: LATEST})[one].offset == 0
    assert committed_offsets(client, "nobody") == {}
    commit_offsets(client, "g", {one: 3}, "note")
    (committed,) = committed_offsets(client, "g", ["timed"]).values()
    assert (committed.offset, committed.metadata) == (3, "note")


def test_offsets_are_committed_with_a_transaction(client: Cluster) -> None:
    """A group's offsets are committed with a transaction, and not if it aborts."""
    create_topic(client, "with-offsets", 1)
    place = TopicPartition("with-offsets", 0)
    with Producer(client, ProducerOptions(transactional_id="o")) as producer:
        for number, good in enumerate([True, False, True, False]):
            producer.begin()
            producer.send("with-offsets", b"%d" % number, partition=0)
            if good:
                producer.commit({place: number}, "og")
            else:
                producer.flush()
                producer.abort()
    assert read_values(client, "with-offsets", Isolation.READ_COMMITTED) == {0: [b"0", b"2"]}
    assert committed_offsets(client, "og")[place].offset == 2


# --- third-party clients ---


@pytest.mark.parametrize("codec", list(Codec))
def test_librdkafka_reads_the_records(shared_cluster: KafkaCluster, client: Cluster, codec: Codec) -> None:
    """librdkafka reads equal keys, values, headers, timestamps and offsets, for each codec."""
    topic = f"ours-{codec.name}"
    create_topic(client, topic, 1)
    with Producer(client, ProducerOptions(codec=codec)) as producer:
        for number in range(500):
            headers = (("h", b"%d" % number), ("none", None))
            producer.send(topic, b"value %d" % number, key=b"k", headers=headers, timestamp_ms=10**12 + number)
        producer.send(topic, None, key=b"k")
    consumer = Consumer({"bootstrap.servers": shared_cluster.bootstrap_servers, "group.id": "g", "check.crcs": True})
    consumer.assign([PeerPartition(topic, 0, 0)])
    messages = []
    while len(messages) < 501:
        messages += consumer.consume(501 - len(messages), 5.0)
    consumer.close()
    assert [message.value() for message in messages] == [*(b"value %d" % number for number in range(500)), None]
    assert messages[7].headers() == [("h", b"7"), ("none", None)]
    assert messages[7].timestamp()[1] == 10**12 + 7


@pytest.mark.parametrize("codec", [codec.name.lower() for codec in Codec])
def test_records_of_librdkafka_are_read(shared_cluster: KafkaCluster, client: Cluster, codec: str) -> None:
    """The client reads librdkafka's records, and its partitioner selects the same partitions for the keys."""
    topic = f"theirs-{codec}"
    create_topic(client, topic, 3)
    peer = PeerProducer(
        {
            "bootstrap.servers": shared_cluster.bootstrap_servers,
            "compression.type": codec,
            "partitioner": "murmur2_random",
            "linger.ms": 20,
        }
    )
    for number in range(300):
        peer.produce(topic, b"%d" % number, b"key-%d" % (number % 20), headers={"h": b"x"})
    peer.flush(20)
    partitions = topic_partitions(client, topic)
    ends = end_offsets(client, partitions)
    with Reader(client, dict.fromkeys(partitions, EARLIEST), ends=ends) as reader:
        records = list(reader.records())
    assert sorted(int(record.value or b"") for record in records) == list(range(300))
    for record in records:
        assert record.headers == (("h", b"x"),)
        assert record.key is not None
        assert record.partition == partition_of_key(record.key, 3)


@pytest.mark.needs_program("kcat")
def test_kcat_reads_the_records(shared_cluster: KafkaCluster, client: Cluster) -> None:
    create_topic(client, "for-kcat", 1)
    with Producer(client, ProducerOptions(codec=Codec.GZIP)) as producer:
        producer.send("for-kcat", b"v", key=b"k", headers=(("a", b"b"),), timestamp_ms=1234)
    command = [
        "kcat",
        "-C",
        "-b",
        shared_cluster.bootstrap_servers,
        "-t",
        "for-kcat",
        "-e",
        "-q",
        "-f",
        "%k %s %h %T %o",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout == "k v a=b 1234 0"
