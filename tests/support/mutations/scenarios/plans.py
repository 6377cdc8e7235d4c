"""Plans of an administrator: how many moves there are at once, who is slowed by them, and who may leave when."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from kreplica.cluster.plans.plan import PlanState
from kreplica.testing.cluster.invariants import BrokenRule
from kreplica.testing.cluster.state import assignment_of
from kreplica.testing.storms.replicated_run import TOPIC, ReplicatedRun
from tests.support.mutations.scenarios.scene import (
    BYSTANDER,
    FOLLOWER,
    LAG_S,
    LEADER,
    OTHER,
    cut,
    heal,
    isr,
    leave,
    scene,
)
from tests.support.planner import Planner

PATIENCE_S = 10 * LAG_S
SLOWEST = 1
"""A throttle in bytes a second with which nobody gets anywhere."""


def moves_one_after_the_other(seed: int) -> None:
    """No broker copies more partitions at a time than the plan says."""
    with scene(seed, bystanders=1, partitions=3) as run:
        planner = Planner(run.cluster)
        plan_id = planner.make(_to((LEADER, FOLLOWER, BYSTANDER), run, moves_at_once=1), topics=[TOPIC])
        run.cluster.run_until(_watched(run, lambda: planner.plan(plan_id).state.is_ended))
        assert planner.plan(plan_id).state is PlanState.COMPLETED
        planner.close()
        run.converge()


def _watched(run: ReplicatedRun, is_over: Callable[[], bool]) -> Callable[[], bool]:
    """The same condition; whenever it is asked for, nobody may copy two partitions."""

    def ask() -> bool:
        assignment = assignment_of(run.cluster, TOPIC)
        rows = assignment.adding.values() if assignment is not None else ()
        for broker, count in Counter(replica for row in rows for replica in row).items():
            if count > 1:
                raise BrokenRule(f"broker {broker} copies {count} partitions at once, of a plan that allows one")
        return is_over()

    return ask


def is_back_while_others_are_slowed(seed: int) -> None:
    """A replica that was cut off catches up as fast as it can, whatever a plan does beside it."""
    with scene(seed, bystanders=1) as run:
        planner = Planner(run.cluster)
        leave(run, OTHER)
        body = _to((LEADER, BYSTANDER, OTHER), run, throttle_bytes_per_second=SLOWEST)
        plan_id = planner.make(body, topics=[TOPIC])
        run.cluster.run_until(lambda: _is_added(run, BYSTANDER))
        run.acknowledge(30)
        heal(run, OTHER, LEADER)
        run.cluster.run_until(lambda: OTHER in isr(run), timeout_s=PATIENCE_S)
        planner.cancel(plan_id)
        assert planner.until_ended(plan_id) is PlanState.CANCELLED
        planner.close()
        run.converge()


def leaves_when_others_have_come(seed: int) -> None:
    """Two of three replicas move to brokers that cannot be reached: who is to leave stays as long as it is needed."""
    with scene(seed, bystanders=2) as run:
        planner = Planner(run.cluster)
        newcomers = (BYSTANDER, BYSTANDER + 1)
        for newcomer in newcomers:
            cut(run, newcomer, LEADER)
        plan_id = planner.make(_to((LEADER, *newcomers), run), topics=[TOPIC])
        run.cluster.run_until(lambda: _is_added(run, BYSTANDER))
        run.cluster.run(LAG_S)
        in_sync = isr(run)
        if not {LEADER, FOLLOWER, OTHER}.issubset(in_sync):
            raise BrokenRule(f"replicas left before others had come: in sync are {in_sync}")
        for newcomer in newcomers:
            heal(run, newcomer, LEADER)
        assert planner.until_ended(plan_id) is PlanState.COMPLETED
        planner.close()
        run.converge()


def _to(replicas: tuple[int, ...], run: ReplicatedRun, **more: int) -> dict[str, object]:
    """A request that all partitions move there."""
    rows = [{"topic": TOPIC, "partition": key.partition, "replicas": list(replicas)} for key in run.keys]
    return {"kind": "reassign", "assignments": rows, **more}


def _is_added(run: ReplicatedRun, broker: int) -> bool:
    assignment = assignment_of(run.cluster, TOPIC)
    return assignment is not None and any(broker in row for row in assignment.partitions.values())
