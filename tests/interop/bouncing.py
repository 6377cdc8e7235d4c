"""Three brokers that are stopped and restarted during another program, and the records that the program committed."""

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
    """Run brokers 1 to 3 and their coordinator."""
    with (
        CoordinatorProcess(directory / "coordinator") as coordinator,
        ProcessCluster(directory, direct_places(coordinator.address)) as cluster,
    ):
        yield cluster


def bounce(cluster: ProcessCluster, number: int) -> None:
    """Stop or kill a broker, in turn and a different one each time, and restart it.

    :param number: number of earlier stops.
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


def committed_records(cluster: ProcessCluster, topic: str, partition: int) -> list[Message]:
    """Return the records of a partition that a read_committed consumer receives."""
    options = {"group.id": f"{topic}-reader", "isolation.level": "read_committed", "enable.partition.eof": True}
    reader = Consumer({"bootstrap.servers": cluster.bootstrap_servers, **options})
    reader.assign([TopicPartition(topic, partition, 0)])
    found: list[Message] = []
    while True:
        message = reader.poll(TIME_S_MAX)
        assert message is not None, "neither a record nor the end arrived"
        error = message.error()
        if error is not None and error.code() == KafkaError._PARTITION_EOF:
            break
        assert error is None, error
        found.append(message)
    reader.close()
    return found
