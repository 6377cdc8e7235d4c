"""What the controller knows of the cluster, in memory.  Changed only while an event is handled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kreplica.controller.states import (
    PARTITION_PREVIOUS,
    REPLICA_PREVIOUS,
    PartitionState,
    ReplicaState,
    check_transition,
)
from kreplica.model import BrokerRegistration, LeaderAndIsr, TopicAssignment, TopicPartition

Replica = tuple[TopicPartition, int]


class ControllerContext:
    """The cluster as the controller last read or wrote it.

    Filled when the controller takes office, dropped when it resigns.  What could not be written to ZooKeeper never
    gets in here.
    """

    def __init__(self, controller_epoch: int, epoch_znode_version: int) -> None:
        self.controller_epoch = controller_epoch
        self.epoch_znode_version = epoch_znode_version
        self.brokers: dict[int, BrokerRegistration] = {}
        self.topics: dict[str, TopicAssignment] = {}
        self.leadership: dict[TopicPartition, LeaderAndIsr] = {}
        self.deleting: set[str] = set()
        self.unreadable: set[str] = set()
        """Topics whose znodes are no documents of Kafka's: left alone until somebody rewrites or deletes them."""
        self._partition_states: dict[TopicPartition, PartitionState] = {}
        self._replica_states: dict[Replica, ReplicaState] = {}

    # --- partitions and their replicas -------------------------------------------------------------------------------

    def replicas(self, partition: TopicPartition) -> tuple[int, ...]:
        """The brokers that hold it, the preferred leader first; none where it is not assigned."""
        topic = self.topics.get(partition.topic)
        return topic.partitions.get(partition.partition, ()) if topic else ()

    def partitions_of(self, topic: str) -> Iterator[TopicPartition]:
        assignment = self.topics.get(topic)
        if assignment is not None:
            for partition in sorted(assignment.partitions):
                yield TopicPartition(topic, partition)

    def all_partitions(self) -> Iterator[TopicPartition]:
        for topic in sorted(self.topics):
            yield from self.partitions_of(topic)

    def replicas_on(self, broker_ids: Iterable[int]) -> list[Replica]:
        """Every replica that those brokers hold."""
        wanted = set(broker_ids)
        return [
            (partition, replica)
            for partition in self.all_partitions()
            for replica in self.replicas(partition)
            if replica in wanted
        ]

    def offline_replicas(self, partition: TopicPartition) -> tuple[int, ...]:
        return tuple(replica for replica in self.replicas(partition) if replica not in self.brokers)

    # --- states ------------------------------------------------------------------------------------------------------

    def partition_state(self, partition: TopicPartition) -> PartitionState:
        return self._partition_states.get(partition, PartitionState.NON_EXISTENT)

    def move_partition(self, partition: TopicPartition, state: PartitionState) -> None:
        """:raise InvalidTransition: where the table does not have it."""
        check_transition(PARTITION_PREVIOUS, self.partition_state(partition), state, partition)
        if state is PartitionState.NON_EXISTENT:
            self._partition_states.pop(partition, None)
        else:
            self._partition_states[partition] = state

    def partitions_in(self, *states: PartitionState) -> list[TopicPartition]:
        return [partition for partition in self.all_partitions() if self.partition_state(partition) in states]

    def replica_state(self, partition: TopicPartition, broker_id: int) -> ReplicaState:
        return self._replica_states.get((partition, broker_id), ReplicaState.NON_EXISTENT)

    def move_replica(self, partition: TopicPartition, broker_id: int, state: ReplicaState) -> None:
        """:raise InvalidTransition: where the table does not have it."""
        old = self.replica_state(partition, broker_id)
        check_transition(REPLICA_PREVIOUS, old, state, f"{partition} on broker {broker_id}")
        if state is ReplicaState.NON_EXISTENT:
            self._replica_states.pop((partition, broker_id), None)
        else:
            self._replica_states[partition, broker_id] = state

    def replicas_of_topic(self, topic: str) -> list[Replica]:
        return [(partition, replica) for partition in self.partitions_of(topic) for replica in self.replicas(partition)]

    def forget_topic(self, topic: str) -> None:
        """Drop all that is known of a topic whose znodes are gone."""
        for partition in list(self.partitions_of(topic)):
            self._partition_states.pop(partition, None)
            self.leadership.pop(partition, None)
            for replica in self.replicas(partition):
                self._replica_states.pop((partition, replica), None)
        self.topics.pop(topic, None)
        self.deleting.discard(topic)
        self.unreadable.discard(topic)
