"""Equal shares: no member has two partitions more than another that could read one of them; little moves.

Three steps: everybody keeps what it had and may still read; what nobody has goes to whoever has least; then partitions
move from whoever has most to whoever has least, while that makes them more equal.  Where all members are subscribed to
the same topics, their counts differ by one at most, and no assignment as equal moves fewer partitions.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heappop, heappush, heapreplace
from uuid import UUID

from kreplica.groups.consumer.assignment import Assignment
from kreplica.groups.consumer.assignors.assignor import Group, TopicClass


class UniformAssignor:
    """The default of Kafka too."""

    name = "uniform"
    class_name = "org.apache.kafka.coordinator.group.assignor.UniformAssignor"

    def assign(self, group: Group) -> Mapping[str, Assignment]:
        """See ``Assignor``."""
        shares = _Shares(group)
        shares.keep()
        # Topics with few subscribers come first: who can read little should not find others' partitions there.
        classes = sorted(group.classes(), key=lambda each: len(each.subscribers))
        for each in classes:
            shares.hand_out(each)
        # A move in one class may make another possible elsewhere.  Each makes the sum of the squared counts smaller.
        # Those with many subscribers come first, where a partition may go to whoever has least at once.
        classes.reverse()
        while sum(map(shares.level, classes)):
            pass
        return shares.result()


class _Shares:
    """What each member has so far."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self._held: dict[str, dict[UUID, set[int]]] = {member_id: {} for member_id in sorted(group.members)}
        self._counts = dict.fromkeys(self._held, 0)
        self._free = {topic_id: set(range(count)) for topic_id, count in group.partition_counts.items()}

    def keep(self) -> None:
        """Everybody keeps what it was to have, where it is subscribed to it still."""
        for member_id, held in self._held.items():
            topic_ids, _, target = self._group.members[member_id]
            for topic_id, partitions in target.items():
                free = self._free.get(topic_id)
                if free and topic_id in topic_ids:
                    kept = partitions & free
                    free -= kept
                    held[topic_id] = set(kept)
                    self._counts[member_id] += len(kept)

    def hand_out(self, topics: TopicClass) -> None:
        """Give what is free to whoever has least."""
        subscribers = topics.subscribers
        least = [(self._counts[member_id], index) for index, member_id in enumerate(subscribers)]
        heapify(least)
        for topic_id in topics.topic_ids:
            for partition in sorted(self._free[topic_id]):
                count, index = least[0]
                self._held[subscribers[index]].setdefault(topic_id, set()).add(partition)
                self._counts[subscribers[index]] += 1
                heapreplace(least, (count + 1, index))

    def level(self, topics: TopicClass) -> int:
        """Move partitions of these topics from whoever has most to whoever has least.

        :return: how many partitions have moved.
        """
        subscribers, topic_ids = topics
        counts = self._counts
        of_all = [counts[member_id] for member_id in subscribers]
        if max(of_all) - min(of_all) < 2:
            return 0
        here = [sum(len(self._held[member_id].get(each, ())) for each in topic_ids) for member_id in subscribers]
        least = [(counts[member_id], index) for index, member_id in enumerate(subscribers)]
        most = [(-count, index) for count, index in least if here[index]]
        heapify(least)
        heapify(most)
        moved = 0
        while True:
            # Members whose count has changed stand in the heaps a second time; what they had before is passed over.
            while most and (-most[0][0] != counts[subscribers[most[0][1]]] or not here[most[0][1]]):
                heappop(most)
            while least[0][0] != counts[subscribers[least[0][1]]]:
                heappop(least)
            if not most or -most[0][0] - least[0][0] < 2:
                return moved
            giver, taker = most[0][1], least[0][1]
            self._move(subscribers[giver], subscribers[taker], topic_ids)
            moved += 1
            for index, change in ((giver, -1), (taker, 1)):
                here[index] += change
                heappush(least, (counts[subscribers[index]], index))
                heappush(most, (-counts[subscribers[index]], index))

    def result(self) -> dict[str, Assignment]:
        """What each member gets."""
        return {
            member_id: {topic_id: frozenset(partitions) for topic_id, partitions in held.items() if partitions}
            for member_id, held in self._held.items()
        }

    def _move(self, giver: str, taker: str, topic_ids: list[UUID]) -> None:
        """Move the partition that spreads the topics best; of those, one that the giver does not have yet."""
        held, others = self._held[giver], self._held[taker]
        topic_id = max(
            (each for each in topic_ids if held.get(each)),
            key=lambda each: len(held[each]) - len(others.get(each, ())),
        )
        settled = self._group.members[giver].target.get(topic_id, frozenset())
        partition = max(held[topic_id], key=lambda each: (each not in settled, each))
        held[topic_id].discard(partition)
        others.setdefault(topic_id, set()).add(partition)
        self._counts[giver] -= 1
        self._counts[taker] += 1
