"""Selects the plan steps to start in one pass, within each broker's limits."""

from __future__ import annotations

from collections.abc import Sequence

from kreplica.cluster.plans.plan import StepOutcome
from kreplica.controller.plans import step_state
from kreplica.controller.plans.actions import StartedStep, elect_preferred_leaders
from kreplica.controller.plans.step_state import (
    CANCELLED,
    FINISHED,
    MOVING,
    MovePosition,
    failure,
    loaded_brokers,
    move_position,
    moves_by_broker,
    outcome_of_request,
    superseded_outcome,
)
from kreplica.controller.state.running_plan import FREE, RunningPlan
from kreplica.controller.term import ControllerTerm

STEPS_PER_PASS_MAX = 200
"""Maximum number of steps started in one pass, so that other events are not delayed."""


async def choose(term: ControllerTerm, runs: Sequence[RunningPlan]) -> list[StartedStep]:
    """Return the steps that can start now, beginning with the oldest plan.

    Marks the outcomes of steps that have already finished or can no longer start.
    """
    selection = _Selection(term, runs)
    for run in runs:
        await selection.add_steps(run)
    return selection.started


class _Selection:
    """Steps selected in one pass; the steps of all plans count toward a broker's limit.

    :ivar started: the steps selected so far.
    """

    def __init__(self, term: ControllerTerm, runs: Sequence[RunningPlan]) -> None:
        self.started: list[StartedStep] = []
        self._term = term
        self._context = term.context
        self._loads = moves_by_broker(term.context, runs)
        self._remaining = STEPS_PER_PASS_MAX

    async def add_steps(self, run: RunningPlan) -> None:
        settled: dict[int, StepOutcome] = {}
        for broker, numbers in list(run.queues):
            if broker == FREE or broker in self._context.brokers:
                await self._select_from_queue(run, broker, numbers, settled)
        finished = [number for number, outcome in settled.items() if outcome in (FINISHED, CANCELLED)]
        await elect_preferred_leaders(self._term, run, finished)
        for number, outcome in settled.items():
            run.mark(number, outcome)

    async def _select_from_queue(
        self, run: RunningPlan, broker: int, numbers: Sequence[int], settled: dict[int, StepOutcome]
    ) -> None:
        """Select steps of a queue until its broker reaches its limit."""
        limit = run.plan.moves_at_once
        async for number in self._term.in_slices(numbers):
            if not self._remaining or not step_state.can_begin(self._loads, (broker,), limit):
                return
            brokers = loaded_brokers(self._context, run, run.steps[number])
            if not step_state.can_begin(self._loads, brokers, limit):
                continue
            outcome = self._outcome(run, number)
            if outcome is not None:
                settled[number] = outcome
            elif self._can_begin(run, number):
                self.started.append(StartedStep(run, number))
                self._loads.update(brokers)
            else:
                continue
            self._remaining -= 1

    def _outcome(self, run: RunningPlan, number: int) -> StepOutcome | None:
        """Return the outcome of a step that does not need to start, or None if it should start."""
        context, step = self._context, run.steps[number]
        if not step.action.is_reassignment:
            return outcome_of_request(context, run, step, (step.key,))
        match move_position(context, step.key, run.origin(step), run.goal(step)):
            case MovePosition.AT_ORIGIN:
                return None
            case MovePosition.AT_GOAL:
                return CANCELLED if run.is_reverting else FINISHED
            case MovePosition.IN_PROGRESS:
                return MOVING
            case MovePosition.REMOVED:
                return failure("the partition does not exist")
        return superseded_outcome(context, step)

    def _can_begin(self, run: RunningPlan, number: int) -> bool:
        """Return True if all receiving replicas are online, and a leader exists or the plan is forced."""
        context, step = self._context, run.steps[number]
        if not step.action.is_reassignment:
            return True
        if not all(context.is_online(step.key, broker) for broker in run.receiving_brokers(step)):
            return False
        state = context.leadership.get(step.key)
        return state is None or step_state.can_copy(state.leader, force=run.plan.force)
