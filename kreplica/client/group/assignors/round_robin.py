"""Assigns the partitions of all topics to members in turn."""

from __future__ import annotations

from collections.abc import Sequence

from kreplica.client.group.assignors.assignor import Member, Shares, Topics, sorted_members, subscribers
from kreplica.model import TopicPartition


class RoundRobinAssignor:
    """Round-robin assignor; with equal subscriptions, the members' numbers of partitions differ by at most one."""

    name = "roundrobin"
    is_cooperative = False

    def user_data(self, assigned: frozenset[TopicPartition], generation: int) -> bytes | None:
        """Return None: this assignor is stateless."""
        return None

    def assign(self, topics: Topics, members: Sequence[Member]) -> Shares:
        """See ``Assignor``."""
        shares: Shares = {each.member_id: [] for each in members}
        ordered = sorted_members(members)
        turn = 0
        for topic in subscribers(topics, members):
            for number in sorted(topics[topic]):
                while topic not in ordered[turn % len(ordered)].topics:
                    turn += 1
                shares[ordered[turn % len(ordered)].member_id].append(TopicPartition(topic, number))
                turn += 1
        return shares
