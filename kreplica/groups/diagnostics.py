"""Read-only diagnostics: members that a group is waiting for, and session deadlines of all members."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from kreplica.groups.classic.group import ClassicGroup
from kreplica.groups.classic.states import State
from kreplica.groups.consumer.group import ConsumerGroup
from kreplica.groups.consumer.members import MemberState

if TYPE_CHECKING:
    from kreplica.groups.group import Group


class PendingStep(StrEnum):
    """The step that a member must complete."""

    JOIN = "join"
    """Send JoinGroup: a rebalance is in progress. Consumers do so when they poll."""
    SYNC = "sync"
    """Send SyncGroup. The group leader's request contains the assignments of all members."""
    REVOKE = "revoke"
    """Revoke partitions that are assigned to other members."""
    FIRST_JOIN = "come"
    """Join with the member id that the coordinator assigned. If there is no member id, any new member may still join
    during the initial rebalance delay.
    """


@dataclass(frozen=True, slots=True)
class PendingMember:
    """A member that the group is waiting for, or a placeholder for any new member.

    :param member_id: empty if the group is waiting for any new member.
    :param remaining_s: seconds until the group continues without the member; None if the wait has no timeout.
    """

    step: PendingStep
    member_id: str = ""
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    remaining_s: float | None = None


@dataclass(frozen=True, slots=True)
class SessionDeadline:
    """Time left in a member's session.

    :param remaining_s: seconds until the session expires.
    :param session_s: session timeout in seconds.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    remaining_s: float
    session_s: float


def pending_members(group: Group) -> list[PendingMember]:
    """Return the members that a group is waiting for, earliest timeout first."""
    if isinstance(group, ClassicGroup):
        pending = list(_classic_pending(group))
    elif isinstance(group, ConsumerGroup):
        pending = list(_consumer_pending(group))
    else:
        pending = []
    return sorted(pending, key=lambda each: (each.remaining_s is None, each.remaining_s or 0.0, each.member_id))


def session_deadlines(group: Group) -> list[SessionDeadline]:
    """Return the session deadlines of all members that must send heartbeats."""
    if isinstance(group, ClassicGroup):
        return [
            SessionDeadline(
                m.member_id,
                m.instance_id,
                m.client_id,
                m.client_host,
                m.session.remaining_s,
                m.session_timeout_ms / 1000,
            )
            for m in group.roster.members.values()
            if not m.is_kept_alive
        ]
    if isinstance(group, ConsumerGroup):
        return [
            SessionDeadline(
                m.member_id,
                m.subscription.instance_id,
                m.subscription.client_id,
                m.subscription.client_host,
                remaining,
                group.session_s,
            )
            for m in group.state.members.values()
            if (remaining := group.session_remaining_s(m.member_id)) is not None
        ]
    return []


def _classic_pending(group: ClassicGroup) -> Iterator[PendingMember]:
    roster, remaining_s = group.roster, group.phase_remaining_s
    if group.state is State.PREPARING_REBALANCE:
        if group.is_awaiting_members:
            yield PendingMember(PendingStep.FIRST_JOIN, remaining_s=remaining_s)
        missing = [m for m in roster.members.values() if m.awaiting_join is None]
        step = PendingStep.JOIN
        for member_id, session in roster.pending.items():
            earlier_s = _earlier(session.remaining_s, remaining_s)
            yield PendingMember(PendingStep.FIRST_JOIN, member_id, remaining_s=earlier_s)
    elif group.state is State.COMPLETING_REBALANCE:
        missing, step = [roster.members[member_id] for member_id in roster.unsynced], PendingStep.SYNC
    else:
        return
    for member in missing:
        remaining = _earlier(member.session.remaining_s, remaining_s)
        yield PendingMember(step, member.member_id, member.instance_id, member.client_id, member.client_host, remaining)


def _consumer_pending(group: ConsumerGroup) -> Iterator[PendingMember]:
    for member in group.state.members.values():
        if member.progress.state is MemberState.UNREVOKED_PARTITIONS:
            subscription, remaining = member.subscription, group.revocation_remaining_s(member.member_id)
            session = group.session_remaining_s(member.member_id)
            if remaining is not None and session is not None:
                remaining = min(remaining, session)
            yield PendingMember(
                PendingStep.REVOKE,
                member.member_id,
                subscription.instance_id,
                subscription.client_id,
                subscription.client_host,
                remaining,
            )


def _earlier(session_s: float, phase_s: float | None) -> float:
    return session_s if phase_s is None else min(session_s, phase_s)
