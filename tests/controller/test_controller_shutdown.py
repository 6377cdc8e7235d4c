"""Controlled shutdown of a broker."""

from __future__ import annotations

import pytest

from kreplica.controller.event_types import ShutdownRequested
from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import NO_LEADER, TopicPartition
from tests.support.controller_scene import ControllerScene

P0, P1, P2 = (TopicPartition("t", number) for number in range(3))


@pytest.fixture
def scene() -> ControllerScene:
    made = ControllerScene(brokers=3)
    made.start()
    made.make_topic("t", {0: (1, 2, 3), 1: (2, 3, 1), 2: (1, 2)})
    made.make_topic("single", {0: (1,)})
    made.clear_received()
    return made


def refusal(scene: ControllerScene, question: ShutdownRequested) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        scene.ask(question)
    return raised.value.code


def test_leaders_move_and_the_broker_stops_following(scene: ControllerScene) -> None:
    """The broker leads only partitions that have no other replica, and is in no other ISR."""
    assert scene.ask(ShutdownRequested(1, scene.brokers[1].epoch)) == []
    scene.settle()
    assert (scene.state("t", 0).leader, scene.state("t", 0).isr) == (2, (2, 3))
    assert (scene.state("t", 1).leader, scene.state("t", 1).isr) == (2, (2, 3))
    assert (scene.state("t", 2).leader, scene.state("t", 2).isr) == (2, (2,))
    assert scene.state("t", 2).eligible_leader_replicas == (1,), "too few others are in sync to commit without it"
    assert scene.state("single", 0).leader == 1
    names = [command.name for command in scene.brokers[1].received]
    assert names == ["UpdateMetadata", "StopReplica"], "it is not made a follower, so no leader can add it again"
    stopped = scene.brokers[1].received[1].partitions
    assert set(stopped) == {P0, P1, P2}
    assert not any(row["delete_partition"] for row in stopped.values())
    assert {row["leader_epoch"] for row in stopped.values()} == {1}
    assert [command.name for command in scene.brokers[2].received] == ["LeaderAndIsr", "UpdateMetadata"]


def test_a_second_request_continues_the_shutdown(scene: ControllerScene) -> None:
    """The response contains the remaining partitions, and a second request continues with them."""
    scene.run(scene.brokers[1].write_isr(P2, (1,)))
    scene.settle()
    assert scene.ask(ShutdownRequested(1, scene.brokers[1].epoch)) == [P2]
    scene.settle()
    scene.run(scene.brokers[1].write_isr(P2, (1, 2)))
    scene.settle()
    scene.clear_received()
    assert scene.ask(ShutdownRequested(1, scene.brokers[1].epoch)) == []
    scene.settle()
    assert scene.state("t", 2).leader == 2
    assert set(scene.brokers[1].received_of("StopReplica")[0].partitions) == {P2}


def test_requests_of_other_processes_are_rejected(scene: ControllerScene) -> None:
    """Requests from an earlier process or an unregistered broker, or with a wrong epoch, are rejected."""
    assert refusal(scene, ShutdownRequested(1, scene.brokers[1].epoch - 1)) is ErrorCode.STALE_BROKER_EPOCH
    assert refusal(scene, ShutdownRequested(9)) is ErrorCode.BROKER_NOT_AVAILABLE
    assert refusal(scene, ShutdownRequested(1)) is ErrorCode.STALE_BROKER_EPOCH
    assert refusal(scene, ShutdownRequested(1, 2**63 - 1)) is ErrorCode.STALE_BROKER_EPOCH
    assert scene.state("t", 0).leader == 1
    assert scene.ask(ShutdownRequested(1, scene.brokers[1].epoch)) == []


def test_a_leader_cannot_readd_a_stopping_broker(scene: ControllerScene) -> None:
    """The controller reverses such an ISR change when it is notified of it (KIP-841)."""
    scene.ask(ShutdownRequested(3, scene.brokers[3].epoch))
    scene.run(scene.brokers[1].write_isr(P0, (1, 2, 3)))
    scene.settle()
    assert scene.state("t", 0).isr == (1, 2)


def test_a_stopping_broker_is_not_elected_and_new_topics_do_without_it(scene: ControllerScene) -> None:
    """This holds even if all other brokers fail, and ends when the broker has restarted."""
    scene.ask(ShutdownRequested(3, scene.brokers[3].epoch))
    scene.make_topic("new", {0: (3, 1)})
    assert (scene.state("new", 0).leader, scene.state("new", 0).isr) == (1, (1,))
    for number in (1, 2):
        scene.brokers[number].kill()
    scene.await_expiry()
    assert scene.state("t", 0).leader == NO_LEADER
    scene.brokers[3].kill()
    scene.run(scene.brokers[3].start(intact_since=scene.brokers[3].epoch))
    scene.settle()
    assert scene.context.shutting_down == set()
    scene.run(scene.brokers[2].start(intact_since=scene.brokers[2].epoch))
    scene.settle()
    assert scene.state("t", 0).leader == 2


def test_only_the_controller_answers(scene: ControllerScene) -> None:
    """Waiting requests are rejected when the term ends, so that the broker finds the next controller."""
    controller = scene.controller
    question = ShutdownRequested(1, scene.brokers[1].epoch)
    answer = controller.submit(question)
    scene.run(controller.stop())
    with pytest.raises(KafkaError) as raised:
        scene.run(answer)
    assert raised.value.code is ErrorCode.NOT_CONTROLLER
    with pytest.raises(KafkaError):
        scene.run(controller.submit(ShutdownRequested(1)))
