"""The broker that coordinates is killed, and clients go on: groups of both kinds, and a transaction."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import TopicPartition
from confluent_scene import PROTOCOLS, TIME_S_MAX, Scene, read, until_shared

from kreplica.wire import messages
from tests.support.process_cluster import ProcessCluster

GROUP, TRANSACTION = 0, 1
INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state")


@pytest.fixture
def whole_again(cluster: ProcessCluster) -> Iterator[ProcessCluster]:
    """The cluster, which has all its brokers again after the test."""
    yield cluster
    cluster.start()
    for topic in INTERNAL_TOPICS:
        if cluster.partitions(topic):
            cluster.wait_until_in_sync(topic)


def coordinator(cluster: ProcessCluster, key: str, kind: int) -> int:
    """Who coordinates a group or a transactional id."""
    answer = cluster.request(messages.FIND_COORDINATOR, {"key_type": kind, "coordinator_keys": [key]})
    return int(answer["coordinators"][0]["node_id"])


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_group_goes_on(whole_again: ProcessCluster, scene: Scene, topic: str, protocol: str) -> None:
    """What it committed is known to the next coordinator, and its members commit there."""
    consumer = scene.consumer(topic, protocol)
    consumer.subscribe([topic])
    until_shared([consumer], 2)
    scene.send(topic, 0, [b"before"])
    consumer.commit(read(consumer, 1)[0], asynchronous=False)
    whole_again.brokers[coordinator(whole_again, topic, GROUP)].kill()
    (kept,) = consumer.committed([TopicPartition(topic, 0)], timeout=TIME_S_MAX)
    assert kept.offset == 1
    scene.send(topic, 0, [b"after"])
    (message,) = read(consumer, 1)
    assert message.value() == b"after"
    consumer.commit(message, asynchronous=False)
    assert consumer.committed([TopicPartition(topic, 0)], timeout=TIME_S_MAX)[0].offset == 2


@pytest.mark.parametrize("commits", [True, False], ids=["committed", "aborted"])
def test_a_transaction_goes_on(whole_again: ProcessCluster, scene: Scene, topic: str, commits: bool) -> None:
    """The next coordinator knows what belongs to it, and ends it."""
    producer = scene.producer(transactional_id=topic)
    producer.init_transactions(TIME_S_MAX)
    producer.begin_transaction()
    for partition in (0, 1):
        producer.produce(topic, b"in it", partition=partition)
    assert producer.flush(TIME_S_MAX) == 0
    whole_again.brokers[coordinator(whole_again, topic, TRANSACTION)].kill()
    if commits:
        producer.commit_transaction(TIME_S_MAX)
    else:
        producer.abort_transaction(TIME_S_MAX)
    producer.begin_transaction()
    producer.produce(topic, b"the next", partition=0)
    producer.commit_transaction(TIME_S_MAX)
    assert scene.committed(topic, 0) == ([b"in it", b"the next"] if commits else [b"the next"])
    assert scene.committed(topic, 1) == ([b"in it"] if commits else [])
