"""Partitioners, which choose the partition of a record; the hash functions are in ``wire.partitioning``."""

from __future__ import annotations

from binascii import crc32
from functools import lru_cache
from random import Random
from typing import Protocol

from kreplica.client_core.metadata import TopicView
from kreplica.model import NO_LEADER
from kreplica.wire.partitioning import partition_of_key

KEYS_CACHED = 8192
"""Maximum number of keys whose hashes are cached."""

_partition_of_key = lru_cache(KEYS_CACHED)(partition_of_key)


class Partitioner(Protocol):
    """Chooses the partitions of one producer's records."""

    def partition(self, topic: TopicView, key: bytes | None) -> int:
        """Return the partition number for a record that was sent without one."""

    def full(self, topic: str, partition: int) -> None:
        """Handle the completion of a partition's current batch."""


class StickyPartitions:
    """Chooses the partition of records without a key: the same partition until its batch is full (KIP-480)."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._chosen: dict[str, int] = {}
        self._previous: dict[str, int] = {}

    def partition(self, topic: TopicView) -> int:
        """Return the current partition, or choose one at random, preferably one with a leader."""
        name = topic.name
        chosen = self._chosen.get(name)
        if chosen is None:
            with_leader = [each.partition for each in topic.partitions if each.leader != NO_LEADER]
            possible = with_leader or [each.partition for each in topic.partitions]
            others = [each for each in possible if each != self._previous.get(name)]
            chosen = self._chosen[name] = self._random.choice(others or possible)
        return chosen

    def full(self, topic: str, partition: int) -> None:
        """Choose another partition for the next record if this is the current one."""
        if self._chosen.get(topic) == partition:
            self._previous[topic] = self._chosen.pop(topic)


class DefaultPartitioner:
    """Partitions keys by their murmur2 hash, as Kafka's Java client does; records without a key are sticky."""

    def __init__(self, random: Random) -> None:
        self._sticky = StickyPartitions(random)
        self._sticky_partition = self._sticky.partition

    def partition(self, topic: TopicView, key: bytes | None) -> int:
        """Return the partition of a key, or the sticky partition."""
        if key is None:
            return self._sticky_partition(topic)
        return _partition_of_key(key, len(topic.partitions))

    def full(self, topic: str, partition: int) -> None:
        """Choose another sticky partition."""
        self._sticky.full(topic, partition)


class ConsistentPartitioner(DefaultPartitioner):
    """Partitions keys by CRC-32, as librdkafka's ``consistent_random`` does; an empty key is treated as no key."""

    def partition(self, topic: TopicView, key: bytes | None) -> int:
        """Return the partition of a key, or the sticky partition."""
        if not key:
            return self._sticky_partition(topic)
        return crc32(key) % len(topic.partitions)


class RoundRobinPartitioner:
    """Uses the partitions of a topic in turn, starting at a random one, regardless of keys."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._next: dict[str, int] = {}

    def partition(self, topic: TopicView, key: bytes | None) -> int:
        """Return the next partition."""
        number = self._next.get(topic.name)
        if number is None:
            number = self._random.randrange(len(topic.partitions))
        self._next[topic.name] = number + 1
        return topic.partitions[number % len(topic.partitions)].partition

    def full(self, topic: str, partition: int) -> None:
        """Do nothing: the choice does not depend on batches."""
