"""What the controller knows of the cluster, in memory.  Changed only while an event is handled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from kreplica.controller.state.running_plan import PlanRun
from kreplica.controller.state.states import (
    PARTITION_PREVIOUS,
    REPLICA_PREVIOUS,
    PartitionState,
    ReplicaState,
    check_transition,
)
from kreplica.model import NO_BROKER_EPOCH, BrokerRegistration, LeaderAndIsr, TopicAssignment, TopicPartition

Replica = tuple[TopicPartition, int]

Preference = Callable[[TopicPartition, tuple[int, ...], Mapping[int, str | None]], tuple[int, ...]]
"""Replicas of a partition, in the order in which they should lead; given the racks of live brokers too."""


@dataclass(frozen=True, slots=True)
class ReadOnly:
    """How long a partition that is to be removed has been read-only.

    :param since_s: when this controller found it so, on the reactor's clock: each controller waits anew.
    :param wait_s: how long it is to last.
    """

    since_s: float
    wait_s: float


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
        self.topic_versions: dict[str, int] = {}
        """The versions of the topics' znodes, for the next write."""
        self.leadership: dict[TopicPartition, LeaderAndIsr] = {}
        self.deleting: set[str] = set()
        self.topic_births: dict[str, int] = {}
        """The transactions (zxid) in which the topics' znodes were made."""
        self.begun: dict[TopicPartition, frozenset[int]] = {}
        """The partitions that had no state before this controller elected their first leaders, and their replicas then:
        whatever these have of them is of other topics of the name."""
        self.known_epochs: dict[int, int] = {}
        """By broker that lives or did: the last epoch that was dealt with, so that its places in in-sync and eligible
        sets are those of that process, or of one before it that lost nothing since."""
        self.shutting_down: set[int] = set()
        """Live brokers that asked to stop: they are not elected, and not told to follow (KIP-841)."""
        self.failed: dict[int, set[TopicPartition]] = {}
        """By live broker: its replicas whose log directory failed."""
        self.read_only: Mapping[TopicPartition, ReadOnly] = {}
        """The partitions that are being removed and can still be read."""
        self.reassignments_requested: Mapping[TopicPartition, tuple[int, ...]] = {}
        """What ``/admin/reassign_partitions`` asks for, and the version that it was read or written in."""
        self.reassignments_version = -1
        self.plans: dict[str, PlanRun] = {}
        """The plans that have not ended, by their ids."""
        self.ended_plans: set[str] = set()
        """The plans that have ended, and are still there."""
        self.plan_throttle: int | None = None
        """What ``/kreplica/plan_throttle`` says."""
        self.commands_count = 0
        """Of this process as the controller, to all brokers: each command has its number."""
        self.preference: Preference | None = None
        """Says who should lead rather than another; None goes by the order of the assignment."""
        self.unreadable: set[str] = set()
        """Topics whose znodes are no documents of Kafka's: left alone until somebody rewrites or deletes them."""
        self._partition_states: dict[TopicPartition, PartitionState] = {}
        self._replica_states: dict[Replica, ReplicaState] = {}

    # --- partitions and their replicas -------------------------------------------------------------------------------

    def replicas(self, partition: TopicPartition) -> tuple[int, ...]:
        """The brokers that hold it, the preferred leader first; none where it is not assigned."""
        topic = self.topics.get(partition.topic)
        return topic.partitions.get(partition.partition, ()) if topic else ()

    def candidates(self, partition: TopicPartition) -> tuple[int, ...]:
        """Its replicas, those first that should lead rather than others."""
        replicas = self.replicas(partition)
        if self.preference is None:
            return replicas
        return self.preference(partition, replicas, {number: each.rack for number, each in self.brokers.items()})

    def leaving(self, partition: TopicPartition) -> tuple[int, ...]:
        """The brokers that are not to hold it any more and may still have its files."""
        topic = self.topics.get(partition.topic)
        if topic is None:
            return ()
        if partition.partition in topic.partitions:
            replicas = topic.partitions[partition.partition]
            return tuple(r for r in topic.removing.get(partition.partition, ()) if r not in replicas)
        gone = topic.removed.get(partition.partition)
        return gone.replicas if gone else ()

    def is_leaving(self, partition: TopicPartition, broker_id: int) -> bool:
        """Whether that replica is to be deleted."""
        return partition.topic in self.deleting or broker_id in self.leaving(partition)

    def leaving_of(self, topic: str) -> list[Replica]:
        """Every replica of a topic that is only there to be deleted."""
        assignment = self.topics.get(topic)
        if assignment is None:
            return []
        numbers = sorted(assignment.removing.keys() | assignment.removed.keys())
        partitions = [TopicPartition(topic, number) for number in numbers]
        return [(partition, broker) for partition in partitions for broker in self.leaving(partition)]

    def removed_partitions(self) -> list[TopicPartition]:
        """Numbers that were partitions once and are none now."""
        return [
            TopicPartition(topic, number)
            for topic, assignment in sorted(self.topics.items())
            for number in sorted(assignment.removed)
            if number not in assignment.partitions
        ]

    def first_leader_epoch(self, partition: TopicPartition) -> int:
        """The leader epoch that a partition begins with: above that of a removed one that had its number."""
        topic = self.topics.get(partition.topic)
        gone = topic.removed.get(partition.partition) if topic else None
        return gone.leader_epoch + 1 if gone else 0

    def partitions_of(self, topic: str) -> Iterator[TopicPartition]:
        assignment = self.topics.get(topic)
        if assignment is not None:
            for partition in sorted(assignment.partitions):
                yield TopicPartition(topic, partition)

    def all_partitions(self) -> Iterator[TopicPartition]:
        for topic in sorted(self.topics):
            yield from self.partitions_of(topic)

    def replicas_on(self, broker_ids: Iterable[int]) -> Iterator[Replica]:
        """Every replica that those brokers hold; found as it is asked for, since to find all of them takes a while."""
        wanted = set(broker_ids)
        for topic, assignment in sorted(self.topics.items()):
            for number in sorted(assignment.partitions):
                for replica in assignment.partitions[number]:
                    if replica in wanted:
                        yield TopicPartition(topic, number), replica

    # --- who lives ---------------------------------------------------------------------------------------------------

    def add_broker(self, registration: BrokerRegistration) -> None:
        """A broker lives; whatever was known of its last process is forgotten, but for its epoch."""
        self.remove_broker(registration.broker_id)
        self.brokers[registration.broker_id] = registration
        self.known_epochs[registration.broker_id] = registration.epoch

    def remove_broker(self, broker_id: int) -> None:
        """A broker is gone."""
        self.brokers.pop(broker_id, None)
        self.shutting_down.discard(broker_id)
        self.failed.pop(broker_id, None)

    def known_epoch(self, broker_id: int) -> int:
        """The last epoch of that broker that a controller has dealt with; -1 where there is none."""
        return self.known_epochs.get(broker_id, NO_BROKER_EPOCH)

    def is_online(self, partition: TopicPartition, broker_id: int) -> bool:
        """Whether that broker lives and its replica has not failed."""
        return broker_id in self.brokers and partition not in self.failed.get(broker_id, ())

    def online(self, partition: TopicPartition) -> tuple[int, ...]:
        """The replicas that work, in the order of the assignment."""
        brokers, replicas = self.brokers, self.replicas(partition)
        if self.failed:
            return tuple([replica for replica in replicas if self.is_online(partition, replica)])
        return tuple([replica for replica in replicas if replica in brokers])

    def may_lead(self, partition: TopicPartition) -> tuple[int, ...]:
        """The replicas that work and are not about to stop."""
        online = self.online(partition)
        if not self.shutting_down:
            return online
        return tuple(replica for replica in online if replica not in self.shutting_down)

    def listeners(self, partition: TopicPartition) -> tuple[int, ...]:
        """Who is told of a partition's state: a broker that is shutting down only of what it leads."""
        leader = self.leadership[partition].leader
        return tuple(r for r in self.online(partition) if r == leader or r not in self.shutting_down)

    def leads(self, broker_id: int, partition: TopicPartition) -> bool:
        """Whether that broker leads it, or did when it died."""
        state = self.leadership.get(partition)
        return state is not None and state.leader == broker_id

    def staying(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Those whose topics are not being deleted."""
        return [partition for partition in partitions if partition.topic not in self.deleting]

    def offline_replicas(self, partition: TopicPartition) -> tuple[int, ...]:
        brokers, replicas = self.brokers, self.replicas(partition)
        if self.failed:
            return tuple([replica for replica in replicas if not self.is_online(partition, replica)])
        return tuple([replica for replica in replicas if replica not in brokers])

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
        replica = (partition, broker_id)
        old = self._replica_states.get(replica, ReplicaState.NON_EXISTENT)
        check_transition(REPLICA_PREVIOUS, old, state, replica)
        if state is ReplicaState.NON_EXISTENT:
            self._replica_states.pop(replica, None)
        else:
            self._replica_states[replica] = state

    def begin(self, partition: TopicPartition, state: PartitionState, replicas: Mapping[int, ReplicaState]) -> None:
        """The states with which a term begins: how they came about is not known."""
        self._partition_states[partition] = state
        for broker_id, replica_state in replicas.items():
            self._replica_states[partition, broker_id] = replica_state

    def forget_replica(self, partition: TopicPartition, broker_id: int) -> None:
        """Drop the state of a replica that is none any more."""
        self._replica_states.pop((partition, broker_id), None)

    def replicas_of_topic(self, topic: str) -> list[Replica]:
        """Every replica of a topic, those that are leaving too."""
        assigned = [(partition, r) for partition in self.partitions_of(topic) for r in self.replicas(partition)]
        return assigned + self.leaving_of(topic)

    def forget_topic(self, topic: str) -> None:
        """Drop all that is known of a topic whose znodes are gone."""
        for partition in list(self.partitions_of(topic)):
            self._partition_states.pop(partition, None)
            self.leadership.pop(partition, None)
            self.begun.pop(partition, None)
        for replica in self.replicas_of_topic(topic):
            self.forget_replica(*replica)
        self.topics.pop(topic, None)
        self.topic_versions.pop(topic, None)
        self.topic_births.pop(topic, None)
        self.deleting.discard(topic)
        self.unreadable.discard(topic)
