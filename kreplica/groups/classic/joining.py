"""What JoinGroup does in each state."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kreplica.errors import ErrorCode, KafkaError
from kreplica.groups.classic import member_removal, rebalancing, syncing
from kreplica.groups.classic.member import Member, size_of
from kreplica.groups.classic.requests import Join, JoinAnswer, Joined, Protocols, Synced
from kreplica.groups.classic.session_timer import SessionTimer
from kreplica.groups.classic.states import State
from kreplica.groups.group import UNKNOWN_MEMBER
from kreplica.groups.memory_limits import texts_size

if TYPE_CHECKING:
    from kreplica.groups.classic.group import ClassicGroup

NEWCOMER_TIMEOUT_MS = 300_000
"""So long is a newcomer kept that waits for a rebalance to end: it has no id yet, so it cannot be heard of.

Whoever asked may have gone and come again as somebody else.
"""

PENDING_MAX = 10_000
"""So many may have been told an id, and not have joined with it yet; more are refused as if the group were full."""


def join(group: ClassicGroup, request: Join, answer: JoinAnswer) -> None:
    """Within a step: join, and end the rebalance where this was the last one."""
    try:
        if not _has_room(group, request.member_id):
            _turn_away(group, request.member_id)
        if not _speaks(group, request):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        _check_memory(group, request)
        if request.member_id == UNKNOWN_MEMBER:
            _join_new(group, request, answer)
        elif request.member_id in group.roster.pending and request.instance_id is None:
            _add(group, request.member_id, request, answer)
        else:
            _join_again(group, group.check_member(request.member_id, request.instance_id), request, answer)
    except KafkaError as error:
        is_full = error.code is ErrorCode.GROUP_MAX_SIZE_REACHED
        group.tell(answer, Joined(error.code, UNKNOWN_MEMBER if is_full else request.member_id))
    rebalancing.complete_if_ready(group)


def end(group: ClassicGroup, member: Member, joined: Joined) -> None:
    """Answer a member that waits for a rebalance; nothing where it does not."""
    answer = group.roster.end_join(member)
    if answer is not None:
        group.tell(answer, joined)


def abandon(group: ClassicGroup, answer: JoinAnswer) -> None:
    """Within a step: the connection on which a member waited is closed.

    A new member that has not received its id cannot come back under it, so it is removed.  One that has received it
    may join again on another connection until the shortest session timeout is over.
    """
    member = group.roster.waiting_for(answer)
    if member is not None and member.is_new:
        if member.knows_id:
            member.session.extend(group.config.session_timeout_ms_min)
        else:
            member_removal.remove(group, member, f"the connection of {member.member_id!r} is closed")


def joined(group: ClassicGroup, member: Member, *, skip_assignment: bool = False) -> Joined:
    """What a member of the group's generation is told; the leader is told of all of them."""
    is_leader = group.roster.leader == member.member_id
    return Joined(
        ErrorCode.NONE,
        member.member_id,
        group.generation,
        group.roster.protocol_type,
        group.protocol,
        group.roster.leader or UNKNOWN_MEMBER,
        skip_assignment and is_leader,
        group.roster.joined_members(group.protocol) if is_leader else (),
    )


def _has_room(group: ClassicGroup, member_id: str) -> bool:
    """Whether somebody may be a member: in a group that shrinks, who comes first stays (KIP-389)."""
    roster, size_max = group.roster, group.config.size_max
    if member_id == UNKNOWN_MEMBER and len(roster.pending) >= PENDING_MAX:
        return False
    member = roster.members.get(member_id)
    if group.state is State.PREPARING_REBALANCE:
        return (member is not None and member.awaiting_join is not None) or roster.awaiting_join_count < size_max
    return member is not None or len(roster.members) < size_max


def _check_memory(group: ClassicGroup, request: Join) -> None:
    """Refuse a member that the group, its address or the broker has no memory for; nothing has changed then."""
    member_id = group.roster.id_of(request.instance_id) or request.member_id
    member = group.roster.members.get(member_id)
    names = (member_id, request.instance_id, request.client_id, request.client_host)
    assigned = len(member.assignment) if member is not None else 0
    group.account.check(member_id, request.client_host, size_of(request.protocols) + texts_size(names) + assigned)


def _turn_away(group: ClassicGroup, member_id: str) -> None:
    member = group.roster.members.get(member_id)
    if member is not None:
        member_removal.drop(group, member)
    member_removal.drop_pending(group, member_id)
    raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED)


def _speaks(group: ClassicGroup, request: Join) -> bool:
    if group.state is State.EMPTY:
        return bool(request.protocol_type and request.protocols)
    return group.roster.supports(request.protocol_type, request.protocols)


def _join_new(group: ClassicGroup, request: Join, answer: JoinAnswer) -> None:
    member_id = group.new_member_id(request)
    predecessor = group.roster.id_of(request.instance_id)
    if predecessor is not None:
        _replace(group, group.roster.members[predecessor], member_id, request, answer)
    elif request.requires_known_member and request.instance_id is None:
        session = SessionTimer(group.reactor, lambda: group.pending_ended(member_id))
        group.roster.await_member(member_id, session, request.client_host)
        session.extend(request.session_timeout_ms)
        group.tell(answer, Joined(ErrorCode.MEMBER_ID_REQUIRED, member_id))
    else:
        _add(group, member_id, request, answer)


def _add(group: ClassicGroup, member_id: str, request: Join, answer: JoinAnswer) -> None:
    member_removal.drop_pending(group, member_id)
    member = group.new_member(member_id, request)
    member.is_new = True
    member.knows_id = request.member_id == member_id
    group.has_newcomer = True
    group.roster.add(member, request.protocol_type)
    group.roster.await_join(member, answer)
    member.session.extend(NEWCOMER_TIMEOUT_MS)
    rebalancing.prepare(group, f"{member_id!r} joins ({request.reason or 'no reason given'})")


def _join_again(group: ClassicGroup, member: Member, request: Join, answer: JoinAnswer) -> None:
    """A member joins that is one already: mostly for a rebalance, else since it missed an answer or has changed."""
    is_leader = group.roster.leader == member.member_id
    # A leader of a stable group that joins again has seen something that its assignment does not account for.
    knows_enough = group.state is State.COMPLETING_REBALANCE or (group.state is State.STABLE and not is_leader)
    if knows_enough and member.protocols == request.protocols:
        group.tell(answer, joined(group, member))
    else:
        _update(group, member, request, answer)
        rebalancing.prepare(group, f"{member.member_id!r} joins anew ({request.reason or 'no reason given'})")


def _update(group: ClassicGroup, member: Member, request: Join, answer: JoinAnswer) -> None:
    # Kafka reads no further request of a connection while one waits; here it may, and each gets its answer.
    end(group, member, Joined(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
    group.roster.update(member, request.protocols, request.session_timeout_ms, request.rebalance_timeout_ms)
    group.roster.await_join(member, answer)
    if member.is_new:
        member.session.extend(NEWCOMER_TIMEOUT_MS)


# --- static members ----------------------------------------------------------------------------------------------


class _Before:
    """What a static member was before it came again: it is that again where the new id cannot be written."""

    def __init__(self, group: ClassicGroup, member: Member) -> None:
        self.leader = group.roster.leader or UNKNOWN_MEMBER
        self._member_id = member.member_id
        self._protocols: Protocols = member.protocols
        self._session_timeout_ms = member.session_timeout_ms
        self._rebalance_timeout_ms = member.rebalance_timeout_ms

    def restore(self, group: ClassicGroup, member: Member) -> None:
        group.roster.rename(member, self._member_id)
        group.roster.update(member, self._protocols, self._session_timeout_ms, self._rebalance_timeout_ms)


def _replace(group: ClassicGroup, member: Member, member_id: str, request: Join, answer: JoinAnswer) -> None:
    """A static member came again: its predecessor is fenced, and a stable group goes on as it is (KIP-345)."""
    before = _Before(group, member)
    end(group, member, Joined(ErrorCode.FENCED_INSTANCE_ID, member.member_id))
    syncing.end(group, member, Synced(ErrorCode.FENCED_INSTANCE_ID))
    group.roster.rename(member, member_id)
    _update(group, member, request, answer)
    member.heard()
    if group.state is State.STABLE and group.roster.select_protocol() == group.protocol:
        _store_replaced(group, member, before, request, answer)
    else:
        rebalancing.prepare(group, f"{member_id!r} takes the place of a member ({request.reason or 'no reason given'})")


def _store_replaced(group: ClassicGroup, member: Member, before: _Before, request: Join, answer: JoinAnswer) -> None:
    def stored(code: ErrorCode) -> None:
        if group.state is not State.STABLE or member.awaiting_join is not answer:
            return  # a rebalance has begun, for which it has joined already; or it is replaced or gone itself
        if code is not ErrorCode.NONE:
            end(group, member, Joined(code, UNKNOWN_MEMBER))
            before.restore(group, member)
        elif request.may_skip_assignment:
            end(group, member, joined(group, member, skip_assignment=True))
        else:
            # Before KIP-814 a leader cannot be told to assign nothing, so it is not told that it leads.
            end(group, member, replace(joined(group, member), leader=before.leader, members=()))
        member.heard()

    group.store({each.member_id: each.assignment for each in group.roster.members.values()}, stored)
