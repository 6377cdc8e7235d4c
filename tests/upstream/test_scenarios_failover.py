"""The coordinator's broker is killed and clients continue: groups of both protocols, and a transaction."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import TopicPartition
from confluent_scene import PROTOCOLS, TIME_S_MAX, Scene, read, wait_until_shared

from kreplica.wire import messages
from tests.support.process_cluster import ProcessCluster

GROUP, TRANSACTION = 0, 1
INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state")


@pytest.fixture
def restarted_cluster(cluster: ProcessCluster) -> Iterator[ProcessCluster]:
    """The cluster, whose brokers are restarted after the test."""
    yield cluster
    cluster.start()
    for topic in INTERNAL_TOPICS:
        if cluster.partitions(topic):
            cluster.wait_until_in_sync(topic)


def coordinator(cluster: ProcessCluster, key: str, kind: int) -> int:
    """Return the coordinator of a group or of a transactional ID."""
    answer = cluster.request(messages.FIND_COORDINATOR, {"key_type": kind, "coordinator_keys": [key]})
    return int(answer["coordinators"][0]["node_id"])


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_group_continues(restarted_cluster: ProcessCluster, scene: Scene, topic: str, protocol: str) -> None:
    """The new coordinator has the committed offsets, and members commit to it."""
    consumer = scene.consumer(topic, protocol)
    consumer.subscribe([topic])
    wait_until_shared([consumer], 2)
    scene.send(topic, 0, [b"before"])
    consumer.commit(read(consumer, 1)[0], asynchronous=False)
    restarted_cluster.brokers[coordinator(restarted_cluster, topic, GROUP)].kill()
    (kept,) = consumer.committed([TopicPartition(topic, 0)], timeout=TIME_S_MAX)
    assert kept.offset == 1
    scene.send(topic, 0, [b"after"])
    (message,) = read(consumer, 1)
    assert message.value() == b"after"
    consumer.commit(message, asynchronous=False)
    assert consumer.committed([TopicPartition(topic, 0)], timeout=TIME_S_MAX)[0].offset == 2


@pytest.mark.parametrize("commits", [True, False], ids=["committed", "aborted"])
def test_a_transaction_continues(restarted_cluster: ProcessCluster, scene: Scene, topic: str, commits: bool) -> None:
    """The new coordinator loads the open transaction, and commits or aborts it."""
    producer = scene.producer(transactional_id=topic)
    producer.init_transactions(TIME_S_MAX)
    producer.begin_transaction()
    for partition in (0, 1):
        producer.produce(topic, b"in it", partition=partition)
    assert producer.flush(TIME_S_MAX) == 0
    restarted_cluster.brokers[coordinator(restarted_cluster, topic, TRANSACTION)].kill()
    if commits:
        producer.commit_transaction(TIME_S_MAX)
    else:
        producer.abort_transaction(TIME_S_MAX)
    producer.begin_transaction()
    producer.produce(topic, b"the next", partition=0)
    producer.commit_transaction(TIME_S_MAX)
    assert scene.committed_values(topic, 0) == ([b"in it", b"the next"] if commits else [b"the next"])
    assert scene.committed_values(topic, 1) == ([b"in it"] if commits else [])
