"""Moves one member towards its target assignment.

A member that owns partitions outside its target keeps its epoch until it has revoked them. It then moves to the target
epoch with all target partitions that are free, and is assigned the others when their owners have revoked them.
"""

from __future__ import annotations

from uuid import UUID

from kreplica.groups.consumer import fencing
from kreplica.groups.consumer.assignment import NO_PARTITIONS, Assignment, count, difference, intersection, union
from kreplica.groups.consumer.members import Member, MemberState, Progress
from kreplica.groups.consumer.state import GroupState, is_reconciled


def reconcile(state: GroupState, member: Member, owned: Assignment | None) -> Progress:
    """Return the progress of a member after the next step towards its target.

    :param owned: partitions that the member owns according to its heartbeat; None if the heartbeat omits them.
    :return: the same object if nothing changed.
    """
    if is_reconciled(member, state.target_epoch):
        return member.progress
    if member.progress.state is MemberState.UNREVOKED_PARTITIONS and not fencing.has_revoked(member, owned):
        return member.progress
    return _next_progress(state, member, owned)


def _next_progress(state: GroupState, member: Member, owned: Assignment | None) -> Progress:
    current = member.progress
    target = state.target.get(member.member_id, NO_PARTITIONS)
    kept = intersection(current.assigned, target)
    to_revoke = difference(current.assigned, target)
    unrevoked = Progress(current.epoch, current.previous_epoch, MemberState.UNREVOKED_PARTITIONS, kept, to_revoke)
    if to_revoke and not fencing.has_revoked(Member(member.member_id, progress=unrevoked), owned):
        return unrevoked
    missing = difference(target, kept)
    free = _free(state, missing, member.member_id)
    complete = count(free) == count(missing)
    member_state = MemberState.STABLE if complete else MemberState.UNRELEASED_PARTITIONS
    assigned = union(kept, free)
    if (current.epoch, current.state, current.assigned) == (state.target_epoch, member_state, assigned):
        return current
    previous = current.epoch if current.epoch != state.target_epoch else current.previous_epoch
    return Progress(state.target_epoch, previous, member_state, assigned)


def _free(state: GroupState, missing: Assignment, member_id: str) -> Assignment:
    """Return the partitions that no other member owns."""
    free_partitions: dict[UUID, frozenset[int]] = {}
    for topic_id, partitions in missing.items():
        free = frozenset(each for each in partitions if fencing.is_free(state.owner_of(topic_id, each), member_id))
        if free:
            free_partitions[topic_id] = free
    return free_partitions
