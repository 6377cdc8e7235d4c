"""The cost of an event does not grow with the number of partitions, up to the size of one multi.

The number of ZooKeeper round trips is fixed, and each broker receives at most one LeaderAndIsr, one UpdateMetadata and
one StopReplica.  Beyond a thousand operations, only the number of concurrent multis grows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from unittest.mock import patch

import pytest

from kreplica.controller.effects.command_batch import Command, CommandBatch
from kreplica.controller.event_types import BrokersChanged, ShutdownRequested
from kreplica.controller.handlers import leaders_first
from kreplica.controller.history.step_metrics import Cost, difference
from kreplica.wire.messages import LEADER_AND_ISR
from tests.support.controller_scene import ControllerScene

SIZES = (2, 300)
BROKERS = (1, 2, 3)

ReceivedCommand = dict[int, Counter[str]]


def three_of(partitions: int) -> dict[int, tuple[int, ...]]:
    """Return three replicas for each partition, with leaders spread over the brokers."""
    return {number: BROKERS[number % 3 :] + BROKERS[: number % 3] for number in range(partitions)}


def scene_with(partitions: int, *, controllers: int = 1) -> ControllerScene:
    scene = ControllerScene(brokers=3, controllers=controllers)
    scene.start()
    if partitions:
        scene.make_topic("t", three_of(partitions))
    return scene


def measured(scene: ControllerScene, act: Callable[[], object], *, fresh: bool = False) -> tuple[Cost, ReceivedCommand]:
    """Return the controller's cost of an operation and the commands to each broker.

    :param fresh: True if a new controller, whose counters start at zero, handles the operation.
    """
    scene.clear_received()
    before = Cost() if fresh else scene.controller.counters.cost
    act()
    scene.settle()
    cost = difference(scene.controller.counters.cost, before)
    return cost, {n: Counter(command.name for command in broker.received) for n, broker in scene.brokers.items()}


def create(partitions: int) -> tuple[Cost, ReceivedCommand]:
    scene = scene_with(0)
    return measured(scene, lambda: scene.make_topic("t", three_of(partitions)))


def broker_dies(partitions: int) -> tuple[Cost, ReceivedCommand]:
    scene = scene_with(partitions)
    scene.brokers[3].kill()
    return measured(scene, scene.await_expiry)


def broker_returns(partitions: int) -> tuple[Cost, ReceivedCommand]:
    scene = scene_with(partitions)
    scene.brokers[3].kill()
    scene.await_expiry()
    return measured(scene, lambda: scene.run(scene.brokers[3].start()))


def broker_shuts_down(partitions: int) -> tuple[Cost, ReceivedCommand]:
    scene = scene_with(partitions)
    return measured(scene, lambda: scene.ask(ShutdownRequested(3, scene.brokers[3].epoch)))


def controller_fails_over(partitions: int) -> tuple[Cost, ReceivedCommand]:
    scene = scene_with(partitions, controllers=2)
    next(iter(scene.controllers.values())).kill()
    return measured(scene, scene.await_expiry, fresh=True)


EVENTS = {
    create: 4,
    broker_dies: 3,
    broker_returns: 4,
    broker_shuts_down: 1,
    controller_fails_over: 18,
}
"""Operations, each with its number of ZooKeeper round trips."""


@pytest.mark.parametrize("event", EVENTS)
def test_cost_is_independent_of_the_number_of_partitions(event: Callable[[int], tuple[Cost, ReceivedCommand]]) -> None:
    """ZooKeeper round trips and commands do not depend on the number of partitions."""
    few, commands_few = event(SIZES[0])
    many, commands_many = event(SIZES[1])
    assert few.zookeeper_round_trips == many.zookeeper_round_trips == EVENTS[event]
    assert (few.zookeeper_requests, few.commands) == (many.zookeeper_requests, many.commands)
    assert commands_few == commands_many
    assert all(count == 1 for name, count in commands_many[1].items() if event is not controller_fails_over)


def test_several_multis_are_sent_together() -> None:
    """2,500 states are written in three concurrent multis, without additional round trips or commands."""
    few, commands_few = broker_dies(SIZES[0])
    with patch.object(leaders_first, "LEADERS_FIRST_MIN", 10_000):
        many, commands_many = broker_dies(2500)
    assert many.zookeeper_requests == few.zookeeper_requests + 2
    assert many.zookeeper_round_trips == few.zookeeper_round_trips
    assert commands_many == commands_few
    split, _ = broker_dies(2500)
    assert split.zookeeper_round_trips == few.zookeeper_round_trips + 1, "partitions without a leader come first"


def commands(bytes_max: int) -> list[tuple[int, Command]]:
    """Return the commands of two brokers for 100 partitions."""
    scene = scene_with(100)
    sent: list[tuple[int, Command]] = []
    batch = CommandBatch(scene.context, 101, "PLAINTEXT", lambda *each: sent.append(each), bytes_max)
    for partition in scene.context.all_partitions():
        batch.lead_or_follow(partition, (1, 2))
    batch.send()
    for broker, command in sent:
        body = scene.run(command.build_body(scene.controllers[101].host.runtime.reactor))
        data = command.api.request.build(command.version, body)
        assert len(data) <= bytes_max
        parsed = command.api.request.parse(command.version, data)
        assert parsed["broker_epoch"] == scene.brokers[broker].epoch
        rows = [(topic["topic_name"], row) for topic in parsed["topic_states"] for row in topic["partition_states"]]
        assert [(name, row["partition_index"]) for name, row in rows] == list(command.partitions)
        assert all(tuple(row["replicas"]) == three_of(100)[row["partition_index"]] for _, row in rows)
    return sent


def test_large_commands_are_split() -> None:
    """Each broker receives every partition once, in order, and all commands are below the size limit."""
    assert [broker for broker, _ in commands(16 * 1024 * 1024)] == [1, 2]
    sent = commands(20 * 1024)
    assert [broker for broker, _ in sent] == [1, 1, 1, 2, 2, 2]
    for broker in (1, 2):
        received = [partition.partition for of, command in sent if of == broker for partition in command.partitions]
        assert received == list(range(100))
    assert {command.api for _, command in sent} == {LEADER_AND_ISR}


def test_reactor_runs_between_commands_of_a_large_batch() -> None:
    """At most one command is queued at a time, and the commands and their order are those of ``send``."""
    scene = scene_with(100)
    sent: list[tuple[int, Command]] = []
    queued_counts: list[int] = []

    async def yield_to_reactor() -> None:
        queued_counts.append(len(sent))

    batch = CommandBatch(scene.context, 101, "PLAINTEXT", lambda *each: sent.append(each), 20 * 1024)
    for partition in scene.context.all_partitions():
        batch.lead_or_follow(partition, (1, 2))
    scene.run(batch.send_in_slices(yield_to_reactor))
    assert [(broker, each.partitions) for broker, each in sent] == [
        (broker, each.partitions) for broker, each in commands(20 * 1024)
    ]
    assert queued_counts == list(range(len(sent) + 1))


def test_a_broker_that_does_not_answer_is_counted() -> None:
    """The controller counts it once and retries; all waiting commands are executed when the broker responds again."""
    scene = scene_with(0)
    scene.brokers[2].silent = True
    scene.make_topic("t", three_of(3))
    scene.settle(10.0)
    assert scene.controller.counters.unanswered == 1
    assert not scene.controller.timeline.settled
    scene.brokers[2].silent = False
    scene.settle(10.0)
    assert scene.controller.timeline.settled
    assert [command.name for command in scene.brokers[2].received][-2:] == ["LeaderAndIsr", "UpdateMetadata"]
    assert scene.controller.counters.unanswered == 1


def test_the_timeline_of_a_step() -> None:
    """A step has its times up to the last broker's response, and the number and size of its commands."""
    scene = scene_with(50)
    scene.brokers[3].kill()
    scene.await_expiry()
    step = [step for step in scene.controller.timeline if isinstance(step.event, BrokersChanged)][-1]
    assert step.written_s is not None
    assert step.ended_s is not None
    assert step.settled_s is not None
    assert step.noticed_s <= step.started_s <= step.written_s <= step.ended_s <= step.settled_s
    assert (step.commands, step.unanswered_commands) == (4, {})
    assert step.command_bytes > 2 * 50 * 80
    assert Cost(*step.cost).zookeeper_operations == 51


def test_full_metadata_is_split_into_numbered_pieces() -> None:
    """Brokers remove topics that are not in any piece after the last piece, so they must recognize it."""
    scene = scene_with(100)
    sent: list[Command] = []
    batch = CommandBatch(scene.context, 101, "PLAINTEXT", lambda _, command: sent.append(command), 20 * 1024)
    batch.publish_all([1])
    batch.send()
    reactor = scene.controllers[101].host.runtime.reactor
    bodies = [scene.run(command.build_body(reactor)) for command in sent]
    assert [(body["type"], body["part"], body["parts"]) for body in bodies] == [(2, 0, 3), (2, 1, 3), (2, 2, 3)]
