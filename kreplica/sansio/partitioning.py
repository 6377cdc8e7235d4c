"""Which partition a record without a key goes to (``wire.partitioning`` knows those with one)."""

from __future__ import annotations

from random import Random

from kreplica.model import NO_LEADER
from kreplica.sansio.views import TopicView


class StickyPartitions:
    """For records without a key: one partition of each topic until its batch is full, then another (KIP-480)."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._chosen: dict[str, int] = {}
        self._before: dict[str, int] = {}

    def partition(self, topic: TopicView) -> int:
        """The one chosen, or another one, of those that have a leader if any has."""
        name = topic.name
        chosen = self._chosen.get(name)
        if chosen is None:
            led = [each.partition for each in topic.partitions if each.leader != NO_LEADER]
            possible = led or [each.partition for each in topic.partitions]
            others = [each for each in possible if each != self._before.get(name)]
            chosen = self._chosen[name] = self._random.choice(others or possible)
        return chosen

    def full(self, topic: str, partition: int) -> None:
        """A partition's batch is complete: if it is the one chosen, the next record chooses another."""
        if self._chosen.get(topic) == partition:
            self._before[topic] = self._chosen.pop(topic)
