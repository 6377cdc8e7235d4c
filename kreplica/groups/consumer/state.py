"""Immutable state of a KIP-848 group; the records to write are derived from the difference between two states."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

from kreplica.groups.consumer.assignment import NO_PARTITIONS, Assignment, difference, union
from kreplica.groups.consumer.members import Member, MemberState

Owners = Mapping[UUID, Mapping[int, str]]
"""Member id of the owner, by topic id and partition; an owner remains until it has revoked the partition."""


class StateName(StrEnum):
    """Names of group states, as reported by Kafka."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class Topic(NamedTuple):
    """A subscribed topic, as used for the current target."""

    topic_id: UUID
    partition_count: int


class MatchedTopics(NamedTuple):
    """Topics that a regular expression matches.

    :param topic_names: sorted.
    :param version: version of the coordinator's topic metadata; not comparable between coordinators.
    :param timestamp_ms: time of the lookup.
    """

    topic_names: tuple[str, ...]
    version: int = 0
    timestamp_ms: int = 0


@dataclass(frozen=True, slots=True)
class GroupState:
    """State of one group.

    :param epoch: group epoch, incremented when members, subscriptions or topics change and so may change the target.
    :param members: members by id.
    :param topics: existing subscribed topics by name.
    :param resolved: matches by regular expression.
    :param target_epoch: group epoch for which ``target`` was computed; if lower than ``epoch``, the target is outdated.
    :param target: target assignment by member id.
    :param owners: derived from the partitions of the members; each partition has at most one owner.
    """

    group_id: str
    epoch: int = 0
    members: Mapping[str, Member] = field(default_factory=dict)
    topics: Mapping[str, Topic] = field(default_factory=dict)
    resolved: Mapping[str, MatchedTopics] = field(default_factory=dict)
    target_epoch: int = 0
    target: Mapping[str, Assignment] = field(default_factory=dict)
    owners: Owners = field(default_factory=dict)

    @property
    def name(self) -> StateName:
        """State of the group, as reported to clients."""
        if not self.members:
            return StateName.EMPTY
        if self.epoch > self.target_epoch:
            return StateName.ASSIGNING
        if all(is_reconciled(member, self.target_epoch) for member in self.members.values()):
            return StateName.STABLE
        return StateName.RECONCILING

    def static_member(self, instance_id: str) -> Member | None:
        """Return the member with this instance id, even if it has left temporarily, or None."""
        for member in self.members.values():
            if member.subscription.instance_id == instance_id:
                return member
        return None

    def owner_of(self, topic_id: UUID, partition: int) -> str | None:
        """Return the id of the member that owns a partition or has not yet revoked it, or None."""
        return self.owners.get(topic_id, {}).get(partition)

    def with_member(self, member: Member) -> GroupState:
        """Return the group with one member added or replaced."""
        before = self.members.get(member.member_id)
        owners = _transfer(self.owners, member.member_id, before, member)
        return replace(self, members={**self.members, member.member_id: member}, owners=owners)

    def without_members(self, member_ids: Iterable[str]) -> GroupState:
        """Return the group without these members and their targets and partitions."""
        members, target, owners = dict(self.members), dict(self.target), self.owners
        for member_id in member_ids:
            owners = _transfer(owners, member_id, members.pop(member_id), None)
            target.pop(member_id, None)
        return replace(self, members=members, target=target, owners=owners)


MemberChange = tuple[Member | None, Member | None]
"""A member before and after a change; None if it does not exist."""


def changed_members(old: GroupState, new: GroupState) -> list[MemberChange]:
    """Return the members that differ between two states."""
    if old.members is new.members:
        return []
    before = old.members.get
    changed: list[MemberChange] = [
        (before(member_id), member) for member_id, member in new.members.items() if before(member_id) is not member
    ]
    if not old.members.keys() <= new.members.keys():
        changed += [(member, None) for member_id, member in old.members.items() if member_id not in new.members]
    return changed


def is_reconciled(member: Member, target_epoch: int) -> bool:
    """Return True if a member owns all partitions of its target at this epoch."""
    return member.progress.epoch == target_epoch and member.progress.state is MemberState.STABLE


def _transfer(owners: Owners, member_id: str, before: Member | None, after: Member | None) -> Owners:
    """Return the owners after a change of one member."""
    had, has = _held_partitions(before), _held_partitions(after)
    lost, gained = difference(had, has), difference(has, had)
    if not lost and not gained:
        return owners
    result = dict(owners)
    for topic_id, partitions in lost.items():
        remaining = {each: owner for each, owner in result[topic_id].items() if each not in partitions}
        result[topic_id] = remaining
        if not remaining:
            del result[topic_id]
    for topic_id, partitions in gained.items():
        result[topic_id] = {**result.get(topic_id, {}), **dict.fromkeys(sorted(partitions), member_id)}
    return result


def _held_partitions(member: Member | None) -> Assignment:
    return union(member.progress.assigned, member.progress.pending_revocation) if member is not None else NO_PARTITIONS
