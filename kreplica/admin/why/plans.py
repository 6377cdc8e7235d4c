"""Explains the progress of a plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kreplica.admin.plans.plan_documents import plan_document
from kreplica.admin.plans.reading import NumberedStep, PlanRead
from kreplica.admin.why.explanation import Advice, Document, Explanation, brokers_text, bytes_text, time_text
from kreplica.cluster.plans.plan import Plan, PlanState
from kreplica.model import TopicPartition

EXPLAINED_MAX = 20
"""Moves that are explained one by one."""


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
    :param sizes: sizes of the replicas that they copy.
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
    done = f"{progress.finished} of {progress.moves} moves finished"
    what = f"{plan.plan_id} ({plan.kind.value})"
    reason = f": {plan.reason}" if plan.reason else ""
    match plan.state:
        case PlanState.PREPARING:
            return f"{what} is being written, and nothing is done for it before it is all there."
        case PlanState.PENDING:
            return f"{what} waits for the controller to take it up."
        case PlanState.RUNNING:
            failed = f", {progress.failed} failed" if progress.failed else ""
            return f"{what} runs: {done}, {progress.moving} under way, {progress.waiting} waiting{failed}."
        case PlanState.CANCELLING:
            back = "all its moves are reverted" if plan.rollback else "ongoing moves are reverted"
            return f"{what} is being cancelled, and {back}: {progress.moving} under way."
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
        yield "A controller: no broker holds the office."
    for row in moving[:EXPLAINED_MAX]:
        yield from _move_waits_for(plan, row, sizes, live)
    more = read.progress.moving - EXPLAINED_MAX
    if more > 0:
        yield f"{more} more moves that are under way."


def _move_waits_for(
    plan: Plan, row: NumberedStep, sizes: Mapping[tuple[TopicPartition, int], int], live: Sequence[int]
) -> Iterator[str]:
    step = row.step
    if not step.action.is_reassignment:
        yield f"{step.key} to be {'made' if step.after else 'read-only for long enough, and then removed'}."
        return
    dead = [broker for broker in step.after if broker not in live]
    if dead:
        yield f"Move {row.number}, {step.key}: {brokers_text(dead)} to come back."
    for broker in step.arriving:
        if broker in dead:
            continue
        each = step.bytes // max(len(step.arriving), 1)
        has = sizes.get((step.key, broker))
        copied = "" if has is None else f": it has {bytes_text(min(has, each))} of {bytes_text(each)}"
        rate = plan.throttle_bytes_per_second
        slow = f", at no more than {bytes_text(rate)} a second" if rate is not None else ""
        yield f"Move {row.number}, {step.key}: broker {broker} to catch up{copied}{slow}."
    if not step.arriving and not dead:
        yield f"Move {row.number}, {step.key}: its replicas to be in sync."


def _advice(plan: Plan, moving: Sequence[NumberedStep], live: Sequence[int]) -> Iterator[Advice]:
    path = f"/v1/plans/{plan.plan_id}"
    if plan.state.is_ended:
        if plan.state is not PlanState.COMPLETED:
            yield Advice("See which moves failed, and why.", ("GET", f"{path}/moves"))
            again: dict[str, Any] = dict(plan.request)
            if again.get("kind") in ("rebalance", "drain", "add_brokers", "replication_factor"):
                yield Advice("Create a new plan for the remaining moves.", ("POST", "/v1/plans", again))
        yield Advice("Forget it.", ("DELETE", path))
        return
    if plan.state is PlanState.PREPARING:
        yield Advice("Delete it if its writer has failed.", ("DELETE", path))
        return
    for broker in sorted({broker for row in moving for broker in row.step.after if broker not in live}):
        yield Advice(f"Start broker {broker}.")
    if plan.throttle_bytes_per_second is not None:
        body = {"throttle_bytes_per_second": 2 * plan.throttle_bytes_per_second}
        yield Advice("Let it copy twice as fast.", ("PATCH", path, body))
    if plan.state is not PlanState.CANCELLING:
        yield Advice("Cancel it and revert its ongoing moves.", ("POST", f"{path}/cancel", {"rollback": False}))
        yield Advice("Cancel it and revert all its moves.", ("POST", f"{path}/cancel", {"rollback": True}))
