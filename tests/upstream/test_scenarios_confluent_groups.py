"""Consumer groups of confluent-kafka: scenarios equivalent to its own tests in ``tests/integration/consumer``."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, TopicPartition
from confluent_scene import PROTOCOLS, Scene, read, read_to_the_end, wait_until, wait_until_shared

VALUES = [b"%d" % number for number in range(50)]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_two_members_share_a_topic(scene: Scene, topic: str, protocol: str) -> None:
    """Each reads its partition; a later consumer continues at their committed offsets."""
    pair = [scene.consumer(topic, protocol) for _ in range(2)]
    for consumer in pair:
        consumer.subscribe([topic])
    wait_until_shared(pair, 2)
    for partition in (0, 1):
        scene.send(topic, partition, VALUES)
    for consumer in pair:
        assert [message.value() for message in read(consumer, 50)] == VALUES
        consumer.commit(asynchronous=False)
        consumer.close()
    scene.send(topic, 0, [b"later"])
    third = scene.consumer(topic, protocol)
    third.subscribe([topic])
    assert [message.value() for message in read_to_the_end(third, 2)] == [b"later"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_leaving_member_releases_its_partitions_at_once(scene: Scene, topic: str, protocol: str) -> None:
    """When a member leaves, its partitions are reassigned at once, long before the session timeout."""
    pair = [scene.consumer(topic, protocol) for _ in range(2)]
    for consumer in pair:
        consumer.subscribe([topic])
    wait_until_shared(pair, 2)
    started_s = time.monotonic()
    pair[1].close()
    wait_until_shared(pair[:1], 2)
    assert time.monotonic() - started_s < 10


@pytest.mark.parametrize("metadata", [None, "hello world", "नमस्ते दुनिया", ""])
def test_metadata_is_committed_with_an_offset(scene: Scene, topic: str, metadata: str | None) -> None:
    """Metadata with any characters is returned unchanged; missing metadata differs from empty metadata."""
    consumer = scene.consumer(topic)
    partition = TopicPartition(topic, 0, 1) if metadata is None else TopicPartition(topic, 0, 1, metadata)
    consumer.commit(offsets=[partition], asynchronous=False)
    (kept,) = consumer.committed([TopicPartition(topic, 0)], timeout=20)
    assert (kept.offset, kept.metadata) == (1, metadata)


def test_only_stored_offsets_are_committed(scene: Scene, topic: str) -> None:
    """A consumer that stores offsets explicitly commits these offsets, not its position."""
    scene.send(topic, 0, VALUES)
    consumer = scene.consumer(topic, **{"enable.auto.offset.store": False})
    consumer.subscribe([topic])
    consumer.store_offsets(message=read(consumer, 50)[9])
    consumer.commit(asynchronous=False)
    (kept,) = consumer.committed([TopicPartition(topic, 0)], timeout=20)
    assert kept.offset == 10


def test_incremental_assignment(scene: Scene, topic: str) -> None:
    """Added partitions are read from the committed offset; removed ones are no longer read."""
    scene.send(topic, 0, [b"a"])
    scene.send(topic, 1, [b"b"])
    consumer = scene.consumer(topic, **{"auto.offset.reset": "error"})
    consumer.incremental_assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    (first,) = read(consumer, 1)
    consumer.commit(first, asynchronous=False)
    with pytest.raises(KafkaException) as raised:
        consumer.incremental_assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    assert raised.value.args[0].code() == KafkaError._CONFLICT
    consumer.incremental_assign([TopicPartition(topic, 1, OFFSET_BEGINNING)])
    assert read(consumer, 1)[0].value() == b"b"
    consumer.incremental_unassign([TopicPartition(topic, 0)])
    scene.send(topic, 0, [b"aa"])
    scene.send(topic, 1, [b"bb"])
    assert read(consumer, 1)[0].value() == b"bb"
    consumer.incremental_assign([TopicPartition(topic, 0)])
    assert [(message.value(), message.offset()) for message in read(consumer, 1)] == [(b"aa", 1)]


def test_a_group_changes_its_protocol_while_it_is_empty(scene: Scene, topic: str) -> None:
    """The group changes to the other protocol and back; its offsets are kept."""
    scene.send(topic, 0, VALUES)
    for number, protocol in enumerate(("classic", "consumer", "classic")):
        consumer = scene.consumer(topic, protocol)
        consumer.subscribe([topic])
        (message,) = read(consumer, 1)
        assert message.value() == VALUES[number]
        consumer.commit(message, asynchronous=False)
        consumer.close()


class Rebalances:
    """Counts the rebalance callbacks of a consumer."""

    def __init__(self) -> None:
        self.assigned: list[int] = []
        self.revoked: list[int] = []
        self.lost: list[int] = []

    def callbacks(self) -> dict[str, object]:
        return {
            "on_assign": lambda _, partitions: self.assigned.append(len(partitions)),
            "on_revoke": lambda _, partitions: self.revoked.append(len(partitions)),
            "on_lost": lambda _, partitions: self.lost.append(len(partitions)),
        }


def test_a_cooperative_member_keeps_its_partitions(scene: Scene, topic: str) -> None:
    """A new topic is added to the assignment; a member that polls too rarely loses all partitions temporarily."""
    scene.send(topic, 0, [b"a"])
    scene.send(f"{topic}-b", 0, [b"b"])
    short = {"session.timeout.ms": 1500, "max.poll.interval.ms": 2000}
    consumer = scene.consumer(topic, **{"partition.assignment.strategy": "cooperative-sticky", **short})
    rebalances = Rebalances()
    consumer.subscribe([topic], **rebalances.callbacks())
    assert read(consumer, 1)[0].value() == b"a"
    consumer.subscribe([topic, f"{topic}-b"], **rebalances.callbacks())
    assert read(consumer, 1)[0].value() == b"b"
    assert (rebalances.assigned, rebalances.revoked, rebalances.lost) == ([2, 4], [], [])
    # No poll for longer than max.poll.interval.ms.
    time.sleep(3)
    errors: list[int] = []
    wait_until(lambda: bool(rebalances.lost), "partitions to be lost", lambda: errors.extend(error_codes(consumer)))
    assert KafkaError._MAX_POLL_EXCEEDED in errors
    assert {message.value() for message in read(consumer, 2)} == {b"a", b"b"}
    assert (rebalances.assigned, rebalances.revoked, rebalances.lost) == ([2, 4, 6], [], [6])


def error_codes(consumer: object) -> list[int]:
    """Poll, and return the error codes except the end of a partition."""
    message = consumer.poll(0.1)  # type: ignore[attr-defined]
    error = message.error() if message is not None else None
    return [error.code()] if error is not None and error.code() != KafkaError._PARTITION_EOF else []


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_member_has_an_id(scene: Scene, topic: str, protocol: str) -> None:
    consumer = scene.consumer(topic, protocol)
    consumer.subscribe([topic])
    wait_until_shared([consumer], 2)
    assert consumer.memberid()


def test_a_restarted_static_member_causes_no_rebalance(scene: Scene, topic: str) -> None:
    """A restart with the same instance ID within the session timeout does not move partitions."""
    names = [{"group.instance.id": name, "session.timeout.ms": 6000} for name in ("one", "two")]
    first, second = (scene.consumer(topic, **name) for name in names)
    rebalances = Rebalances()
    first.subscribe([topic], **rebalances.callbacks())
    second.subscribe([topic])
    wait_until_shared([first, second], 2)
    generations, had = list(rebalances.assigned), second.assignment()
    second.close()
    again = scene.consumer(topic, **names[1])
    again.subscribe([topic])
    wait_until_shared([first, again], 2)
    assert again.assignment() == had
    assert rebalances.assigned == generations


def test_an_invalid_session_timeout_is_rejected(scene: Scene, topic: str) -> None:
    """The application receives an error about the session timeout."""
    consumer = scene.consumer(topic, **{"session.timeout.ms": 100, "heartbeat.interval.ms": 50})
    consumer.subscribe([topic])
    errors: list[int] = []
    wait_until(lambda: bool(errors), "an error", lambda: errors.extend(error_codes(consumer)))
    assert errors == [KafkaError.INVALID_SESSION_TIMEOUT]
