"""What has become of a step of a plan: pure, from what the cluster is now.

Nothing is remembered beside what stands in ZooKeeper: whether a partition has arrived, is under way, or was taken
elsewhere by somebody else is read from its placement, so that any controller can carry a plan on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from enum import Enum, auto

from kreplica.cluster.plans.plan import Action, Step, StepOutcome, StepState
from kreplica.controller.decisions import reassignment_plan
from kreplica.controller.handlers import partition_addition, partition_removal
from kreplica.controller.state.context import ControllerContext
from kreplica.controller.state.running_plan import PlanRun
from kreplica.model import NO_LEADER, TopicPartition


class Whereabouts(Enum):
    """Where a partition is between the two ends of its step."""

    AT_ORIGIN = auto()
    UNDER_WAY = auto()
    TURNING = auto()
    """It moves to where it came from, or the other way than the plan has it now."""
    ARRIVED = auto()
    ELSEWHERE = auto()
    GONE = auto()


def failed(reason: str) -> StepOutcome:
    return StepOutcome(StepState.FAILED, reason)


FINISHED = StepOutcome(StepState.FINISHED)
CANCELLED = StepOutcome(StepState.CANCELLED)
MOVING = StepOutcome(StepState.MOVING)


# --- guards -----------------------------------------------------------------------------------------------------------


def may_begin(loads: Mapping[int, int], ends: Iterable[int], moves_at_once: int) -> bool:
    """Whether each end of a move, the leader and those who copy, has fewer moves now than the plan allows."""
    return all(loads.get(broker, 0) < moves_at_once for broker in ends)


def may_copy(leader: int, *, force: bool) -> bool:
    """Whether a move may begin: somebody in sync leads, from whom to copy, or it is forced."""
    return leader != NO_LEADER or force


# --- replicas that move -----------------------------------------------------------------------------------------------


def whereabouts(
    context: ControllerContext, key: TopicPartition, origin: tuple[int, ...], goal: tuple[int, ...]
) -> Whereabouts:
    """Where a partition is, whose replicas are to go from ``origin`` to ``goal``."""
    topic = context.topics.get(key.topic)
    if topic is None or key.topic in context.deleting or key.partition not in topic.partitions:
        return Whereabouts.GONE
    now = reassignment_plan.placement_of(topic, key.partition)
    if now.is_moving:
        if now.target == goal:
            return Whereabouts.UNDER_WAY
        return Whereabouts.TURNING if now.target == origin else Whereabouts.ELSEWHERE
    if now.replicas == goal:
        return Whereabouts.ARRIVED
    return Whereabouts.AT_ORIGIN if now.replicas == origin else Whereabouts.ELSEWHERE


def outcome_of_move(context: ControllerContext, run: PlanRun, step: Step) -> StepOutcome | None:
    """What has become of a move that was begun; None while it goes on, or has to be turned round.

    A cancelled one that had arrived before anybody could stop it has finished: it goes back later, where that was
    asked for.
    """
    match whereabouts(context, step.key, run.origin(step), run.goal(step)):
        case Whereabouts.ARRIVED:
            return CANCELLED if run.is_returning else FINISHED
        case Whereabouts.UNDER_WAY:
            return None
        case Whereabouts.TURNING if run.is_returning:
            return None
        case Whereabouts.AT_ORIGIN if run.is_returning:
            return FINISHED
        case Whereabouts.GONE:
            return _gone(context, step)
    return overtaken(context, step)


def overtaken(context: ControllerContext, step: Step) -> StepOutcome:
    """The replicas are, or go, where nobody of this plan sent them."""
    now = reassignment_plan.placement_of(context.topics[step.topic], step.partition)
    if now.is_moving:
        return failed(f"another reassignment moves it to {list(now.target)}")
    return failed(f"another reassignment has left it on {list(now.replicas)}")


def _gone(context: ControllerContext, step: Step) -> StepOutcome:
    if step.topic not in context.topics or step.topic in context.deleting:
        return failed("its topic was deleted")
    return failed("the partition was removed")


def ends_of(context: ControllerContext, run: PlanRun, step: Step) -> tuple[int, ...]:
    """The brokers that a step keeps busy: those who copy, and from whom; none where nothing is copied."""
    arriving = run.arriving(step) if step.action.is_reassignment else ()
    state = context.leadership.get(step.key)
    if not arriving or state is None or state.leader == NO_LEADER:
        return arriving
    return (*arriving, state.leader)


def loads(context: ControllerContext, runs: Iterable[PlanRun]) -> Counter[int]:
    """By broker, of how many moves of all plans it is an end."""
    return Counter(
        broker
        for run in runs
        for number in run.moving
        for broker in ends_of(context, run, run.steps[number])
    )


# --- partitions that come and go --------------------------------------------------------------------------------------


def is_there(context: ControllerContext, key: TopicPartition) -> bool:
    """Whether a partition is part of its topic."""
    topic = context.topics.get(key.topic)
    return topic is not None and key.topic not in context.deleting and key.partition in topic.partitions


def outcome_of_request(
    context: ControllerContext, run: PlanRun, step: Step, asked: Collection[TopicPartition]
) -> StepOutcome | None:
    """What has become of a partition whose addition or removal was asked for by a request; None while that waits.

    :param asked: the partitions whose requests are still there.
    """
    if step.topic not in context.topics or step.topic in context.deleting:
        return _gone(context, step)
    if is_there(context, step.key) == (step.action is Action.ADD):
        return FINISHED
    topic = context.topics[step.topic]
    if step.key in asked or step.partition in topic.read_only:
        return None
    if run.is_returning:
        return CANCELLED
    reason = _refusal(context, step)
    return failed("the request for it was withdrawn" if reason is None else f"the request for it was refused: {reason}")


def _refusal(context: ControllerContext, step: Step) -> str | None:
    """Why a partition cannot be added or removed now; None where it can, so that somebody must have thought better."""
    topic, number = context.topics[step.topic], step.partition
    if step.action is Action.ADD:
        return partition_addition.refusal(topic, number, step.after, context.brokers)
    can_go = partition_removal.removable(topic, range(number, len(topic.partitions)))
    return None if number in can_go else partition_removal.refusal(topic, number)
