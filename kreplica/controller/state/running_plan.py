"""A plan that has not ended, as the controller that carries it out knows it: the steps, and what has become of each."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any

from kreplica.cluster.plans.plan import Plan, PlanProgress, PlanState, Step, StepOutcome, StepState

FREE = -1
"""The queue of steps that copy nothing."""

COUNTED_AT_ONCE = 500


class PlanRun:
    """Changed only while an event is handled, and by ``mark`` alone.

    :param plan: the header as it was read or written last, in ``version`` of its znode.
    :param chunks: the steps as they stand in ZooKeeper; their numbers go on from chunk to chunk.
    :param outcomes: one for each step.
    :param noted: the chunks of which ZooKeeper has outcomes.
    """

    def __init__(
        self,
        plan: Plan,
        version: int,
        chunks: Sequence[tuple[Step, ...]],
        outcomes: Sequence[StepOutcome],
        started_at_ms: int | None = None,
        noted: Iterable[int] = (),
    ) -> None:
        self.plan = plan
        self.version = version
        self.chunks = tuple(chunks)
        self.steps: tuple[Step, ...] = tuple(step for chunk in chunks for step in chunk)
        self.outcomes = list(outcomes)
        self.started_at_ms = started_at_ms
        self.noted = set(noted)
        self.unwritten: set[int] = set()
        """The chunks whose outcomes are others than in ZooKeeper."""
        self._ends = list(accumulate(len(chunk) for chunk in chunks))
        self._counts = Counter[StepState]()
        self._bytes = self._bytes_done = 0
        self._moving = set[int]()
        self._queues: dict[int, list[int]] = {}

    @classmethod
    def at_once(cls, *made_of: Any) -> PlanRun:
        """One that is ready, where nobody waits for a turn."""
        run = cls(*made_of)
        for _ in run.counting():
            pass
        return run

    def counting(self) -> Iterator[None]:
        """Find out what there is to do, to be gone through before anything else, and where the plan has turned round.

        In pieces of a few milliseconds: a plan may have 100,000 steps.
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

    def copy(self) -> PlanRun:
        """One that stays as it is."""
        copy = PlanRun.__new__(PlanRun)
        vars(copy).update(vars(self))
        copy.outcomes = list(self.outcomes)
        copy.noted, copy.unwritten = set(self.noted), set(self.unwritten)
        return copy

    # --- what there is to do -----------------------------------------------------------------------------------------

    @property
    def is_returning(self) -> bool:
        """Whether what was begun goes back to where it was."""
        return self.plan.state is PlanState.CANCELLING

    def origin(self, step: Step) -> tuple[int, ...]:
        """Where a step's replicas are before it, in the direction that the plan has now."""
        return step.after if self.is_returning else step.before

    def goal(self, step: Step) -> tuple[int, ...]:
        """Where a step's replicas go, in the direction that the plan has now."""
        return step.before if self.is_returning else step.after

    @property
    def moving(self) -> list[int]:
        """The numbers of the steps that are under way."""
        return sorted(self._moving)

    @property
    def queues(self) -> Iterator[tuple[int, Sequence[int]]]:
        """Steps that wait for their turn, in their order, by the first broker that copies; ``FREE`` where none does."""
        for broker in sorted(self._queues):
            numbers = self._queues[broker]
            yield broker, numbers[::-1] if self.is_returning else numbers

    @property
    def is_done(self) -> bool:
        """Whether nothing is under way, and nothing waits."""
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

    def arriving(self, step: Step) -> tuple[int, ...]:
        """The brokers that copy it, in the direction that the plan has now."""
        origin = self.origin(step)
        return tuple(replica for replica in self.goal(step) if replica not in origin)

    # --- what changes ------------------------------------------------------------------------------------------------

    def mark(self, number: int, outcome: StepOutcome) -> None:
        """A step has come to this; its chunk is to be written."""
        old, step = self.outcomes[number], self.steps[number]
        if outcome == old:
            return
        self._leave_queue(number)
        self.outcomes[number] = outcome
        self._counts[old.state] -= 1
        self._counts[outcome.state] += 1
        done = (outcome.state is StepState.FINISHED) - (old.state is StepState.FINISHED)
        self._bytes_done += step.bytes * done
        self._moving.discard(number)
        if outcome.state is StepState.MOVING:
            self._moving.add(number)
        self._enter_queue(number)
        self.unwritten.add(self.chunk_of(number))

    def read_again(self, plan: Plan, version: int) -> bool:
        """The header is another now; whether the plan has turned round by that, so that all is to be counted anew."""
        turned = (plan.state, plan.rollback) != (self.plan.state, self.plan.rollback)
        self.plan, self.version = plan, version
        return turned

    def chunk_of(self, number: int) -> int:
        return bisect_right(self._ends, number)

    def outcomes_of(self, chunk: int) -> Sequence[StepOutcome]:
        """What has become of the steps of one chunk."""
        end = self._ends[chunk]
        return self.outcomes[end - len(self.chunks[chunk]) : end]

    # --- queues ------------------------------------------------------------------------------------------------------

    def _waits(self, number: int) -> bool:
        """Whether its turn is to come: to begin, or, of what is finished, to go back."""
        state = self.outcomes[number].state
        if not self.is_returning:
            return state is StepState.WAITING
        returns = self.plan.rollback and self.steps[number].action.is_reassignment
        return state is StepState.FINISHED and returns

    def _queue_of(self, number: int) -> int:
        return next(iter(self.arriving(self.steps[number])), FREE)

    def _enter_queue(self, number: int) -> None:
        if self._waits(number):
            insort(self._queues.setdefault(self._queue_of(number), []), number)

    def _leave_queue(self, number: int) -> None:
        if self._waits(number):
            broker = self._queue_of(number)
            queue = self._queues[broker]
            del queue[bisect_right(queue, number) - 1]
            if not queue:
                del self._queues[broker]
