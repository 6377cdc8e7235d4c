"""Actions for plan steps: start and reverse reassignments, write partition requests, elect preferred leaders."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

from twisted.logger import Logger

from kreplica.cluster import znodes
from kreplica.cluster.partition_requests import encode_addition, encode_removal
from kreplica.cluster.plans.plan import Action, Step
from kreplica.controller.handlers import leader_balance, reassignment
from kreplica.controller.plans.step_state import failure
from kreplica.controller.state.running_plan import RunningPlan
from kreplica.controller.term import ControllerTerm
from kreplica.model import NO_LEADER, TopicPartition
from kreplica.zookeeper import read_all

log = Logger()


class StartedStep(NamedTuple):
    """A step that is being started."""

    run: RunningPlan
    number: int

    @property
    def step(self) -> Step:
        return self.run.steps[self.number]


async def begin(term: ControllerTerm, started: Sequence[StartedStep]) -> None:
    """Start these steps; rejected ones are marked as failed."""
    moves = [each for each in started if each.step.action.is_reassignment]
    await _begin_moves(term, moves)
    requests = dict(_request(each) for each in started if not each.step.action.is_reassignment)
    if requests:
        await term.writes.create_requests(requests)


async def _begin_moves(term: ControllerTerm, moves: Sequence[StartedStep]) -> None:
    if not moves:
        return
    forced = [each for each in moves if _is_lost(term, each.step.key)]
    await _elect_unclean(term, forced)
    targets: dict[TopicPartition, tuple[int, ...] | None] = {
        each.step.key: each.run.goal(each.step) for each in moves
    }
    results = await reassignment.reassign(term, targets)
    for each in moves:
        error = results[each.step.key]
        if error is not None:
            each.run.mark(each.number, failure(str(error)))
    # If no old replica was live, elect a new one, with an empty log.
    await _elect_unclean(term, [each for each in forced if results[each.step.key] is None])
    for each in forced:
        _record_loss(term, each)


def _is_lost(term: ControllerTerm, partition: TopicPartition) -> bool:
    state = term.context.leadership.get(partition)
    return state is not None and state.leader == NO_LEADER


async def _elect_unclean(term: ControllerTerm, forced: Sequence[StartedStep]) -> None:
    lost = [each.step.key for each in forced if _is_lost(term, each.step.key)]
    if lost:
        await leader_balance.elect_unclean(term, lost)


def _record_loss(term: ControllerTerm, started: StartedStep) -> None:
    partition = started.step.key
    state = term.context.leadership.get(partition)
    if state is None or state.leader == NO_LEADER:
        text = "no in-sync replica is live, and no other replica can lead"
    else:
        text = f"no in-sync replica was live: broker {state.leader} was elected, acknowledged records may be lost"
    log.warn(
        "controller: forced step of {plan} for {partition}: {text}",
        plan=started.run.plan.plan_id,
        partition=str(partition),
        text=text,
    )
    outcome = started.run.outcomes[started.number]
    started.run.mark(started.number, replace(outcome, reason=outcome.reason or text))


async def reverse_moves(term: ControllerTerm, run: RunningPlan, numbers: Sequence[int]) -> None:
    """Reverse ongoing reassignments, which requires no copying."""
    moves = [StartedStep(run, number) for number in numbers if run.steps[number].action.is_reassignment]
    targets: dict[TopicPartition, tuple[int, ...] | None] = {each.step.key: run.goal(each.step) for each in moves}
    results = await reassignment.reassign(term, targets) if targets else {}
    for each in moves:
        error = results[each.step.key]
        if error is not None:
            run.mark(each.number, failure(f"it could not be reversed: {error}"))


async def withdraw(term: ControllerTerm, run: RunningPlan, requested: Collection[TopicPartition]) -> None:
    """Remove the pending requests to add or remove partitions."""
    steps = [run.steps[number] for number in run.moving_steps if run.steps[number].key in requested]
    paths = [request_path(step) for step in steps]
    if paths:
        await term.writes.remove([*paths, *sorted({path.rpartition("/")[0] for path in paths})])


async def pending_requests(term: ControllerTerm, run: RunningPlan) -> set[TopicPartition]:
    """Return the partitions of the plan whose requests to be added or removed are still pending."""
    steps = [run.steps[number] for number in run.moving_steps if not run.steps[number].action.is_reassignment]
    read_results = await read_all(term.client, [request_path(step) for step in steps]) if steps else []
    return {step.key for step, result in zip(steps, read_results, strict=True) if isinstance(result, tuple)}


async def elect_preferred_leaders(term: ControllerTerm, run: RunningPlan, numbers: Sequence[int]) -> None:
    """Elect the preferred replicas of finished steps that changed the preferred replica."""
    steps = [run.steps[number] for number in numbers if run.steps[number].action.is_reassignment]
    changed = [step.key for step in steps if step.before[:1] != step.after[:1]]
    if changed:
        await leader_balance.elect_preferred(term, changed)


def request_path(step: Step) -> str:
    """Return the path of the znode that requests the addition or removal of a partition."""
    path_of = znodes.partitions_add_path if step.action is Action.ADD else znodes.partitions_remove_path
    return path_of(step.topic, step.partition)


def _request(started: StartedStep) -> tuple[str, bytes]:
    step = started.step
    data = encode_addition(step.after) if step.action is Action.ADD else encode_removal(started.run.plan.wait_ms)
    return request_path(step), data
