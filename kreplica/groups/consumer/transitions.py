"""What happens to a group: heartbeats, leaving, members that time out.  Pure: a state in, the next one out.

A heartbeat does, in this order: find the member, take over what it says of itself, look at the topics (``enter``);
then, where the group's epoch is past that of its target, there has to be a new one (``targets``); then the member goes
as far as it may (``advance``).  Of several heartbeats at once all enter before there is a target, which costs most.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from kreplica.errors import ErrorCode, KafkaError
from kreplica.groups.consumer import fencing
from kreplica.groups.consumer.assignment import NOTHING, Assignment
from kreplica.groups.consumer.config import ConsumerConfig
from kreplica.groups.consumer.members import (
    JOINING,
    LEAVING_FOR_A_WHILE,
    NOT_SET,
    Member,
    MemberState,
    Progress,
    Subscription,
)
from kreplica.groups.consumer.reconciliation import reconcile
from kreplica.groups.consumer.requests import Heartbeat
from kreplica.groups.consumer.state import GroupState
from kreplica.groups.consumer.subscriptions import Surroundings, refresh


class Answer(NamedTuple):
    """:param assignment: all that the member may own; None where it is as it was told before."""

    member_id: str
    member_epoch: int
    assignment: Assignment | None = None


class Outcome(NamedTuple):
    """:param state: the same object if nothing has changed.
    :param answer: it may leave when ``state`` is in the log.
    """

    state: GroupState
    answer: Answer


def enter(
    state: GroupState, request: Heartbeat, around: Surroundings, config: ConsumerConfig
) -> tuple[GroupState, Progress]:
    """The first half of a heartbeat that is not a member's last: the group with all that it says.

    :return: also how far the member had come, as it was told last.
    :raise KafkaError: UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, FENCED_INSTANCE_ID, UNRELEASED_INSTANCE_ID,
        GROUP_MAX_SIZE_REACHED: nothing has changed.
    """
    if request.member_epoch == JOINING:
        state, member = _joined(state, request, config)
    else:
        member = _found(state, request)
        fencing.check_epoch(member, request.member_epoch, request.owned)
    return _subscribed(state, member, request, around), member.progress


def needs_target(state: GroupState) -> bool:
    """Whether a target is to be computed before any member may go on."""
    return state.epoch > state.target_epoch


def advance(state: GroupState, request: Heartbeat, told: Progress) -> Outcome:
    """The second half, once there is a target: the member goes as far as it may.

    :param told: how far it had come before the first half.
    """
    member = state.members[request.member_id]
    progress = reconcile(state, member, request.owned)
    if progress is not member.progress:
        state = state.with_member(replace(member, progress=progress))
    is_told = request.member_epoch == told.epoch != JOINING and not request.is_full
    assignment = None if is_told and progress.assigned == told.assigned else progress.assigned
    return Outcome(state, Answer(member.member_id, progress.epoch, assignment))


def leave(state: GroupState, request: Heartbeat, around: Surroundings) -> Outcome:
    """A member's last heartbeat; a static member that leaves for a while keeps its place until its session ends.

    :raise KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID: nothing has changed.
    """
    member = _found(state, request)
    answer = Answer(member.member_id, request.member_epoch)
    if request.member_epoch != LEAVING_FOR_A_WHILE:
        return Outcome(remove(state, [member.member_id], around), answer)
    if member.is_away:
        return Outcome(state, answer)
    away = Progress(LEAVING_FOR_A_WHILE, NOT_SET, MemberState.STABLE, member.progress.assigned)
    return Outcome(state.with_member(replace(member, progress=away)), answer)


def remove(state: GroupState, member_ids: Iterable[str], around: Surroundings) -> GroupState:
    """Members that left or died, all of whose partitions are free now."""
    epoch = state.epoch + 1
    return replace(refresh(state.without_members(member_ids), around), epoch=epoch)


def _found(state: GroupState, request: Heartbeat) -> Member:
    """The member that sends a heartbeat."""
    if request.instance_id is not None:
        member = state.static_member(request.instance_id)
        if member is not None:
            fencing.check_instance(member, request.member_id)
    else:
        member = state.members.get(request.member_id)
    if member is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"{request.member_id!r} is not a member of {request.group_id!r}")
    return member


def _joined(state: GroupState, request: Heartbeat, config: ConsumerConfig) -> tuple[GroupState, Member]:
    """The member that joins, with the partitions that it is not to give up, where it was a member before."""
    if request.instance_id is not None:
        static = state.static_member(request.instance_id)
        if static is not None:
            fencing.check_released(static, request.member_id)
            return _returned(state, static, request.member_id) if static.is_away else (state, static)
    member = state.members.get(request.member_id)
    if member is not None:
        return state, member
    if len(state.members) >= config.size_max:
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED, f"{state.group_id!r} has {config.size_max} members, as many as it may"
        )
    return state, Member(request.member_id)


def _returned(state: GroupState, away: Member, member_id: str) -> tuple[GroupState, Member]:
    """A static member is back, in another process as a rule: it takes over everything of the one that left."""
    member = Member(member_id, away.subscription, replace(away.progress, epoch=JOINING, previous_epoch=NOT_SET))
    target = state.target.get(away.member_id, NOTHING)
    state = state.without_members([away.member_id]).with_member(member)
    return replace(state, target={**state.target, member_id: target}), member


def _subscribed(state: GroupState, member: Member, request: Heartbeat, around: Surroundings) -> GroupState:
    """The group when the member has said what it has to say; of the next epoch if others' shares depend on it."""
    before = state.members.get(member.member_id)
    subscription = _said(member.subscription, request)
    member = replace(member, subscription=subscription)
    if before != member:
        state = state.with_member(member)
    is_new = before is None or _wanted(before.subscription) != _wanted(subscription)
    if not is_new and not around.is_changed:
        return state
    epoch = state.epoch
    state = refresh(state, around)
    return replace(state, epoch=epoch + 1) if is_new else state


def _wanted(subscription: Subscription) -> tuple[tuple[str, ...], str | None]:
    return subscription.topic_names, subscription.regular_expression


def _said(old: Subscription, request: Heartbeat) -> Subscription:
    """What a member is known to have said of itself, after a heartbeat."""
    timeout_ms = request.rebalance_timeout_ms
    new = Subscription(
        instance_id=_newer(request.instance_id, old.instance_id),
        rack_id=_newer(request.rack_id, old.rack_id),
        client_id=request.client_id,
        client_host=request.client_host,
        topic_names=old.topic_names if request.topic_names is None else request.topic_names,
        regular_expression=_newer(request.regular_expression, old.regular_expression) or None,
        rebalance_timeout_ms=old.rebalance_timeout_ms if timeout_ms == NOT_SET else timeout_ms,
        server_assignor=_newer(request.server_assignor, old.server_assignor),
    )
    return old if new == old else new


def _newer(said: str | None, before: str | None) -> str | None:
    return before if said is None else said
