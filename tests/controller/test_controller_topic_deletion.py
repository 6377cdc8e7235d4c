"""Topics of several replicas that are deleted, while brokers are down, refuse, or die in the middle of it."""

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
    scene.forget_told()
    return scene


def ask(scene: ControllerScene) -> None:
    scene.run(scene.zookeeper.create(znodes.delete_topic_path("t")))
    scene.settle()


def is_deleted(scene: ControllerScene) -> bool:
    paths = (znodes.topic_path("t"), znodes.delete_topic_path("t"))
    return all(scene.run(scene.zookeeper.exists(path)) is None for path in paths)


def stops(scene: ControllerScene, broker: int) -> list[bool]:
    """For each StopReplica of that broker, whether it was to delete."""
    return [told.partitions[P0]["delete_partition"] for told in scene.brokers[broker].told_of("StopReplica")]


def test_each_replica_stops_and_then_deletes():
    """Clients hear first that it goes; one request a phase for all partitions of a broker."""
    scene = scene_with_topic(partitions=50)
    ask(scene)
    assert is_deleted(scene)
    for broker in (1, 2, 3):
        assert stops(scene, broker) == [False, True]
        names = [told.name for told in scene.brokers[broker].told]
        assert names.index("UpdateMetadata") < names.index("StopReplica")
        assert len(scene.brokers[broker].told_of("StopReplica")[1].partitions) == 50
        (told,) = scene.brokers[broker].told_of("UpdateMetadata")
        assert {row["leader"] for row in told.partitions.values()} == {LEADER_DURING_DELETE}


def test_a_broker_that_is_down_is_waited_for():
    """Its files are deleted when it is back, and only then the topic's name is free."""
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
    assert not scene.brokers[3].told_of("LeaderAndIsr"), "it is not told to follow what goes"
    assert is_deleted(scene)


def test_a_broker_that_dies_before_it_answered_is_asked_again():
    """From the first phase on, since it is another process."""
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


def test_a_broker_that_bounces_in_the_second_phase():
    """A restart faster than its session's end is a restart all the same."""
    scene = scene_with_topic()
    scene.brokers[2].errors[P0] = ErrorCode.KAFKA_STORAGE_ERROR
    ask(scene)
    assert not is_deleted(scene)
    scene.brokers[2].kill()
    scene.run(scene.brokers[2].start())
    scene.settle()
    assert stops(scene, 2) == [False, True]
    assert is_deleted(scene)


def test_a_broker_that_moves_in_the_middle_of_it_is_asked_again():
    """What waited for it at its old address is forgotten, so it is told everything at the new one."""
    scene = scene_with_topic()
    scene.brokers[2].silent = True
    ask(scene)
    scene.brokers[2].silent = False
    scene.run(scene.brokers[2].move(9999))
    scene.settle()
    assert stops(scene, 2) == [False, True]
    assert is_deleted(scene)


def test_a_broker_that_was_behind_with_everything_is_asked_again(monkeypatch: pytest.MonkeyPatch):
    """So much waited for it that all was forgotten, the deletion too."""
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
    """Nobody is elected for a topic that goes."""
    scene = scene_with_topic()
    scene.brokers[3].kill()
    scene.await_expiry()
    ask(scene)
    scene.forget_told()
    scene.brokers[1].kill()
    scene.await_expiry()
    assert not scene.brokers[2].told_of("LeaderAndIsr")
    scene.run(scene.brokers[1].start())
    scene.run(scene.brokers[3].start())
    scene.settle(2)
    assert is_deleted(scene)


def test_a_topic_of_the_same_name_is_another():
    """Made at once after the deletion, it begins at the first epoch with all replicas in sync."""
    scene = scene_with_topic()
    ask(scene)
    assert is_deleted(scene)
    scene.make_topic("t", {0: (2, 3)})
    state = scene.state("t", 0)
    assert (state.leader, state.leader_epoch, state.isr) == (2, 0, (2, 3))
