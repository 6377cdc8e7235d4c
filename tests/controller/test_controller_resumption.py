"""If the connection to ZooKeeper is lost during an event, the event continues in the same term."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kreplica.cluster import znodes
from kreplica.controller.controller import Controller
from kreplica.controller.effects.resumption import CurrentZnode, Outcome, outcome_of, outcome_of_multi
from kreplica.model import TopicPartition
from kreplica.zookeeper import Check, Create, Delete, Operation, SetData, Stat
from tests.support.controller_scene import ControllerScene

CONTROLLER, COORDINATOR = "controller-101", "coordinator"
STEPS = range(0, 90, 3)
"""Numbers of simulated events after which the connection is lost: before, during and after the event."""

PARTITIONS = {number: (1 + number % 3, 1 + (number + 1) % 3, 1 + (number + 2) % 3) for number in range(6)}


def lose(scene: ControllerScene, steps: int) -> None:
    """Lose the controller's connection after this number of simulated events."""
    for _ in range(steps):
        scene.simulation.step()
    scene.simulation.network.drop_connections(CONTROLLER, COORDINATOR)
    scene.simulation.network.drop_connections(COORDINATOR, CONTROLLER)
    scene.settle(5.0)


def expire(scene: ControllerScene) -> None:
    """End a broker's process and session at once."""
    session = scene.brokers[1].client.session_id
    scene.brokers[1].kill()
    assert scene.coordinator.serving is not None
    scene.coordinator.serving.expire(session)


def check_failover(scene: ControllerScene) -> None:
    for number, replicas in PARTITIONS.items():
        state = scene.state("t", number)
        survivors = [replica for replica in replicas if replica != 1]
        assert (state.leader, set(state.isr)) == (survivors[0], set(survivors))
        assert scene.context.leadership[TopicPartition("t", number)] == state
        for broker in survivors:
            commands = scene.brokers[broker].received_of("LeaderAndIsr")
            rows = [command.partitions.get(TopicPartition("t", number)) for command in commands]
            epochs = [row["leader_epoch"] for row in rows if row is not None]
            assert epochs == [0, state.leader_epoch], "each role is sent once"


def request_deletion(scene: ControllerScene) -> None:
    scene.run(scene.zookeeper.create(znodes.delete_topic_path("t")))


def check_deletion(scene: ControllerScene) -> None:
    assert scene.run(scene.zookeeper.exists(znodes.topic_path("t"))) is None
    assert scene.run(scene.zookeeper.exists(znodes.delete_topic_path("t"))) is None
    assert "t" not in scene.context.topics


@pytest.mark.parametrize(("begin", "check"), [(expire, check_failover), (request_deletion, check_deletion)])
def test_an_event_continues(
    begin: Callable[[ControllerScene], None], check: Callable[[ControllerScene], None]
) -> None:
    """Whenever the connection is lost, the term continues, and the result is that of an undisturbed event."""
    resumptions = 0
    for steps in STEPS:
        scene = ControllerScene(brokers=3)
        scene.start()
        scene.make_topic("t", PARTITIONS)
        controller: Controller = scene.controller
        context = scene.context
        begin(scene)
        lose(scene, steps)
        assert scene.controller is controller
        assert scene.context is context, f"a new term after {steps} steps"
        check(scene)
        resumptions += controller.counters.resumptions
    assert resumptions >= 5


def test_a_takeover_continues() -> None:
    """A new controller that loses its connection during its first step is elected only once."""
    for steps in STEPS:
        scene = ControllerScene(brokers=3, controllers=2)
        scene.start()
        scene.make_topic("t", PARTITIONS)
        scene.run(scene.zookeeper.delete(znodes.CONTROLLER))
        lose(scene, steps)
        assert scene.context.controller_epoch == 2
        assert sorted(scene.context.leadership) == [TopicPartition("t", number) for number in PARTITIONS]
        assert all(scene.context.partition_state(partition).name == "ONLINE" for partition in scene.context.leadership)


# --- outcomes ---------------------------------------------------------------------------------------------------------

BEFORE, AFTER = 10, 20


def found(data: bytes = b"new", *, version: int = 0, czxid: int = BEFORE, mzxid: int = AFTER) -> tuple[bytes, Stat]:
    return data, Stat(czxid, mzxid, 0, 0, version, 0, 0, 0, len(data), 0, 0)


@pytest.mark.parametrize(
    ("operation", "znode", "outcome"),
    [
        (SetData("/a", b"new", 3), found(version=4), Outcome.APPLIED),
        (SetData("/a", b"new", 3), found(version=3, mzxid=BEFORE), Outcome.NOT_APPLIED),
        (SetData("/a", b"new", 3), found(b"of another", version=4), Outcome.NOT_APPLIED),
        (SetData("/a", b"new", 3), found(b"of another", version=5), Outcome.UNKNOWN),
        (SetData("/a", b"new", 3), None, Outcome.MISSING),
        (SetData("/a", b"new"), found(version=9), Outcome.APPLIED),
        (SetData("/a", b"new"), found(version=9, mzxid=BEFORE), Outcome.NOT_APPLIED),
        (SetData("/a", b"new"), found(b"of another", version=9), Outcome.UNKNOWN),
        (Create("/a", b"new"), found(czxid=AFTER), Outcome.APPLIED),
        (Create("/a", b"new"), found(mzxid=BEFORE), Outcome.NOT_APPLIED),
        (Create("/a", b"new"), found(b"of another", czxid=AFTER, version=1), Outcome.UNKNOWN),
        (Create("/a", b"new"), None, Outcome.MISSING),
        (Delete("/a"), None, Outcome.ABSENT),
        (Delete("/a"), found(), Outcome.NOT_APPLIED),
        (Delete("/a"), found(czxid=AFTER), Outcome.UNKNOWN),
    ],
)
def test_outcome_of_one_operation(operation: Create | SetData | Delete, znode: CurrentZnode, outcome: Outcome) -> None:
    """The znode shows whether the operation took effect after the last known transaction."""
    assert outcome_of(operation, znode, BEFORE) is outcome


def test_outcome_of_a_multi() -> None:
    """One operation determines the outcome of all; if evidence is contradictory or insufficient, it is unknown."""
    applied, unknown = (SetData("/a", b"new", 3), found(version=4)), (SetData("/b", b"new", 3), found(version=5))
    not_applied, missing = (SetData("/c", b"new", 3), found(version=3)), (Create("/d", b"new"), None)
    absent, again = (Delete("/e"), None), (Delete("/f"), found(czxid=AFTER))

    def outcome(*rows: tuple[Operation, CurrentZnode]) -> Outcome:
        operations, znodes_found = zip((Check("/controller_epoch", 1), found()), *rows, strict=True)
        return outcome_of_multi(operations, znodes_found, BEFORE)

    assert outcome(applied, unknown, absent) is Outcome.APPLIED
    assert outcome(unknown, not_applied, again) is Outcome.NOT_APPLIED
    assert outcome(absent, missing) is Outcome.NOT_APPLIED
    assert outcome(absent) is Outcome.APPLIED
    for rows in ([unknown], [again, absent], [applied, missing], [again, missing]):
        assert outcome(*rows) is Outcome.UNKNOWN
