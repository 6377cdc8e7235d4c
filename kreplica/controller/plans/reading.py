"""Reads plans from ZooKeeper into the context: new, patched, cancelled and removed ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from twisted.logger import Logger

from kreplica.cluster import znodes
from kreplica.cluster.plans import documents
from kreplica.cluster.plans.plan import Plan, PlanState, Step, StepOutcome
from kreplica.controller.event_types import PlansChanged
from kreplica.controller.plans.step_state import MovePosition, move_position
from kreplica.controller.state.running_plan import RunningPlan
from kreplica.controller.term import ControllerTerm
from kreplica.runtime.gather import gather
from kreplica.zookeeper import NoNode, read_all

log = Logger()

PREPARING_MS_MAX = 10 * 60 * 1000
"""Time within which a plan's creator must write its steps; otherwise the plan fails."""

CHUNKS_AT_ONCE = 4
"""Number of chunks read in one ZooKeeper response."""

Headers = dict[str, tuple[Plan, int]]


async def read_plans(term: ControllerTerm) -> None:
    """Update the context from the plans in ZooKeeper, and watch for changes."""
    context = term.context
    watch = term.watch(znodes.PLANS, PlansChanged())
    try:
        names = sorted(await term.client.get_children(znodes.PLANS, watch))
    except NoNode:
        term.forget_watch(znodes.PLANS)
        names = []
    context.ended_plans.intersection_update(names)
    headers = await _read_headers(term, [name for name in names if name not in context.ended_plans])
    for plan_id in [plan_id for plan_id in sorted(context.plans) if plan_id not in headers]:
        # Ongoing reassignments finish like any other.
        log.warn("controller: {plan} was removed, so its waiting steps are not started", plan=plan_id)
        del context.plans[plan_id]
    for plan_id, (plan, version) in headers.items():
        await _update_plan(term, plan_id, plan, version)


async def _read_headers(term: ControllerTerm, names: Sequence[str]) -> Headers:
    read = await gather([_read_header(term, name) for name in names])
    return {name: header for name, header in zip(names, read, strict=True) if header is not None}


async def _read_header(term: ControllerTerm, plan_id: str) -> tuple[Plan, int] | None:
    path = znodes.plan_path(plan_id)
    watch = term.watch(path, PlansChanged())
    try:
        data, stat = await term.client.get_data(path, watch)
        return documents.decode_plan(plan_id, data), stat.version
    except NoNode:
        if watch is not None:
            term.forget_watch(path)
    except znodes.ZnodeError as error:
        log.error("controller: ignoring an unreadable plan: {error}", error=str(error))
        known = term.context.plans.get(plan_id)
        return None if known is None else (known.plan, known.version)
    return None


async def _update_plan(term: ControllerTerm, plan_id: str, plan: Plan, version: int) -> None:
    context = term.context
    if plan.state.is_ended:
        context.plans.pop(plan_id, None)
        context.ended_plans.add(plan_id)
    elif plan_id in context.plans:
        run = context.plans[plan_id]
        if run.replace_header(plan, version):
            await _count(term, run)
    elif plan.state is PlanState.PREPARING:
        await _wait_for_steps(term, plan, version)
    else:
        await _load(term, plan, version)


async def _wait_for_steps(term: ControllerTerm, plan: Plan, version: int) -> None:
    """Mark the plan as failed if its creator does not complete it in time, so that it does not block others forever."""
    remaining_ms = plan.created_at_ms + PREPARING_MS_MAX - term.runtime.wall_clock_ms()
    if remaining_ms > 0:
        term.put_later(PlansChanged(), remaining_ms / 1000)
    else:
        reason = "its steps were not completely written in time"
        await write_header(term, ended_plan(term, plan, PlanState.FAILED, reason), version)


async def _load(term: ControllerTerm, plan: Plan, version: int) -> None:
    try:
        run = await _read_run(term, plan, version)
    except znodes.ZnodeError as error:
        log.error("controller: {plan} cannot be executed: {error}", plan=plan.plan_id, error=str(error))
        await write_header(term, ended_plan(term, plan, PlanState.FAILED, str(error)), version)
        return
    if plan.state is PlanState.PENDING:
        running = replace(plan, state=PlanState.RUNNING)
        if not await write_header(term, running, version):
            return
        run.replace_header(running, version + 1)  # the waiting steps are unchanged
        text = f"plan {plan.plan_id} started: {plan.kind.value}, {plan.steps_count} step{'s' * (plan.steps_count != 1)}"
        term.history.record("plan_started", f"plan {plan.plan_id}", text, steps=plan.steps_count)
    _resume(term, run)
    term.context.plans[plan.plan_id] = run


async def _read_run(term: ControllerTerm, plan: Plan, version: int) -> RunningPlan:
    """Read the steps of a plan.

    :raise ZnodeError: the steps do not match the header.
    """
    parent = znodes.plan_steps_path(plan.plan_id)
    try:
        names = sorted(await term.client.get_children(parent))
    except NoNode:
        names = []
    chunks = [documents.decode_steps(path, data) for path, data in await _read(term, parent, names) if data]
    count = sum(map(len, chunks))
    if count != plan.steps_count:
        if plan.state is not PlanState.CANCELLING:
            raise znodes.ZnodeError(f"{parent}: found {count} steps, but the header has {plan.steps_count}")
        chunks = []  # cancelled before it was complete: no step was started
    started_at_ms, written_chunks, outcomes = await _read_outcomes(term, plan, chunks)
    run = RunningPlan(plan, version, chunks, outcomes, started_at_ms, written_chunks)
    await _count(term, run)
    return run


async def _count(term: ControllerTerm, run: RunningPlan) -> None:
    for _ in run.build_counters():
        await term.yield_to_reactor()


async def _read_outcomes(
    term: ControllerTerm, plan: Plan, chunks: Sequence[tuple[Step, ...]]
) -> tuple[int | None, list[int], list[StepOutcome]]:
    """Return the start time, the numbers of the chunks that have outcomes, and the outcomes of all steps."""
    parent = znodes.plan_progress_path(plan.plan_id)
    names = [f"{number:08d}" for number in range(len(chunks))]
    started_at_ms = None
    (totals,) = await read_all(term.client, [parent])
    if isinstance(totals, tuple):
        started_at_ms = documents.decode_progress(parent, totals[0]).started_at_ms
    written_chunks: list[int] = []
    outcomes: list[StepOutcome] = []
    for number, (path, data) in enumerate(await _read(term, parent, names)):
        known = documents.decode_outcomes(path, data) if data else (StepOutcome(),) * len(chunks[number])
        if data:
            written_chunks.append(number)
        if len(known) != len(chunks[number]):
            raise znodes.ZnodeError(f"{path}: found {len(known)} outcomes for {len(chunks[number])} steps")
        outcomes += known
    return started_at_ms, written_chunks, outcomes


async def _read(term: ControllerTerm, parent: str, names: Sequence[str]) -> list[tuple[str, bytes]]:
    """Return paths and data of these children; empty data for missing ones."""
    found = []
    for start in range(0, len(names), CHUNKS_AT_ONCE):
        paths = [f"{parent}/{name}" for name in names[start : start + CHUNKS_AT_ONCE]]
        read_results = await read_all(term.client, paths)
        found += [(path, a[0] if isinstance(a, tuple) else b"") for path, a in zip(paths, read_results, strict=True)]
        await term.yield_to_reactor()
    return found


def _resume(term: ControllerTerm, run: RunningPlan) -> None:
    """Reset to WAITING the moves that an earlier controller marked but did not start, and partition requests.

    If a partition request exists or was fulfilled, this is detected when the step is selected again.
    """
    if run.is_reverting:
        return  # _observe marks a step at its origin as cancelled
    for number in run.moving_steps:
        step = run.steps[number]
        at_origin = move_position(term.context, step.key, step.before, step.after) is MovePosition.AT_ORIGIN
        if at_origin or not step.action.is_reassignment:
            run.mark(number, StepOutcome())


def ended_plan(term: ControllerTerm, plan: Plan, state: PlanState, reason: str | None) -> Plan:
    """Return the header of an ended plan."""
    return replace(plan, state=state, reason=reason, ended_at_ms=term.runtime.wall_clock_ms())


async def write_header(term: ControllerTerm, plan: Plan, version: int) -> bool:
    """Replace a plan's header at that version and return True; after a concurrent change, schedule a new read."""
    path = znodes.plan_path(plan.plan_id)
    if await term.writes.rewrite_request(path, documents.encode_plan(plan), version):
        return True
    term.put(PlansChanged())
    return False
