"""The controller dies after each of its writes to ZooKeeper in turn; the next one brings everything to the same end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from kreplica.cluster import documents, znodes
from kreplica.cluster.partition_requests import encode_addition, encode_removal
from kreplica.cluster.plans import documents as documents_of_plans
from kreplica.cluster.plans.plan import Action, Plan, PlanKind, PlanState, Step
from kreplica.cluster.plans.throttle import decode_throttle
from kreplica.controller.event_types import ReassignmentAsked
from kreplica.model import TopicAssignment, TopicPartition
from kreplica.zookeeper import Create, NoNode
from tests.support.controller_scene import ControllerScene

P0 = TopicPartition("t", 0)


@dataclass(frozen=True)
class Protocol:
    """One thing that takes the controller several writes.

    :param ask: begins it.
    :param help: what brokers do meanwhile, as often as needed.
    :param is_done: whether it has come to its end.
    """

    name: str
    ask: Callable[[ControllerScene], None]
    help: Callable[[ControllerScene], None]
    is_done: Callable[[ControllerScene], bool]


def znode(scene: ControllerScene) -> TopicAssignment | None:
    try:
        data, _ = scene.run(scene.zookeeper.get_data(znodes.topic_path("t")))
    except NoNode:
        return None
    return documents.decode_topic("t", data)


def create(scene: ControllerScene, *rows: tuple[str, bytes]) -> None:
    scene.run(scene.zookeeper.multi([Create(path, data) for path, data in rows]))


def children(scene: ControllerScene, path: str) -> list[str]:
    return scene.run(scene.zookeeper.get_children(path))


def all_in_sync(scene: ControllerScene) -> None:
    """Followers that were told of a partition catch up with it: the leader takes all of its replicas in."""
    assignment = znode(scene)
    for number, replicas in (assignment.partitions if assignment else {}).items():
        partition = TopicPartition("t", number)
        try:
            state = scene.state(*partition)
        except NoNode:
            continue
        leader = scene.brokers.get(state.leader)
        if leader is not None and set(state.isr) != set(replicas):
            scene.run(leader.write_isr(partition, replicas))


def nothing(_: ControllerScene) -> None:
    return


def ask_to_move(scene: ControllerScene) -> None:
    targets = {P0: (3, 4), TopicPartition("t", 1): (2, 3), TopicPartition("t", 2): (1,)}
    create(scene, (znodes.REASSIGN_PARTITIONS, documents.encode_reassignments(targets)))


def has_moved(scene: ControllerScene) -> bool:
    found = znode(scene)
    asked = scene.run(scene.zookeeper.exists(znodes.REASSIGN_PARTITIONS))
    return (
        found is not None
        and asked is None
        and (found.partitions, found.adding, found.removing) == ({0: (3, 4), 1: (2, 3), 2: (1,)}, {}, {})
        and set(scene.state("t", 0).isr) == {3, 4}
        and scene.state("t", 2).isr == (1,)
    )


def ask_to_delete(scene: ControllerScene) -> None:
    create(scene, (znodes.delete_topic_path("t"), b""))


def is_deleted(scene: ControllerScene) -> bool:
    return znode(scene) is None and children(scene, znodes.DELETE_TOPICS) == []


def ask_to_add(scene: ControllerScene) -> None:
    parent = znodes.partitions_add_path("t")
    rows = [(znodes.partitions_add_path("t", n), encode_addition((1, 3))) for n in (3, 4)]
    create(scene, (parent, b""), *rows)


def is_added(scene: ControllerScene) -> bool:
    found = znode(scene)
    if found is None or len(found.partitions) != 5 or children(scene, znodes.PARTITIONS_ADD):
        return False
    return [scene.state("t", n).leader for n in (3, 4)] == [1, 1]


def ask_to_remove(scene: ControllerScene) -> None:
    parent = znodes.partitions_remove_path("t")
    rows = [(znodes.partitions_remove_path("t", n), encode_removal(2000)) for n in (1, 2)]
    create(scene, (parent, b""), *rows)


def is_removed(scene: ControllerScene) -> bool:
    found = znode(scene)
    return (
        found is not None
        and list(found.partitions) == [0]
        and sorted(found.removed) == [1, 2]
        and not any(gone.replicas for gone in found.removed.values())
        and not found.read_only
        and children(scene, znodes.partitions_path("t")) == ["0"]
        and children(scene, znodes.PARTITIONS_REMOVE) == []
    )


PLAN = documents_of_plans.plan_id(1)
STEPS = [
    Step(Action.MOVE, "t", 0, (1, 2), (3, 2)),
    Step(Action.MOVE, "t", 1, (1, 2), (3, 4)),
    Step(Action.REORDER, "t", 2, (1, 2), (2, 1)),
    Step(Action.ADD, "t", 3, (), (4, 1)),
]


def ask_for_plan(scene: ControllerScene, **header: Any) -> None:
    plan = Plan(PLAN, PlanKind.REASSIGN, PlanState.PENDING, 0, len(STEPS), moves_at_once=1, **header)
    (batch,) = documents_of_plans.creation(plan, STEPS)
    create(scene, *batch)


def plan(scene: ControllerScene) -> Plan:
    data, _ = scene.run(scene.zookeeper.get_data(znodes.plan_path(PLAN)))
    return documents_of_plans.decode_plan(PLAN, data)


def ask_with_throttle(scene: ControllerScene) -> None:
    ask_for_plan(scene, throttle_bytes_per_second=1000)


def throttle_has_ended(scene: ControllerScene) -> bool:
    data, _ = scene.run(scene.zookeeper.get_data(znodes.PLAN_THROTTLE))
    return decode_throttle(data) is None


def plan_is_done(scene: ControllerScene) -> bool:
    found = znode(scene)
    assert found is not None
    rows = {0: (3, 2), 1: (3, 4), 2: (2, 1), 3: (4, 1)}
    leaders = [scene.state("t", n).leader for n in range(3)] if plan(scene).state.is_ended else []
    return (
        (plan(scene).state, plan(scene).reason) == (PlanState.COMPLETED, None)
        and (found.partitions, found.adding) == (rows, {})
        and leaders == [3, 3, 2]
        and throttle_has_ended(scene)
        and children(scene, znodes.PARTITIONS_ADD) == []
    )


def go_on_and_cancel(scene: ControllerScene) -> None:
    """Cancelled when the first move has arrived."""
    all_in_sync(scene)
    data, stat = scene.run(scene.zookeeper.get_data(znodes.plan_path(PLAN)))
    known = documents_of_plans.decode_plan(PLAN, data)
    if known.state in (PlanState.PENDING, PlanState.RUNNING) and znode(scene).partitions[0][0] == 3:
        cancelled = documents_of_plans.encode_plan(replace(known, state=PlanState.CANCELLING, rollback=True))
        scene.run(scene.zookeeper.set_data(znodes.plan_path(PLAN), cancelled, stat.version))


def is_rolled_back(scene: ControllerScene) -> bool:
    found = znode(scene)
    assert found is not None
    if plan(scene).state is not PlanState.CANCELLED:
        return False
    rows = {n: replicas for n, replicas in found.partitions.items() if n < 3}
    leaders = [scene.state("t", n).leader for n in range(3)]
    return (
        (rows, found.adding, leaders) == (dict.fromkeys(range(3), (1, 2)), {}, [1, 1, 1])
        and plan(scene).reason is None
        and throttle_has_ended(scene)
    )


PROTOCOLS = [
    Protocol("reassignment", ask_to_move, all_in_sync, has_moved),
    Protocol("deletion", ask_to_delete, nothing, is_deleted),
    Protocol("addition", ask_to_add, nothing, is_added),
    Protocol("removal", ask_to_remove, nothing, is_removed),
    Protocol("plan", ask_with_throttle, all_in_sync, plan_is_done),
    Protocol("rollback", ask_with_throttle, go_on_and_cancel, is_rolled_back),
]

WRITES_MAX = 30


class Mortal:
    """Kills a controller as soon as its n-th multi from now on is committed; what was answered it never hears.

    :ivar dead: whether it came to that.
    """

    def __init__(self, scene: ControllerScene, broker_id: int, writes: int) -> None:
        self.dead = False
        self._scripted = scene.controllers[broker_id]
        self._left = writes
        client = self._scripted.controller._client
        self._multi = client.multi
        client.multi = self.multi  # type: ignore[method-assign]

    def multi(self, operations: Any) -> Deferred[Any]:
        answer = self._multi(operations)
        self._left -= 1
        if self._left == 0:
            answer.addBoth(self._die)
        return answer

    def _die(self, _: Any) -> Deferred[Any]:
        self.dead = True
        self._scripted.kill()
        return Deferred()


def run(protocol: Protocol, writes: int) -> bool:
    """One run in which the controller dies after so many writes; whether it had that many to do."""
    scene = ControllerScene(brokers=4, controllers=2)
    for controller in scene.controllers.values():
        controller.config = replace(controller.config, min_insync_replicas=lambda _: 1)
    scene.start()
    scene.make_topic("t", {0: (1, 2), 1: (1, 2), 2: (1, 2)})
    mortal = Mortal(scene, 101, writes)
    protocol.ask(scene)
    for _ in range(20):
        scene.settle(2)
        protocol.help(scene)
        if protocol.is_done(scene):
            break
    scene.settle(2)
    assert protocol.is_done(scene), f"{protocol.name}, dead after write {writes}"
    return mortal.dead


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda protocol: protocol.name)
def test_a_controller_that_dies_between_two_writes_leaves_nothing_half_done(protocol: Protocol):
    """Whichever of its writes was the last, the next controller ends what was begun, and no request is left over."""
    for writes in range(1, WRITES_MAX):
        if not run(protocol, writes):
            assert writes > 2, "it takes more than one write"
            return
    raise AssertionError(f"more than {WRITES_MAX} writes: what takes so many?")


def test_a_removal_that_was_cut_short_is_waited_for_anew():
    """The next controller does not know how long the partition has been read-only, so it is for the whole time."""
    scene = ControllerScene(brokers=3, controllers=2)
    for controller in scene.controllers.values():
        controller.config = replace(controller.config, removal_wait_s=30.0)
    scene.start()
    scene.make_topic("t", {0: (1, 2), 1: (1, 2)})
    create(
        scene, (znodes.partitions_remove_path("t"), b""), (znodes.partitions_remove_path("t", 1), encode_removal())
    )
    scene.settle(20)
    scene.controllers[101].kill()
    scene.await_expiry()
    scene.settle(10)
    found = znode(scene)
    assert found is not None
    assert found.read_only == frozenset({1})
    scene.settle(20)
    assert is_removed_one(scene)


def is_removed_one(scene: ControllerScene) -> bool:
    found = znode(scene)
    return found is not None and list(found.partitions) == [0]


def test_a_move_by_rpc_that_was_cut_short_goes_on():
    """All that the next controller needs stands in the topic's znode."""
    scene = ControllerScene(brokers=4, controllers=2)
    scene.start()
    scene.make_topic("t", {0: (1, 2)})
    scene.ask(ReassignmentAsked({P0: (3, 4)}))
    scene.controllers[101].kill()
    scene.await_expiry()
    all_in_sync(scene)
    scene.settle(2)
    found = znode(scene)
    assert found is not None
    assert (found.partitions, found.removing) == ({0: (3, 4)}, {})
