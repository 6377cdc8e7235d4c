"""When the journal is rotated, snapshots neither block the reactor nor mix two states."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest

from kreplica.cluster import znodes
from kreplica.cluster.plans import documents
from kreplica.cluster.plans.plan import Action, Plan, PlanKind, PlanState, Step
from kreplica.controller.event_types import AlterReassignmentsRequested, ListReassignmentsRequested
from kreplica.controller.journal import context_json, files, journaled_controller, rotation
from kreplica.controller.journal.context_json import copy_context
from kreplica.controller.journal.file_header import state_of
from kreplica.controller.journal.files import JournalSettings
from kreplica.controller.state.context import ControllerContext
from kreplica.controller.state.states import PartitionState, ReplicaState
from kreplica.model import LeaderAndIsr, TopicPartition
from kreplica.testing.cluster.cluster import SimulatedCluster
from kreplica.testing.replay.reading import read_journals
from kreplica.testing.replay.replay import Outcome, replay_all
from kreplica.zookeeper import Create
from tests.support.controller_scene import ControllerScene

DIRECTORY = "/data/journal"
CONTROLLER = 101


class OneStep:
    """A ``TimeSlice`` that is over after one step."""

    def __init__(self, _: object) -> None:
        self._asked = 0

    @property
    def is_over(self) -> bool:
        self._asked += 1
        return self._asked > 1


class Snapshots:
    """Replaces ``state_of``: records the snapshots and can run code between their steps.

    :ivar steps: number of steps of each snapshot.
    :ivar finished: numbers of the completed snapshots.
    """

    def __init__(self) -> None:
        self.steps: list[int] = []
        self.finished: list[int] = []
        self.after_a_step = lambda snapshots: None

    def state_of(self, *what: object) -> Iterator[None]:
        number = len(self.steps)
        self.steps.append(0)
        steps = state_of(*what)
        while True:
            try:
                next(steps)
            except StopIteration as received:
                self.finished.append(number)
                return received.value
            self.steps[number] += 1
            self.after_a_step(number)
            yield


@pytest.fixture
def snapshots(monkeypatch) -> Snapshots:
    found = Snapshots()
    monkeypatch.setattr(rotation, "state_of", found.state_of)
    monkeypatch.setattr(rotation, "TimeSlice", OneStep)
    monkeypatch.setattr(files, "FILE_COUNT", 2**20)
    return found


@pytest.fixture
def scene() -> ControllerScene:
    scene = ControllerScene(brokers=4)
    scene.controllers[CONTROLLER].journal = JournalSettings(DIRECTORY, CONTROLLER, 2**24)
    return scene


def replayed(scene: ControllerScene) -> list[Outcome]:
    outcomes = list(replay_all(read_journals(scene.controllers[CONTROLLER].host.disk, DIRECTORY)))
    assert [outcome.difference for outcome in outcomes] == [None] * len(outcomes)
    return outcomes


def large_context(partitions: int) -> ControllerContext:
    context = ControllerContext(1, 1)
    for number in range(partitions):
        partition = TopicPartition("orders", number)
        context.leadership[partition] = LeaderAndIsr(1, 0, (1, 2, 3), 1, 0)
        context.initial_replicas[partition] = frozenset((1, 2, 3))
        context.set_initial_states(partition, PartitionState.ONLINE, dict.fromkeys((1, 2, 3), ReplicaState.ONLINE))
    context.failed_replicas[1] = set(context.leadership)
    return context


def test_no_step_is_long(monkeypatch):
    """The number of items that are copied between two checks of the clock is bounded."""
    monkeypatch.setattr(context_json, "STEP", 10)
    sizes: list[int] = []

    def sliced(rest: Iterator[object], count: int) -> list[object]:
        sizes.append(count)
        return list(islice(rest, count))

    context = large_context(1000)
    monkeypatch.setattr(context_json, "islice", sliced)
    steps = sum(1 for _ in copy_context(context))
    assert len(sizes) == steps
    assert set(sizes) == {10}
    assert steps == (3 * 1000 + 3 * 1000 + 1000) // 10 + 2


def test_later_changes_do_not_affect_a_copy():
    """The mutable values of a context are copied too."""
    context = large_context(1)
    (partition,) = context.leadership
    copied = copy_of(context)
    context.set_replica_state(partition, 2, ReplicaState.OFFLINE)
    context.failed_replicas[1].clear()
    assert copied.replica_state(partition, 2) is ReplicaState.ONLINE
    assert copied.failed_replicas == {1: {partition}}


def copy_of(context: ControllerContext) -> ControllerContext:
    steps = copy_context(context)
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return stop.value


def test_a_snapshot_over_many_reactor_iterations(scene, snapshots):
    """A new file is started when the controller is idle, and continues from the end of the last file."""
    scene.start()
    for number in range(5):
        scene.make_topic(f"orders-{number}", {0: (1, 2, 3)})
        scene.settle(2)
    assert len(replayed(scene)) == len(snapshots.finished) + 1
    assert len(snapshots.finished) > 2
    assert min(snapshots.steps) > 5


def test_a_change_during_a_snapshot(scene, snapshots):
    """An interrupted snapshot is discarded and retried later."""
    scene.start()
    scene.make_topic("orders", {0: (1, 2, 3)})
    scene.settle(2)
    term, finished, disturbed = scene.controllers[CONTROLLER], len(snapshots.finished), len(snapshots.steps)

    def ask() -> None:
        term.controller.submit(AlterReassignmentsRequested({TopicPartition("orders", 0): (2, 3, 4)}))

    def after_a_step(number: int) -> None:
        if number == disturbed and snapshots.steps[number] == 5:
            term.host.reactor.callLater(0, ask)

    snapshots.after_a_step = after_a_step
    scene.make_topic("invoices", {0: (1, 2, 3)})
    scene.settle(5)
    assert disturbed not in snapshots.finished
    assert snapshots.steps[disturbed] < 10
    assert len(snapshots.finished) > finished
    assert len(replayed(scene)) == len(snapshots.finished) + 1


def test_a_stop_during_a_snapshot(monkeypatch, snapshots):
    """A stop cancels the timer of a postponed snapshot."""
    made: list[rotation.JournalRotator] = []

    def make(*what: Any) -> rotation.JournalRotator:
        made.append(rotation.JournalRotator(*what))
        return made[-1]

    monkeypatch.setattr(journaled_controller, "JournalRotator", make)
    cluster = SimulatedCluster(1, overrides=["kreplica.controller.journal.max.bytes=1048576"])
    cluster.start()
    program, reactor = cluster.brokers[1].program, cluster.brokers[1].host.reactor
    (rotator,) = made

    def disturb(_: int) -> None:
        reactor.callLater(0, lambda: program.controller.submit(ListReassignmentsRequested(None)))

    snapshots.after_a_step = disturb
    cluster.run_until(cluster.client().create_topic("orders", 1, {}, replication_factor=1))
    cluster.run(2)
    assert len(snapshots.steps) > len(snapshots.finished)
    assert rotator._timer is not None
    cluster.run_until(cluster.brokers[1].stop())
    assert rotator._timer is None


def test_a_plan_across_several_files(scene, snapshots):
    """Each file contains the plan's progress, so it can be replayed alone."""
    scene.start()
    scene.make_topic("orders", dict.fromkeys(range(3), (1, 2)))
    steps = [Step(Action.MOVE, "orders", number, (1, 2), (3, 2), 9) for number in range(3)]
    header = Plan(documents.plan_id(1), PlanKind.REASSIGN, PlanState.PENDING, 0, 3, moves_at_once=1)
    (batch,) = documents.creation(header, steps)
    scene.run(scene.zookeeper.multi([Create(path, data) for path, data in batch]))
    for number in range(3):
        scene.settle(2)
        partition = TopicPartition("orders", number)
        scene.run(scene.brokers[1].write_isr(partition, (3, 2, 1)))
    scene.settle(2)
    data, _ = scene.run(scene.zookeeper.get_data(znodes.plan_path(documents.plan_id(1))))
    assert documents.decode_plan(documents.plan_id(1), data).state is PlanState.COMPLETED
    assert len(snapshots.finished) > 4
    replayed(scene)
