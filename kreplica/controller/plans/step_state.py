"""Pure functions that derive the outcomes of plan steps from the current cluster state.

Progress is derived from the placement in ZooKeeper (finished, in progress, or superseded by another reassignment), so
that any controller can continue a plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from enum import Enum, auto

from kreplica.cluster.plans.plan import Action, Step, StepOutcome, StepState
from kreplica.controller.decisions import reassignment_plan
from kreplica.controller.handlers import partition_addition, partition_removal
from kreplica.controller.state.context import ControllerContext
from kreplica.controller.state.running_plan import RunningPlan
from kreplica.model import NO_LEADER, TopicPartition


class MovePosition(Enum):
    """Progress of a partition between the origin and the goal of its step."""

    AT_ORIGIN = auto()
    IN_PROGRESS = auto()
    REVERSED = auto()
    """The partition is moving back to its origin, against the plan's current direction."""
    AT_GOAL = auto()
    SUPERSEDED = auto()
    """Another reassignment is moving or has moved the partition."""
    REMOVED = auto()
    """The partition does not exist, or its topic is being deleted."""


def failure(reason: str) -> StepOutcome:
    return StepOutcome(StepState.FAILED, reason)


FINISHED = StepOutcome(StepState.FINISHED)
CANCELLED = StepOutcome(StepState.CANCELLED)
MOVING = StepOutcome(StepState.MOVING)


# --- guards -----------------------------------------------------------------------------------------------------------


def can_begin(loads: Mapping[int, int], brokers: Iterable[int], moves_at_once: int) -> bool:
    """Return True if a move's leader and all receiving brokers are below the plan's limit on concurrent moves."""
    return all(loads.get(broker, 0) < moves_at_once for broker in brokers)


def can_copy(leader: int, *, force: bool) -> bool:
    """Return True if there is a leader to copy from, or the move is forced."""
    return leader != NO_LEADER or force


# --- replicas that move -----------------------------------------------------------------------------------------------


def move_position(
    context: ControllerContext, key: TopicPartition, origin: tuple[int, ...], goal: tuple[int, ...]
) -> MovePosition:
    """Return the progress of a partition from ``origin`` to ``goal``."""
    topic = context.topics.get(key.topic)
    if topic is None or key.topic in context.deleting or key.partition not in topic.partitions:
        return MovePosition.REMOVED
    current = reassignment_plan.placement_of(topic, key.partition)
    if current.is_moving:
        if current.target == goal:
            return MovePosition.IN_PROGRESS
        return MovePosition.REVERSED if current.target == origin else MovePosition.SUPERSEDED
    if current.replicas == goal:
        return MovePosition.AT_GOAL
    return MovePosition.AT_ORIGIN if current.replicas == origin else MovePosition.SUPERSEDED


def outcome_of_move(context: ControllerContext, run: RunningPlan, step: Step) -> StepOutcome | None:
    """Return the outcome of a started move; None while it is in progress or must be reversed.

    If a move of a cancelled plan finished before it could be reversed, its outcome is finished; a rollback moves the
    partition back later.
    """
    match move_position(context, step.key, run.origin(step), run.goal(step)):
        case MovePosition.AT_GOAL:
            return CANCELLED if run.is_reverting else FINISHED
        case MovePosition.IN_PROGRESS:
            return None
        case MovePosition.REVERSED if run.is_reverting:
            return None
        case MovePosition.AT_ORIGIN if run.is_reverting:
            return FINISHED
        case MovePosition.REMOVED:
            return _gone_outcome(context, step)
    return superseded_outcome(context, step)


def superseded_outcome(context: ControllerContext, step: Step) -> StepOutcome:
    """Return the failed outcome of a step whose partition another reassignment is moving or has moved."""
    current = reassignment_plan.placement_of(context.topics[step.topic], step.partition)
    if current.is_moving:
        return failure(f"another reassignment is moving it to {list(current.target)}")
    return failure(f"another reassignment moved it to {list(current.replicas)}")


def _gone_outcome(context: ControllerContext, step: Step) -> StepOutcome:
    if step.topic not in context.topics or step.topic in context.deleting:
        return failure("its topic was deleted")
    return failure("the partition was removed")


def loaded_brokers(context: ControllerContext, run: RunningPlan, step: Step) -> tuple[int, ...]:
    """Return the brokers on which a step causes load: receivers and leader; empty if nothing is copied."""
    receiving = run.receiving_brokers(step) if step.action.is_reassignment else ()
    state = context.leadership.get(step.key)
    if not receiving or state is None or state.leader == NO_LEADER:
        return receiving
    return (*receiving, state.leader)


def moves_by_broker(context: ControllerContext, runs: Iterable[RunningPlan]) -> Counter[int]:
    """Return, for each broker, the number of moves of all plans in which it takes part."""
    return Counter(
        broker
        for run in runs
        for number in run.moving_steps
        for broker in loaded_brokers(context, run, run.steps[number])
    )


# --- partitions that are added or removed -----------------------------------------------------------------------------


def partition_exists(context: ControllerContext, key: TopicPartition) -> bool:
    """Return True if the partition exists."""
    topic = context.topics.get(key.topic)
    return topic is not None and key.topic not in context.deleting and key.partition in topic.partitions


def outcome_of_request(
    context: ControllerContext, run: RunningPlan, step: Step, requested: Collection[TopicPartition]
) -> StepOutcome | None:
    """Return the outcome of a partition addition or removal; None while its request is pending.

    :param requested: partitions whose requests are still in ZooKeeper.
    """
    if step.topic not in context.topics or step.topic in context.deleting:
        return _gone_outcome(context, step)
    if partition_exists(context, step.key) == (step.action is Action.ADD):
        return FINISHED
    topic = context.topics[step.topic]
    if step.key in requested or step.partition in topic.read_only:
        return None
    if run.is_reverting:
        return CANCELLED
    reason = _rejection(context, step)
    outcome = "withdrawn" if reason is None else f"rejected: {reason}"
    return failure(f"its request was {outcome}")


def _rejection(context: ControllerContext, step: Step) -> str | None:
    """Return why a partition cannot be added or removed; None if it can, so that its request must have been withdrawn.
    """
    topic, number = context.topics[step.topic], step.partition
    if step.action is Action.ADD:
        return partition_addition.rejection(topic, number, step.after, context.brokers)
    removable = partition_removal.removable_partitions(topic, range(number, len(topic.partitions)))
    return None if number in removable else partition_removal.rejection(topic, number)
