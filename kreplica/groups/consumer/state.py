"""A group as one value: whatever happens makes another one, and the log is written from the difference of the two."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

from kreplica.groups.consumer.assignment import NOTHING, Assignment, difference, union
from kreplica.groups.consumer.members import Member, MemberState

Owners = Mapping[UUID, Mapping[int, str]]
"""The member that owns each partition, until it has given it up."""


class StateName(StrEnum):
    """The states of a group, by the names that tools show."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class Topic(NamedTuple):
    """A topic that a group is subscribed to, as its last target was computed from."""

    topic_id: UUID
    partition_count: int


class Resolved(NamedTuple):
    """The topics that a regular expression names.

    :param topic_names: sorted.
    :param version: of the cluster's metadata, as this coordinator counts; means nothing to another one.
    :param timestamp_ms: when they were looked up.
    """

    topic_names: tuple[str, ...]
    version: int = 0
    timestamp_ms: int = 0


@dataclass(frozen=True, slots=True)
class GroupState:
    """One group.

    :param epoch: grows whenever what members are to have may be another: members, subscriptions, topics.
    :param members: by id.
    :param topics: by name: those that members are subscribed to and that exist.
    :param resolved: by regular expression.
    :param target_epoch: the group's epoch by which ``target`` was computed; a lower one than ``epoch`` means that it is
        to be computed anew.
    :param target: what each member is to have.
    :param owners: follows from what the members own; no partition has two.
    """

    group_id: str
    epoch: int = 0
    members: Mapping[str, Member] = field(default_factory=dict)
    topics: Mapping[str, Topic] = field(default_factory=dict)
    resolved: Mapping[str, Resolved] = field(default_factory=dict)
    target_epoch: int = 0
    target: Mapping[str, Assignment] = field(default_factory=dict)
    owners: Owners = field(default_factory=dict)

    @property
    def name(self) -> StateName:
        """What the group is doing."""
        if not self.members:
            return StateName.EMPTY
        if self.epoch > self.target_epoch:
            return StateName.ASSIGNING
        if all(is_reconciled(member, self.target_epoch) for member in self.members.values()):
            return StateName.STABLE
        return StateName.RECONCILING

    def static_member(self, instance_id: str) -> Member | None:
        """The member of that instance id, also while it is away."""
        for member in self.members.values():
            if member.subscription.instance_id == instance_id:
                return member
        return None

    def owner_of(self, topic_id: UUID, partition: int) -> str | None:
        """The member that owns a partition, or has yet to give it up."""
        return self.owners.get(topic_id, {}).get(partition)

    def with_member(self, member: Member) -> GroupState:
        """The same group with one member new, or in place of what it was before."""
        before = self.members.get(member.member_id)
        owners = _transfer(self.owners, member.member_id, before, member)
        return replace(self, members={**self.members, member.member_id: member}, owners=owners)

    def without_members(self, member_ids: Iterable[str]) -> GroupState:
        """The same group without some members, their target and what they owned."""
        members, target, owners = dict(self.members), dict(self.target), self.owners
        for member_id in member_ids:
            owners = _transfer(owners, member_id, members.pop(member_id), None)
            target.pop(member_id, None)
        return replace(self, members=members, target=target, owners=owners)


MemberChange = tuple[Member | None, Member | None]
"""What a member was and is; None where it was none, or is none any more."""


def changed_members(old: GroupState, new: GroupState) -> list[MemberChange]:
    """The members that are not the same in both."""
    if old.members is new.members:
        return []
    was = old.members.get
    changed: list[MemberChange] = [
        (was(member_id), member) for member_id, member in new.members.items() if was(member_id) is not member
    ]
    if not old.members.keys() <= new.members.keys():
        changed += [(member, None) for member_id, member in old.members.items() if member_id not in new.members]
    return changed


def is_reconciled(member: Member, target_epoch: int) -> bool:
    """Whether a member has all of the target of that epoch."""
    return member.progress.epoch == target_epoch and member.progress.state is MemberState.STABLE


def _transfer(owners: Owners, member_id: str, before: Member | None, after: Member | None) -> Owners:
    """Who owns what when a member has become another, or none."""
    had, has = _held(before), _held(after)
    lost, won = difference(had, has), difference(has, had)
    if not lost and not won:
        return owners
    result = dict(owners)
    for topic_id, partitions in lost.items():
        rest = {each: owner for each, owner in result[topic_id].items() if each not in partitions}
        result[topic_id] = rest
        if not rest:
            del result[topic_id]
    for topic_id, partitions in won.items():
        result[topic_id] = {**result.get(topic_id, {}), **dict.fromkeys(sorted(partitions), member_id)}
    return result


def _held(member: Member | None) -> Assignment:
    return union(member.progress.assigned, member.progress.pending_revocation) if member is not None else NOTHING
