"""Controller failures after each ZooKeeper write; the next controller must reach the same final state."""

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
from kreplica.controller.event_types import AlterReassignmentsRequested
from kreplica.model import TopicAssignment, TopicPartition
from kreplica.zookeeper import Create, NoNode
from tests.support.controller_scene import ControllerScene

P0 = TopicPartition("t", 0)


@dataclass(frozen=True)
class Protocol:
    """An operation for which the controller needs several writes.

    :param ask: starts the operation.
    :param help: performs the brokers' part; called repeatedly.
    :param is_done: returns True when the final state is reached.
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
    """Make the leader add all replicas of its partitions to the ISR."""
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


def cancel_after_the_first_move(scene: ControllerScene) -> None:
    """Cancel the plan after its first move."""
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
    Protocol("rollback", ask_with_throttle, cancel_after_the_first_move, is_rolled_back),
]

WRITES_MAX = 30


class Mortal:
    """Kills a controller once its n-th multi is committed, before the response arrives.

    :ivar dead: True if the controller was killed.
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
    """Run the operation with a controller failure after this number of writes; return False if it takes fewer."""
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
def test_a_failure_after_any_write_is_recovered(protocol: Protocol):
    """After a failure at any write, the next controller completes the operation and removes the requests."""
    for writes in range(1, WRITES_MAX):
        if not run(protocol, writes):
            assert writes > 2, "it takes more than one write"
            return
    raise AssertionError(f"more than {WRITES_MAX} writes: the operation does not end")


def test_a_failover_restarts_the_read_only_period():
    """The next controller does not know how long the partition has been read-only, so it waits the full time."""
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


def test_a_reassignment_by_rpc_survives_a_failover():
    """The topic's znode contains everything that the next controller needs."""
    scene = ControllerScene(brokers=4, controllers=2)
    scene.start()
    scene.make_topic("t", {0: (1, 2)})
    scene.ask(AlterReassignmentsRequested({P0: (3, 4)}))
    scene.controllers[101].kill()
    scene.await_expiry()
    all_in_sync(scene)
    scene.settle(2)
    found = znode(scene)
    assert found is not None
    assert (found.partitions, found.removing) == ({0: (3, 4)}, {})
