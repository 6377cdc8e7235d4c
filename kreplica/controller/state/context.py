"""The controller's view of the cluster, in memory; changes only while an event is being handled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from kreplica.controller.state.running_plan import RunningPlan
from kreplica.controller.state.states import (
    PARTITION_PREVIOUS,
    REPLICA_PREVIOUS,
    PartitionState,
    ReplicaState,
    check_transition,
)
from kreplica.model import NO_BROKER_EPOCH, BrokerRegistration, LeaderAndIsr, TopicAssignment, TopicPartition
from kreplica.runtime.empty_dict import EMPTY_DICT

Replica = tuple[TopicPartition, int]

Preference = Callable[[TopicPartition, tuple[int, ...], Mapping[int, str | None]], tuple[int, ...]]
"""Orders a partition's replicas by leadership preference; also receives the racks of live brokers."""


_NO_STATES: dict[TopicPartition, ReplicaState] = EMPTY_DICT


@dataclass(frozen=True, slots=True)
class ReadOnlyPeriod:
    """Read-only period of a partition that is being removed.

    :param since_s: start of the period on the reactor's clock; each new controller restarts the period.
    :param wait_s: required length of the period.
    """

    since_s: float
    wait_s: float


class ControllerContext:
    """State of the cluster as the controller last read or wrote it.

    Filled when a term starts and discarded when it ends.  Changes to assignments and leaders are applied to it only
    after they have been written to ZooKeeper.
    """

    def __init__(self, controller_epoch: int, epoch_znode_version: int) -> None:
        self.controller_epoch = controller_epoch
        self.epoch_znode_version = epoch_znode_version
        self.brokers: dict[int, BrokerRegistration] = {}
        self.topics: dict[str, TopicAssignment] = {}
        self.topic_versions: dict[str, int] = {}
        """Versions of the topic znodes, for the next write."""
        self.leadership: dict[TopicPartition, LeaderAndIsr] = {}
        self.deleting: set[str] = set()
        """Topics whose deletion was requested: their partitions get no role."""
        self.deletions_started: set[str] = set()
        """Topics in ``deleting`` to whose replicas this term has sent StopReplica."""
        self.topic_czxids: dict[str, int] = {}
        """czxid of each topic znode (the transaction that created it)."""
        self.initial_replicas: dict[TopicPartition, frozenset[int]] = {}
        """Initial replicas of partitions whose first leader was elected in this term.  If these replicas already have
        files of the partition, the files belong to a deleted topic with the same name.
        """
        self.known_epochs: dict[int, int] = {}
        """Last handled epoch of each current or former broker.  ISRs and ELRs (eligible leader replicas) that contain
        the broker refer to the process with that epoch.
        """
        self.shutting_down: set[int] = set()
        """Live brokers in controlled shutdown: not elected and not made followers (KIP-841)."""
        self.failed_replicas: dict[int, set[TopicPartition]] = {}
        """Replicas in failed log directories, by live broker."""
        self.read_only: Mapping[TopicPartition, ReadOnlyPeriod] = {}
        """Partitions that are being removed and can still be read."""
        self.reassignments_requested: Mapping[TopicPartition, tuple[int, ...]] = {}
        """Contents of ``/admin/reassign_partitions``."""
        self.reassignments_version = -1
        """Version of the znode when it was last read or written; -1 if it is absent."""
        self.plans: dict[str, RunningPlan] = {}
        """Active plans by id."""
        self.ended_plans: set[str] = set()
        """Ids of ended plans that still have a znode."""
        self.plan_throttle: int | None = None
        """Contents of ``/kreplica/plan_throttle``."""
        self.commands_count = 0
        """Number of commands that this process has sent as the controller; each command contains its number."""
        self.preference: Preference | None = None
        """Orders the candidates for leadership; None for the order of the assignment."""
        self.unreadable: set[str] = set()
        """Topics whose znodes are not valid documents; ignored until they are rewritten or deleted."""
        self._partition_states: dict[TopicPartition, PartitionState] = {}
        self._replica_states: dict[int, dict[TopicPartition, ReplicaState]] = {}
        """States of the replicas by broker."""

    # --- partitions and their replicas -------------------------------------------------------------------------------

    def replicas(self, partition: TopicPartition) -> tuple[int, ...]:
        """Return the replicas, with the preferred leader first; empty if the partition does not exist."""
        topic = self.topics.get(partition.topic)
        return topic.partitions.get(partition.partition, ()) if topic else ()

    def candidates(self, partition: TopicPartition) -> tuple[int, ...]:
        """Return the replicas in order of leadership preference."""
        replicas = self.replicas(partition)
        if self.preference is None:
            return replicas
        return self.preference(partition, replicas, {number: each.rack for number, each in self.brokers.items()})

    def removed_replicas(self, partition: TopicPartition) -> tuple[int, ...]:
        """Return the brokers that were removed from the partition and may still have its files."""
        topic = self.topics.get(partition.topic)
        if topic is None:
            return ()
        if partition.partition in topic.partitions:
            replicas = topic.partitions[partition.partition]
            return tuple(r for r in topic.removing.get(partition.partition, ()) if r not in replicas)
        removed = topic.removed.get(partition.partition)
        return removed.replicas if removed else ()

    def will_be_deleted(self, partition: TopicPartition, broker_id: int) -> bool:
        """Return True if the replica was removed, or its topic is being deleted."""
        return partition.topic in self.deleting or broker_id in self.removed_replicas(partition)

    def removed_replicas_of_topic(self, topic: str) -> list[Replica]:
        """Return the replicas of a topic that were removed and may still have files."""
        assignment = self.topics.get(topic)
        if assignment is None:
            return []
        numbers = sorted(assignment.removing.keys() | assignment.removed.keys())
        partitions = [TopicPartition(topic, number) for number in numbers]
        return [(partition, broker) for partition in partitions for broker in self.removed_replicas(partition)]

    def removed_partitions(self) -> list[TopicPartition]:
        """Return the partitions that were removed and have not been created again."""
        return [
            TopicPartition(topic, number)
            for topic, assignment in sorted(self.topics.items())
            for number in sorted(assignment.removed)
            if number not in assignment.partitions
        ]

    def first_leader_epoch(self, partition: TopicPartition) -> int:
        """Return the initial leader epoch: above the last epoch of a removed partition with the same number."""
        topic = self.topics.get(partition.topic)
        removed = topic.removed.get(partition.partition) if topic else None
        return removed.leader_epoch + 1 if removed else 0

    def partitions_of(self, topic: str) -> Iterator[TopicPartition]:
        assignment = self.topics.get(topic)
        if assignment is not None:
            for partition in sorted(assignment.partitions):
                yield TopicPartition(topic, partition)

    def all_partitions(self) -> Iterator[TopicPartition]:
        for topic in sorted(self.topics):
            yield from self.partitions_of(topic)

    def replicas_on(self, broker_ids: Iterable[int]) -> Iterator[Replica]:
        """Yield every replica on these brokers; lazy, because a full scan takes a long time."""
        brokers = set(broker_ids)
        for topic, assignment in sorted(self.topics.items()):
            for number in sorted(assignment.partitions):
                for replica in assignment.partitions[number]:
                    if replica in brokers:
                        yield TopicPartition(topic, number), replica

    # --- live brokers ------------------------------------------------------------------------------------------------

    def add_broker(self, registration: BrokerRegistration) -> None:
        """Add a live broker, or replace its previous process and that process's state."""
        self.remove_broker(registration.broker_id)
        self.brokers[registration.broker_id] = registration
        self.known_epochs[registration.broker_id] = registration.epoch

    def remove_broker(self, broker_id: int) -> None:
        self.brokers.pop(broker_id, None)
        self.shutting_down.discard(broker_id)
        self.failed_replicas.pop(broker_id, None)

    def known_epoch(self, broker_id: int) -> int:
        """Return the last handled epoch of a broker, or -1."""
        return self.known_epochs.get(broker_id, NO_BROKER_EPOCH)

    def is_online(self, partition: TopicPartition, broker_id: int) -> bool:
        """Return True if the broker is live and its replica has not failed."""
        return broker_id in self.brokers and partition not in self.failed_replicas.get(broker_id, ())

    def online_replicas(self, partition: TopicPartition) -> tuple[int, ...]:
        """Return the online replicas in the order of the assignment."""
        brokers, replicas = self.brokers, self.replicas(partition)
        if self.failed_replicas:
            return tuple([replica for replica in replicas if self.is_online(partition, replica)])
        for replica in replicas:
            if replica not in brokers:
                return tuple([replica for replica in replicas if replica in brokers])
        return replicas  # the common case, without a new object

    def electable_replicas(self, partition: TopicPartition) -> tuple[int, ...]:
        """Return the online replicas whose brokers are not shutting down."""
        online = self.online_replicas(partition)
        if not self.shutting_down:
            return online
        return tuple(replica for replica in online if replica not in self.shutting_down)

    def state_receivers(self, partition: TopicPartition) -> tuple[int, ...]:
        """Return the brokers that receive the partition's state: online replicas, except followers shutting down."""
        if not self.shutting_down:
            return self.online_replicas(partition)
        leader = self.leadership[partition].leader
        return tuple(r for r in self.online_replicas(partition) if r == leader or r not in self.shutting_down)

    def leads(self, broker_id: int, partition: TopicPartition) -> bool:
        """Return True if the broker is the leader in the state of the partition, even if the broker is not live."""
        state = self.leadership.get(partition)
        return state is not None and state.leader == broker_id

    def not_deleting(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return the partitions whose topics are not being deleted."""
        if not self.deleting:
            return list(partitions)
        return [partition for partition in partitions if partition.topic not in self.deleting]

    def offline_replicas(self, partition: TopicPartition) -> tuple[int, ...]:
        brokers, replicas = self.brokers, self.replicas(partition)
        if self.failed_replicas:
            return tuple([replica for replica in replicas if not self.is_online(partition, replica)])
        for replica in replicas:
            if replica not in brokers:
                return tuple([replica for replica in replicas if replica not in brokers])
        return ()

    # --- states ------------------------------------------------------------------------------------------------------

    def partition_state(self, partition: TopicPartition) -> PartitionState:
        return self._partition_states.get(partition, PartitionState.NON_EXISTENT)

    def set_partition_state(self, partition: TopicPartition, state: PartitionState) -> None:
        """Set the state of a partition.

        :raise InvalidTransition: the transition is not in the table.
        """
        check_transition(PARTITION_PREVIOUS, self.partition_state(partition), state, partition)
        if state is PartitionState.NON_EXISTENT:
            self._partition_states.pop(partition, None)
        else:
            self._partition_states[partition] = state

    def replica_state(self, partition: TopicPartition, broker_id: int) -> ReplicaState:
        return self._replica_states.get(broker_id, _NO_STATES).get(partition, ReplicaState.NON_EXISTENT)

    def set_replica_state(self, partition: TopicPartition, broker_id: int, state: ReplicaState) -> None:
        """Set the state of a replica.

        :raise InvalidTransition: the transition is not in the table.
        """
        states = self._replica_states.setdefault(broker_id, {})
        old = states.get(partition, ReplicaState.NON_EXISTENT)
        check_transition(REPLICA_PREVIOUS, old, state, (partition, broker_id))
        if state is ReplicaState.NON_EXISTENT:
            states.pop(partition, None)
        else:
            states[partition] = state

    def set_initial_states(
        self, partition: TopicPartition, state: PartitionState, replicas: Mapping[int, ReplicaState]
    ) -> None:
        """Set initial states at the start of a term, without checking transitions."""
        self._partition_states[partition] = state
        for broker_id, replica_state in replicas.items():
            self._replica_states.setdefault(broker_id, {})[partition] = replica_state

    def forget_replica(self, partition: TopicPartition, broker_id: int) -> None:
        """Drop the state of a removed replica."""
        self._replica_states.get(broker_id, _NO_STATES).pop(partition, None)

    def replicas_of_topic(self, topic: str) -> list[Replica]:
        """Return every replica of a topic, including those that must be deleted."""
        assigned = [(partition, r) for partition in self.partitions_of(topic) for r in self.replicas(partition)]
        return assigned + self.removed_replicas_of_topic(topic)

    def forget_topic(self, topic: str) -> None:
        """Drop all state of a topic whose znodes are gone."""
        for partition in list(self.partitions_of(topic)):
            self._partition_states.pop(partition, None)
            self.leadership.pop(partition, None)
            self.initial_replicas.pop(partition, None)
        for replica in self.replicas_of_topic(topic):
            self.forget_replica(*replica)
        self.topics.pop(topic, None)
        self.topic_versions.pop(topic, None)
        self.topic_czxids.pop(topic, None)
        self.deleting.discard(topic)
        self.deletions_started.discard(topic)
        self.unreadable.discard(topic)
