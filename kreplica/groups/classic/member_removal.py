"""Removes members from a classic group: LeaveGroup, removal by an administrator, session expiry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kreplica.errors import ErrorCode, KafkaError
from kreplica.groups.classic import joining, rebalancing
from kreplica.groups.classic.member import Member
from kreplica.groups.classic.requests import Joined, Leave, Synced
from kreplica.groups.classic.states import State
from kreplica.groups.group import UNKNOWN_MEMBER

if TYPE_CHECKING:
    from kreplica.groups.classic.group import ClassicGroup


def leave(group: ClassicGroup, request: Leave) -> ErrorCode:
    """Within a step: remove a member that leaves, or that an administrator removes by its instance id."""
    if request.member_id in group.roster.pending:
        expire_pending(group, request.member_id)
        return ErrorCode.NONE
    try:
        member_id = request.member_id
        if member_id == UNKNOWN_MEMBER:
            member_id = group.roster.id_of(request.instance_id) or UNKNOWN_MEMBER
        member = group.check_member(member_id, request.instance_id)
    except KafkaError as error:
        return error.code
    remove(group, member, f"{member.member_id!r} leaves ({request.reason or 'no reason given'})")
    return ErrorCode.NONE


def expire(group: ClassicGroup, member: Member) -> None:
    """Remove a member whose session has expired, unless a pending response keeps it alive."""
    if member.is_kept_by_waiting:
        member.heard()
    else:
        remove(group, member, f"{member.member_id!r} sent no heartbeat for {member.session_timeout_ms} ms")


def expire_pending(group: ClassicGroup, member_id: str) -> None:
    """Within a step: forget a member id that was not used in time."""
    drop_pending(group, member_id)
    rebalancing.complete_if_ready(group)


def drop(group: ClassicGroup, member: Member) -> None:
    """Remove a member from the roster and answer its pending requests with UNKNOWN_MEMBER_ID."""
    member.session.end()
    joining.end(group, member, Joined(ErrorCode.UNKNOWN_MEMBER_ID, UNKNOWN_MEMBER))
    answer, member.awaiting_sync = member.awaiting_sync, None
    if answer is not None:
        group.answer(answer, Synced(ErrorCode.UNKNOWN_MEMBER_ID))
    group.roster.remove(member)


def drop_pending(group: ClassicGroup, member_id: str) -> None:
    """Forget a member id that was assigned but not used."""
    group.roster.drop_pending(member_id)


def remove(group: ClassicGroup, member: Member, reason: str) -> None:
    """Within a step: remove a member and start a rebalance.

    :param reason: for the log.
    """
    drop(group, member)
    if group.state is State.PREPARING_REBALANCE:
        rebalancing.complete_if_ready(group)
    else:
        rebalancing.prepare(group, reason)
