"""What is done for steps of plans: replicas begin to move or turn round, partitions are asked for, leaders put back."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

from twisted.logger import Logger

from kreplica.cluster import znodes
from kreplica.cluster.partition_requests import encode_addition, encode_removal
from kreplica.cluster.plans.plan import Action, Step
from kreplica.controller.handlers import leader_balance, reassignment
from kreplica.controller.plans.step_state import failed
from kreplica.controller.state.running_plan import PlanRun
from kreplica.controller.term import Office
from kreplica.model import NO_LEADER, TopicPartition
from kreplica.zookeeper import read_all

log = Logger()


class Begun(NamedTuple):
    """A step whose turn has come."""

    run: PlanRun
    number: int

    @property
    def step(self) -> Step:
        return self.run.steps[self.number]


async def begin(office: Office, begun: Sequence[Begun]) -> None:
    """Do what these steps ask for; those that are refused have failed."""
    moves = [each for each in begun if each.step.action.is_reassignment]
    await _begin_moves(office, moves)
    requests = dict(_request(each) for each in begun if not each.step.action.is_reassignment)
    if requests:
        await office.writes.ask(requests)


async def _begin_moves(office: Office, moves: Sequence[Begun]) -> None:
    if not moves:
        return
    forced = [each for each in moves if _is_lost(office, each.step.key)]
    await _elect_unclean(office, forced)
    targets: dict[TopicPartition, tuple[int, ...] | None] = {
        each.step.key: each.run.goal(each.step) for each in moves
    }
    results = await reassignment.reassign(office, targets)
    for each in moves:
        error = results[each.step.key]
        if error is not None:
            each.run.mark(each.number, failed(str(error)))
    # Where none of the old replicas lived, one of the new ones leads, with nothing.
    await _elect_unclean(office, [each for each in forced if results[each.step.key] is None])
    for each in forced:
        _tell_of_loss(office, each)


def _is_lost(office: Office, partition: TopicPartition) -> bool:
    state = office.context.leadership.get(partition)
    return state is not None and state.leader == NO_LEADER


async def _elect_unclean(office: Office, forced: Sequence[Begun]) -> None:
    lost = [each.step.key for each in forced if _is_lost(office, each.step.key)]
    if lost:
        await leader_balance.elect_unclean(office, lost)


def _tell_of_loss(office: Office, begun: Begun) -> None:
    partition = begun.step.key
    state = office.context.leadership.get(partition)
    if state is None or state.leader == NO_LEADER:
        text = "nobody in sync lives, and nobody else who could lead"
    else:
        text = f"nobody in sync lived: broker {state.leader} leads with what it has, acknowledged records may be lost"
    log.warn(
        "controller: {plan} was forced: {partition}: {text}",
        plan=begun.run.plan.plan_id,
        partition=str(partition),
        text=text,
    )
    outcome = begun.run.outcomes[begun.number]
    begun.run.mark(begun.number, replace(outcome, reason=outcome.reason or text))


async def turn_round(office: Office, run: PlanRun, numbers: Sequence[int]) -> None:
    """Have what moves go back; nothing has to be copied for that."""
    moves = [Begun(run, number) for number in numbers if run.steps[number].action.is_reassignment]
    targets: dict[TopicPartition, tuple[int, ...] | None] = {each.step.key: run.goal(each.step) for each in moves}
    results = await reassignment.reassign(office, targets) if targets else {}
    for each in moves:
        error = results[each.step.key]
        if error is not None:
            run.mark(each.number, failed(f"it could not be turned round: {error}"))


async def withdraw(office: Office, run: PlanRun, asked: Collection[TopicPartition]) -> None:
    """Take back the requests for partitions to be added or removed that have not been met."""
    steps = [run.steps[number] for number in run.moving if run.steps[number].key in asked]
    paths = [request_path(step) for step in steps]
    if paths:
        await office.writes.remove([*paths, *sorted({path.rpartition("/")[0] for path in paths})])


async def requests_left(office: Office, run: PlanRun) -> set[TopicPartition]:
    """Those of its partitions to be added or removed whose requests are still there."""
    steps = [run.steps[number] for number in run.moving if not run.steps[number].action.is_reassignment]
    answers = await read_all(office.client, [request_path(step) for step in steps]) if steps else []
    return {step.key for step, answer in zip(steps, answers, strict=True) if isinstance(answer, tuple)}


async def put_leaders_back(office: Office, run: PlanRun, numbers: Sequence[int]) -> None:
    """Where a step changed which replica is preferred, that one leads when it has arrived."""
    steps = [run.steps[number] for number in numbers if run.steps[number].action.is_reassignment]
    changed = [step.key for step in steps if step.before[:1] != step.after[:1]]
    if changed:
        await leader_balance.elect_preferred(office, changed)


def request_path(step: Step) -> str:
    """The znode by which a partition is asked to be added or removed."""
    path_of = znodes.partitions_add_path if step.action is Action.ADD else znodes.partitions_remove_path
    return path_of(step.topic, step.partition)


def _request(begun: Begun) -> tuple[str, bytes]:
    step = begun.step
    data = encode_addition(step.after) if step.action is Action.ADD else encode_removal(begun.run.plan.wait_ms)
    return request_path(step), data
