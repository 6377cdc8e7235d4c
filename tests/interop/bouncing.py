"""Three brokers that are ended and started again while somebody else's program runs, and what it has committed then."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from tests.support.coordinator import CoordinatorProcess
from tests.support.process_cluster import ProcessCluster, direct_places

INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state")
TIME_S_MAX = 60


@contextmanager
def three_brokers(directory: Path) -> Iterator[ProcessCluster]:
    """Brokers 1 to 3, and their coordinator."""
    with (
        CoordinatorProcess(directory / "coordinator") as coordinator,
        ProcessCluster(directory, direct_places(coordinator.address)) as cluster,
    ):
        yield cluster


def bounce(cluster: ProcessCluster, number: int) -> None:
    """End a broker, each time the next one and by turns in order and at once, and start it again.

    :param number: how many were ended before.
    """
    broker = cluster.brokers[1 + number % len(cluster.brokers)]
    if number % 2:
        broker.kill()
    else:
        broker.stop()
    cluster.start()
    for topic in INTERNAL_TOPICS:
        if cluster.partitions(topic):
            cluster.wait_until_in_sync(topic)


def committed(cluster: ProcessCluster, topic: str, partition: int) -> list[Message]:
    """What a reader of committed records finds from the beginning of a partition to its end."""
    options = {"group.id": f"{topic}-reader", "isolation.level": "read_committed", "enable.partition.eof": True}
    reader = Consumer({"bootstrap.servers": cluster.bootstrap_servers, **options})
    reader.assign([TopicPartition(topic, partition, 0)])
    found: list[Message] = []
    while True:
        message = reader.poll(TIME_S_MAX)
        assert message is not None, "nothing comes, and no end"
        error = message.error()
        if error is not None and error.code() == KafkaError._PARTITION_EOF:
            break
        assert error is None, error
        found.append(message)
    reader.close()
    return found
