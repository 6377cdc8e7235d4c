"""Execution of plans, as seen by an administrator, the brokers and ZooKeeper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from kreplica.cluster import documents as znode_documents
from kreplica.cluster import znodes
from kreplica.cluster.plans import documents
from kreplica.cluster.plans.plan import Action, Plan, PlanKind, PlanState, Step, StepOutcome, StepState
from kreplica.cluster.plans.throttle import decode_throttle
from kreplica.controller.effects.state_writes import StateWrites
from kreplica.controller.event_types import AlterReassignmentsRequested
from kreplica.model import TopicAssignment, TopicPartition
from kreplica.zookeeper import Create, NoNode, SetData
from tests.support.controller_scene import ControllerScene

PLAN = "plan-0000000001"


def scene_with(partitions: dict[int, tuple[int, ...]], *, brokers: int = 6, controllers: int = 1) -> ControllerScene:
    scene = ControllerScene(brokers=brokers, controllers=controllers)
    scene.start()
    scene.make_topic("t", partitions)
    return scene


def step(partition: int, before: tuple[int, ...], after: tuple[int, ...], size: int = 100, topic: str = "t") -> Step:
    if not before or not after:
        return Step(Action.ADD if after else Action.REMOVE, topic, partition, before, after)
    if set(before) == set(after):
        return Step(Action.REORDER, topic, partition, before, after)
    return Step(Action.MOVE, topic, partition, before, after, size)


def make(scene: ControllerScene, steps: Sequence[Step], plan_id: str = PLAN, **header: Any) -> None:
    """Write a plan, as the admin API does, and let the controller read it."""
    plan = Plan(plan_id, PlanKind.REASSIGN, PlanState.PENDING, 0, len(steps), **header)
    *first, last = documents.creation(plan, steps)
    for batch in [*first, last]:
        scene.run(scene.zookeeper.multi([Create(path, data) for path, data in batch]))
    if first:
        path = znodes.plan_path(plan_id)
        scene.run(scene.zookeeper.multi([SetData(path, documents.encode_plan(plan), -1)]))
    scene.settle()


def header(scene: ControllerScene, plan_id: str = PLAN) -> Plan:
    data, _ = scene.run(scene.zookeeper.get_data(znodes.plan_path(plan_id)))
    return documents.decode_plan(plan_id, data)


def change(scene: ControllerScene, plan_id: str = PLAN, **changes: Any) -> None:
    """Change or cancel a plan, as the admin API does."""
    data, stat = scene.run(scene.zookeeper.get_data(znodes.plan_path(plan_id)))
    changed = replace(documents.decode_plan(plan_id, data), **changes)
    scene.run(scene.zookeeper.set_data(znodes.plan_path(plan_id), documents.encode_plan(changed), stat.version))
    scene.settle()


def outcomes(scene: ControllerScene, plan_id: str = PLAN) -> list[StepOutcome]:
    parent = znodes.plan_progress_path(plan_id)
    found: list[StepOutcome] = []
    for name in sorted(scene.run(scene.zookeeper.get_children(parent))):
        data, _ = scene.run(scene.zookeeper.get_data(f"{parent}/{name}"))
        found += documents.decode_outcomes(f"{parent}/{name}", data)
    return found


def letters(scene: ControllerScene, plan_id: str = PLAN) -> str:
    """Return the states of all steps by their first letters (``x`` for failed)."""
    known = ["x" if each.state is StepState.FAILED else each.state.value[0] for each in outcomes(scene, plan_id)]
    return "".join(known).ljust(header(scene, plan_id).steps_count, "w")


def znode(scene: ControllerScene, topic: str = "t") -> TopicAssignment:
    data, _ = scene.run(scene.zookeeper.get_data(znodes.topic_path(topic)))
    return znode_documents.decode_topic(topic, data)


def in_sync(scene: ControllerScene, *numbers: int, topic: str = "t") -> None:
    """Add all replicas of these partitions (of all partitions if none are given) to the ISRs."""
    scene.settle()
    live = set(scene.context.brokers)
    for number, replicas in znode(scene, topic).partitions.items():
        if not numbers or number in numbers:
            partition = TopicPartition(topic, number)
            state = scene.state(*partition)
            if state.leader > 0 and set(state.isr) != set(replicas):
                scene.run(scene.brokers[state.leader].write_isr(partition, tuple(r for r in replicas if r in live)))
    scene.settle()


def throttle(scene: ControllerScene) -> int | None:
    data, _ = scene.run(scene.zookeeper.get_data(znodes.PLAN_THROTTLE))
    return decode_throttle(data)


def is_there(scene: ControllerScene, path: str) -> bool:
    try:
        scene.run(scene.zookeeper.get_data(path))
    except NoNode:
        return False
    return True


# --- progress ---------------------------------------------------------------------------------------------------------


def test_a_plan_moves_replicas_and_ends():
    """The plan runs until all replicas are in sync, and its outcomes remain readable."""
    scene = scene_with({0: (1, 2), 1: (2, 3)})
    make(scene, [step(0, (1, 2), (4, 2)), step(1, (2, 3), (2, 5))])
    assert header(scene).state is PlanState.RUNNING
    assert letters(scene) == "mm"
    assert znode(scene).adding == {0: (4,), 1: (5,)}
    in_sync(scene)
    done = header(scene)
    assert (done.state, done.reason) == (PlanState.COMPLETED, None)
    assert done.ended_at_ms is not None
    assert letters(scene) == "ff"
    assert znode(scene).partitions == {0: (4, 2), 1: (2, 5)}
    path = znodes.plan_progress_path(PLAN)
    totals = documents.decode_progress(path, scene.run(scene.zookeeper.get_data(path))[0])
    assert (totals.finished, totals.bytes_done, totals.waiting, totals.moving) == (2, 200, 0, 0)
    assert totals.started_at_ms is not None


def test_a_plan_without_steps_ends_at_once():
    """An empty plan completes without an error."""
    scene = scene_with({0: (1,)})
    make(scene, [])
    assert header(scene).state is PlanState.COMPLETED


def test_the_limit_of_moves_for_each_broker():
    """The limit counts moves to a broker and from a leader; the next move starts when one has finished."""
    scene = scene_with(dict.fromkeys(range(4), (1, 2)) | dict.fromkeys(range(4, 8), (3, 2)))
    rows = znode(scene).partitions
    make(scene, [step(n, row, (row[0], 4)) for n, row in rows.items()], moves_at_once=2)
    assert letters(scene) == "mmwwwwww", "broker 4 copies two partitions"
    in_sync(scene, 0)
    assert letters(scene) == "fmmwwwww"
    in_sync(scene)
    in_sync(scene)
    in_sync(scene)
    assert header(scene).state is PlanState.RUNNING
    in_sync(scene)
    assert header(scene).state is PlanState.COMPLETED


def test_the_limit_of_moves_from_one_leader():
    """The limit applies even if each move is to a different broker."""
    scene = scene_with(dict.fromkeys(range(4), (1, 2)))
    make(scene, [step(n, (1, 2), (1, 3 + n)) for n in range(4)], moves_at_once=2)
    assert letters(scene) == "mmww"


def test_the_limits_count_moves_of_all_plans():
    """The moves of all plans count toward the limit of each plan."""
    scene = scene_with({n: (1 + n % 3, 4) for n in range(6)})
    make(scene, [step(n, (1 + n % 3, 4), (1 + n % 3, 5)) for n in range(3)], moves_at_once=2)
    make(scene, [step(n, (1 + n % 3, 4), (1 + n % 3, 5)) for n in range(3, 6)], "plan-0000000002", moves_at_once=3)
    assert (letters(scene), letters(scene, "plan-0000000002")) == ("mmw", "mww")
    for _ in range(4):
        in_sync(scene)
    assert header(scene).state is PlanState.COMPLETED
    assert header(scene, "plan-0000000002").state is PlanState.COMPLETED


def test_changes_of_the_replica_order_finish_at_once():
    """Changing only the order copies nothing and is not limited; the first replica becomes the leader."""
    scene = scene_with(dict.fromkeys(range(4), (1, 2)))
    make(scene, [step(n, (1, 2), (2, 1)) for n in range(4)], moves_at_once=1)
    assert header(scene).state is PlanState.COMPLETED
    assert [scene.state("t", n).leader for n in range(4)] == [2, 2, 2, 2]
    assert znode(scene).partitions == dict.fromkeys(range(4), (2, 1))


def test_a_move_elects_its_new_preferred_replica():
    """The preferred replica is elected even if the old leader remains a replica."""
    scene = scene_with({0: (1, 2)})
    make(scene, [step(0, (1, 2), (4, 1))])
    in_sync(scene)
    assert scene.state("t", 0).leader == 4
    assert header(scene).state is PlanState.COMPLETED


def test_partitions_are_added():
    """Partitions are added by request znodes, and the plan ends when they have leaders."""
    scene = scene_with({0: (1, 2)})
    make(scene, [step(1, (), (2, 3)), step(2, (), (3, 1))])
    assert header(scene).state is PlanState.COMPLETED
    assert znode(scene).partitions == {0: (1, 2), 1: (2, 3), 2: (3, 1)}
    assert scene.state("t", 2).leader == 3


def test_an_impossible_addition_fails():
    """The step fails with the reason, for example a dead broker."""
    scene = scene_with({0: (1, 2)})
    make(scene, [step(1, (), (2, 9))])
    assert letters(scene) == "x"
    assert header(scene).state is PlanState.FAILED
    assert "its request was rejected: brokers are not live: [9]" in str(header(scene).reason)


def test_a_withdrawn_removal_fails():
    """The partition accepts records again, and the step fails with the reason."""
    scene = scene_with({0: (1,), 1: (2,)})
    make(scene, [step(1, (2,), ())], wait_ms=60_000)
    scene.run(scene.zookeeper.delete(znodes.partitions_remove_path("t", 1)))
    scene.settle(3)
    assert header(scene).reason == "1 of 1 steps failed: t-1: its request was withdrawn"
    assert znode(scene).read_only == frozenset()


def test_partitions_are_removed():
    """Partitions are read-only for the plan's wait time before they are removed."""
    scene = scene_with({0: (1,), 1: (2,), 2: (3,)})
    make(scene, [step(2, (3,), ()), step(1, (2,), ())], wait_ms=10_000)
    assert letters(scene) == "mm"
    assert znode(scene).read_only == {1, 2}
    scene.settle(15)
    assert header(scene).state is PlanState.COMPLETED
    assert list(znode(scene).partitions) == [0]


def test_a_plan_starts_when_all_steps_are_written():
    """No step starts while the plan is being written; an abandoned plan fails after a timeout."""
    scene = scene_with({0: (1, 2)})
    now_ms = scene.simulation.host("operator").runtime.wall_clock_ms()
    plan = Plan(PLAN, PlanKind.REASSIGN, PlanState.PREPARING, now_ms, 1)
    batch = next(iter(documents.creation(plan, [step(0, (1, 2), (3, 2))])))
    scene.run(scene.zookeeper.multi([Create(path, data) for path, data in batch]))
    scene.settle(60)
    assert znode(scene).adding == {}
    scene.settle(600)
    assert header(scene).state is PlanState.FAILED
    assert "not completely written" in str(header(scene).reason)


def test_a_plan_without_its_steps_fails():
    """No step of an incomplete plan starts."""
    scene = scene_with({0: (1, 2)})
    plan = Plan(PLAN, PlanKind.REASSIGN, PlanState.PENDING, 0, 2)
    (batch,) = documents.creation(plan, [step(0, (1, 2), (3, 2))])
    scene.run(scene.zookeeper.multi([Create(path, data) for path, data in batch]))
    scene.settle()
    assert header(scene).state is PlanState.FAILED
    assert "found 1 steps, but the header has 2" in str(header(scene).reason)
    assert znode(scene).adding == {}


def test_the_limit_can_be_changed_while_a_plan_runs():
    """A lower limit does not reverse ongoing moves, but delays the next ones."""
    scene = scene_with(dict.fromkeys(range(4), (1, 2)))
    make(scene, [step(n, (1, 2), (1, 3)) for n in range(4)], moves_at_once=1)
    assert letters(scene) == "mwww"
    change(scene, moves_at_once=3)
    assert letters(scene) == "mmmw"
    change(scene, moves_at_once=1)
    in_sync(scene, 0)
    assert letters(scene) == "fmmw"


# --- interruptions ----------------------------------------------------------------------------------------------------


def test_a_move_waits_for_a_broker_that_is_down():
    """The move starts when the broker is back."""
    scene = scene_with({0: (1, 2), 1: (1, 2)})
    scene.brokers[5].kill()
    scene.await_expiry()
    make(scene, [step(0, (1, 2), (1, 5)), step(1, (1, 2), (1, 4))])
    assert letters(scene) == "wm"
    scene.run(scene.brokers[5].start())
    scene.settle()
    assert letters(scene) == "mm"


def test_a_move_waits_for_a_leader():
    """A partition without a leader cannot be copied."""
    scene = scene_with({0: (1,)})
    scene.brokers[1].kill()
    scene.await_expiry()
    make(scene, [step(0, (1,), (3,))])
    assert letters(scene) == "w"
    assert znode(scene).adding == {}
    scene.run(scene.brokers[1].start())
    scene.settle()
    assert letters(scene) == "m"


def test_another_reassignment_overtakes_a_step():
    """The step fails with the reason, and the plan continues with the others."""
    scene = scene_with({0: (1, 2), 1: (1, 2)})
    make(scene, [step(0, (1, 2), (3, 2)), step(1, (1, 2), (3, 2))])
    scene.ask(AlterReassignmentsRequested({TopicPartition("t", 0): (5, 2)}))
    scene.settle()
    assert letters(scene) == "xm"
    in_sync(scene)
    ended = header(scene)
    assert ended.state is PlanState.FAILED
    assert ended.reason == "1 of 2 steps failed: t-0: another reassignment is moving it to [5, 2]"
    assert znode(scene).partitions == {0: (5, 2), 1: (3, 2)}


def test_a_move_cancelled_by_rpc_fails():
    """The partition keeps its replicas, and the plan does not start the move again."""
    scene = scene_with({0: (1, 2)})
    make(scene, [step(0, (1, 2), (3, 2))])
    scene.ask(AlterReassignmentsRequested({TopicPartition("t", 0): None}))
    scene.settle(3)
    assert letters(scene) == "x"
    assert set(znode(scene).partitions[0]) == {1, 2}


def test_a_partition_moved_before_its_step_is_skipped():
    """The step fails, because the plan was computed for the earlier placement."""
    scene = scene_with({0: (1, 2), 1: (1, 2)})
    make(scene, [step(0, (1, 2), (1, 3)), step(1, (1, 2), (1, 3))], moves_at_once=1)
    scene.ask(AlterReassignmentsRequested({TopicPartition("t", 1): (2, 1)}))
    in_sync(scene, 0)
    assert letters(scene) == "fx"
    assert "another reassignment moved it to [2, 1]" in str(header(scene).reason)


def test_steps_of_a_deleted_topic_fail():
    """The topic's steps in progress and its waiting steps fail; other steps continue."""
    scene = scene_with({0: (1, 2), 1: (1, 2)})
    scene.make_topic("other", {0: (2, 3)})
    steps = [step(0, (1, 2), (1, 4)), step(1, (1, 2), (1, 4)), step(0, (2, 3), (2, 5), topic="other")]
    make(scene, steps, moves_at_once=1)
    assert letters(scene) == "mwm"
    scene.run(scene.zookeeper.create(znodes.delete_topic_path("t")))
    scene.settle(5)
    assert letters(scene) == "xxm"
    in_sync(scene, topic="other")
    assert header(scene).state is PlanState.FAILED
    assert "2 of 3 steps failed: the first, t-0: its topic was deleted" in str(header(scene).reason)


def test_a_removed_plan_stops():
    """Ongoing moves finish, no further step starts, and the throttle ends."""
    scene = scene_with({0: (1, 2), 1: (1, 2)})
    make(scene, [step(0, (1, 2), (1, 3)), step(1, (1, 2), (1, 3))], moves_at_once=1, throttle_bytes_per_second=5)
    for path in (
        znodes.plan_steps_path(PLAN, 0),
        znodes.plan_steps_path(PLAN),
        znodes.plan_progress_path(PLAN, 0),
        znodes.plan_progress_path(PLAN),
        znodes.plan_path(PLAN),
    ):
        scene.run(scene.zookeeper.delete(path))
    scene.settle()
    in_sync(scene)
    assert znode(scene).partitions == {0: (1, 3), 1: (1, 2)}
    assert throttle(scene) is None


def test_a_plan_that_is_patched_while_it_ends(monkeypatch):
    """Writing the end fails because of the version; the controller reads the header again, and the plan ends."""
    scene = scene_with({0: (1, 2)})
    make(scene, [step(0, (1, 2), (3, 2))])
    rewrite, patched = StateWrites.rewrite_request, []

    async def late(writes, path, data, version):
        if path == znodes.plan_path(PLAN) and not patched:
            patched.append(version)
            changed = replace(documents.decode_plan(PLAN, data), state=PlanState.RUNNING, comment="patched")
            await scene.zookeeper.set_data(path, documents.encode_plan(changed), version)
        return await rewrite(writes, path, data, version)

    monkeypatch.setattr(StateWrites, "rewrite_request", late)
    in_sync(scene)
    assert patched
    assert (header(scene).state, header(scene).comment) == (PlanState.COMPLETED, "patched")


# --- cancellation -----------------------------------------------------------------------------------------------------


def test_cancelling_reverses_ongoing_moves():
    """Finished moves are kept, and waiting steps do not start."""
    scene = scene_with(dict.fromkeys(range(3), (1, 2)))
    make(scene, [step(n, (1, 2), (3, 2)) for n in range(3)], moves_at_once=1)
    in_sync(scene, 0)
    assert letters(scene) == "fmw"
    change(scene, state=PlanState.CANCELLING)
    ended = header(scene)
    assert (ended.state, ended.reason) == (PlanState.CANCELLED, None)
    assert letters(scene) == "fcc"
    assert znode(scene).partitions == {0: (3, 2), 1: (1, 2), 2: (1, 2)}


def test_a_rollback_reverses_finished_moves():
    """Finished moves are reversed, newest first and within the limits; leaders move back too."""
    scene = scene_with(dict.fromkeys(range(4), (1, 2)))
    make(scene, [step(n, (1, 2), (3, 2)) for n in range(4)], moves_at_once=1, throttle_bytes_per_second=7)
    in_sync(scene)
    in_sync(scene)
    assert letters(scene) == "ffmw"
    change(scene, state=PlanState.CANCELLING, rollback=True)
    assert letters(scene) == "fmcc"
    assert throttle(scene) == 7
    in_sync(scene)
    assert letters(scene) == "mccc"
    in_sync(scene)
    assert header(scene).state is PlanState.CANCELLED
    assert letters(scene) == "cccc"
    assert znode(scene).partitions == dict.fromkeys(range(4), (1, 2))
    assert [scene.state("t", n).leader for n in range(4)] == [1, 1, 1, 1]
    assert throttle(scene) is None


def test_a_rollback_restores_the_replica_order():
    """The former preferred leaders lead again."""
    scene = scene_with({0: (1, 2), 1: (1, 2)})
    make(scene, [step(0, (1, 2), (2, 1)), step(1, (1, 2), (1, 3))])
    assert letters(scene) == "fm"
    change(scene, state=PlanState.CANCELLING, rollback=True)
    assert header(scene).state is PlanState.CANCELLED
    assert znode(scene).partitions == {0: (1, 2), 1: (1, 2)}
    assert scene.state("t", 0).leader == 1


def test_a_rollback_skips_partitions_moved_since():
    """The step reports the other reassignment."""
    scene = scene_with({0: (1, 2), 1: (1, 2)})
    make(scene, [step(0, (1, 2), (3, 2)), step(1, (1, 2), (4, 2))])
    in_sync(scene, 0)
    scene.ask(AlterReassignmentsRequested({TopicPartition("t", 0): (5, 2)}))
    change(scene, state=PlanState.CANCELLING, rollback=True)
    assert letters(scene) == "xc"
    assert "another reassignment is moving it to [5, 2]" in str(header(scene).reason)


def test_cancelling_withdraws_pending_removals():
    """A read-only partition accepts records again; a removed partition stays removed."""
    scene = scene_with({0: (1,), 1: (2,)})
    make(scene, [step(1, (2,), ())], wait_ms=60_000)
    assert znode(scene).read_only == {1}
    change(scene, state=PlanState.CANCELLING)
    scene.settle(3)
    assert header(scene).state is PlanState.CANCELLED
    assert letters(scene) == "c"
    assert znode(scene).read_only == frozenset()
    assert not is_there(scene, znodes.partitions_remove_path("t", 1))


def test_an_incomplete_plan_can_be_cancelled():
    """A plan whose creator failed while writing the steps can be cancelled."""
    scene = scene_with({0: (1, 2)})
    plan = Plan(PLAN, PlanKind.REASSIGN, PlanState.CANCELLING, 0, 9)
    (batch,) = documents.creation(plan, [step(0, (1, 2), (3, 2))])
    scene.run(scene.zookeeper.multi([Create(path, data) for path, data in batch]))
    scene.settle()
    assert header(scene).state is PlanState.CANCELLED


# --- throttle ---------------------------------------------------------------------------------------------------------


def test_the_lowest_throttle_of_all_plans_applies():
    """The throttle can be changed or removed while its plan runs, and ends with it."""
    scene = scene_with({0: (1, 2), 1: (1, 2)})
    make(scene, [step(0, (1, 2), (1, 3))], throttle_bytes_per_second=500)
    make(scene, [step(1, (1, 2), (1, 4))], "plan-0000000002", throttle_bytes_per_second=100)
    assert throttle(scene) == 100
    change(scene, throttle_bytes_per_second=50)
    assert throttle(scene) == 50
    in_sync(scene, 0)
    assert throttle(scene) == 100
    change(scene, "plan-0000000002", throttle_bytes_per_second=None)
    assert throttle(scene) is None


def test_a_takeover_removes_an_unused_throttle():
    """A throttle that was left by a controller that failed at the end of a plan is removed."""
    scene = scene_with({0: (1, 2)}, controllers=2)
    scene.run(scene.zookeeper.set_data(znodes.PLAN_THROTTLE, b'{"version":1,"bytes_per_second":9}'))
    scene.controllers[101].kill()
    scene.await_expiry()
    assert throttle(scene) is None


# --- force ------------------------------------------------------------------------------------------------------------


def test_a_forced_plan_elects_an_unclean_leader():
    """An old replica outside the ISR becomes leader, and the step reports the possible loss."""
    scene = scene_with({0: (1, 2)})
    scene.run(scene.brokers[1].write_isr(TopicPartition("t", 0), (1,)))
    scene.settle()
    scene.brokers[1].kill()
    scene.await_expiry()
    assert scene.state("t", 0).leader == -1
    make(scene, [step(0, (1, 2), (3, 2))], force=True)
    assert scene.state("t", 0).leader == 2
    in_sync(scene)
    ended = header(scene)
    assert ended.state is PlanState.COMPLETED
    assert "broker 2 was elected" in str(ended.reason)
    assert znode(scene).partitions == {0: (3, 2)}


def test_a_forced_plan_recreates_a_lost_partition():
    """If no old replica is live, a new one becomes leader with an empty log."""
    scene = scene_with({0: (1,)})
    scene.brokers[1].kill()
    scene.await_expiry()
    make(scene, [step(0, (1,), (3,))], force=True)
    in_sync(scene)
    assert scene.state("t", 0).leader == 3
    assert header(scene).state is PlanState.COMPLETED
    assert "records may be lost" in str(header(scene).reason)


# --- failover ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cancelled", [False, True])
def test_the_next_controller_continues_a_plan(cancelled):
    """Finished, ongoing and waiting steps survive a failover."""
    scene = scene_with(dict.fromkeys(range(4), (1, 2)), controllers=2)
    make(scene, [step(n, (1, 2), (3, 2)) for n in range(4)], moves_at_once=1, throttle_bytes_per_second=7)
    in_sync(scene)
    assert letters(scene) == "fmww"
    scene.controllers[101].kill()
    if cancelled:
        change(scene, state=PlanState.CANCELLING, rollback=True)
    scene.await_expiry()
    for _ in range(5):
        in_sync(scene)
    done = header(scene)
    assert done.state is (PlanState.CANCELLED if cancelled else PlanState.COMPLETED)
    assert znode(scene).partitions == dict.fromkeys(range(4), (1, 2) if cancelled else (3, 2))
    assert throttle(scene) is None


def test_old_plans_are_removed(monkeypatch):
    """Only a limited number of ended plans is kept."""
    monkeypatch.setattr("kreplica.controller.plans.execution.ENDED_KEPT", 2)
    scene = scene_with({0: (1, 2)})
    for number in range(1, 5):
        make(scene, [], documents.plan_id(number))
    assert sorted(scene.run(scene.zookeeper.get_children(znodes.PLANS))) == ["plan-0000000003", "plan-0000000004"]
