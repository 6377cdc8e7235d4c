"""Searches for ongoing moves in large plans, which skip finished steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from twisted.internet.defer import Deferred, succeed

from kreplica.admin.plans.reading import PlanReader
from kreplica.admin.why.partition_facts import PartitionFactsReader
from kreplica.cluster import znodes
from kreplica.cluster.plans.documents import encode_outcomes, encode_plan, encode_steps
from kreplica.cluster.plans.plan import Action, Plan, PlanKind, PlanState, Step, StepOutcome, StepState
from kreplica.model import TopicPartition
from kreplica.zookeeper import GetChildren, GetData, NoNode, Stat

PLAN_ID = "plan-0000000001"
CHUNK_SIZE = 4
STAT = Stat(1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1)


class StoredPlan:
    """A ZooKeeper client with one plan, stored in chunks of ``CHUNK_SIZE`` steps."""

    def __init__(self, states: Sequence[StepState]) -> None:
        plan = Plan(PLAN_ID, PlanKind.REASSIGN, PlanState.RUNNING, 0, len(states))
        self.read: list[str] = []
        self.data = {znodes.plan_path(PLAN_ID): encode_plan(plan)}
        for chunk, first in enumerate(range(0, len(states), CHUNK_SIZE)):
            numbers = range(first, min(first + CHUNK_SIZE, len(states)))
            steps = [Step(Action.MOVE, "t", number, (1,), (2,)) for number in numbers]
            outcomes = [StepOutcome(states[number]) for number in numbers]
            self.data[znodes.plan_steps_path(PLAN_ID, chunk)] = encode_steps(steps)
            if {outcome.state for outcome in outcomes} != {StepState.WAITING}:
                self.data[znodes.plan_progress_path(PLAN_ID, chunk)] = encode_outcomes(outcomes)

    def get_children(self, path: str) -> Deferred[list[str]]:
        prefix = f"{path}/"
        names = {name.removeprefix(prefix).partition("/")[0] for name in self.data if name.startswith(prefix)}
        return succeed(sorted(names))

    def multi_read(self, reads: Sequence[Any]) -> Deferred[list[Any]]:
        return succeed([self._result(read) for read in reads])

    def _result(self, read: Any) -> Any:
        if isinstance(read, GetChildren):
            return self.get_children(read.path).result
        assert isinstance(read, GetData)
        self.read.append(read.path)
        data = self.data.get(read.path)
        return NoNode(read.path) if data is None else (data, STAT)


def result_of(coroutine: Any) -> Any:
    results: list[Any] = []
    Deferred.fromCoroutine(coroutine).addCallback(results.append)
    (result,) = results
    return result


async def numbers_of(steps: Any) -> list[int]:
    return [row.number async for row in steps]


FINISHED, MOVING, WAITING = StepState.FINISHED, StepState.MOVING, StepState.WAITING


def test_finished_chunks_are_skipped() -> None:
    """Only the outcomes are read from a finished chunk; its steps are still included in the numbering."""
    client = StoredPlan([*[FINISHED] * 9, MOVING, FINISHED, *[WAITING] * 3])
    assert result_of(numbers_of(PlanReader(client).unfinished_steps(PLAN_ID))) == [9, 11, 12, 13]  # type: ignore[arg-type]
    steps_read = [path for path in client.read if "/steps/" in path]
    assert steps_read == [znodes.plan_steps_path(PLAN_ID, chunk) for chunk in (2, 3)]


def test_plan_of_a_move_after_many_finished_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan that moves a partition is found, however many of its steps have finished."""
    monkeypatch.setattr("kreplica.admin.why.partition_facts.STEPS_SEARCHED_MAX", 5)
    plans = PlanReader(StoredPlan([*[FINISHED] * 21, MOVING, WAITING]))  # type: ignore[arg-type]
    facts = PartitionFactsReader(*[None] * 5, plans, None)  # type: ignore[arg-type]
    plan = result_of(facts.plan_of(TopicPartition("t", 21)))
    assert plan is not None
    assert plan.plan_id == PLAN_ID
    assert result_of(facts.plan_of(TopicPartition("t", 3))) is None
