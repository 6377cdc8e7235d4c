"""Removes members from a classic group after LeaveGroup requests; for expired members, see ``session_expiry``."""

from __future__ import annotations

from kreplica.errors import ErrorCode, KafkaError
from kreplica.groups.classic import rebalancing
from kreplica.groups.classic.generation_check import check_member
from kreplica.groups.classic.group_state import ClassicGroupState
from kreplica.groups.classic.member import Member
from kreplica.groups.classic.requests import Leave
from kreplica.groups.classic.states import State
from kreplica.groups.group import UNKNOWN_MEMBER


def leave(group: ClassicGroupState, request: Leave) -> ErrorCode:
    """Remove a member that leaves or that an administrator removes by its instance id, within a step."""
    if request.member_id in group.roster.pending:
        remove_pending(group, request.member_id)
        return ErrorCode.NONE
    try:
        member_id = request.member_id
        if member_id == UNKNOWN_MEMBER:
            member_id = group.roster.id_of(request.instance_id) or UNKNOWN_MEMBER
        member = check_member(group, member_id, request.instance_id)
    except KafkaError as error:
        return error.code
    remove(group, member, f"{member.member_id!r} leaves ({request.reason or 'no reason given'})")
    return ErrorCode.NONE


def remove_pending(group: ClassicGroupState, member_id: str) -> None:
    """Remove a member id that was assigned but not used in time, within a step."""
    group.roster.drop_pending(member_id)
    rebalancing.complete_if_ready(group)


def remove(group: ClassicGroupState, member: Member, reason: str) -> None:
    """Remove a member and start a rebalance, within a step.

    :param reason: for the log.
    """
    group.drop(member)
    if group.state is State.PREPARING_REBALANCE:
        rebalancing.complete_if_ready(group)
    else:
        rebalancing.prepare(group, reason)
