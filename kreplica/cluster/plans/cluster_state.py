"""What a plan is made from: the cluster as it is now."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import TopicAssignment, TopicPartition


@dataclass(frozen=True, slots=True)
class ClusterState:
    """As whoever makes a plan has read it, from ZooKeeper or from its metadata.

    :param topics: by name, without those that are being deleted.
    :param brokers: those that live, each with its rack.
    :param cordoned: brokers that get no new replicas, whether they live or not.
    :param in_sync: by partition; one that is absent has no state yet.
    :param leaders: by partition; absent where nobody leads.
    :param sizes: bytes of one replica; absent where nobody could say.
    :param planned: partitions that a plan that has not ended touches, each with that plan's id.
    """

    topics: Mapping[str, TopicAssignment]
    brokers: Mapping[int, str | None]
    cordoned: Collection[int] = ()
    in_sync: Mapping[TopicPartition, Collection[int]] = field(default_factory=dict)
    leaders: Mapping[TopicPartition, int] = field(default_factory=dict)
    sizes: Mapping[TopicPartition, int] = field(default_factory=dict)
    planned: Mapping[TopicPartition, str] = field(default_factory=dict)

    def topic(self, name: str) -> TopicAssignment:
        """:raise KafkaError: UNKNOWN_TOPIC_OR_PARTITION."""
        assignment = self.topics.get(name)
        if assignment is None:
            text = f"there is no topic {name!r}, or it is being deleted: look at the list of topics"
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
        return assignment

    def replicas(self, partition: TopicPartition) -> tuple[int, ...]:
        """Where a partition is now.

        :raise KafkaError: UNKNOWN_TOPIC_OR_PARTITION.
        """
        rows = self.topic(partition.topic).partitions
        if partition.partition not in rows:
            text = f"there is no partition {partition}: {partition.topic} has {len(rows)}, numbered from 0"
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
        return rows[partition.partition]

    def assignments(self, topics: Collection[str] | None = None) -> dict[TopicPartition, tuple[int, ...]]:
        """The replicas of every partition, of these topics (None: of all).

        :raise KafkaError: UNKNOWN_TOPIC_OR_PARTITION.
        """
        names = sorted(self.topics if topics is None else topics)
        return {
            TopicPartition(name, number): replicas
            for name in names
            for number, replicas in sorted(self.topic(name).partitions.items())
        }

    def is_moving(self, partition: TopicPartition) -> bool:
        """Whether somebody is moving its replicas; one that only has files to delete has arrived."""
        topic = self.topics[partition.topic]
        replicas = topic.partitions.get(partition.partition, ())
        leaving = topic.removing.get(partition.partition, ())
        return bool(topic.adding.get(partition.partition)) or any(replica in replicas for replica in leaving)

    @property
    def takers(self) -> list[int]:
        """The brokers that may get new replicas."""
        return [broker for broker in sorted(self.brokers) if broker not in self.cordoned]

    def holders(self, assignments: Mapping[TopicPartition, tuple[int, ...]]) -> dict[int, str | None]:
        """Every broker that lives or is assigned something, with its rack where that is known."""
        assigned = {broker for replicas in assignments.values() for broker in replicas}
        return {broker: self.brokers.get(broker) for broker in sorted(assigned | self.brokers.keys())}
