"""Whom a group waits for, and until when: for whoever explains why it does not get on.  Reads, and changes nothing."""

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
    """What a member has to do."""

    JOIN = "join"
    """Join anew: a rebalance has begun.  A consumer does when it polls."""
    SYNC = "sync"
    """Ask for its assignment; of the leader, say what everybody's is."""
    REVOKE = "revoke"
    """Give partitions up that others are to have."""
    COME = "come"
    """Come back with the id that it was told, or come at all: more members may join a group that was empty."""


@dataclass(frozen=True, slots=True)
class PendingMember:
    """:param member_id: empty where nobody in particular is waited for.

    :param left_s: until it goes on without; None where it does not.
    """

    what: PendingStep
    member_id: str = ""
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    left_s: float | None = None


@dataclass(frozen=True, slots=True)
class SessionDeadline:
    """How long a member may be silent still, in seconds, before it is a member no more.

    :param session_s: how long it may be in all.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    left_s: float
    session_s: float


def pending_members(group: Group) -> list[PendingMember]:
    """Whom a group waits for now, those first that it goes on without first."""
    if isinstance(group, ClassicGroup):
        waits = list(_classic_waits(group))
    elif isinstance(group, ConsumerGroup):
        waits = list(_consumer_waits(group))
    else:
        waits = []
    return sorted(waits, key=lambda wait: (wait.left_s is None, wait.left_s or 0.0, wait.member_id))


def session_deadlines(group: Group) -> list[SessionDeadline]:
    """Of every member that has to be heard of."""
    if isinstance(group, ClassicGroup):
        return [
            SessionDeadline(
                m.member_id,
                m.instance_id,
                m.client_id,
                m.client_host,
                m.session.left_s,
                m.session_timeout_ms / 1000,
            )
            for m in group.roster.members.values()
            if not m.is_kept_by_waiting
        ]
    if isinstance(group, ConsumerGroup):
        return [
            SessionDeadline(
                m.member_id,
                m.subscription.instance_id,
                m.subscription.client_id,
                m.subscription.client_host,
                left,
                group.session_s,
            )
            for m in group.state.members.values()
            if (left := group.session_left_s(m.member_id)) is not None
        ]
    return []


def _classic_waits(group: ClassicGroup) -> Iterator[PendingMember]:
    roster, left_s = group.roster, group.phase_left_s
    if group.state is State.PREPARING_REBALANCE:
        if group.is_gathering:
            yield PendingMember(PendingStep.COME, left_s=left_s)
        missing = [m for m in roster.members.values() if m.awaiting_join is None]
        what = PendingStep.JOIN
        for member_id, session in roster.pending.items():
            yield PendingMember(PendingStep.COME, member_id, left_s=_sooner(session.left_s, left_s))
    elif group.state is State.COMPLETING_REBALANCE:
        missing, what = [roster.members[member_id] for member_id in roster.unsynced], PendingStep.SYNC
    else:
        return
    for member in missing:
        left = _sooner(member.session.left_s, left_s)
        yield PendingMember(what, member.member_id, member.instance_id, member.client_id, member.client_host, left)


def _consumer_waits(group: ConsumerGroup) -> Iterator[PendingMember]:
    for member in group.state.members.values():
        if member.progress.state is MemberState.UNREVOKED_PARTITIONS:
            said, left = member.subscription, group.revocation_left_s(member.member_id)
            session = group.session_left_s(member.member_id)
            if left is not None and session is not None:
                left = min(left, session)
            yield PendingMember(
                PendingStep.REVOKE, member.member_id, said.instance_id, said.client_id, said.client_host, left
            )


def _sooner(session_s: float, phase_s: float | None) -> float:
    return session_s if phase_s is None else min(session_s, phase_s)
