"""Whose turn it is: the steps of plans that are begun in one pass, as many as brokers may have at a time."""

from __future__ import annotations

from collections.abc import Sequence

from kreplica.cluster.plans.plan import StepOutcome
from kreplica.controller.plans import step_state
from kreplica.controller.plans.actions import Begun, put_leaders_back
from kreplica.controller.plans.step_state import (
    CANCELLED,
    FINISHED,
    MOVING,
    Whereabouts,
    ends_of,
    failed,
    loads,
    outcome_of_request,
    overtaken,
    whereabouts,
)
from kreplica.controller.state.running_plan import FREE, PlanRun
from kreplica.controller.term import Office

STEPS_PER_PASS_MAX = 200
"""So many steps are begun before other events have their turn."""


async def choose(office: Office, runs: Sequence[PlanRun]) -> list[Begun]:
    """The steps that can be begun now, the oldest plan's first.

    Those that cannot be any more, or need not be, are marked.
    """
    choice = _Choice(office, runs)
    for run in runs:
        await choice.look_at(run)
    return choice.begun


class _Choice:
    """Of one pass; steps of all plans count.

    :ivar begun: what has been chosen so far.
    """

    def __init__(self, office: Office, runs: Sequence[PlanRun]) -> None:
        self.begun: list[Begun] = []
        self._office = office
        self._context = office.context
        self._busy = loads(office.context, runs)
        self._left = STEPS_PER_PASS_MAX

    async def look_at(self, run: PlanRun) -> None:
        settled: dict[int, StepOutcome] = {}
        for broker, numbers in list(run.queues):
            if broker == FREE or broker in self._context.brokers:
                await self._look_at_queue(run, broker, numbers, settled)
        arrived = [number for number, outcome in settled.items() if outcome in (FINISHED, CANCELLED)]
        await put_leaders_back(self._office, run, arrived)
        for number, outcome in settled.items():
            run.mark(number, outcome)

    async def _look_at_queue(
        self, run: PlanRun, broker: int, numbers: Sequence[int], settled: dict[int, StepOutcome]
    ) -> None:
        """Until its broker has enough to do."""
        limit = run.plan.moves_at_once
        async for number in self._office.in_turns(numbers):
            if not self._left or not step_state.may_begin(self._busy, (broker,), limit):
                return
            ends = ends_of(self._context, run, run.steps[number])
            if not step_state.may_begin(self._busy, ends, limit):
                continue
            outcome = self._outcome(run, number)
            if outcome is not None:
                settled[number] = outcome
            elif self._can_begin(run, number):
                self.begun.append(Begun(run, number))
                self._busy.update(ends)
            else:
                continue
            self._left -= 1

    def _outcome(self, run: PlanRun, number: int) -> StepOutcome | None:
        """What a step has come to before it was begun; None where it is to be begun."""
        context, step = self._context, run.steps[number]
        if not step.action.is_reassignment:
            return outcome_of_request(context, run, step, (step.key,))
        match whereabouts(context, step.key, run.origin(step), run.goal(step)):
            case Whereabouts.AT_ORIGIN:
                return None
            case Whereabouts.ARRIVED:
                return CANCELLED if run.is_returning else FINISHED
            case Whereabouts.UNDER_WAY:
                return MOVING
            case Whereabouts.GONE:
                return failed("the partition is not there any more")
        return overtaken(context, step)

    def _can_begin(self, run: PlanRun, number: int) -> bool:
        """Whether those who copy live, and somebody leads from whom to copy (or it is forced)."""
        context, step = self._context, run.steps[number]
        if not step.action.is_reassignment:
            return True
        if not all(context.is_online(step.key, broker) for broker in run.arriving(step)):
            return False
        state = context.leadership.get(step.key)
        return state is None or step_state.may_copy(state.leader, force=run.plan.force)
