"""Plans carried out: step by step, bounded, from whatever an earlier controller left.

After each event the plans look again (``PlansDue``), in one pass over all of them: what has arrived is noted and its
leader put back; whose turn has come is noted as begun, and only then begun.  What is noted stands in ZooKeeper before
anything follows from it, and where a partition is tells the rest (``plan_steps``): there is nothing that a controller
that takes office would have to guess.
"""

from __future__ import annotations

from dataclasses import replace

from twisted.logger import Logger

from kreplica.cluster import znodes
from kreplica.cluster.plans import documents
from kreplica.cluster.plans.plan import PlanState, StepOutcome, StepState
from kreplica.cluster.plans.progress import ending
from kreplica.controller.event_types import Event, PlansChanged, PlansDue
from kreplica.controller.plans.actions import begin, put_leaders_back, requests_left, turn_round, withdraw
from kreplica.controller.plans.reading import ended, read_plans, write_header
from kreplica.controller.plans.step_selection import choose
from kreplica.controller.plans.step_state import (
    CANCELLED,
    FINISHED,
    MOVING,
    Whereabouts,
    outcome_of_move,
    outcome_of_request,
    whereabouts,
)
from kreplica.controller.plans.throttle import read_throttle, reconcile_throttle
from kreplica.controller.state.context import ControllerContext
from kreplica.controller.state.running_plan import PlanRun
from kreplica.controller.term import Office
from kreplica.runtime.together import together

log = Logger()

_TOLD = {
    PlanState.COMPLETED: "plan_finished",
    PlanState.CANCELLED: "plan_cancelled",
    PlanState.FAILED: "plan_failed",
}

ENDED_KEPT = 100
"""So many plans that have ended are kept for people to look at."""


async def carry_on(office: Office) -> None:
    """Take up the plans that an earlier controller was at."""
    await together([read_throttle(office), read_plans(office)])
    await _go_on(office)


async def plans_changed(office: Office) -> None:
    """A plan was made, patched, cancelled or removed."""
    await read_plans(office)
    await _go_on(office)


async def _go_on(office: Office) -> None:
    await reconcile_throttle(office)
    await plans_due(office)


def look_again(office: Office, event: Event) -> None:
    """Something happened: it may be what a plan waits for."""
    if office.context.plans and not isinstance(event, (PlansChanged, PlansDue)):
        office.put(PlansDue())


async def plans_due(office: Office) -> None:
    """One pass over all plans that have not ended."""
    context = office.context
    runs = [context.plans[plan_id] for plan_id in sorted(context.plans)]
    for run in runs:
        await _observe(office, run)
    begun = await choose(office, runs)
    for each in begun:
        each.run.mark(each.number, MOVING)
        if each.run.started_at_ms is None:
            each.run.started_at_ms = office.runtime.wall_clock_ms()
    has_changed = any(run.unwritten for run in runs)
    for run in runs:
        await _note(office, run)
    await begin(office, [each for each in begun if each.run.plan.plan_id in context.plans])
    for run in runs:
        await _end_where_done(office, run)
    if has_changed or any(run.unwritten for run in context.plans.values()):
        office.put(PlansDue())  # there may be more to do, after others had their turn


# --- what has happened ------------------------------------------------------------------------------------------------


async def _observe(office: Office, run: PlanRun) -> None:
    """Mark what has arrived, failed or was taken elsewhere; turn round what a cancelled plan still moves."""
    context = office.context
    if run.is_returning and run.progress.waiting:
        async for number in office.in_turns(range(len(run.steps))):
            if run.outcomes[number].state is StepState.WAITING:
                run.mark(number, CANCELLED)
    asked = await requests_left(office, run)
    if run.is_returning:
        await turn_round(office, run, [number for number in run.moving if _has_to_turn(context, run, number)])
        await withdraw(office, run, asked)
        asked = set()
    found: dict[int, StepOutcome] = {}
    async for number in office.in_turns(run.moving):
        step = run.steps[number]
        if step.action.is_reassignment:
            outcome = outcome_of_move(context, run, step)
        else:
            outcome = outcome_of_request(context, run, step, asked)
        if outcome is not None:
            found[number] = outcome
    # First the leaders: who dies in between finds the steps still under way, and does it once more.
    await put_leaders_back(office, run, [n for n, outcome in found.items() if outcome in (FINISHED, CANCELLED)])
    for number, outcome in found.items():
        run.mark(number, replace(outcome, reason=outcome.reason or run.outcomes[number].reason))


def _has_to_turn(context: ControllerContext, run: PlanRun, number: int) -> bool:
    step = run.steps[number]
    if not step.action.is_reassignment:
        return False
    return whereabouts(context, step.key, run.origin(step), run.goal(step)) is Whereabouts.TURNING


# --- what is written --------------------------------------------------------------------------------------------------


async def _note(office: Office, run: PlanRun) -> None:
    """Write what has become of the steps; of a plan that somebody removes at this moment nothing is known any more."""
    if not run.unwritten:
        return
    plan_id = run.plan.plan_id
    chunks: dict[str, tuple[bytes, bool]] = {}
    for chunk in sorted(run.unwritten):
        data = documents.encode_outcomes(run.outcomes_of(chunk))
        chunks[znodes.plan_progress_path(plan_id, chunk)] = (data, chunk in run.noted)
        await office.breathe()
    totals = documents.encode_progress(run.progress)
    if await office.writes.note_progress(znodes.plan_progress_path(plan_id), totals, chunks):
        run.noted |= run.unwritten
        run.unwritten.clear()
    else:
        del office.context.plans[plan_id]
        office.put(PlansChanged())


async def _end_where_done(office: Office, run: PlanRun) -> None:
    context, plan_id = office.context, run.plan.plan_id
    if plan_id not in context.plans or run.unwritten or not run.is_done:
        return
    state, reason = ending(run.plan, run.steps, run.outcomes)
    if not await write_header(office, ended(office, run.plan, state, reason), run.version):
        return
    del context.plans[plan_id]
    context.ended_plans.add(plan_id)
    text = f"plan {plan_id}: {state.value}" + (f": {reason}" if reason else "")
    office.memory.tell(_TOLD[state], f"plan {plan_id}", text)
    log.info("controller: {text}", text=text)
    await reconcile_throttle(office)
    for old in sorted(context.ended_plans)[:-ENDED_KEPT]:
        await office.writes.remove_tree(znodes.plan_path(old))
        context.ended_plans.discard(old)
