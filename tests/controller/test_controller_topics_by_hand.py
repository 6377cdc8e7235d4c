"""Topics whose znodes are removed, replaced or rewritten by a tool."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from kreplica.cluster import documents, znodes
from kreplica.errors import ErrorCode
from kreplica.model import LEADER_DURING_DELETE, TopicPartition
from kreplica.server.metadata.metadata_cache import FULL
from kreplica.zookeeper import Create, Delete
from tests.support.controller_scene import ControllerScene, ReceivedCommand

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
OTHER_ID = UUID("12345678-1234-4234-8234-123456789abc")

REMOVAL = [
    *(Delete(znodes.partition_state_path("t", number)) for number in (0, 1)),
    *(Delete(znodes.partition_path("t", number)) for number in (0, 1)),
    Delete(znodes.partitions_path("t")),
    Delete(znodes.topic_path("t")),
]


@pytest.fixture
def scene() -> ControllerScene:
    made = ControllerScene(brokers=2)
    made.start()
    return made


def test_a_removed_topic_is_no_longer_served(scene: ControllerScene) -> None:
    """The topic's replicas are deleted, and it disappears from the metadata."""
    scene.make_topic("t", {0: (1, 2), 1: (2,)})
    scene.clear_received()
    scene.run(scene.zookeeper.multi(REMOVAL))
    scene.settle()
    for number, partitions in ((1, {P0}), (2, {P0, P1})):
        metadata, stop = scene.brokers[number].received
        assert {row["leader"] for row in metadata.partitions.values()} == {LEADER_DURING_DELETE}
        assert set(stop.partitions) == partitions
        assert all(row["delete_partition"] and row["leader_epoch"] == -2 for row in stop.partitions.values())
    assert "t" not in scene.context.topics
    scene.clear_received()
    scene.make_topic("t", {0: (1, 2)})
    assert set(scene.brokers[1].received_of("LeaderAndIsr")[0].partitions) == {P0}


def test_a_replaced_topic_is_another_topic(scene: ControllerScene) -> None:
    """If a topic is removed and created in one step, the old replicas are deleted before the new ones start."""
    old = scene.make_topic("t", {0: (1, 2), 1: (2,)})
    scene.clear_received()
    new = replace(old, topic_id=OTHER_ID, partitions={0: (2, 1)})
    scene.run(scene.zookeeper.multi([*REMOVAL, Create(znodes.topic_path("t"), documents.encode_topic(new))]))
    scene.settle()
    names = [command.name for command in scene.brokers[2].received]
    assert names == ["UpdateMetadata", "StopReplica", "LeaderAndIsr", "UpdateMetadata"]
    roles = scene.brokers[2].received[2]
    assert roles.body["topic_states"][0]["topic_id"] == OTHER_ID
    assert roles.partitions[P0]["is_new"]
    assert (scene.state("t", 0).leader, scene.state("t", 0).leader_epoch) == (2, 0)
    assert scene.context.topics["t"].topic_id == OTHER_ID


def test_a_topic_replaced_without_a_controller(scene: ControllerScene) -> None:
    """A broker with files of the old topic deletes them once, whatever their epoch, and then receives its role."""
    old = scene.make_topic("t", {0: (1, 2), 1: (2,)})
    scene.controllers[101].kill()
    new = replace(old, topic_id=OTHER_ID, partitions={0: (1, 2)})
    scene.run(scene.zookeeper.multi([*REMOVAL, Create(znodes.topic_path("t"), documents.encode_topic(new))]))
    scene.await_expiry()
    scene.brokers[1].errors[P0] = ErrorCode.INCONSISTENT_TOPIC_ID
    scene.clear_received()
    scene.run(scene.controllers[101].start())
    scene.settle(60)
    commands = [command for command in scene.brokers[1].received if P0 in command.partitions]
    received = [command for command in commands if command.name != "UpdateMetadata"]
    assert [each.name for each in received] == ["LeaderAndIsr", "LeaderAndIsr", "StopReplica", "LeaderAndIsr"]
    stop, roles = received[-2:]
    assert (stop.partitions[P0]["leader_epoch"], stop.partitions[P0]["delete_partition"]) == (-2, True)
    assert roles.partitions[P0]["is_new"]
    assert not scene.brokers[2].received_of("StopReplica")
    assert "t" not in scene.context.deleting


def test_a_topic_removed_without_a_controller(scene: ControllerScene) -> None:
    """Brokers receive full metadata and remove the topic; so does a broker that joins later."""
    scene.make_topic("t", {0: (1, 2), 1: (2,)})
    scene.make_topic("u", {0: (1, 2)})
    scene.controllers[101].kill()
    scene.run(scene.zookeeper.multi(REMOVAL))
    scene.await_expiry()
    scene.clear_received()
    scene.run(scene.controllers[101].start())
    scene.settle(5)
    assert [full_metadata(command) for command in scene.brokers[1].received_of("UpdateMetadata")] == [None, {"u"}]
    scene.brokers[2].kill()
    scene.run(scene.brokers[2].start())
    scene.settle()
    assert [full_metadata(command) for command in scene.brokers[2].received_of("UpdateMetadata")] == [{"u"}]


def full_metadata(received: ReceivedCommand) -> set[str] | None:
    """Return the topics in a command with full metadata; None for other commands."""
    return {partition.topic for partition in received.partitions} if received.body["type"] == FULL else None


def test_an_unreadable_topic_is_not_removed(scene: ControllerScene) -> None:
    """The topic stays in the metadata that brokers return to clients."""
    scene.make_topic("t", {0: (1, 2)})
    scene.controllers[101].kill()
    scene.run(scene.zookeeper.set_data(znodes.topic_path("t"), b"{"))
    scene.await_expiry()
    scene.clear_received()
    scene.run(scene.controllers[101].start())
    scene.settle(5)
    assert [full_metadata(command) for command in scene.brokers[1].received_of("UpdateMetadata")] == [None, None]


def test_a_topic_id_lost_without_a_controller(scene: ControllerScene) -> None:
    """Replicas reject the new id and keep their files, so that an operator can restore the old id."""
    old = scene.make_topic("t", {0: (1, 2), 1: (2,)})
    scene.controllers[101].kill()
    rewritten = documents.encode_topic(replace(old, topic_id=OTHER_ID))
    scene.run(scene.zookeeper.set_data(znodes.topic_path("t"), rewritten))
    for broker in scene.brokers.values():
        broker.errors.update({P0: ErrorCode.INCONSISTENT_TOPIC_ID, P1: ErrorCode.INCONSISTENT_TOPIC_ID})
    scene.await_expiry()
    scene.clear_received()
    scene.run(scene.controllers[101].start())
    scene.settle(5)
    assert scene.brokers[2].received_of("LeaderAndIsr")[0].body["topic_states"][0]["topic_id"] == OTHER_ID
    assert not scene.brokers[2].received_of("StopReplica")


def test_a_rewritten_topic_keeps_its_id(scene: ControllerScene) -> None:
    """The original id is kept whatever id a tool writes, because the replicas' files belong to it."""
    old = scene.make_topic("t", {0: (1, 2), 1: (2,)})
    scene.clear_received()
    scene.run(scene.zookeeper.set_data(znodes.topic_path("t"), documents.encode_topic(replace(old, topic_id=OTHER_ID))))
    scene.settle()
    data, _ = scene.run(scene.zookeeper.get_data(znodes.topic_path("t")))
    assert documents.decode_topic("t", data) == old
    assert not scene.brokers[1].received_of("StopReplica")
