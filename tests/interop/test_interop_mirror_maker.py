"""MirrorMaker 2 between two clusters in both directions, while it is killed.

Needs Java and Maven, so it is part of the soak.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import apache_kafka
import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from connect_process import MIRROR_MAKER, ConnectProcess

from tests.support.coordinator import CoordinatorProcess
from tests.support.process_cluster import ProcessCluster, direct_places, wait_until

pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]

PARTITIONS = 2
RECORDS = 2000
"""Number of records per partition and direction; half of them are written before MirrorMaker is killed."""
WAIT_S_MAX = 150
ALIASES = ("east", "west")
INTERNAL_TOPICS = ("offset.storage", "status.storage", "config.storage")
MIRROR_TOPICS = ("checkpoints.topic", "heartbeats.topic", "offset-syncs.topic")


class MirroredCluster(NamedTuple):
    """One of the two clusters.

    :param alias: its name in MirrorMaker's settings, and the prefix of its topics on the other cluster.
    """

    alias: str
    bootstrap_servers: str


@pytest.fixture(scope="module", autouse=True)
def _mirror_maker() -> None:
    try:
        apache_kafka.connect_class_path()
        apache_kafka.class_path()
    except apache_kafka.NoKafka as missing:
        pytest.skip(f"not tried with MirrorMaker 2: {missing}")


@contextmanager
def kreplica_broker(directory: Path) -> Iterator[str]:
    """A cluster of one of kreplica's brokers; yields its address."""
    directory.mkdir()
    settings = {
        "default.replication.factor": 1,
        "min.insync.replicas": 1,
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
    }
    with (
        CoordinatorProcess(directory / "coordinator") as coordinator,
        ProcessCluster(directory, direct_places(coordinator.address, 1), settings=settings) as cluster,
    ):
        yield cluster.bootstrap_servers
        assert cluster.tracebacks() == []


@contextmanager
def kafka_broker(directory: Path) -> Iterator[str]:
    """A cluster of one of Apache Kafka's brokers; yields its address."""
    directory.mkdir()
    with (
        apache_kafka.zookeeper(directory) as zookeeper,
        apache_kafka.broker(directory, zookeeper, directory / "logs") as broker,
    ):
        yield broker.bootstrap_servers


OTHERS = {"kreplica": kreplica_broker, "apache-kafka": kafka_broker}


@pytest.mark.parametrize("other", list(OTHERS))
def test_each_record_is_mirrored_once(tmp_path: Path, topic: str, other: str) -> None:
    """Topics are mirrored both ways exactly once and in order, despite a kill; a group continues on the other."""
    with ExitStack() as stack:
        addresses = [
            stack.enter_context(kreplica_broker(tmp_path / "east")),
            stack.enter_context(OTHERS[other](tmp_path / "west")),
        ]
        sides = [MirroredCluster(alias, address) for alias, address in zip(ALIASES, addresses, strict=True)]
        mirror = ConnectProcess(MIRROR_MAKER, tmp_path / "mirror", {"mirror": _settings(sides, topic)})
        for side in sides:
            admin = AdminClient({"bootstrap.servers": side.bootstrap_servers})
            admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
            write(side, topic, 0, RECORDS // 2)
        stack.enter_context(mirror)
        for side, target in (sides, sides[::-1]):
            wait_for_records(target, f"{side.alias}.{topic}", 1)
        mirror.kill()
        for side in sides:
            write(side, topic, RECORDS // 2, RECORDS)
            commit(side, topic, RECORDS // 2)
        mirror.start()
        for side, target in (sides, sides[::-1]):
            mirrored = f"{side.alias}.{topic}"
            wait_for_records(target, mirrored, RECORDS)
            for partition in range(PARTITIONS):
                assert read(target, mirrored, partition) == expected(side, partition)
                assert read(side, topic, partition) == expected(side, partition)
            check_group(side, target, topic)
            names = AdminClient({"bootstrap.servers": target.bootstrap_servers}).list_topics(timeout=30).topics
            assert f"{side.alias}.{target.alias}.{topic}" not in names, "a mirrored topic was mirrored back"


def write(side: MirroredCluster, topic: str, first: int, end: int) -> None:
    """Write the records from ``first`` to ``end`` to each partition."""
    producer = Producer({"bootstrap.servers": side.bootstrap_servers, "enable.idempotence": True})
    for partition in range(PARTITIONS):
        for value in expected(side, partition)[first:end]:
            producer.produce(topic, value, partition=partition)
            producer.poll(0)
    assert producer.flush(60) == 0


def expected(side: MirroredCluster, partition: int) -> list[str]:
    """Return all records of a partition."""
    return [f"{side.alias}-{partition}-{number:05}" for number in range(RECORDS)]


def commit(side: MirroredCluster, topic: str, offset: int) -> None:
    """Commit an offset of each partition for the group that is named after the topic."""
    consumer = Consumer({"bootstrap.servers": side.bootstrap_servers, "group.id": topic})
    offsets = [TopicPartition(topic, partition, offset) for partition in range(PARTITIONS)]
    consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()


def committed_offsets(side: MirroredCluster, topic: str, group: str) -> list[int]:
    """Return the group's committed offset of each partition; negative if it has none."""
    consumer = Consumer({"bootstrap.servers": side.bootstrap_servers, "group.id": group})
    partitions = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    found = [row.offset for row in consumer.committed(partitions, timeout=30)]
    consumer.close()
    return found


def read(side: MirroredCluster, topic: str, partition: int, first: int = 0) -> list[str]:
    """Return the values of a partition's committed records from an offset to its end."""
    options = {"group.id": "reader", "isolation.level": "read_committed", "enable.partition.eof": True}
    consumer = Consumer({"bootstrap.servers": side.bootstrap_servers, **options})
    consumer.assign([TopicPartition(topic, partition, first)])
    values: list[str] = []
    while True:
        message = consumer.poll(60)
        assert message is not None, f"{topic}-{partition} of {side.alias} has neither a record nor an end"
        error = message.error()
        if error is not None and error.code() == KafkaError._PARTITION_EOF:
            break
        assert error is None, error
        values.append(message.value().decode())
    consumer.close()
    return values


def wait_for_records(side: MirroredCluster, topic: str, count: int) -> None:
    """Wait until each partition of a topic has at least ``count`` committed records."""
    admin = AdminClient({"bootstrap.servers": side.bootstrap_servers})

    def counts() -> list[int]:
        partitions = admin.list_topics(timeout=30).topics
        if topic not in partitions or len(partitions[topic].partitions) != PARTITIONS:
            return [0]
        return [len(read(side, topic, partition)) for partition in range(PARTITIONS)]

    wait_until(lambda: min(counts()) >= count, f"{count} records in {topic} of {side.alias}", WAIT_S_MAX, counts)


def check_group(side: MirroredCluster, target: MirroredCluster, topic: str) -> None:
    """Check that the translated offsets of the group skip no unprocessed record."""
    mirrored = f"{side.alias}.{topic}"
    offsets = wait_until(
        lambda: (found := committed_offsets(target, mirrored, topic)) and min(found) > 0 and found,
        f"translated offsets of {mirrored}",
        WAIT_S_MAX,
    )
    for partition, offset in enumerate(offsets):
        rest = read(target, mirrored, partition, offset)
        assert RECORDS // 2 <= len(rest) < RECORDS
        assert rest == expected(side, partition)[-len(rest) :]


def _settings(sides: list[MirroredCluster], topic: str) -> dict[str, object]:
    settings: dict[str, object] = {
        "clusters": ",".join(side.alias for side in sides),
        "tasks.max": 2,
        "dedicated.mode.enable.internal.rest": "true",
        "listeners": f"http://127.0.0.1:{apache_kafka.free_port()}",
        "refresh.topics.interval.seconds": 1,
        "refresh.groups.interval.seconds": 1,
        "sync.group.offsets.enabled": "true",
        "sync.group.offsets.interval.seconds": 1,
        "emit.checkpoints.interval.seconds": 1,
        "emit.heartbeats.interval.seconds": 1,
        "offset.lag.max": 0,
        "replication.factor": 1,
        "plugin.discovery": "service_load",
        **{f"{name}.replication.factor": 1 for name in (*INTERNAL_TOPICS, *MIRROR_TOPICS)},
    }
    for source, target in (sides, sides[::-1]):
        settings |= {
            f"{source.alias}.bootstrap.servers": source.bootstrap_servers,
            f"{source.alias}.exactly.once.source.support": "enabled",
            f"{source.alias}.scheduled.rebalance.max.delay.ms": 1000,
            f"{source.alias}.session.timeout.ms": 6000,
            f"{source.alias}.heartbeat.interval.ms": 500,
            f"{source.alias}->{target.alias}.enabled": "true",
            f"{source.alias}->{target.alias}.topics": topic,
            f"{source.alias}->{target.alias}.groups": topic,
        }
    return settings
