"""The blocking client and its commands with Apache Kafka; needs Java and Maven, so it is part of the soak."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import apache_kafka
import pytest
from kraft_cluster import KraftCluster

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
from kreplica.client_core.errors import ProducerUnusable, TransactionFailed
from kreplica.client_core.offsets import EARLIEST

pytestmark = pytest.mark.soak

RECORDS = 30_000
PARTITIONS = 3


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KraftCluster]:
    """Three nodes of Apache Kafka."""
    try:
        apache_kafka.class_path()
    except apache_kafka.NoKafka as missing:
        pytest.skip(f"not tried on Apache Kafka: {missing}")
    with KraftCluster(tmp_path_factory.mktemp("kraft")) as cluster:
        yield cluster


@pytest.fixture
def client(kafka: KraftCluster) -> Iterator[Cluster]:
    with Cluster(kafka.bootstrap_servers) as cluster:
        yield cluster


def read_values(
    cluster: Cluster, topic: str, isolation: Isolation = Isolation.READ_UNCOMMITTED
) -> dict[int, list[bytes | None]]:
    partitions = topic_partitions(cluster, topic)
    ends = end_offsets(cluster, partitions)
    found: dict[int, list[bytes | None]] = {each.partition: [] for each in partitions}
    start = dict.fromkeys(partitions, EARLIEST)
    with Reader(cluster, start, ends=ends, options=ReaderOptions(isolation=isolation)) as reader:
        for record in reader.records():
            found[record.partition].append(record.value)
    return found


@pytest.mark.parametrize("codec", list(Codec))
def test_records_of_each_codec(client: Cluster, codec: Codec) -> None:
    """Kafka accepts the batches, and returns the written records."""
    topic = f"codec-{codec.name}"
    create_topic(client, topic, 1, 3)
    with Producer(client, ProducerOptions(codec=codec)) as producer:
        for number in range(3000):
            producer.send(topic, b"%d" % number, key=b"k", headers=(("h", None),), timestamp_ms=1000 + number)
    partitions = topic_partitions(client, topic)
    with Reader(client, dict.fromkeys(partitions, 0), ends=end_offsets(client, partitions)) as reader:
        found = [(record.offset, record.timestamp_ms, record.value, record.headers) for record in reader.records()]
    assert found == [(number, 1000 + number, b"%d" % number, (("h", None),)) for number in range(3000)]


def test_administration_offsets_and_groups(client: Cluster) -> None:
    """Topics, configurations, log sizes, offsets by timestamp and committed offsets are read and changed."""
    create_topic(client, "admin", 2, 3, {"retention.ms": "5000000"})
    assert topic_settings(client, "admin")["retention.ms"].value == "5000000"
    change_topic_settings(client, "admin", {"retention.ms": "-1"})
    with Producer(client) as producer:
        producer.send("admin", bytes(1000), partition=1, timestamp_ms=1_700_000_000_000)
    one, other = topic_partitions(client, "admin")
    found = offsets_by_time(client, {one: 5, other: 5})
    assert (found[one].offset, found[other].offset, found[other].timestamp_ms) == (-1, 0, 1_700_000_000_000)
    commit_offsets(client, "g", {other: 1})
    assert committed_offsets(client, "g")[other].offset == 1
    assert {size.broker_id for size in replica_sizes(client, ["admin"])} == {1, 2, 3}
    delete_topic(client, "admin")
    while "admin" in topic_names(client):
        pass


def test_transactions(client: Cluster) -> None:
    """Transactions commit and abort, commit a group's offsets, and are fenced by a producer with the same ID."""
    create_topic(client, "txn", 1, 3)
    place = TopicPartition("txn", 0)
    first = Producer(client, ProducerOptions(transactional_id="x"))
    for number in range(6):
        first.begin()
        first.send("txn", b"%d" % number, partition=0)
        if number % 2:
            first.flush()
            first.abort()
        else:
            first.commit({place: number}, "txn-group")
    with Producer(client, ProducerOptions(transactional_id="x")) as second:
        second.begin()
        second.send("txn", b"second", partition=0)
        second.commit()
    first.begin()
    first.send("txn", b"late", partition=0)
    with pytest.raises(ProducerUnusable):
        first.commit()
    first.close()
    assert read_values(client, "txn", Isolation.READ_COMMITTED) == {0: [b"0", b"2", b"4", b"second"]}
    assert committed_offsets(client, "txn-group")[place].offset == 4


def test_a_node_is_killed(kafka: KraftCluster, client: Cluster) -> None:
    """Nodes are killed while records and transactions are written: nothing is lost, duplicated or reordered."""
    for topic in ("plain", "transactional"):
        create_topic(client, topic, PARTITIONS, 3, {"min.insync.replicas": "2"})
    victim = client.leader(TopicPartition("plain", 0))
    with Producer(client, ProducerOptions(batch_size=2000, linger_s=0.001)) as producer:
        for number in range(RECORDS):
            if number == RECORDS // 2:
                kafka.kill(victim)
            producer.send("plain", b"%d" % number, partition=number % PARTITIONS)
    assert read_values(client, "plain") == {
        each: [b"%d" % number for number in range(RECORDS) if number % PARTITIONS == each] for each in range(PARTITIONS)
    }
    kafka.start(victim)

    committed = []
    with Producer(client, ProducerOptions(transactional_id="y")) as producer:
        for number in range(30):
            if number == 10:
                kafka.kill(client.leader(TopicPartition("transactional", 0)))
            producer.begin()
            values = [b"%d-%d" % (number, each) for each in range(PARTITIONS)]
            for partition, value in enumerate(values):
                producer.send("transactional", value, partition=partition)
            try:
                producer.commit()
                committed += values
            except TransactionFailed:
                producer.abort()
    found = read_values(client, "transactional", Isolation.READ_COMMITTED)
    assert sorted(value for values in found.values() for value in values if value) == sorted(committed)
    assert len(committed) >= 29 * PARTITIONS


def test_commands(client: Cluster, tmp_path: Path) -> None:
    """kreplica's commands work with Apache Kafka."""
    from click.testing import CliRunner

    from kreplica.cli import main

    create_topic(client, "orders", 3, 3)
    with Producer(client) as producer:
        for number in range(1000):
            producer.send("orders", b"%d" % number, key=b"%d" % (number % 7))
    bootstrap = ",".join(f"{each.address}" for each in client.view.brokers.values())
    environment = {"KREPLICA_BOOTSTRAP": bootstrap}
    for words in (
        ["topic", "export", "orders", str(tmp_path / "orders.parquet")],
        ["topic", "import", "orders-2", str(tmp_path / "orders.parquet"), "--create"],
        ["topic", "copy", "orders", "orders-3", "--create", "--transactional", "z", "--verify"],
        ["consume", "orders-2", "--count", "5"],
    ):
        result = CliRunner().invoke(main, words, env=environment)
        assert result.exit_code == 0, result.output
    for topic in ("orders-2", "orders-3"):
        assert read_values(client, topic, Isolation.READ_COMMITTED) == read_values(client, "orders")
