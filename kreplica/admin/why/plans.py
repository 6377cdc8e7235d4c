"""Explains the progress of a plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kreplica.admin.health.texts import brokers_text, bytes_text, time_text
from kreplica.admin.plans.plan_documents import plan_document
from kreplica.admin.plans.reading import NumberedStep, PlanRead
from kreplica.admin.why.explanation import Advice, Document, Explanation
from kreplica.cluster.plans.plan import Plan, PlanState
from kreplica.model import TopicPartition

EXPLAINED_MAX = 20
"""Maximum number of moves that are explained individually."""


def explain_plan(
    read: PlanRead,
    moving: Sequence[NumberedStep],
    sizes: Mapping[tuple[TopicPartition, int], int],
    live: Sequence[int],
    controller_id: int,
    decided: Sequence[Document],
    now_ms: int,
    problems: Sequence[str] = (),
) -> Explanation:
    """Explain a plan.

    :param moving: the first ongoing moves.
    :param sizes: sizes in bytes of the replicas that the moves create.
    :param controller_id: negative if there is no controller.
    :param decided: the events of the plan, newest first.
    """
    plan, progress = read.plan, read.progress
    document = plan_document(plan, progress, now_ms)
    return Explanation(
        subject=f"plan {plan.plan_id}",
        state=plan.state.value,
        summary=_summary(read),
        waits_for=list(_waits_for(read, moving, sizes, live, controller_id)),
        you_can=list(_advice(plan, moving, live)),
        decided=decided,
        facts={"plan": document, "controller": controller_id if controller_id >= 0 else None},
        problems=problems,
    )


def _summary(read: PlanRead) -> str:
    plan, progress = read.plan, read.progress
    done = f"{progress.finished} of {progress.steps_count} moves finished"
    what = f"{plan.plan_id} ({plan.kind.value})"
    reason = f": {plan.reason}" if plan.reason else ""
    match plan.state:
        case PlanState.PREPARING:
            return f"{what} is being written; it starts when all its steps are stored."
        case PlanState.PENDING:
            return f"{what} waits for the controller to start it."
        case PlanState.RUNNING:
            failed = f", {progress.failed} failed" if progress.failed else ""
            return f"{what} is running: {done}, {progress.moving} in progress, {progress.waiting} waiting{failed}."
        case PlanState.CANCELLING:
            back = "all its moves are reverted" if plan.rollback else "ongoing moves are reverted"
            return f"{what} is being cancelled, and {back}: {progress.moving} in progress."
    at = f" at {time_text(plan.ended_at_ms)}" if plan.ended_at_ms is not None else ""
    return f"{what} is {plan.state.value}{at}; {done}{reason}."


def _waits_for(
    read: PlanRead,
    moving: Sequence[NumberedStep],
    sizes: Mapping[tuple[TopicPartition, int], int],
    live: Sequence[int],
    controller_id: int,
) -> Iterator[str]:
    plan = read.plan
    if plan.state.is_ended:
        return
    if controller_id < 0:
        yield "The election of a controller."
    for row in moving[:EXPLAINED_MAX]:
        yield from _move_waits_for(plan, row, sizes, live)
    more = read.progress.moving - EXPLAINED_MAX
    if more > 0:
        yield f"{more} more moves in progress."


def _move_waits_for(
    plan: Plan, row: NumberedStep, sizes: Mapping[tuple[TopicPartition, int], int], live: Sequence[int]
) -> Iterator[str]:
    step = row.step
    if not step.action.is_reassignment:
        yield f"{step.key} to be {'created' if step.after else 'removed after its read-only period'}."
        return
    dead = [broker for broker in step.after if broker not in live]
    if dead:
        yield f"Move {row.number}, {step.key}: {brokers_text(dead)} to restart."
    for broker in step.receiving_brokers:
        if broker in dead:
            continue
        share = step.bytes // max(len(step.receiving_brokers), 1)
        has = sizes.get((step.key, broker))
        copied = "" if has is None else f": it has {bytes_text(min(has, share))} of {bytes_text(share)}"
        rate = plan.throttle_bytes_per_second
        limit = f", at no more than {bytes_text(rate)} per second" if rate is not None else ""
        yield f"Move {row.number}, {step.key}: broker {broker} to catch up{copied}{limit}."
    if not step.receiving_brokers and not dead:
        yield f"Move {row.number}, {step.key}: its replicas to be in sync."


def _advice(plan: Plan, moving: Sequence[NumberedStep], live: Sequence[int]) -> Iterator[Advice]:
    path = f"/v1/plans/{plan.plan_id}"
    if plan.state.is_ended:
        if plan.state is not PlanState.COMPLETED:
            yield Advice("List the moves with their errors.", ("GET", f"{path}/moves"))
            again: dict[str, Any] = dict(plan.request)
            if again.get("kind") in ("rebalance", "drain", "add_brokers", "replication_factor"):
                yield Advice("Create a new plan for the remaining moves.", ("POST", "/v1/plans", again))
        yield Advice("Delete the plan.", ("DELETE", path))
        return
    if plan.state is PlanState.PREPARING:
        yield Advice("Delete the plan if its writer failed.", ("DELETE", path))
        return
    for broker in sorted({broker for row in moving for broker in row.step.after if broker not in live}):
        yield Advice(f"Start broker {broker}.")
    if plan.throttle_bytes_per_second is not None:
        body = {"throttle_bytes_per_second": 2 * plan.throttle_bytes_per_second}
        yield Advice("Double the throttle.", ("PATCH", path, body))
    if plan.state is not PlanState.CANCELLING:
        yield Advice("Cancel the plan and revert its ongoing moves.", ("POST", f"{path}/cancel", {"rollback": False}))
        yield Advice("Cancel the plan and revert all its moves.", ("POST", f"{path}/cancel", {"rollback": True}))
