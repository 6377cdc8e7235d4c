"""Plans read from ZooKeeper into the context: those that are new, patched, cancelled or gone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from twisted.logger import Logger

from kreplica.cluster import znodes
from kreplica.cluster.plans import documents
from kreplica.cluster.plans.plan import Plan, PlanState, Step, StepOutcome
from kreplica.controller.event_types import PlansChanged
from kreplica.controller.plans.step_state import Whereabouts, whereabouts
from kreplica.controller.state.running_plan import PlanRun
from kreplica.controller.term import Office
from kreplica.runtime.together import together
from kreplica.zookeeper import NoNode, read_all

log = Logger()

PREPARING_MS_MAX = 10 * 60 * 1000
"""Who makes a plan has so long to write its steps; after that it has failed."""

CHUNKS_AT_ONCE = 4
"""So many chunks are in one answer of ZooKeeper."""

Headers = dict[str, tuple[Plan, int]]


async def read_plans(office: Office) -> None:
    """Whatever was made, patched, cancelled or removed is so in the context too, with watches for more."""
    context = office.context
    watch = office.watch(znodes.PLANS, PlansChanged())
    try:
        names = sorted(await office.client.get_children(znodes.PLANS, watch))
    except NoNode:
        office.unwatched(znodes.PLANS)
        names = []
    context.ended_plans.intersection_update(names)
    headers = await _read_headers(office, [name for name in names if name not in context.ended_plans])
    for plan_id in [plan_id for plan_id in sorted(context.plans) if plan_id not in headers]:
        # What moves arrives as any reassignment does.
        log.warn("controller: {plan} was removed by hand: nothing more is begun for it", plan=plan_id)
        del context.plans[plan_id]
    for plan_id, (plan, version) in headers.items():
        await _take_in(office, plan_id, plan, version)


async def _read_headers(office: Office, names: Sequence[str]) -> Headers:
    read = await together([_read_header(office, name) for name in names])
    return {name: header for name, header in zip(names, read, strict=True) if header is not None}


async def _read_header(office: Office, plan_id: str) -> tuple[Plan, int] | None:
    path = znodes.plan_path(plan_id)
    watch = office.watch(path, PlansChanged())
    try:
        data, stat = await office.client.get_data(path, watch)
        return documents.decode_plan(plan_id, data), stat.version
    except NoNode:
        if watch is not None:
            office.unwatched(path)
    except znodes.ZnodeError as error:
        log.error("controller: a plan that cannot be read is left alone: {error}", error=str(error))
        known = office.context.plans.get(plan_id)
        return None if known is None else (known.plan, known.version)
    return None


async def _take_in(office: Office, plan_id: str, plan: Plan, version: int) -> None:
    context = office.context
    if plan.state.is_ended:
        context.plans.pop(plan_id, None)
        context.ended_plans.add(plan_id)
    elif plan_id in context.plans:
        run = context.plans[plan_id]
        if run.read_again(plan, version):
            await _count(office, run)
    elif plan.state is PlanState.PREPARING:
        await _wait_for_steps(office, plan, version)
    else:
        await _load(office, plan, version)


async def _wait_for_steps(office: Office, plan: Plan, version: int) -> None:
    """Whoever makes it may have died in the middle of it: it must not stand in the way of others for ever."""
    left_ms = plan.created_at_ms + PREPARING_MS_MAX - office.runtime.wall_clock_ms()
    if left_ms > 0:
        office.put_later(PlansChanged(), left_ms / 1000)
    else:
        await write_header(office, ended(office, plan, PlanState.FAILED, "its steps were never all written"), version)


async def _load(office: Office, plan: Plan, version: int) -> None:
    try:
        run = await _read_run(office, plan, version)
    except znodes.ZnodeError as error:
        log.error("controller: {plan} cannot be carried out: {error}", plan=plan.plan_id, error=str(error))
        await write_header(office, ended(office, plan, PlanState.FAILED, str(error)), version)
        return
    if plan.state is PlanState.PENDING:
        running = replace(plan, state=PlanState.RUNNING)
        if not await write_header(office, running, version):
            return
        run.read_again(running, version + 1)  # the same steps wait as before
        text = f"plan {plan.plan_id} begins: {plan.kind.value}, {plan.steps_count} steps"
        office.memory.tell("plan_begun", f"plan {plan.plan_id}", text, steps=plan.steps_count)
    _resume(office, run)
    office.context.plans[plan.plan_id] = run


async def _read_run(office: Office, plan: Plan, version: int) -> PlanRun:
    """:raise ZnodeError: where the steps are not what the header says."""
    parent = znodes.plan_steps_path(plan.plan_id)
    try:
        names = sorted(await office.client.get_children(parent))
    except NoNode:
        names = []
    chunks = [documents.decode_steps(path, data) for path, data in await _read(office, parent, names) if data]
    count = sum(map(len, chunks))
    if count != plan.steps_count:
        if plan.state is not PlanState.CANCELLING:
            raise znodes.ZnodeError(f"{parent}: {count} steps are there, and the header says {plan.steps_count}")
        chunks = []  # cancelled before it was complete: nothing was begun
    started_at_ms, noted, outcomes = await _read_outcomes(office, plan, chunks)
    run = PlanRun(plan, version, chunks, outcomes, started_at_ms, noted)
    await _count(office, run)
    return run


async def _count(office: Office, run: PlanRun) -> None:
    for _ in run.counting():
        await office.breathe()


async def _read_outcomes(
    office: Office, plan: Plan, chunks: Sequence[tuple[Step, ...]]
) -> tuple[int | None, list[int], list[StepOutcome]]:
    """When it was begun, which chunks have outcomes, and those of all steps."""
    parent = znodes.plan_progress_path(plan.plan_id)
    names = [f"{number:08d}" for number in range(len(chunks))]
    started_at_ms = None
    (totals,) = await read_all(office.client, [parent])
    if isinstance(totals, tuple):
        started_at_ms = documents.decode_progress(parent, totals[0]).started_at_ms
    noted: list[int] = []
    outcomes: list[StepOutcome] = []
    for number, (path, data) in enumerate(await _read(office, parent, names)):
        known = documents.decode_outcomes(path, data) if data else (StepOutcome(),) * len(chunks[number])
        if data:
            noted.append(number)
        if len(known) != len(chunks[number]):
            raise znodes.ZnodeError(f"{path}: {len(known)} outcomes are there, of {len(chunks[number])} steps")
        outcomes += known
    return started_at_ms, noted, outcomes


async def _read(office: Office, parent: str, names: Sequence[str]) -> list[tuple[str, bytes]]:
    """What these children hold; nothing of one that is not there."""
    found = []
    for start in range(0, len(names), CHUNKS_AT_ONCE):
        paths = [f"{parent}/{name}" for name in names[start : start + CHUNKS_AT_ONCE]]
        answers = await read_all(office.client, paths)
        found += [(path, a[0] if isinstance(a, tuple) else b"") for path, a in zip(paths, answers, strict=True)]
        await office.breathe()
    return found


def _resume(office: Office, run: PlanRun) -> None:
    """Steps that an earlier controller noted as begun, and may have died before it began them: begin them again."""
    if run.is_returning:
        return  # there such a step is found where it was, and finished
    for number in run.moving:
        step = run.steps[number]
        at_origin = whereabouts(office.context, step.key, step.before, step.after) is Whereabouts.AT_ORIGIN
        if at_origin or not step.action.is_reassignment:
            run.mark(number, StepOutcome())


def ended(office: Office, plan: Plan, state: PlanState, reason: str | None) -> Plan:
    """The header of a plan for which nothing will be done any more."""
    return replace(plan, state=state, reason=reason, ended_at_ms=office.runtime.wall_clock_ms())


async def write_header(office: Office, plan: Plan, version: int) -> bool:
    """Replace a plan's header where it has that version; else somebody changed it, and it is read again."""
    path = znodes.plan_path(plan.plan_id)
    if await office.writes.rewrite_request(path, documents.encode_plan(plan), version):
        return True
    office.put(PlansChanged())
    return False
