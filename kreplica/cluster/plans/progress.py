"""Progress and final state of a plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from kreplica.cluster.plans.plan import Plan, PlanProgress, PlanState, Step, StepOutcome, StepState


def progress(steps: Sequence[Step], outcomes: Sequence[StepOutcome], started_at_ms: int | None = None) -> PlanProgress:
    """Count the steps by state.

    :param outcomes: one for each step.
    """
    counts = Counter(outcome.state for outcome in outcomes)
    finished = StepState.FINISHED
    return PlanProgress(
        waiting=counts[StepState.WAITING],
        moving=counts[StepState.MOVING],
        finished=counts[finished],
        failed=counts[StepState.FAILED],
        cancelled=counts[StepState.CANCELLED],
        bytes=sum(step.bytes for step in steps),
        bytes_done=sum(s.bytes for s, outcome in zip(steps, outcomes, strict=True) if outcome.state is finished),
        started_at_ms=started_at_ms,
    )


def final_state(plan: Plan, steps: Sequence[Step], outcomes: Sequence[StepOutcome]) -> tuple[PlanState, str | None]:
    """Return the final state of a plan that has no open steps, and an explanation if a step failed or has a reason."""
    notable = [number for number, outcome in enumerate(outcomes) if outcome.reason or outcome.state is StepState.FAILED]
    failed = [number for number in notable if outcomes[number].state is StepState.FAILED]
    with_reason = [number for number in notable if outcomes[number].state is not StepState.FAILED]
    sentences = []
    for what, numbers in (("failed", failed), ("did not end as requested", with_reason)):
        if numbers:
            first = "" if len(numbers) == 1 else "the first, "
            step, reason = steps[numbers[0]], outcomes[numbers[0]].reason
            sentences.append(f"{len(numbers)} of {len(steps)} steps {what}: {first}{step.key}: {reason}")
    reason = "; ".join(sentences) or None
    if plan.state is PlanState.CANCELLING:
        return PlanState.CANCELLED, reason
    return (PlanState.FAILED if failed else PlanState.COMPLETED), reason
