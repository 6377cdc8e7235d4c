"""Of each topic a range of neighbouring partitions for every member.

Members that read topics with as many partitions get the same numbers of each, so that they can join them.  Where racks
are known, a member gets partitions with a replica in its rack first (KIP-881), as many as it gets in any case.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kreplica.client.group.assignors.assignor import Member, Shares, Topics, subscribers
from kreplica.model import TopicPartition


class RangeAssignor:
    """The Java client's default."""

    name = "range"
    is_cooperative = False

    def user_data(self, assigned: frozenset[TopicPartition], generation: int) -> bytes | None:
        """Nothing is to be remembered."""
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
    """How many each gets: the first ones get one more where it does not come out even."""
    each, more = divmod(partitions_count, takers_count)
    return [each + (index < more) for index in range(takers_count)]


def _ranges(partitions: Mapping[int, frozenset[str]], takers: Sequence[Member]) -> list[list[int]]:
    coming = iter(sorted(partitions))
    return [[next(coming) for _ in range(count)] for count in _counts(len(partitions), len(takers))]


def _racks_matter(partitions: Mapping[int, frozenset[str]], takers: Sequence[Member]) -> bool:
    """Whether it makes a difference who gets what: not where each partition has a replica in each member's rack."""
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
