"""Assigns equal shares with as few moves as possible.

Members first keep their partitions, and each free partition is assigned to the member with the fewest partitions.
Then, for each topic, partitions move from the subscriber with the most partitions to the one with the fewest while
their counts differ by more than one.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heapreplace

from kreplica.client.group.assignors.assignor import Shares, Topics
from kreplica.model import TopicPartition


class Balance:
    """Partitions of each member during an assignment.

    :param members: member ids with their subscribed topics, in order.
    """

    def __init__(self, topics: Topics, members: Sequence[tuple[str, frozenset[str]]]) -> None:
        self._free = {
            TopicPartition(topic, number): None for topic in sorted(topics) for number in sorted(topics[topic])
        }
        self._rank = {member_id: rank for rank, (member_id, _) in enumerate(members)}
        self._subscribed = {
            topic: [member_id for member_id, subscription in members if topic in subscription] for topic in topics
        }
        self._held: dict[str, dict[str, dict[TopicPartition, None]]] = {member_id: {} for member_id, _ in members}
        self._kept: set[tuple[str, TopicPartition]] = set()
        self._counts = dict.fromkeys(self._held, 0)

    def keep(self, member_id: str, partition: TopicPartition) -> None:
        """Let a member keep a partition if the member is still subscribed to the topic."""
        if partition in self._free and member_id in self._subscribed[partition.topic]:
            self._kept.add((member_id, partition))
            self._assign(member_id, partition)

    def assign_free(self) -> None:
        """Assign free partitions to the members with the fewest partitions; start with the least subscribed topics."""
        for topic in sorted(self._subscribed, key=lambda each: (len(self._subscribed[each]), each)):
            least = [(*self._load(member_id), member_id) for member_id in self._subscribed[topic]]
            heapify(least)
            for partition in [each for each in self._free if each.topic == topic] if least else ():
                count, rank, member_id = least[0]
                self._assign(member_id, partition)
                heapreplace(least, (count + 1, rank, member_id))

    def level(self) -> None:
        """Move partitions until no owner in a topic has two or more partitions more than another subscriber.

        The loop terminates, because each move reduces the sum of the squared counts.
        """
        while any(self._level_topic(topic) for topic in sorted(self._subscribed) if len(self._subscribed[topic]) > 1):
            pass

    def shares(self) -> Shares:
        """Return the partitions of each member."""
        return {
            member_id: sorted(each for partitions in held.values() for each in partitions)
            for member_id, held in self._held.items()
        }

    def _level_topic(self, topic: str) -> bool:
        """Move partitions of one topic from the members with the most partitions to those with the fewest.

        :return: True if a partition moved.
        """
        subscribed, has_moved = self._subscribed[topic], False
        while True:
            owners = [each for each in subscribed if self._held[each].get(topic)]
            if not owners:
                return has_moved
            source, destination = max(owners, key=self._load), min(subscribed, key=self._load)
            if self._counts[source] - self._counts[destination] < 2:
                return has_moved
            # Prefer a partition that the source member did not own before.
            partition = max(self._held[source][topic], key=lambda each: ((source, each) not in self._kept, each))
            del self._held[source][topic][partition]
            self._counts[source] -= 1
            self._assign(destination, partition)
            has_moved = True

    def _load(self, member_id: str) -> tuple[int, int]:
        return self._counts[member_id], self._rank[member_id]

    def _assign(self, member_id: str, partition: TopicPartition) -> None:
        self._free.pop(partition, None)
        self._held[member_id].setdefault(partition.topic, {})[partition] = None
        self._counts[member_id] += 1
