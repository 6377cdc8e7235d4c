"""State transitions of a KIP-848 group after heartbeats, leaving and timeouts; pure functions.

A heartbeat is processed in three steps: ``enter`` finds the member and applies its metadata, subscription and topics; a
new target is computed if the group epoch has been incremented (``target_assignment``); ``advance`` moves the member
towards its target. For concurrent heartbeats, ``enter`` is called for all of them before the target is computed once,
because computing the target is the most expensive step.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from kreplica.errors import ErrorCode, KafkaError
from kreplica.groups.consumer import fencing
from kreplica.groups.consumer.assignment import NO_PARTITIONS, Assignment
from kreplica.groups.consumer.config import ConsumerConfig
from kreplica.groups.consumer.members import (
    JOINING,
    LEAVING_TEMPORARILY,
    NOT_SET,
    Member,
    MemberState,
    Progress,
    Subscription,
)
from kreplica.groups.consumer.reconciliation import reconcile
from kreplica.groups.consumer.requests import Heartbeat
from kreplica.groups.consumer.state import GroupState
from kreplica.groups.consumer.subscriptions import TopicSnapshot, refresh


class HeartbeatResponse(NamedTuple):
    """Response to a heartbeat.

    :param assignment: partitions that the member may own; None if unchanged since the last response.
    """

    member_id: str
    member_epoch: int
    assignment: Assignment | None = None


class Outcome(NamedTuple):
    """Result of a heartbeat.

    :param state: the same object if nothing changed.
    :param response: may be sent once ``state`` is committed.
    """

    state: GroupState
    response: HeartbeatResponse


def enter(
    state: GroupState, request: Heartbeat, topics: TopicSnapshot, config: ConsumerConfig
) -> tuple[GroupState, Progress]:
    """Apply the metadata and subscription of a heartbeat: the first step, unless the member is leaving.

    :return: the new state, and the member's progress before this heartbeat.
    :raise KafkaError: UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, FENCED_INSTANCE_ID, UNRELEASED_INSTANCE_ID,
        GROUP_MAX_SIZE_REACHED; nothing has changed.
    """
    if request.member_epoch == JOINING:
        state, member = _joining_member(state, request, config)
    else:
        member = _sender(state, request)
        fencing.check_epoch(member, request.member_epoch, request.owned)
    return _with_subscription(state, member, request, topics), member.progress


def needs_target(state: GroupState) -> bool:
    """Return True if a new target must be computed."""
    return state.epoch > state.target_epoch


def advance(state: GroupState, request: Heartbeat, previous: Progress) -> Outcome:
    """Move the member of a heartbeat towards its target: the last step.

    :param previous: progress of the member before ``enter``.
    """
    member = state.members[request.member_id]
    progress = reconcile(state, member, request.owned)
    if progress is not member.progress:
        state = state.with_member(replace(member, progress=progress))
    is_known = request.member_epoch == previous.epoch != JOINING and not request.is_full
    assignment = None if is_known and progress.assigned == previous.assigned else progress.assigned
    return Outcome(state, HeartbeatResponse(member.member_id, progress.epoch, assignment))


def leave(state: GroupState, request: Heartbeat, topics: TopicSnapshot) -> Outcome:
    """Handle the last heartbeat of a member.

    A static member that leaves temporarily keeps its partitions until its session expires.

    :raise KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID; nothing has changed.
    """
    member = _sender(state, request)
    response = HeartbeatResponse(member.member_id, request.member_epoch)
    if request.member_epoch != LEAVING_TEMPORARILY:
        return Outcome(remove(state, [member.member_id], topics), response)
    if member.is_away:
        return Outcome(state, response)
    away = Progress(LEAVING_TEMPORARILY, NOT_SET, MemberState.STABLE, member.progress.assigned)
    return Outcome(state.with_member(replace(member, progress=away)), response)


def remove(state: GroupState, member_ids: Iterable[str], topics: TopicSnapshot) -> GroupState:
    """Remove members that have left or timed out, and free their partitions."""
    epoch = state.epoch + 1
    return replace(refresh(state.without_members(member_ids), topics), epoch=epoch)


def _sender(state: GroupState, request: Heartbeat) -> Member:
    """Return the member that sent a heartbeat."""
    if request.instance_id is not None:
        member = state.static_member(request.instance_id)
        if member is not None:
            fencing.check_instance(member, request.member_id)
    else:
        member = state.members.get(request.member_id)
    if member is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"{request.member_id!r} is not a member of {request.group_id!r}")
    return member


def _joining_member(state: GroupState, request: Heartbeat, config: ConsumerConfig) -> tuple[GroupState, Member]:
    """Return the group and the joining member; a former member keeps its partitions."""
    if request.instance_id is not None:
        static = state.static_member(request.instance_id)
        if static is not None:
            fencing.check_released(static, request.member_id)
            return _with_returned_member(state, static, request.member_id) if static.is_away else (state, static)
    member = state.members.get(request.member_id)
    if member is not None:
        return state, member
    if len(state.members) >= config.size_max:
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"group {state.group_id!r} has reached its maximum of {config.size_max} members",
        )
    return state, Member(request.member_id)


def _with_returned_member(state: GroupState, away: Member, member_id: str) -> tuple[GroupState, Member]:
    """Transfer the state of a static member that had left temporarily to its new member id."""
    member = Member(member_id, away.subscription, replace(away.progress, epoch=JOINING, previous_epoch=NOT_SET))
    target = state.target.get(away.member_id, NO_PARTITIONS)
    state = state.without_members([away.member_id]).with_member(member)
    return replace(state, target={**state.target, member_id: target}), member


def _with_subscription(state: GroupState, member: Member, request: Heartbeat, topics: TopicSnapshot) -> GroupState:
    """Apply the subscription in a heartbeat; increment the epoch if the target may change."""
    before = state.members.get(member.member_id)
    subscription = _updated_subscription(member.subscription, request)
    member = replace(member, subscription=subscription)
    if before != member:
        state = state.with_member(member)
    is_new = before is None or _topic_selection(before.subscription) != _topic_selection(subscription)
    if not is_new and not topics.is_changed:
        return state
    epoch = state.epoch
    state = refresh(state, topics)
    return replace(state, epoch=epoch + 1) if is_new else state


def _topic_selection(subscription: Subscription) -> tuple[tuple[str, ...], str | None]:
    return subscription.topic_names, subscription.regular_expression


def _updated_subscription(old: Subscription, request: Heartbeat) -> Subscription:
    """Return the subscription of a member after a heartbeat."""
    timeout_ms = request.rebalance_timeout_ms
    new = Subscription(
        instance_id=_or_previous(request.instance_id, old.instance_id),
        rack_id=_or_previous(request.rack_id, old.rack_id),
        client_id=request.client_id,
        client_host=request.client_host,
        topic_names=old.topic_names if request.topic_names is None else request.topic_names,
        regular_expression=_or_previous(request.regular_expression, old.regular_expression) or None,
        rebalance_timeout_ms=old.rebalance_timeout_ms if timeout_ms == NOT_SET else timeout_ms,
        server_assignor=_or_previous(request.server_assignor, old.server_assignor),
    )
    return old if new == old else new


def _or_previous(new: str | None, before: str | None) -> str | None:
    return before if new is None else new
