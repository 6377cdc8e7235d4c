"""Transactions of confluent-kafka: scenarios equivalent to its own ``test_transactions.py``."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_scene import TIME_S_MAX, Scene, read, wait_until_shared

TRANSACTION_TIME_MS = 1000


def write(producer: Producer, topic: str, count: int) -> list[bytes]:
    """Begin a transaction with ``count`` records."""
    values = [b"%d of %d" % (number, count) for number in range(count)]
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(TIME_S_MAX) == 0
    return values


def test_committed_records_are_read(scene: Scene, topic: str) -> None:
    """All records of a committed transaction are read, in order."""
    producer = scene.producer(transactional_id=topic)
    producer.init_transactions(TIME_S_MAX)
    values = write(producer, topic, 100)
    producer.commit_transaction(TIME_S_MAX)
    assert scene.committed_values(topic) == values


def test_aborted_records_are_not_read(scene: Scene, topic: str) -> None:
    """No aborted record is read, but all records of the next transaction."""
    producer = scene.producer(transactional_id=topic)
    producer.init_transactions(TIME_S_MAX)
    write(producer, topic, 100)
    producer.abort_transaction(TIME_S_MAX)
    assert scene.committed_values(topic) == []
    values = write(producer, topic, 25)
    producer.commit_transaction(TIME_S_MAX)
    assert scene.committed_values(topic) == values


@pytest.mark.parametrize("commits", [True, False], ids=["committed", "aborted"])
def test_only_committed_transactions_commit_offsets(scene: Scene, topic: str, commits: bool) -> None:
    """After the next initialization of the transactional ID, the group has only offsets of committed transactions."""
    scene.send(topic, 0, [b"%d" % number for number in range(100)])
    consumer = scene.consumer(topic)
    consumer.subscribe([topic])
    read(consumer, 100)
    producer = scene.producer(transactional_id=topic)
    producer.init_transactions(TIME_S_MAX)
    write(producer, f"{topic}-out", 100)
    position = consumer.position([TopicPartition(topic, 0)])
    producer.send_offsets_to_transaction(position, consumer.consumer_group_metadata(), TIME_S_MAX)
    if commits:
        producer.commit_transaction(TIME_S_MAX)
    else:
        producer.abort_transaction(TIME_S_MAX)
    scene.producer(transactional_id=topic).init_transactions(TIME_S_MAX)
    (kept,) = consumer.committed([TopicPartition(topic, 0)], timeout=TIME_S_MAX)
    assert kept.offset == (100 if commits else -1001)


def test_a_second_producer_fences_the_first(scene: Scene, topic: str) -> None:
    """The first producer's open transaction is aborted, and its next call fails with a fatal error."""
    first, second = (scene.producer(transactional_id=topic) for _ in range(2))
    first.init_transactions(TIME_S_MAX)
    write(first, topic, 3)
    second.init_transactions(TIME_S_MAX)
    with pytest.raises(KafkaException) as raised:
        first.commit_transaction(TIME_S_MAX)
    assert raised.value.args[0].fatal()
    assert raised.value.args[0].code() == KafkaError._FENCED
    values = write(second, topic, 2)
    second.commit_transaction(TIME_S_MAX)
    assert scene.committed_values(topic) == values


def test_a_removed_member_cannot_commit_offsets(scene: Scene, topic: str) -> None:
    """A removed member must abort its transaction, because another member may have read the same records."""
    gone = scene.consumer(topic)
    gone.subscribe([topic])
    wait_until_shared([gone], 2)
    metadata = gone.consumer_group_metadata()
    gone.close()
    stays = scene.consumer(topic)
    stays.subscribe([topic])
    wait_until_shared([stays], 2)
    producer = scene.producer(transactional_id=topic)
    producer.init_transactions(TIME_S_MAX)
    producer.begin_transaction()
    with pytest.raises(KafkaException) as raised:
        producer.send_offsets_to_transaction([TopicPartition(topic, 0, 1)], metadata, TIME_S_MAX)
    assert raised.value.args[0].txn_requires_abort()
    producer.abort_transaction(TIME_S_MAX)


def test_a_transaction_is_aborted_after_its_timeout(scene: Scene, topic: str) -> None:
    """The records of the transaction are never read, and its producer can no longer commit it."""
    producer = scene.producer(transactional_id=topic, **{"transaction.timeout.ms": TRANSACTION_TIME_MS})
    producer.init_transactions(TIME_S_MAX)
    write(producer, topic, 3)
    time.sleep(TRANSACTION_TIME_MS / 1000 + 2)
    with pytest.raises(KafkaException):
        producer.commit_transaction(TIME_S_MAX)
    assert scene.committed_values(topic) == []
