"""An active plan in the controller's memory, with its steps and their outcomes."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any

from kreplica.cluster.plans.plan import Plan, PlanProgress, PlanState, Step, StepOutcome, StepState

FREE = -1
"""Key of the queue of steps that copy no data; other keys are broker IDs."""

COUNTED_AT_ONCE = 500
"""Number of steps that ``build_counters`` processes between two yields."""


class RunningPlan:
    """A plan with its steps.  Changed only while an event is being handled.

    :param plan: the header as last read or written, with the ``version`` of its znode.
    :param chunks: the steps as stored in ZooKeeper; step numbers continue from chunk to chunk.
    :param outcomes: one for each step.
    :param written_chunks: numbers of the chunks whose outcomes are in ZooKeeper.
    """

    def __init__(
        self,
        plan: Plan,
        version: int,
        chunks: Sequence[tuple[Step, ...]],
        outcomes: Sequence[StepOutcome],
        started_at_ms: int | None = None,
        written_chunks: Iterable[int] = (),
    ) -> None:
        self.plan = plan
        self.version = version
        self.chunks = tuple(chunks)
        self.steps: tuple[Step, ...] = tuple(step for chunk in chunks for step in chunk)
        self.outcomes = list(outcomes)
        self.started_at_ms = started_at_ms
        self.written_chunks = set(written_chunks)
        self.unwritten: set[int] = set()
        """Numbers of the chunks whose outcomes differ from ZooKeeper."""
        self._chunk_ends = list(accumulate(len(chunk) for chunk in chunks))
        self._counts = Counter[StepState]()
        self._bytes = self._bytes_done = 0
        self._moving = set[int]()
        self._queues: dict[int, list[int]] = {}

    @classmethod
    def with_counters(cls, *args: Any) -> RunningPlan:
        """Return a plan with complete counters and queues, built without yielding."""
        run = cls(*args)
        for _ in run.build_counters():
            pass
        return run

    def build_counters(self) -> Iterator[None]:
        """Build the counters and queues.  Required before any other use, and after the plan's direction has changed.

        Yields every ``COUNTED_AT_ONCE`` steps, because a plan may have 100,000.
        """
        self._counts = Counter()
        self._bytes = self._bytes_done = 0
        self._moving = set()
        self._queues = {}
        for number, (step, outcome) in enumerate(zip(self.steps, self.outcomes, strict=True)):
            self._counts[outcome.state] += 1
            self._bytes += step.bytes
            if outcome.state is StepState.MOVING:
                self._moving.add(number)
            elif outcome.state is StepState.FINISHED:
                self._bytes_done += step.bytes
            self._enter_queue(number)
            if number % COUNTED_AT_ONCE == 0:
                yield

    def copy(self) -> RunningPlan:
        """Return a copy for encoding: the counters and queues are shared with the original."""
        copy = RunningPlan.__new__(RunningPlan)
        vars(copy).update(vars(self))
        copy.outcomes = list(self.outcomes)
        copy.written_chunks, copy.unwritten = set(self.written_chunks), set(self.unwritten)
        return copy

    # --- pending work ------------------------------------------------------------------------------------------------

    @property
    def is_reverting(self) -> bool:
        """True if the plan is being cancelled: ongoing moves are reversed and, in a rollback, finished ones as well."""
        return self.plan.state is PlanState.CANCELLING

    def origin(self, step: Step) -> tuple[int, ...]:
        """Return a step's replicas before the move, in the plan's current direction."""
        return step.after if self.is_reverting else step.before

    def goal(self, step: Step) -> tuple[int, ...]:
        """Return a step's replicas after the move, in the plan's current direction."""
        return step.before if self.is_reverting else step.after

    @property
    def moving_steps(self) -> list[int]:
        """The numbers of the steps in progress."""
        return sorted(self._moving)

    @property
    def queues(self) -> Iterator[tuple[int, Sequence[int]]]:
        """Waiting steps in order, grouped by the first broker that receives a new replica; ``FREE`` if none does."""
        for broker in sorted(self._queues):
            numbers = self._queues[broker]
            yield broker, numbers[::-1] if self.is_reverting else numbers

    @property
    def is_done(self) -> bool:
        """True if no step is in progress or waiting."""
        return not self._moving and not self._queues

    @property
    def progress(self) -> PlanProgress:
        counts = self._counts
        return PlanProgress(
            waiting=counts[StepState.WAITING],
            moving=counts[StepState.MOVING],
            finished=counts[StepState.FINISHED],
            failed=counts[StepState.FAILED],
            cancelled=counts[StepState.CANCELLED],
            bytes=self._bytes,
            bytes_done=self._bytes_done,
            started_at_ms=self.started_at_ms,
        )

    def receiving_brokers(self, step: Step) -> tuple[int, ...]:
        """Return the brokers that receive a new replica, in the plan's current direction."""
        origin = self.origin(step)
        return tuple(replica for replica in self.goal(step) if replica not in origin)

    # --- changes -----------------------------------------------------------------------------------------------------

    def mark(self, number: int, outcome: StepOutcome) -> None:
        """Set the outcome of a step and schedule its chunk for writing."""
        old, step = self.outcomes[number], self.steps[number]
        if outcome == old:
            return
        self._leave_queue(number)
        self.outcomes[number] = outcome
        self._counts[old.state] -= 1
        self._counts[outcome.state] += 1
        finished_change = (outcome.state is StepState.FINISHED) - (old.state is StepState.FINISHED)
        self._bytes_done += step.bytes * finished_change
        self._moving.discard(number)
        if outcome.state is StepState.MOVING:
            self._moving.add(number)
        self._enter_queue(number)
        self.unwritten.add(self.chunk_of(number))

    def replace_header(self, plan: Plan, version: int) -> bool:
        """Replace the header; return True if the plan's direction changed, so that its counters must be rebuilt."""
        is_reversed = (plan.state, plan.rollback) != (self.plan.state, self.plan.rollback)
        self.plan, self.version = plan, version
        return is_reversed

    def chunk_of(self, number: int) -> int:
        return bisect_right(self._chunk_ends, number)

    def outcomes_of(self, chunk: int) -> Sequence[StepOutcome]:
        """Return the outcomes of the steps of one chunk."""
        end = self._chunk_ends[chunk]
        return self.outcomes[end - len(self.chunks[chunk]) : end]

    # --- queues ------------------------------------------------------------------------------------------------------

    def _is_pending(self, number: int) -> bool:
        """Return True if the step has not started or, in a rollback, must still be undone."""
        state = self.outcomes[number].state
        if not self.is_reverting:
            return state is StepState.WAITING
        must_be_undone = self.plan.rollback and self.steps[number].action.is_reassignment
        return state is StepState.FINISHED and must_be_undone

    def _queue_of(self, number: int) -> int:
        return next(iter(self.receiving_brokers(self.steps[number])), FREE)

    def _enter_queue(self, number: int) -> None:
        if self._is_pending(number):
            insort(self._queues.setdefault(self._queue_of(number), []), number)

    def _leave_queue(self, number: int) -> None:
        if self._is_pending(number):
            broker = self._queue_of(number)
            queue = self._queues[broker]
            del queue[bisect_right(queue, number) - 1]
            if not queue:
                del self._queues[broker]
