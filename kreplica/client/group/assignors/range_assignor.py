"""Assigns each member a range of consecutive partitions of each topic.

In topics with the same number of partitions, a member gets the same partition numbers, so that it can join their
records.
If racks are known, a member first gets partitions with a replica in its rack, up to its count (KIP-881).
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
            for taker, numbers in zip(subscribed, ranges, strict=True):
                shares[taker.member_id] += [TopicPartition(topic, number) for number in numbers]
        return shares


def _counts(partitions_count: int, takers_count: int) -> list[int]:
    """Return the number of partitions per member; the first members get the remainder."""
    each, more = divmod(partitions_count, takers_count)
    return [each + (index < more) for index in range(takers_count)]


def _ranges(partitions: Mapping[int, frozenset[str]], subscribed: Sequence[Member]) -> list[list[int]]:
    remaining = iter(sorted(partitions))
    return [[next(remaining) for _ in range(count)] for count in _counts(len(partitions), len(subscribed))]


def _racks_differ(partitions: Mapping[int, frozenset[str]], subscribed: Sequence[Member]) -> bool:
    """Return False if every partition has a replica in every member's rack, or none has."""
    wanted = {taker.rack for taker in subscribed if taker.rack is not None}
    return any(wanted & racks for racks in partitions.values()) and any(wanted - racks for racks in partitions.values())


def _by_racks(partitions: Mapping[int, frozenset[str]], subscribed: Sequence[Member]) -> list[list[int]]:
    counts = _counts(len(partitions), len(subscribed))
    left = dict.fromkeys(sorted(partitions))
    found: list[list[int]] = []
    for taker, count in zip(subscribed, counts, strict=True):
        near = [number for number in left if taker.rack is not None and taker.rack in partitions[number]][:count]
        for number in near:
            del left[number]
        found.append(near)
    far = iter(left)
    return [
        sorted([*near, *(next(far) for _ in range(count - len(near)))])
        for near, count in zip(found, counts, strict=True)
    ]
