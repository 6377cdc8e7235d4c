"""Plans as the controller carries them out: what an administrator, the brokers and ZooKeeper see."""

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
from kreplica.controller.event_types import ReassignmentAsked
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
    """Write a plan as the admin API does, and let the controller take it up."""
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
    """Patch or cancel a plan as the admin API does."""
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
    """The states of all steps, by their first letters (``x`` of those that failed)."""
    known = ["x" if each.state is StepState.FAILED else each.state.value[0] for each in outcomes(scene, plan_id)]
    return "".join(known).ljust(header(scene, plan_id).steps_count, "w")


def znode(scene: ControllerScene, topic: str = "t") -> TopicAssignment:
    data, _ = scene.run(scene.zookeeper.get_data(znodes.topic_path(topic)))
    return znode_documents.decode_topic(topic, data)


def in_sync(scene: ControllerScene, *numbers: int, topic: str = "t") -> None:
    """All replicas of these partitions (none named: of all) come into the in-sync sets."""
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


# --- going on ---------------------------------------------------------------------------------------------------------


def test_a_plan_moves_replicas_and_ends():
    """It runs while they move, and has completed when they are in sync; what it did stays to be seen."""
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
    """Nothing to do is no error."""
    scene = scene_with({0: (1,)})
    make(scene, [])
    assert header(scene).state is PlanState.COMPLETED


def test_a_broker_takes_part_in_so_many_moves_at_a_time():
    """As the one that copies, and as the leader from whom others copy; the next begins when one has arrived."""
    scene = scene_with(dict.fromkeys(range(4), (1, 2)) | dict.fromkeys(range(4, 8), (3, 2)))
    rows = znode(scene).partitions
    make(scene, [step(n, row, (row[0], 4)) for n, row in rows.items()], moves_at_once=2)
    assert letters(scene) == "mmwwwwww", "broker 4 copies two"
    in_sync(scene, 0)
    assert letters(scene) == "fmmwwwww"
    in_sync(scene)
    in_sync(scene)
    in_sync(scene)
    assert header(scene).state is PlanState.RUNNING
    in_sync(scene)
    assert header(scene).state is PlanState.COMPLETED


def test_a_leader_serves_so_many_moves_at_a_time():
    """Also where each goes to another broker."""
    scene = scene_with(dict.fromkeys(range(4), (1, 2)))
    make(scene, [step(n, (1, 2), (1, 3 + n)) for n in range(4)], moves_at_once=2)
    assert letters(scene) == "mmww"


def test_several_plans_keep_the_bounds_together():
    """A broker's moves are counted over all plans; each is held to what it allows."""
    scene = scene_with({n: (1 + n % 3, 4) for n in range(6)})
    make(scene, [step(n, (1 + n % 3, 4), (1 + n % 3, 5)) for n in range(3)], moves_at_once=2)
    make(scene, [step(n, (1 + n % 3, 4), (1 + n % 3, 5)) for n in range(3, 6)], "plan-0000000002", moves_at_once=3)
    assert (letters(scene), letters(scene, "plan-0000000002")) == ("mmw", "mww")
    for _ in range(4):
        in_sync(scene)
    assert header(scene).state is PlanState.COMPLETED
    assert header(scene, "plan-0000000002").state is PlanState.COMPLETED


def test_orders_change_at_once_and_leaders_with_them():
    """Nothing is copied, so nothing is counted; who stands first leads."""
    scene = scene_with(dict.fromkeys(range(4), (1, 2)))
    make(scene, [step(n, (1, 2), (2, 1)) for n in range(4)], moves_at_once=1)
    assert header(scene).state is PlanState.COMPLETED
    assert [scene.state("t", n).leader for n in range(4)] == [2, 2, 2, 2]
    assert znode(scene).partitions == dict.fromkeys(range(4), (2, 1))


def test_the_preferred_replica_leads_when_a_move_has_put_it_first():
    """Also where the leader before stays a replica and could go on leading."""
    scene = scene_with({0: (1, 2)})
    make(scene, [step(0, (1, 2), (4, 1))])
    in_sync(scene)
    assert scene.state("t", 0).leader == 4
    assert header(scene).state is PlanState.COMPLETED


def test_partitions_are_added():
    """By requests as anybody makes them; the plan ends when they have leaders."""
    scene = scene_with({0: (1, 2)})
    make(scene, [step(1, (), (2, 3)), step(2, (), (3, 1))])
    assert header(scene).state is PlanState.COMPLETED
    assert znode(scene).partitions == {0: (1, 2), 1: (2, 3), 2: (3, 1)}
    assert scene.state("t", 2).leader == 3


def test_a_partition_that_cannot_be_added_has_failed():
    """The broker named for it may have died meanwhile: the plan says so."""
    scene = scene_with({0: (1, 2)})
    make(scene, [step(1, (), (2, 9))])
    assert letters(scene) == "x"
    assert header(scene).state is PlanState.FAILED
    assert "the request for it was refused: brokers do not live: [9]" in str(header(scene).reason)


def test_a_removal_that_somebody_withdraws_has_failed():
    """Its request is gone before the partition was: it takes records again, and the plan says so."""
    scene = scene_with({0: (1,), 1: (2,)})
    make(scene, [step(1, (2,), ())], wait_ms=60_000)
    scene.run(scene.zookeeper.delete(znodes.partitions_remove_path("t", 1)))
    scene.settle(3)
    assert header(scene).reason == "1 of 1 steps failed: t-1: the request for it was withdrawn"
    assert znode(scene).read_only == frozenset()


def test_partitions_are_removed():
    """They are read-only for as long as the plan says, and then gone."""
    scene = scene_with({0: (1,), 1: (2,), 2: (3,)})
    make(scene, [step(2, (3,), ()), step(1, (2,), ())], wait_ms=10_000)
    assert letters(scene) == "mm"
    assert znode(scene).read_only == {1, 2}
    scene.settle(15)
    assert header(scene).state is PlanState.COMPLETED
    assert list(znode(scene).partitions) == [0]


def test_a_large_plan_is_begun_when_its_last_step_is_there():
    """While it is being written, nothing is begun; a header whose maker died fails after a while."""
    scene = scene_with({0: (1, 2)})
    now_ms = scene.simulation.host("operator").runtime.wall_clock_ms()
    plan = Plan(PLAN, PlanKind.REASSIGN, PlanState.PREPARING, now_ms, 1)
    batch = next(iter(documents.creation(plan, [step(0, (1, 2), (3, 2))])))
    scene.run(scene.zookeeper.multi([Create(path, data) for path, data in batch]))
    scene.settle(60)
    assert znode(scene).adding == {}
    scene.settle(600)
    assert header(scene).state is PlanState.FAILED
    assert "never all written" in str(header(scene).reason)


def test_a_plan_whose_steps_are_missing_fails():
    """Nothing is begun of what is only half there."""
    scene = scene_with({0: (1, 2)})
    plan = Plan(PLAN, PlanKind.REASSIGN, PlanState.PENDING, 0, 2)
    (batch,) = documents.creation(plan, [step(0, (1, 2), (3, 2))])
    scene.run(scene.zookeeper.multi([Create(path, data) for path, data in batch]))
    scene.settle()
    assert header(scene).state is PlanState.FAILED
    assert "1 steps are there, and the header says 2" in str(header(scene).reason)
    assert znode(scene).adding == {}


def test_more_at_once_may_be_allowed_while_it_runs():
    """Fewer too: nothing is taken back, but nothing more begins."""
    scene = scene_with(dict.fromkeys(range(4), (1, 2)))
    make(scene, [step(n, (1, 2), (1, 3)) for n in range(4)], moves_at_once=1)
    assert letters(scene) == "mwww"
    change(scene, moves_at_once=3)
    assert letters(scene) == "mmmw"
    change(scene, moves_at_once=1)
    in_sync(scene, 0)
    assert letters(scene) == "fmmw"


# --- what comes between -----------------------------------------------------------------------------------------------


def test_a_move_waits_for_a_broker_that_is_down():
    """It begins when the broker is back."""
    scene = scene_with({0: (1, 2), 1: (1, 2)})
    scene.brokers[5].kill()
    scene.await_expiry()
    make(scene, [step(0, (1, 2), (1, 5)), step(1, (1, 2), (1, 4))])
    assert letters(scene) == "wm"
    scene.run(scene.brokers[5].start())
    scene.settle()
    assert letters(scene) == "mm"


def test_a_move_waits_for_a_leader():
    """Nothing can be copied from a partition that nobody leads."""
    scene = scene_with({0: (1,)})
    scene.brokers[1].kill()
    scene.await_expiry()
    make(scene, [step(0, (1,), (3,))])
    assert letters(scene) == "w"
    assert znode(scene).adding == {}
    scene.run(scene.brokers[1].start())
    scene.settle()
    assert letters(scene) == "m"


def test_a_reassignment_of_somebody_else_overtakes_a_step():
    """Whoever moves the partition elsewhere has it; the plan says so and goes on with the others."""
    scene = scene_with({0: (1, 2), 1: (1, 2)})
    make(scene, [step(0, (1, 2), (3, 2)), step(1, (1, 2), (3, 2))])
    scene.ask(ReassignmentAsked({TopicPartition("t", 0): (5, 2)}))
    scene.settle()
    assert letters(scene) == "xm"
    in_sync(scene)
    ended = header(scene)
    assert ended.state is PlanState.FAILED
    assert ended.reason == "1 of 2 steps failed: t-0: another reassignment moves it to [5, 2]"
    assert znode(scene).partitions == {0: (5, 2), 1: (3, 2)}


def test_a_move_that_somebody_cancels_by_itself_has_failed():
    """The partition stays where it was; the plan does not begin again what an administrator took back."""
    scene = scene_with({0: (1, 2)})
    make(scene, [step(0, (1, 2), (3, 2))])
    scene.ask(ReassignmentAsked({TopicPartition("t", 0): None}))
    scene.settle(3)
    assert letters(scene) == "x"
    assert set(znode(scene).partitions[0]) == {1, 2}


def test_a_partition_that_was_moved_before_its_turn_is_left_alone():
    """The plan was made for where it was then."""
    scene = scene_with({0: (1, 2), 1: (1, 2)})
    make(scene, [step(0, (1, 2), (1, 3)), step(1, (1, 2), (1, 3))], moves_at_once=1)
    scene.ask(ReassignmentAsked({TopicPartition("t", 1): (2, 1)}))
    in_sync(scene, 0)
    assert letters(scene) == "fx"
    assert "has left it on [2, 1]" in str(header(scene).reason)


def test_a_topic_that_is_deleted_takes_its_steps_with_it():
    """Those that move and those that wait fail, the others go on."""
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


def test_a_plan_that_is_removed_by_hand_is_carried_no_further():
    """What moves arrives as any reassignment does; nothing more is begun, and the throttle ends."""
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
    """The controller finds another header than it read: it looks again, and the plan ends none the less."""
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


# --- cancelling -------------------------------------------------------------------------------------------------------


def test_cancelling_takes_back_what_moves_and_keeps_what_has_arrived():
    """What has not begun never will."""
    scene = scene_with(dict.fromkeys(range(3), (1, 2)))
    make(scene, [step(n, (1, 2), (3, 2)) for n in range(3)], moves_at_once=1)
    in_sync(scene, 0)
    assert letters(scene) == "fmw"
    change(scene, state=PlanState.CANCELLING)
    ended = header(scene)
    assert (ended.state, ended.reason) == (PlanState.CANCELLED, None)
    assert letters(scene) == "fcc"
    assert znode(scene).partitions == {0: (3, 2), 1: (1, 2), 2: (1, 2)}


def test_a_rollback_moves_back_what_has_arrived_too():
    """Bounded as the way there was, the last first, and leaders are where they were."""
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


def test_a_rollback_restores_orders():
    """The preferred leaders are those of before."""
    scene = scene_with({0: (1, 2), 1: (1, 2)})
    make(scene, [step(0, (1, 2), (2, 1)), step(1, (1, 2), (1, 3))])
    assert letters(scene) == "fm"
    change(scene, state=PlanState.CANCELLING, rollback=True)
    assert header(scene).state is PlanState.CANCELLED
    assert znode(scene).partitions == {0: (1, 2), 1: (1, 2)}
    assert scene.state("t", 0).leader == 1


def test_what_somebody_else_moved_since_is_not_rolled_back():
    """It is told instead."""
    scene = scene_with({0: (1, 2), 1: (1, 2)})
    make(scene, [step(0, (1, 2), (3, 2)), step(1, (1, 2), (4, 2))])
    in_sync(scene, 0)
    scene.ask(ReassignmentAsked({TopicPartition("t", 0): (5, 2)}))
    change(scene, state=PlanState.CANCELLING, rollback=True)
    assert letters(scene) == "xc"
    assert "another reassignment moves it to [5, 2]" in str(header(scene).reason)


def test_cancelling_withdraws_what_is_about_to_be_removed():
    """A partition that is read-only takes records again; one that is gone stays gone."""
    scene = scene_with({0: (1,), 1: (2,)})
    make(scene, [step(1, (2,), ())], wait_ms=60_000)
    assert znode(scene).read_only == {1}
    change(scene, state=PlanState.CANCELLING)
    scene.settle(3)
    assert header(scene).state is PlanState.CANCELLED
    assert letters(scene) == "c"
    assert znode(scene).read_only == frozenset()
    assert not is_there(scene, znodes.partitions_remove_path("t", 1))


def test_a_plan_that_is_cancelled_before_it_was_complete_ends():
    """Whoever was writing it may have died."""
    scene = scene_with({0: (1, 2)})
    plan = Plan(PLAN, PlanKind.REASSIGN, PlanState.CANCELLING, 0, 9)
    (batch,) = documents.creation(plan, [step(0, (1, 2), (3, 2))])
    scene.run(scene.zookeeper.multi([Create(path, data) for path, data in batch]))
    scene.settle()
    assert header(scene).state is PlanState.CANCELLED


# --- throttle ---------------------------------------------------------------------------------------------------------


def test_the_lowest_throttle_of_all_plans_counts_and_ends_with_its_plan():
    """It may be changed and taken away while the plan runs."""
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


def test_a_controller_that_takes_office_ends_a_throttle_that_no_plan_asks_for():
    """Whoever died in the middle of an end."""
    scene = scene_with({0: (1, 2)}, controllers=2)
    scene.run(scene.zookeeper.set_data(znodes.PLAN_THROTTLE, b'{"version":1,"bytes_per_second":9}'))
    scene.controllers[101].kill()
    scene.await_expiry()
    assert throttle(scene) is None


# --- force ------------------------------------------------------------------------------------------------------------


def test_a_forced_plan_has_somebody_lead_where_nobody_in_sync_lives():
    """Of the replicas that were there before, which have some of the records; and it says what that may have cost."""
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
    assert "broker 2 leads with what it has" in str(ended.reason)
    assert znode(scene).partitions == {0: (3, 2)}


def test_a_forced_plan_begins_anew_what_nobody_has_any_more():
    """No replica lives: the new one leads, with nothing."""
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
def test_the_next_controller_carries_a_plan_on(cancelled):
    """With what is finished, what moves and what waits; nobody asks again."""
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


def test_old_plans_go(monkeypatch):
    """So many that have ended are kept."""
    monkeypatch.setattr("kreplica.controller.plans.execution.ENDED_KEPT", 2)
    scene = scene_with({0: (1, 2)})
    for number in range(1, 5):
        make(scene, [], documents.plan_id(number))
    assert sorted(scene.run(scene.zookeeper.get_children(znodes.PLANS))) == ["plan-0000000003", "plan-0000000004"]
