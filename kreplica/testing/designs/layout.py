"""Topics, partitions and their assignment to brokers, the same for all designs."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from kreplica.model import TopicAssignment, TopicPartition


class Partition:
    """One partition; it has exactly one object, and objects are compared by identity.

    :ivar replicas: current assignment, preferred leader first, as the administrator sees it.
    """

    __slots__ = ("number", "replicas", "topic")

    def __init__(self, topic: str, number: int, replicas: tuple[int, ...]) -> None:
        self.topic = topic
        self.number = number
        self.replicas = replicas

    @property
    def key(self) -> TopicPartition:
        return TopicPartition(self.topic, self.number)

    def __repr__(self) -> str:
        return f"{self.topic}-{self.number}"


@dataclass(frozen=True, slots=True)
class Shape:
    """Size of a cluster.

    :param replication_factor: replicas of each partition.
    :param partitions_per_topic: partitions of each topic; the last topic may have fewer.
    """

    partitions: int
    brokers: int
    replication_factor: int = 2
    partitions_per_topic: int = 10

    @property
    def broker_ids(self) -> range:
        return range(1, self.brokers + 1)


class Layout:
    """All partitions of a cluster.

    :ivar topics: partitions by topic.
    """

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.topics: dict[str, list[Partition]] = {}
        self._count = 0
        remaining = shape.partitions
        while remaining:
            count = min(remaining, shape.partitions_per_topic)
            self.add_topic(f"topic-{len(self.topics)}", count)
            remaining -= count

    def add_topic(self, topic: str, count: int) -> list[Partition]:
        """Add a topic: preferred leaders go round robin, and the followers shift by one broker after each round."""
        first = self._count
        self._count += count
        partitions = [Partition(topic, number, self._replicas(first + number)) for number in range(count)]
        self.topics[topic] = partitions
        return partitions

    def _replicas(self, index: int) -> tuple[int, ...]:
        brokers, factor = self.shape.brokers, self.shape.replication_factor
        first, shift = index % brokers, index // brokers % max(brokers - 1, 1)
        others = [(first + 1 + (shift + number) % (brokers - 1)) % brokers for number in range(factor - 1)]
        return tuple(1 + broker for broker in (first, *others))

    def all(self) -> list[Partition]:
        return [partition for partitions in self.topics.values() for partition in partitions]

    def get(self, topic: str, number: int) -> Partition:
        return self.topics[topic][number]

    def find(self, topic: str, number: int) -> Partition | None:
        """Return a partition, or None if its topic was removed."""
        partitions = self.topics.get(topic)
        return partitions[number] if partitions else None

    def assignment(self, topic: str) -> TopicAssignment:
        """Return the topic's assignment as kreplica writes it."""
        number = int.from_bytes(topic.encode()[-8:]) + 1
        replicas = {partition.number: partition.replicas for partition in self.topics[topic]}
        return TopicAssignment(topic, UUID(int=number), replicas)
