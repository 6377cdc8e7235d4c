"""Assigns each member a range of consecutive partitions of each topic.

Members of topics with equal numbers of partitions get the same numbers of each, so that they can join them.  With known
racks, members first get partitions with a replica in their rack, within their count (KIP-881).
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
        """Return None: it is stateless."""
        return None

    def assign(self, topics: Topics, members: Sequence[Member]) -> Shares:
        """See ``Assignor``."""
        shares: Shares = {each.member_id: [] for each in members}
        for topic, takers in subscribers(topics, members).items():
            partitions = topics[topic]
            ranges = _by_racks(partitions, takers) if _racks_matter(partitions, takers) else _ranges(partitions, takers)
            for taker, numbers in zip(takers, ranges, strict=True):
                shares[taker.member_id] += [TopicPartition(topic, number) for number in numbers]
        return shares


def _counts(partitions_count: int, takers_count: int) -> list[int]:
    """Return the number of partitions per member; the first members get the remainder."""
    each, more = divmod(partitions_count, takers_count)
    return [each + (index < more) for index in range(takers_count)]


def _ranges(partitions: Mapping[int, frozenset[str]], takers: Sequence[Member]) -> list[list[int]]:
    coming = iter(sorted(partitions))
    return [[next(coming) for _ in range(count)] for count in _counts(len(partitions), len(takers))]


def _racks_matter(partitions: Mapping[int, frozenset[str]], takers: Sequence[Member]) -> bool:
    """Return False if every partition has a replica in every member's rack, or none has."""
    wanted = {taker.rack for taker in takers if taker.rack is not None}
    return any(wanted & racks for racks in partitions.values()) and any(wanted - racks for racks in partitions.values())


def _by_racks(partitions: Mapping[int, frozenset[str]], takers: Sequence[Member]) -> list[list[int]]:
    counts = _counts(len(partitions), len(takers))
    left = dict.fromkeys(sorted(partitions))
    found: list[list[int]] = []
    for taker, count in zip(takers, counts, strict=True):
        near = [number for number in left if taker.rack is not None and taker.rack in partitions[number]][:count]
        for number in near:
            del left[number]
        found.append(near)
    far = iter(left)
    return [
        sorted([*near, *(next(far) for _ in range(count - len(near)))])
        for near, count in zip(found, counts, strict=True)
    ]
