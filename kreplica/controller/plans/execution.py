"""Execution of plans in bounded steps, continuing from the state that an earlier controller left.

After each event, one pass (``PlansDue``) examines all plans: finished steps are marked, and their preferred replicas
become leaders; the next steps are marked as started, and then started.  Outcomes are written to ZooKeeper before any
action that depends on them, and everything else follows from the placement of the partitions (``step_state``), so a
new controller finds the complete state in ZooKeeper.
"""

from __future__ import annotations

from dataclasses import replace

from twisted.logger import Logger

from kreplica.cluster import znodes
from kreplica.cluster.plans import documents
from kreplica.cluster.plans.plan import PlanState, StepOutcome, StepState
from kreplica.cluster.plans.progress import final_state
from kreplica.controller.event_types import Event, PlansChanged, PlansDue
from kreplica.controller.plans.actions import begin, elect_preferred_leaders, pending_requests, reverse_moves, withdraw
from kreplica.controller.plans.reading import ended_plan, read_plans, write_header
from kreplica.controller.plans.step_selection import choose
from kreplica.controller.plans.step_state import (
    CANCELLED,
    FINISHED,
    MOVING,
    MovePosition,
    move_position,
    outcome_of_move,
    outcome_of_request,
)
from kreplica.controller.plans.throttle import read_throttle, reconcile_throttle
from kreplica.controller.state.context import ControllerContext
from kreplica.controller.state.running_plan import RunningPlan
from kreplica.controller.term import ControllerTerm
from kreplica.runtime.gather import gather

log = Logger()

_ENTRY_KINDS = {
    PlanState.COMPLETED: "plan_finished",
    PlanState.CANCELLED: "plan_cancelled",
    PlanState.FAILED: "plan_failed",
}

ENDED_KEPT = 100
"""Number of ended plans that are kept."""


async def resume(term: ControllerTerm) -> None:
    """Resume the plans of an earlier controller."""
    await gather([read_throttle(term), read_plans(term)])
    await _continue(term)


async def plans_changed(term: ControllerTerm) -> None:
    """Handle a plan that was created, patched, cancelled or removed."""
    await read_plans(term)
    await _continue(term)


async def _continue(term: ControllerTerm) -> None:
    await reconcile_throttle(term)
    await plans_due(term)


def schedule_pass(term: ControllerTerm, event: Event) -> None:
    """Schedule a pass after an event that plans may wait for."""
    if term.context.plans and not isinstance(event, (PlansChanged, PlansDue)):
        term.put(PlansDue())


async def plans_due(term: ControllerTerm) -> None:
    """Run one pass over all active plans."""
    context = term.context
    runs = [context.plans[plan_id] for plan_id in sorted(context.plans)]
    for run in runs:
        await _observe(term, run)
    started = await choose(term, runs)
    for each in started:
        each.run.mark(each.number, MOVING)
        if each.run.started_at_ms is None:
            each.run.started_at_ms = term.runtime.wall_clock_ms()
    has_changed = any(run.unwritten for run in runs)
    for run in runs:
        await _write_outcomes(term, run)
    await begin(term, [each for each in started if each.run.plan.plan_id in context.plans])
    for run in runs:
        await _end_if_done(term, run)
    if has_changed or any(run.unwritten for run in context.plans.values()):
        term.put(PlansDue())  # more steps may be able to start; events that are already waiting come first


# --- observed outcomes ------------------------------------------------------------------------------------------------


async def _observe(term: ControllerTerm, run: RunningPlan) -> None:
    """Mark steps that finished, failed or were superseded; reverse the ongoing steps of a cancelled plan."""
    context = term.context
    if run.is_reverting and run.progress.waiting:
        async for number in term.in_slices(range(len(run.steps))):
            if run.outcomes[number].state is StepState.WAITING:
                run.mark(number, CANCELLED)
    requested = await pending_requests(term, run)
    if run.is_reverting:
        await reverse_moves(term, run, [number for number in run.moving_steps if _must_reverse(context, run, number)])
        await withdraw(term, run, requested)
        requested = set()
    found: dict[int, StepOutcome] = {}
    async for number in term.in_slices(run.moving_steps):
        step = run.steps[number]
        if step.action.is_reassignment:
            outcome = outcome_of_move(context, run, step)
        else:
            outcome = outcome_of_request(context, run, step, requested)
        if outcome is not None:
            found[number] = outcome
    # Leaders first: after a failure in between, the next controller finds the steps in progress and repeats this.
    await elect_preferred_leaders(term, run, [n for n, outcome in found.items() if outcome in (FINISHED, CANCELLED)])
    for number, outcome in found.items():
        run.mark(number, replace(outcome, reason=outcome.reason or run.outcomes[number].reason))


def _must_reverse(context: ControllerContext, run: RunningPlan, number: int) -> bool:
    step = run.steps[number]
    if not step.action.is_reassignment:
        return False
    return move_position(context, step.key, run.origin(step), run.goal(step)) is MovePosition.REVERSED


# --- writes -----------------------------------------------------------------------------------------------------------


async def _write_outcomes(term: ControllerTerm, run: RunningPlan) -> None:
    """Write changed outcomes; if the plan's znodes were changed or removed, discard the plan and read it again."""
    if not run.unwritten:
        return
    plan_id = run.plan.plan_id
    chunks: dict[str, tuple[bytes, bool]] = {}
    for chunk in sorted(run.unwritten):
        data = documents.encode_outcomes(run.outcomes_of(chunk))
        chunks[znodes.plan_progress_path(plan_id, chunk)] = (data, chunk in run.written_chunks)
        await term.yield_to_reactor()
    totals = documents.encode_progress(run.progress)
    if await term.writes.write_progress(znodes.plan_progress_path(plan_id), totals, chunks):
        run.written_chunks |= run.unwritten
        run.unwritten.clear()
    else:
        del term.context.plans[plan_id]
        term.put(PlansChanged())


async def _end_if_done(term: ControllerTerm, run: RunningPlan) -> None:
    context, plan_id = term.context, run.plan.plan_id
    if plan_id not in context.plans or run.unwritten or not run.is_done:
        return
    state, reason = final_state(run.plan, run.steps, run.outcomes)
    if not await write_header(term, ended_plan(term, run.plan, state, reason), run.version):
        return
    del context.plans[plan_id]
    context.ended_plans.add(plan_id)
    text = f"plan {plan_id}: {state.value}" + (f": {reason}" if reason else "")
    term.history.record(_ENTRY_KINDS[state], f"plan {plan_id}", text)
    log.info("controller: {text}", text=text)
    await reconcile_throttle(term)
    for old in sorted(context.ended_plans)[:-ENDED_KEPT]:
        await term.writes.remove_tree(znodes.plan_path(old))
        context.ended_plans.discard(old)
