"""Assigns each member a range of consecutive partitions of each topic.

In topics with the same number of partitions, a member is assigned the same partition numbers, so that it can join the
topics' records.  If racks are known, partitions with a replica in a member's rack are assigned to it first, up to its
share (KIP-881).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kreplica.client.group.assignors.assignor import Member, Shares, Topics, subscribers
from kreplica.model import TopicPartition


class RangeAssignor:
    """The default assignor of the Java client."""

    name = "range"
    is_cooperative = False

    def user_data(self, assigned: frozenset[TopicPartition], generation: int) -> bytes | None:
        """Return None: this assignor is stateless."""
        return None

    def assign(self, topics: Topics, members: Sequence[Member]) -> Shares:
        """See ``Assignor``."""
        shares: Shares = {each.member_id: [] for each in members}
        for topic, subscribed in subscribers(topics, members).items():
            partitions = topics[topic]
            divide = _by_racks if _racks_differ(partitions, subscribed) else _ranges
            ranges = divide(partitions, subscribed)
            for member, numbers in zip(subscribed, ranges, strict=True):
                shares[member.member_id] += [TopicPartition(topic, number) for number in numbers]
        return shares


def _counts(partitions_count: int, members_count: int) -> list[int]:
    """Return the number of partitions of each member; the first members have one more if there is a remainder."""
    quotient, remainder = divmod(partitions_count, members_count)
    return [quotient + (index < remainder) for index in range(members_count)]


def _ranges(partitions: Mapping[int, frozenset[str]], subscribed: Sequence[Member]) -> list[list[int]]:
    remaining = iter(sorted(partitions))
    return [[next(remaining) for _ in range(count)] for count in _counts(len(partitions), len(subscribed))]


def _racks_differ(partitions: Mapping[int, frozenset[str]], subscribed: Sequence[Member]) -> bool:
    """Return False if all partitions have replicas in all members' racks, or none has a replica in any of them."""
    member_racks = {member.rack for member in subscribed if member.rack is not None}
    some_racks_match = any(member_racks & racks for racks in partitions.values())
    return some_racks_match and any(member_racks - racks for racks in partitions.values())


def _by_racks(partitions: Mapping[int, frozenset[str]], subscribed: Sequence[Member]) -> list[list[int]]:
    counts = _counts(len(partitions), len(subscribed))
    unassigned = dict.fromkeys(sorted(partitions))
    found: list[list[int]] = []
    for member, count in zip(subscribed, counts, strict=True):
        local = [number for number in unassigned if member.rack is not None and member.rack in partitions[number]]
        near = local[:count]
        for number in near:
            del unassigned[number]
        found.append(near)
    remaining = iter(unassigned)
    return [
        sorted([*near, *(next(remaining) for _ in range(count - len(near)))])
        for near, count in zip(found, counts, strict=True)
    ]
