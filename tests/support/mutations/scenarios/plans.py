"""An administrator's plans: number of simultaneous moves, scope of the throttle, and removal of replicas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from kreplica.cluster.plans.plan import PlanState
from kreplica.testing.cluster.invariants import InvariantViolation
from kreplica.testing.cluster.state import assignment_of
from kreplica.testing.storms.cluster_run import TOPIC
from kreplica.testing.storms.replicated_run import ReplicatedRun
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
"""A throttle in bytes per second that stops nearly all progress."""


def one_move_at_a_time(seed: int) -> None:
    """No broker may copy more partitions at a time than the plan allows."""
    with scene(seed, bystanders=1, partitions=3) as run:
        planner = Planner(run.cluster)
        plan_id = planner.make(_to((LEADER, FOLLOWER, BYSTANDER), run, moves_at_once=1), topics=[TOPIC])
        run.cluster.run_until(_watched(run, lambda: planner.plan(plan_id).state.is_ended))
        assert planner.plan(plan_id).state is PlanState.COMPLETED
        planner.close()
        run.converge()


def _watched(run: ReplicatedRun, is_over: Callable[[], bool]) -> Callable[[], bool]:
    """Wrap a condition: each call also checks that no broker copies two partitions."""

    def ask() -> bool:
        assignment = assignment_of(run.cluster, TOPIC)
        rows = assignment.adding.values() if assignment is not None else ()
        for broker, count in Counter(replica for row in rows for replica in row).items():
            if count > 1:
                raise InvariantViolation(f"broker {broker} copies {count} partitions at once, not one")
        return is_over()

    return ask


def catch_up_during_throttled_plan(seed: int) -> None:
    """A replica that was disconnected must catch up at full speed during a throttled plan."""
    with scene(seed, bystanders=1) as run:
        planner = Planner(run.cluster)
        leave(run, OTHER)
        body = _to((LEADER, BYSTANDER, OTHER), run, throttle_bytes_per_second=SLOWEST)
        plan_id = planner.make(body, topics=[TOPIC])
        run.cluster.run_until(lambda: _is_added(run, BYSTANDER))
        run.run_until_acknowledged(30)
        heal(run, OTHER, LEADER)
        run.cluster.run_until(lambda: OTHER in isr(run), timeout_s=PATIENCE_S)
        planner.cancel(plan_id)
        assert planner.until_ended(plan_id) is PlanState.CANCELLED
        planner.close()
        run.converge()


def replicas_leave_after_replacements_join(seed: int) -> None:
    """Two of three replicas move to unreachable brokers; the old replicas must stay as long as they are needed."""
    with scene(seed, bystanders=2) as run:
        planner = Planner(run.cluster)
        added_replicas = (BYSTANDER, BYSTANDER + 1)
        for added in added_replicas:
            cut(run, added, LEADER)
        plan_id = planner.make(_to((LEADER, *added_replicas), run), topics=[TOPIC])
        run.cluster.run_until(lambda: _is_added(run, BYSTANDER))
        run.cluster.run(LAG_S)
        in_sync = isr(run)
        if not {LEADER, FOLLOWER, OTHER}.issubset(in_sync):
            raise InvariantViolation(f"replicas left before others were in sync: ISR {in_sync}")
        for added in added_replicas:
            heal(run, added, LEADER)
        assert planner.until_ended(plan_id) is PlanState.COMPLETED
        planner.close()
        run.converge()


def _to(replicas: tuple[int, ...], run: ReplicatedRun, **more: int) -> dict[str, object]:
    """Return a request that moves all partitions to these replicas."""
    rows = [{"topic": TOPIC, "partition": key.partition, "replicas": list(replicas)} for key in run.keys]
    return {"kind": "reassign", "assignments": rows, **more}


def _is_added(run: ReplicatedRun, broker: int) -> bool:
    assignment = assignment_of(run.cluster, TOPIC)
    return assignment is not None and any(broker in row for row in assignment.partitions.values())
