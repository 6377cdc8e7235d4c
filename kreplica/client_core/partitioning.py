"""Which partition a record goes to (``wire.partitioning`` has the hash that all of Kafka's clients share)."""

from __future__ import annotations

from binascii import crc32
from functools import lru_cache
from random import Random
from typing import Protocol

from kreplica.client_core.metadata import TopicView
from kreplica.model import NO_LEADER
from kreplica.wire.partitioning import partition_of_key

KEYS_REMEMBERED = 8192
"""So many keys are not hashed again when they come again."""

_partition_of_key = lru_cache(KEYS_REMEMBERED)(partition_of_key)


class Partitioner(Protocol):
    """Chooses partitions for one producer."""

    def partition(self, topic: TopicView, key: bytes | None) -> int:
        """The number of a partition of the topic, for a record for which its sender named none."""

    def full(self, topic: str, partition: int) -> None:
        """The batch that a partition gathered is complete."""


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


class DefaultPartitioner:
    """Keys by their murmur2 hash, as Kafka's Java client does; records without one stick to a partition for a while."""

    def __init__(self, random: Random) -> None:
        self._sticky = StickyPartitions(random)
        self._stick = self._sticky.partition

    def partition(self, topic: TopicView, key: bytes | None) -> int:
        """By the key where there is one."""
        if key is None:
            return self._stick(topic)
        return _partition_of_key(key, len(topic.partitions))

    def full(self, topic: str, partition: int) -> None:
        """Another one is chosen next."""
        self._sticky.full(topic, partition)


class ConsistentPartitioner(DefaultPartitioner):
    """Keys by their CRC-32, as librdkafka does by default (``consistent_random``); the others as by default.

    Records with an empty key count as those without one.
    """

    def partition(self, topic: TopicView, key: bytes | None) -> int:
        """By the key where there is one."""
        if not key:
            return self._stick(topic)
        return crc32(key) % len(topic.partitions)


class RoundRobinPartitioner:
    """One partition of a topic after the other, whatever the key, beginning anywhere."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._next: dict[str, int] = {}

    def partition(self, topic: TopicView, key: bytes | None) -> int:
        """The next one."""
        number = self._next.get(topic.name)
        if number is None:
            number = self._random.randrange(len(topic.partitions))
        self._next[topic.name] = number + 1
        return topic.partitions[number % len(topic.partitions)].partition

    def full(self, topic: str, partition: int) -> None:
        """Changes nothing."""
