"""State of the cluster from which plans are computed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import TopicAssignment, TopicPartition


@dataclass(frozen=True, slots=True)
class ClusterState:
    """State of the cluster as read from ZooKeeper or from metadata.

    :param topics: assignments by topic name, without topics that are being deleted.
    :param brokers: live brokers with their racks.
    :param cordoned: brokers that are not assigned new replicas, whether they are alive or not.
    :param in_sync: ISR by partition; partitions without a state are left out.
    :param leaders: leader by partition; partitions without a leader are left out.
    :param sizes: size of one replica in bytes, by partition; unknown sizes are left out.
    :param planned: ID of the open plan, by partition.
    """

    topics: Mapping[str, TopicAssignment]
    brokers: Mapping[int, str | None]
    cordoned: Collection[int] = ()
    in_sync: Mapping[TopicPartition, Collection[int]] = field(default_factory=dict)
    leaders: Mapping[TopicPartition, int] = field(default_factory=dict)
    sizes: Mapping[TopicPartition, int] = field(default_factory=dict)
    planned: Mapping[TopicPartition, str] = field(default_factory=dict)

    def topic(self, name: str) -> TopicAssignment:
        """Return the assignment of a topic.

        :raise KafkaError: UNKNOWN_TOPIC_OR_PARTITION.
        """
        assignment = self.topics.get(name)
        if assignment is None:
            text = f"topic {name!r} does not exist or is being deleted: check the list of topics"
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
        return assignment

    def replicas(self, partition: TopicPartition) -> tuple[int, ...]:
        """Return the current replicas of a partition.

        :raise KafkaError: UNKNOWN_TOPIC_OR_PARTITION.
        """
        rows = self.topic(partition.topic).partitions
        if partition.partition not in rows:
            text = (
                f"partition {partition} does not exist: {partition.topic} has {len(rows)} partitions, numbered from 0"
            )
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
        return rows[partition.partition]

    def assignments(self, topics: Collection[str] | None = None) -> dict[TopicPartition, tuple[int, ...]]:
        """Return the replicas of every partition of these topics (of all topics if None).

        :raise KafkaError: UNKNOWN_TOPIC_OR_PARTITION.
        """
        names = sorted(self.topics if topics is None else topics)
        return {
            TopicPartition(name, number): replicas
            for name in names
            for number, replicas in sorted(self.topic(name).partitions.items())
        }

    def is_moving(self, partition: TopicPartition) -> bool:
        """Return True if a reassignment is copying data; one that only has to delete files is complete."""
        topic = self.topics[partition.topic]
        replicas = topic.partitions.get(partition.partition, ())
        leaving = topic.removing.get(partition.partition, ())
        return bool(topic.adding.get(partition.partition)) or any(replica in replicas for replica in leaving)

    @property
    def receivers(self) -> list[int]:
        """Brokers to which new replicas may be assigned."""
        return [broker for broker in sorted(self.brokers) if broker not in self.cordoned]

    def holders(self, assignments: Mapping[TopicPartition, tuple[int, ...]]) -> dict[int, str | None]:
        """Return every broker that is alive or has replicas, with its rack if known."""
        assigned = {broker for replicas in assignments.values() for broker in replicas}
        return {broker: self.brokers.get(broker) for broker in sorted(assigned | self.brokers.keys())}
