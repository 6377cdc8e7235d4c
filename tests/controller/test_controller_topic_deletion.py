"""Topic deletions while brokers are down, reject commands or fail."""

from __future__ import annotations

import pytest

from kreplica.cluster import znodes
from kreplica.controller.effects import broker_channels
from kreplica.errors import ErrorCode
from kreplica.model import LEADER_DURING_DELETE, TopicPartition
from tests.support.controller_scene import ControllerScene

P0 = TopicPartition("t", 0)


def scene_with_topic(partitions: int = 2) -> ControllerScene:
    scene = ControllerScene(brokers=3)
    scene.start()
    scene.make_topic("t", dict.fromkeys(range(partitions), (1, 2, 3)))
    scene.clear_received()
    return scene


def ask(scene: ControllerScene) -> None:
    scene.run(scene.zookeeper.create(znodes.delete_topic_path("t")))
    scene.settle()


def is_deleted(scene: ControllerScene) -> bool:
    paths = (znodes.topic_path("t"), znodes.delete_topic_path("t"))
    return all(scene.run(scene.zookeeper.exists(path)) is None for path in paths)


def stops(scene: ControllerScene, broker: int) -> list[bool]:
    """Return, for each StopReplica that the broker received, True if it deletes files."""
    return [command.partitions[P0]["delete_partition"] for command in scene.brokers[broker].received_of("StopReplica")]


def test_each_replica_stops_and_then_deletes():
    """Clients lose the topic first; each broker receives one command per phase."""
    scene = scene_with_topic(partitions=50)
    ask(scene)
    assert is_deleted(scene)
    for broker in (1, 2, 3):
        assert stops(scene, broker) == [False, True]
        names = [command.name for command in scene.brokers[broker].received]
        assert names.index("UpdateMetadata") < names.index("StopReplica")
        assert len(scene.brokers[broker].received_of("StopReplica")[1].partitions) == 50
        (received,) = scene.brokers[broker].received_of("UpdateMetadata")
        assert {row["leader"] for row in received.partitions.values()} == {LEADER_DURING_DELETE}


def test_a_deletion_waits_for_a_dead_broker():
    """The files are deleted when the broker is back; only then can the topic name be reused."""
    scene = scene_with_topic()
    scene.brokers[3].kill()
    scene.await_expiry()
    ask(scene)
    assert stops(scene, 1) == [False, True]
    scene.settle(60)
    assert not is_deleted(scene)
    scene.run(scene.brokers[3].start())
    scene.settle()
    assert stops(scene, 3) == [False, True]
    assert not scene.brokers[3].received_of("LeaderAndIsr"), "it is not made a follower of a deleted partition"
    assert is_deleted(scene)


def test_a_broker_that_fails_before_its_answer_starts_again():
    """The new process starts from the first phase."""
    scene = scene_with_topic()
    scene.brokers[2].silent = True
    ask(scene)
    scene.brokers[2].kill()
    scene.await_expiry()
    assert not is_deleted(scene)
    scene.run(scene.brokers[2].start())
    scene.settle()
    assert stops(scene, 2) == [False, True]
    assert is_deleted(scene)


def test_a_restart_in_the_second_phase():
    """A restart within the session timeout is detected."""
    scene = scene_with_topic()
    scene.brokers[2].errors[P0] = ErrorCode.KAFKA_STORAGE_ERROR
    ask(scene)
    assert not is_deleted(scene)
    scene.brokers[2].kill()
    scene.run(scene.brokers[2].start())
    scene.settle()
    assert stops(scene, 2) == [False, True]
    assert is_deleted(scene)


def test_a_new_endpoint_during_a_deletion():
    """Commands queued for the old endpoint are dropped, so the full state is sent to the new one."""
    scene = scene_with_topic()
    scene.brokers[2].silent = True
    ask(scene)
    scene.brokers[2].silent = False
    scene.run(scene.brokers[2].move(9999))
    scene.settle()
    assert stops(scene, 2) == [False, True]
    assert is_deleted(scene)


def test_an_overflowed_channel_during_a_deletion(monkeypatch: pytest.MonkeyPatch):
    """A channel overflow drops the deletion command, so it is sent again."""
    monkeypatch.setattr(broker_channels, "WAITING_COMMANDS_MAX", 5)
    scene = scene_with_topic()
    scene.brokers[2].silent = True
    ask(scene)
    for name in ("one", "another", "a third"):
        scene.make_topic(name, {0: (1, 2, 3)})
    scene.brokers[2].silent = False
    scene.settle()
    assert stops(scene, 2) == [False, True]
    assert is_deleted(scene)


def test_leaders_that_die_meanwhile_are_not_replaced():
    """No leader is elected for a topic that is being deleted."""
    scene = scene_with_topic()
    scene.brokers[3].kill()
    scene.await_expiry()
    ask(scene)
    scene.clear_received()
    scene.brokers[1].kill()
    scene.await_expiry()
    assert not scene.brokers[2].received_of("LeaderAndIsr")
    scene.run(scene.brokers[1].start())
    scene.run(scene.brokers[3].start())
    scene.settle(2)
    assert is_deleted(scene)


def test_a_topic_can_be_recreated():
    """A topic that is created right after the deletion starts in the first epoch, with all replicas in sync."""
    scene = scene_with_topic()
    ask(scene)
    assert is_deleted(scene)
    scene.make_topic("t", {0: (2, 3)})
    state = scene.state("t", 0)
    assert (state.leader, state.leader_epoch, state.isr) == (2, 0, (2, 3))
