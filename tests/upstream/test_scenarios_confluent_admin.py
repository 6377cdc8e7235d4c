"""Admin calls of confluent-kafka on groups: scenarios equivalent to its own tests in ``tests/integration/admin``."""

from __future__ import annotations

import pytest
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_scene import PROTOCOLS, TIME_S_MAX, Scene, wait_until_shared

TYPES = {"classic": ConsumerGroupType.CLASSIC, "consumer": ConsumerGroupType.CONSUMER}
REQUEST_TIME_S = 10


def listed(admin: AdminClient, **filters: object) -> dict[str, object]:
    """Return groups by name."""
    result = admin.list_consumer_groups(request_timeout=REQUEST_TIME_S, **filters).result(REQUEST_TIME_S)
    assert result.errors == []
    return {group.group_id: group for group in result.valid}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_group_is_listed_and_described(scene: Scene, topic: str, protocol: str) -> None:
    """A group is listed by state and type, and described with its members and assignments."""
    admin, consumer = scene.admin, scene.consumer(topic, protocol, client_id="a-reader")
    consumer.subscribe([topic])
    wait_until_shared([consumer], 2)
    with pytest.warns(DeprecationWarning, match="list_groups"):
        assert topic in {group.id for group in admin.list_groups(topic, timeout=REQUEST_TIME_S)}
    assert topic in listed(admin)
    assert topic in listed(admin, states={ConsumerGroupState.STABLE})
    assert topic not in listed(admin, states={ConsumerGroupState.EMPTY})
    for name, group_type in TYPES.items():
        assert (topic in listed(admin, types={group_type})) == (name == protocol)
    described = admin.describe_consumer_groups([topic], request_timeout=REQUEST_TIME_S)[topic].result(REQUEST_TIME_S)
    assert (described.group_id, described.state, described.type) == (topic, ConsumerGroupState.STABLE, TYPES[protocol])
    assert described.coordinator is not None
    (member,) = described.members
    assert (member.client_id, member.member_id) == ("a-reader", consumer.memberid())
    assert sorted(member.assignment.topic_partitions) == sorted(consumer.assignment())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_offsets_are_listed_and_changed(scene: Scene, topic: str, protocol: str) -> None:
    """Offsets can be changed only while the group is empty."""
    admin, consumer = scene.admin, scene.consumer(topic, protocol)
    consumer.subscribe([topic])
    wait_until_shared([consumer], 2)
    at = [TopicPartition(topic, 0, 5), TopicPartition(topic, 1, 7)]
    consumer.commit(offsets=at, asynchronous=False)
    kept = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(topic)])[topic].result(REQUEST_TIME_S)
    assert {tp.partition: tp.offset for tp in kept.topic_partitions} == {0: 5, 1: 7}
    moved = ConsumerGroupTopicPartitions(topic, [TopicPartition(topic, 0, 0), TopicPartition(topic, 1, 0)])
    refused = admin.alter_consumer_group_offsets([moved])[topic].result(REQUEST_TIME_S)
    assert [tp.error.code() for tp in refused.topic_partitions] == [KafkaError.UNKNOWN_MEMBER_ID] * 2
    consumer.close()
    altered = admin.alter_consumer_group_offsets([moved])[topic].result(REQUEST_TIME_S)
    assert [tp.error for tp in altered.topic_partitions] == [None, None]
    one = ConsumerGroupTopicPartitions(topic, [TopicPartition(topic, 1)])
    kept = admin.list_consumer_group_offsets([one])[topic].result(REQUEST_TIME_S)
    assert [(tp.partition, tp.offset) for tp in kept.topic_partitions] == [(1, 0)]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_group_is_deleted_when_it_is_empty(scene: Scene, topic: str, protocol: str) -> None:
    """A deletion is rejected while the group has members; after the deletion, the group does not exist."""
    admin, consumer = scene.admin, scene.consumer(topic, protocol)
    consumer.subscribe([topic])
    wait_until_shared([consumer], 2)

    def deletion_error() -> int:
        with pytest.raises(KafkaException) as raised:
            admin.delete_consumer_groups([topic], request_timeout=REQUEST_TIME_S)[topic].result(REQUEST_TIME_S)
        return int(raised.value.args[0].code())

    assert deletion_error() == KafkaError.NON_EMPTY_GROUP
    consumer.close()
    admin.delete_consumer_groups([topic], request_timeout=REQUEST_TIME_S)[topic].result(REQUEST_TIME_S)
    assert topic not in listed(admin)
    assert deletion_error() == KafkaError.GROUP_ID_NOT_FOUND


def test_an_open_transaction_is_above_the_last_stable_offset(scene: Scene, topic: str) -> None:
    """With read_committed, the latest offset is the last stable offset, which is below the open transaction."""
    committed, uncommitted = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED
    producer = scene.producer(transactional_id=topic)
    scene.send(topic, 0, [b"before"])
    producer.init_transactions(TIME_S_MAX)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush(TIME_S_MAX)
    assert (scene.end(topic, 0, committed), scene.end(topic, 0, uncommitted)) == (1, 2)
    producer.commit_transaction(TIME_S_MAX)
    assert scene.committed_values(topic) == [b"before", b"open"]
    assert (scene.end(topic, 0, committed), scene.end(topic, 0, uncommitted)) == (3, 3)
