"""Broker failures and controlled shutdowns are handled before other events, and interrupt long work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from kreplica.cluster import documents, znodes
from kreplica.cluster.uuids import random_uuid
from kreplica.controller.controller import Controller
from kreplica.controller.event_types import BalanceLeaders, ShutdownRequested
from kreplica.controller.handlers import leader_balance, topic_creation
from kreplica.controller.history.observer import ControllerObserver
from kreplica.controller.state.context import ControllerContext
from kreplica.model import TopicAssignment, TopicPartition
from tests.support.controller_scene import ControllerScene

TOPICS = [f"t{number:02d}" for number in range(30)]
KEPT = "kept"


class Handled(ControllerObserver):
    """Records the types of the handled events, in order."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def began(self, event: object) -> None:
        self.names.append(type(event).__name__)


@pytest.fixture
def scene() -> ControllerScene:
    made = ControllerScene(brokers=3)
    made.start()
    made.make_topic(KEPT, {0: (3, 1, 2)})
    return made


def controller_of(scene: ControllerScene) -> Controller:
    """Return the controller, which may be busy."""
    return scene.controllers[101].controller


def context_of(scene: ControllerScene) -> ControllerContext:
    context = controller_of(scene).context
    assert context is not None
    return context


def handled(scene: ControllerScene) -> list[str]:
    observer = controller_of(scene).queue._observer = Handled()
    return observer.names


@contextmanager
def paused(scene: ControllerScene) -> Iterator[None]:
    """Pause the controller's process in this context; afterwards, the scene has not settled yet."""
    host = scene.controllers[101].host
    host.pause()
    yield
    host.resume()


def expire(scene: ControllerScene, broker: int) -> None:
    """End a broker's process and session at once."""
    session = scene.brokers[broker].client.session_id
    scene.brokers[broker].kill()
    assert scene.coordinator.serving is not None
    scene.coordinator.serving.expire(session)


def is_moved(scene: ControllerScene) -> bool:
    """Return True if the leader of the topic that is not deleted has been replaced."""
    return context_of(scene).leadership[TopicPartition(KEPT, 0)].leader == 1


def fail_during(scene: ControllerScene, has_begun: Callable[[], bool]) -> list[str]:
    """Expire broker 3 during other work, run until its partition has a new leader, and return the handled events."""
    scene.until(has_begun)
    names = handled(scene)
    expire(scene, 3)
    scene.until(lambda: is_moved(scene))
    return names


def deletions(scene: ControllerScene) -> list[str]:
    """Return the topics whose deletion is still requested."""
    names: list[str] = scene.run(scene.zookeeper.get_children(znodes.DELETE_TOPICS))
    return names


def test_a_broker_failure_interrupts_the_removal_of_topics(scene: ControllerScene) -> None:
    """The new leader is elected while most topics still have znodes; then the remaining topics are removed."""
    for topic in TOPICS:
        scene.make_topic(topic, {0: (1, 2)})
    with paused(scene):
        for topic in TOPICS:
            scene.run(scene.zookeeper.create(znodes.delete_topic_path(topic)))
    names = fail_during(scene, lambda: any(topic not in context_of(scene).topics for topic in TOPICS))
    assert len(deletions(scene)) > len(TOPICS) // 2
    assert "FinishDeletions" not in names
    scene.settle(5)
    assert deletions(scene) == []
    assert "FinishDeletions" in names


def test_a_broker_failure_overtakes_the_start_of_deletions(scene: ControllerScene) -> None:
    """Topics whose deletion has not started yet are deleted after the election."""
    for topic in TOPICS:
        scene.make_topic(topic, {0: (1, 2)})
    begun = handled(scene)
    controller_of(scene).queue.pause()
    for topic in TOPICS:
        scene.run(scene.zookeeper.create(znodes.delete_topic_path(topic)))
    expire(scene, 3)
    scene.settle()
    # The failure is already known when the deletions start, and is handled before them.
    controller_of(scene).queue.resume()
    scene.settle(5)
    assert begun.index("BrokersChanged") < begun.index("DeletionsChanged")
    assert deletions(scene) == []


def test_a_broker_failure_interrupts_the_creation_of_topics(
    scene: ControllerScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new leader is elected before the last topic is created."""
    monkeypatch.setattr(topic_creation, "TOPICS_AT_ONCE", 1)
    with paused(scene):
        for topic in TOPICS:
            assignment = TopicAssignment(topic, random_uuid(scene.simulation.random), {0: (1, 2)})
            scene.run(scene.zookeeper.create(znodes.topic_path(topic), documents.encode_topic(assignment)))
    fail_during(scene, lambda: TOPICS[0] in context_of(scene).topics)
    assert TOPICS[-1] not in context_of(scene).topics
    scene.settle(5)
    assert {scene.state(topic, 0).leader for topic in TOPICS} == {1}


def test_a_broker_failure_interrupts_the_balance_of_leaders(
    scene: ControllerScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The remaining preferred leaders are elected after the new leader."""
    monkeypatch.setattr(leader_balance, "BALANCED_AT_ONCE", 1)
    count = 30
    scene.make_topic("many", dict.fromkeys(range(count), (2, 1)))
    scene.brokers[2].kill()
    scene.await_expiry()
    scene.run(scene.brokers[2].start())
    scene.settle()
    for number in range(count):
        scene.run(scene.brokers[1].write_isr(TopicPartition("many", number), (1, 2)))
    scene.settle()

    def balanced() -> int:
        return sum(context_of(scene).leadership[TopicPartition("many", number)].leader == 2 for number in range(count))

    controller_of(scene).queue.put(BalanceLeaders())
    names = fail_during(scene, lambda: balanced() > 0)
    assert balanced() < count // 2
    scene.settle(5)
    assert balanced() == count
    assert names[:2] == ["BrokersChanged", "BalanceLeaders"]


def test_a_controlled_shutdown_overtakes_waiting_events(scene: ControllerScene) -> None:
    """The shutdown is handled before events that were queued earlier."""
    queue = controller_of(scene).queue
    names = handled(scene)
    queue.pause()
    scene.make_topic("new", {0: (1, 2, 3)})
    response = controller_of(scene).submit(ShutdownRequested(3, context_of(scene).brokers[3].epoch))
    queue.resume()
    assert scene.run(response) == []
    scene.settle()
    assert names.index("ShutdownRequested") < names.index("TopicsChanged")
    assert scene.state("new", 0).leader == 1


def test_deletions_that_wait_for_an_urgent_event_give_no_roles(scene: ControllerScene) -> None:
    """A broker that registers again while a new controller resumes deletions receives no role for a deleted replica."""
    for topic in TOPICS:
        scene.make_topic(topic, {0: (1, 2)})
    scene.brokers[2].kill()
    scene.await_expiry()
    for topic in TOPICS:
        scene.run(scene.zookeeper.create(znodes.delete_topic_path(topic)))
    scene.settle()
    scene.controllers[101].kill()
    scene.await_expiry()
    scene.run(scene.controllers[101].start())
    scene.until(lambda: bool(controller_of(scene).context and context_of(scene).deleting))
    with paused(scene):
        expire(scene, 1)
        scene.run(scene.brokers[1].start())
        scene.clear_received()
    scene.settle(5)
    roles = scene.brokers[1].received_of("LeaderAndIsr")
    assert not [key for command in roles for key in command.partitions if key.topic in TOPICS]
    stopped = {key.topic for command in scene.brokers[1].received_of("StopReplica") for key in command.partitions}
    assert stopped == set(TOPICS)
    scene.run(scene.brokers[2].start())
    scene.settle(5)
    assert deletions(scene) == []
