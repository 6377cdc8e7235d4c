"""Counters and queues of an active plan, for any order of step outcomes."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from kreplica.cluster.plans import documents
from kreplica.cluster.plans.plan import Action, Plan, PlanKind, PlanState, Step, StepOutcome, StepState
from kreplica.cluster.plans.progress import progress
from kreplica.controller.journal.plan_json import decode_run, encode_run
from kreplica.controller.state.running_plan import FREE, RunningPlan

STEPS = [
    *(Step(Action.MOVE, "t", number, (1, 2), (3 + number % 3, 2), 1 + number) for number in range(7)),
    Step(Action.REORDER, "t", 7, (1, 2), (2, 1)),
    Step(Action.MOVE, "t", 8, (1, 2), (1,)),
    Step(Action.ADD, "t", 9, (), (5, 6)),
]
CHUNKS = [tuple(STEPS[:4]), tuple(STEPS[4:5]), tuple(STEPS[5:])]
PLAN = Plan(documents.plan_id(1), PlanKind.REASSIGN, PlanState.RUNNING, 0, len(STEPS))

outcomes = st.builds(StepOutcome, st.sampled_from(StepState), st.sampled_from([None, "why"]))
marks = st.lists(st.tuples(st.integers(0, len(STEPS) - 1), outcomes), max_size=40)
directions = st.sampled_from(
    [(PlanState.RUNNING, False), (PlanState.CANCELLING, False), (PlanState.CANCELLING, True)]
)


def expected_queue(run: RunningPlan) -> list[int]:
    """Return the waiting steps, determined by a full scan."""
    if not run.is_reverting:
        return [n for n, outcome in enumerate(run.outcomes) if outcome.state is StepState.WAITING]
    if not run.plan.rollback:
        return []
    finished = [n for n, outcome in enumerate(run.outcomes) if outcome.state is StepState.FINISHED]
    return [n for n in finished if run.steps[n].action.is_reassignment]


def check(run: RunningPlan) -> None:
    assert run.progress == progress(run.steps, run.outcomes, run.started_at_ms)
    assert run.moving_steps == [n for n, outcome in enumerate(run.outcomes) if outcome.state is StepState.MOVING]
    queues = dict(run.queues)
    assert sorted(n for numbers in queues.values() for n in numbers) == expected_queue(run)
    for broker, numbers in queues.items():
        assert list(numbers) == sorted(numbers, reverse=run.is_reverting)
        for number in numbers:
            arriving = run.receiving_brokers(run.steps[number])
            assert broker == (arriving[0] if arriving else FREE)
    assert run.is_done == (not run.moving_steps and not expected_queue(run))


@given(marks, directions, marks)
def test_counters_and_queues_match_a_full_scan(
    before: list[tuple[int, StepOutcome]],
    direction: tuple[PlanState, bool],
    after: list[tuple[int, StepOutcome]],
) -> None:
    """Counters, queues and steps in progress match a full scan, even after the plan changes its direction."""
    run = RunningPlan.with_counters(PLAN, 3, CHUNKS, [StepOutcome()] * len(STEPS))
    for number, outcome in before:
        run.mark(number, outcome)
    check(run)
    state, rollback = direction
    if run.replace_header(replace(PLAN, state=state, rollback=rollback), 4):
        for _ in run.build_counters():
            pass
    for number, outcome in after:
        run.mark(number, outcome)
    check(run)
    marked = {run.chunk_of(number) for number, _ in (*before, *after)}
    assert run.unwritten <= marked
    assert [outcome for chunk in range(len(CHUNKS)) for outcome in run.outcomes_of(chunk)] == run.outcomes
    again = decode_run(encode_run(run))
    assert vars(again) == vars(run)


def test_chunks_of_steps() -> None:
    """Each step belongs to one chunk, in order."""
    run = RunningPlan.with_counters(PLAN, 0, CHUNKS, [StepOutcome()] * len(STEPS))
    assert [run.chunk_of(number) for number in range(len(STEPS))] == [0, 0, 0, 0, 1, 2, 2, 2, 2, 2]
