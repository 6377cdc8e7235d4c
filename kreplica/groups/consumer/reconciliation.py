"""One member's way to its target: what it has to give up first, what it may take, and at which epoch it is.

A member that owns what it is not to have keeps its epoch until it has given that up; then it comes to the epoch of the
target, with all of the target that nobody else owns any more; the rest follows as others give it up.
"""

from __future__ import annotations

from uuid import UUID

from kreplica.groups.consumer import fencing
from kreplica.groups.consumer.assignment import NOTHING, Assignment, count, difference, intersection, union
from kreplica.groups.consumer.members import Member, MemberState, Progress
from kreplica.groups.consumer.state import GroupState, is_reconciled


def reconcile(state: GroupState, member: Member, owned: Assignment | None) -> Progress:
    """Take a member as far as it may go now.

    :param owned: what its heartbeat says it owns; None if it says nothing of that.
    :return: the same object if it stays where it is.
    """
    if is_reconciled(member, state.target_epoch):
        return member.progress
    if member.progress.state is MemberState.UNREVOKED_PARTITIONS and not fencing.has_given_up(member, owned):
        return member.progress
    return _next(state, member, owned)


def _next(state: GroupState, member: Member, owned: Assignment | None) -> Progress:
    now = member.progress
    target = state.target.get(member.member_id, NOTHING)
    kept = intersection(now.assigned, target)
    gone = difference(now.assigned, target)
    waiting = Progress(now.epoch, now.previous_epoch, MemberState.UNREVOKED_PARTITIONS, kept, gone)
    if gone and not fencing.has_given_up(Member(member.member_id, progress=waiting), owned):
        return waiting
    wanted = difference(target, kept)
    free = _free(state, wanted, member.member_id)
    complete = count(free) == count(wanted)
    member_state = MemberState.STABLE if complete else MemberState.UNRELEASED_PARTITIONS
    assigned = union(kept, free)
    if (now.epoch, now.state, now.assigned) == (state.target_epoch, member_state, assigned):
        return now
    previous = now.epoch if now.epoch != state.target_epoch else now.previous_epoch
    return Progress(state.target_epoch, previous, member_state, assigned)


def _free(state: GroupState, wanted: Assignment, member_id: str) -> Assignment:
    """What of it nobody else owns."""
    found: dict[UUID, frozenset[int]] = {}
    for topic_id, partitions in wanted.items():
        free = frozenset(each for each in partitions if fencing.is_free(state.owner_of(topic_id, each), member_id))
        if free:
            found[topic_id] = free
    return found
