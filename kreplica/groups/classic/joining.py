"""JoinGroup in each state of a classic group."""

from __future__ import annotations

from dataclasses import replace

from kreplica.errors import ErrorCode, KafkaError
from kreplica.groups.classic import member_removal, rebalancing
from kreplica.groups.classic.generation_check import check_member
from kreplica.groups.classic.group_state import ClassicGroupState
from kreplica.groups.classic.member import Member, size_of
from kreplica.groups.classic.requests import Join, JoinCallback, JoinResponse, Protocols, SyncResponse
from kreplica.groups.classic.session_timer import SessionTimer
from kreplica.groups.classic.states import State
from kreplica.groups.group import UNKNOWN_MEMBER
from kreplica.groups.memory_limits import texts_size

NEW_MEMBER_TIMEOUT_MS = 300_000
"""Time after which a new member that is still waiting for the rebalance is removed.

A new member cannot send heartbeats yet, and its client may have disconnected and rejoined with another id.
"""

PENDING_MAX = 10_000
"""Maximum number of unused member ids per group; beyond it, new members are rejected as if the group were full."""


def join(group: ClassicGroupState, request: Join, respond: JoinCallback) -> None:
    """Handle JoinGroup within a step; complete the join phase if this was the last missing member."""
    try:
        if not _may_join(group, request.member_id):
            _reject_full(group, request.member_id)
        if not _has_common_protocol(group, request):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        _check_memory(group, request)
        if request.member_id == UNKNOWN_MEMBER:
            _join_new(group, request, respond)
        elif request.member_id in group.roster.pending and request.instance_id is None:
            _add(group, request.member_id, request, respond)
        else:
            _rejoin(group, check_member(group, request.member_id, request.instance_id), request, respond)
    except KafkaError as error:
        is_full = error.code is ErrorCode.GROUP_MAX_SIZE_REACHED
        group.send_response(respond, JoinResponse(error.code, UNKNOWN_MEMBER if is_full else request.member_id))
    rebalancing.complete_if_ready(group)


def abandon(group: ClassicGroupState, respond: JoinCallback) -> None:
    """Handle the loss of the connection of a waiting member, within a step.

    A new member that has not received its id is removed, because its client cannot rejoin with that id. A new member
    that knows its id may rejoin on another connection until the minimum session timeout has passed.
    """
    member = group.roster.member_awaiting(respond)
    if member is not None and member.is_new:
        if member.knows_id:
            member.session.extend(group.config.session_timeout_ms_min)
        else:
            member_removal.remove(group, member, f"the connection of {member.member_id!r} was closed")


def _may_join(group: ClassicGroupState, member_id: str) -> bool:
    """Return True if the size limits allow a member to join; in an oversized group, the first to rejoin stay (KIP-389).

    Member ids that have been assigned but not used yet have a limit of their own.
    """
    roster, size_max = group.roster, group.config.size_max
    if member_id == UNKNOWN_MEMBER and len(roster.pending) >= PENDING_MAX:
        return False
    member = roster.members.get(member_id)
    if group.state is State.PREPARING_REBALANCE:
        return (member is not None and member.awaiting_join is not None) or roster.awaiting_join_count < size_max
    return member is not None or len(roster.members) < size_max


def _check_memory(group: ClassicGroupState, request: Join) -> None:
    """Raise an error if the member would exceed the memory limit of the group, the client address or the broker."""
    member_id = group.roster.id_of(request.instance_id) or request.member_id
    member = group.roster.members.get(member_id)
    names = (member_id, request.instance_id, request.client_id, request.client_host)
    assigned = len(member.assignment) if member is not None else 0
    group.account.check(member_id, request.client_host, size_of(request.protocols) + texts_size(names) + assigned)


def _reject_full(group: ClassicGroupState, member_id: str) -> None:
    member = group.roster.members.get(member_id)
    if member is not None:
        group.drop(member)
    group.roster.drop_pending(member_id)
    raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED)


def _has_common_protocol(group: ClassicGroupState, request: Join) -> bool:
    if group.state is State.EMPTY:
        return bool(request.protocol_type and request.protocols)
    return group.roster.supports(request.protocol_type, request.protocols)


def _join_new(group: ClassicGroupState, request: Join, respond: JoinCallback) -> None:
    member_id = group.new_member_id(request)
    predecessor = group.roster.id_of(request.instance_id)
    if predecessor is not None:
        _replace(group, group.roster.members[predecessor], member_id, request, respond)
    elif request.requires_known_member and request.instance_id is None:
        session = SessionTimer(group.reactor, lambda: group.on_pending_expired(member_id))
        group.roster.await_member(member_id, session, request.client_host)
        session.extend(request.session_timeout_ms)
        group.send_response(respond, JoinResponse(ErrorCode.MEMBER_ID_REQUIRED, member_id))
    else:
        _add(group, member_id, request, respond)


def _add(group: ClassicGroupState, member_id: str, request: Join, respond: JoinCallback) -> None:
    group.roster.drop_pending(member_id)
    member = group.new_member(member_id, request)
    member.is_new = True
    member.knows_id = request.member_id == member_id
    group.has_new_member = True
    group.roster.add(member, request.protocol_type)
    group.roster.await_join(member, respond)
    member.session.extend(NEW_MEMBER_TIMEOUT_MS)
    rebalancing.prepare(group, f"{member_id!r} joins ({request.reason or 'no reason given'})")


def _rejoin(group: ClassicGroupState, member: Member, request: Join, respond: JoinCallback) -> None:
    """Handle JoinGroup from an existing member: for a rebalance, after a lost response, or with new metadata."""
    is_leader = group.roster.leader == member.member_id
    # The leader of a stable group rejoins if the assignment is outdated, for example because partitions were added.
    can_respond = group.state is State.COMPLETING_REBALANCE or (group.state is State.STABLE and not is_leader)
    if can_respond and member.protocols == request.protocols:
        group.send_response(respond, group.join_response(member))
    else:
        _update(group, member, request, respond)
        rebalancing.prepare(group, f"{member.member_id!r} rejoins ({request.reason or 'no reason given'})")


def _update(group: ClassicGroupState, member: Member, request: Join, respond: JoinCallback) -> None:
    # Unlike in Kafka, a connection may send another request while one is pending: respond to both.
    group.respond_to_join(member, JoinResponse(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
    group.roster.update(member, request.protocols, request.session_timeout_ms, request.rebalance_timeout_ms)
    group.roster.await_join(member, respond)
    if member.is_new:
        member.session.extend(NEW_MEMBER_TIMEOUT_MS)


# --- static members ----------------------------------------------------------------------------------------------


class _PreviousMember:
    """State of a static member before its replacement; restored if the new id cannot be written."""

    def __init__(self, group: ClassicGroupState, member: Member) -> None:
        self.leader = group.roster.leader or UNKNOWN_MEMBER
        self._member_id = member.member_id
        self._protocols: Protocols = member.protocols
        self._session_timeout_ms = member.session_timeout_ms
        self._rebalance_timeout_ms = member.rebalance_timeout_ms

    def restore(self, group: ClassicGroupState, member: Member) -> None:
        group.roster.rename(member, self._member_id)
        group.roster.update(member, self._protocols, self._session_timeout_ms, self._rebalance_timeout_ms)


def _replace(group: ClassicGroupState, member: Member, member_id: str, request: Join, respond: JoinCallback) -> None:
    """Replace the id of a static member that rejoined; a stable group stays stable (KIP-345)."""
    previous = _PreviousMember(group, member)
    group.respond_to_join(member, JoinResponse(ErrorCode.FENCED_INSTANCE_ID, member.member_id))
    group.respond_to_sync(member, SyncResponse(ErrorCode.FENCED_INSTANCE_ID))
    group.roster.rename(member, member_id)
    _update(group, member, request, respond)
    member.restart_session()
    if group.state is State.STABLE and group.roster.select_protocol() == group.protocol:
        _store_replaced(group, member, previous, request, respond)
    else:
        rebalancing.prepare(group, f"{member_id!r} replaces a static member ({request.reason or 'no reason given'})")


def _store_replaced(
    group: ClassicGroupState, member: Member, previous: _PreviousMember, request: Join, respond: JoinCallback
) -> None:
    def on_stored(code: ErrorCode) -> None:
        if group.state is not State.STABLE or member.awaiting_join is not respond:
            return  # a rebalance has started, or the member was replaced or removed
        if code is not ErrorCode.NONE:
            group.respond_to_join(member, JoinResponse(code, UNKNOWN_MEMBER))
            previous.restore(group, member)
        elif request.may_skip_assignment:
            group.respond_to_join(member, group.join_response(member, skip_assignment=True))
        else:
            # Clients without KIP-814 cannot skip the assignment, so the response must not name the member as leader.
            group.respond_to_join(member, replace(group.join_response(member), leader=previous.leader, members=()))
        member.restart_session()

    group.store({each.member_id: each.assignment for each in group.roster.members.values()}, on_stored)
