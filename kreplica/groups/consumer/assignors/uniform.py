"""Uniform assignor: the members' partition counts differ as little as possible, with few moves.

It works in three steps: members keep the partitions of topics that they are still subscribed to; each free partition is
assigned to the member with the fewest partitions; then partitions move from members with many to members with few
partitions while this evens out the counts. If all members have the same subscription, the counts differ by at most one
and the number of moves is minimal.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heappop, heappush, heapreplace
from uuid import UUID

from kreplica.groups.consumer.assignment import Assignment
from kreplica.groups.consumer.assignors.assignor import Group, TopicClass


class UniformAssignor:
    """Default assignor, as in Kafka."""

    name = "uniform"
    class_name = "org.apache.kafka.coordinator.group.assignor.UniformAssignor"

    def assign(self, group: Group) -> Mapping[str, Assignment]:
        shares = _Shares(group)
        shares.keep_previous()
        # Topics with few subscribers come first, while those subscribers still have few partitions.
        classes = sorted(group.classes(), key=lambda each: len(each.subscribers))
        for each in classes:
            shares.assign_free(each)
        # A move may enable another in a different class. The loop ends: each move reduces the sum of squared counts.
        # Classes with many subscribers come first: their partitions can move to the smallest member directly.
        classes.reverse()
        while sum(map(shares.balance, classes)):
            pass
        return shares.result()


class _Shares:
    """Partitions of each member during the computation."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self._held: dict[str, dict[UUID, set[int]]] = {member_id: {} for member_id in sorted(group.members)}
        self._counts = dict.fromkeys(self._held, 0)
        self._free = {topic_id: set(range(count)) for topic_id, count in group.partition_counts.items()}

    def keep_previous(self) -> None:
        """Let members keep their previous partitions in topics that they are still subscribed to."""
        for member_id, held in self._held.items():
            topic_ids, _, target = self._group.members[member_id]
            for topic_id, partitions in target.items():
                free = self._free.get(topic_id)
                if free and topic_id in topic_ids:
                    kept = partitions & free
                    free -= kept
                    held[topic_id] = set(kept)
                    self._counts[member_id] += len(kept)

    def assign_free(self, topics: TopicClass) -> None:
        """Assign free partitions to the subscribers with the fewest partitions."""
        subscribers = topics.subscribers
        least = [(self._counts[member_id], index) for index, member_id in enumerate(subscribers)]
        heapify(least)
        for topic_id in topics.topic_ids:
            for partition in sorted(self._free[topic_id]):
                count, index = least[0]
                self._held[subscribers[index]].setdefault(topic_id, set()).add(partition)
                self._counts[subscribers[index]] += 1
                heapreplace(least, (count + 1, index))

    def balance(self, topics: TopicClass) -> int:
        """Move partitions of these topics from the members with the most partitions to those with the fewest.

        :return: number of moved partitions.
        """
        subscribers, topic_ids = topics
        counts = self._counts
        all_counts = [counts[member_id] for member_id in subscribers]
        if max(all_counts) - min(all_counts) < 2:
            return 0
        movable = [sum(len(self._held[member_id].get(each, ())) for each in topic_ids) for member_id in subscribers]
        least = [(counts[member_id], index) for index, member_id in enumerate(subscribers)]
        most = [(-count, index) for count, index in least if movable[index]]
        heapify(least)
        heapify(most)
        moved = 0
        while True:
            # Members whose counts have changed are in the heaps more than once; skip outdated entries.
            while most and (-most[0][0] != counts[subscribers[most[0][1]]] or not movable[most[0][1]]):
                heappop(most)
            while least[0][0] != counts[subscribers[least[0][1]]]:
                heappop(least)
            if not most or -most[0][0] - least[0][0] < 2:
                return moved
            source, destination = most[0][1], least[0][1]
            self._move(subscribers[source], subscribers[destination], topic_ids)
            moved += 1
            for index, change in ((source, -1), (destination, 1)):
                movable[index] += change
                heappush(least, (counts[subscribers[index]], index))
                heappush(most, (-counts[subscribers[index]], index))

    def result(self) -> dict[str, Assignment]:
        """Return the assignment of each member."""
        return {
            member_id: {topic_id: frozenset(partitions) for topic_id, partitions in held.items() if partitions}
            for member_id, held in self._held.items()
        }

    def _move(self, source: str, destination: str, topic_ids: list[UUID]) -> None:
        """Move the partition that spreads topics best, preferably one that the source did not previously own."""
        held, others = self._held[source], self._held[destination]
        topic_id = max(
            (each for each in topic_ids if held.get(each)),
            key=lambda each: len(held[each]) - len(others.get(each, ())),
        )
        previous = self._group.members[source].target.get(topic_id, frozenset())
        partition = max(held[topic_id], key=lambda each: (each not in previous, each))
        held[topic_id].discard(partition)
        others.setdefault(topic_id, set()).add(partition)
        self._counts[source] -= 1
        self._counts[destination] += 1
