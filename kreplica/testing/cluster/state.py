"""State of a simulated cluster, read from its objects and znodes without sending requests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Protocol, TypeVar

from kreplica.cluster import documents, znodes
from kreplica.model import LeaderAndIsr, TopicAssignment, TopicPartition
from kreplica.replication import READ_COMMITTED, Partition
from kreplica.service.composition.broker import Broker
from kreplica.zookeeper.embedded.tree import Tree
from kreplica.zookeeper.embedded.znode import Znode

ProgramT = TypeVar("ProgramT", covariant=True)


class ZooKeeperState(Protocol):
    """Znodes and sessions of the ZooKeeper server."""

    @property
    def tree(self) -> Tree: ...

    def expire(self, session_id: int) -> None:
        """End a session immediately; idempotent."""


class ZooKeeperProgram(Protocol):
    """An ``EmbeddedZooKeeper`` or a simulated ensemble."""

    @property
    def serving(self) -> ZooKeeperState | None: ...


class MachineView(Protocol[ProgramT]):
    """The part of a machine that this module uses."""

    @property
    def running(self) -> bool: ...

    @property
    def program(self) -> ProgramT: ...


class ClusterView(Protocol):
    """The part of a cluster that this module uses."""

    @property
    def zookeeper(self) -> MachineView[ZooKeeperProgram]: ...

    @property
    def brokers(self) -> Mapping[int, MachineView[Broker]]: ...


@lru_cache(maxsize=10_000)
def _state(path: str, data: bytes, version: int) -> LeaderAndIsr:
    return documents.decode_partition_state(path, data, version)


@lru_cache(maxsize=1_000)
def _assignment(topic: str, data: bytes) -> TopicAssignment:
    return documents.decode_topic(topic, data)


def znode(cluster: ClusterView, path: str) -> Znode | None:
    """Return a znode of the ZooKeeper server's tree; None if it does not exist or the server is not serving."""
    machine = cluster.zookeeper
    serving = machine.program.serving if machine.running else None
    return None if serving is None else serving.tree.nodes.get(path)


def state_of(cluster: ClusterView, key: TopicPartition) -> LeaderAndIsr | None:
    path = znodes.partition_state_path(*key)
    node = znode(cluster, path)
    return None if node is None else _state(path, node.data or b"", node.version)


def assignment_of(cluster: ClusterView, topic: str) -> TopicAssignment | None:
    node = znode(cluster, znodes.topic_path(topic))
    return None if node is None else _assignment(topic, node.data or b"")


def replicas_of(cluster: ClusterView, key: TopicPartition) -> tuple[int, ...]:
    """Return the partition's assigned replicas; empty if it does not exist."""
    assignment = assignment_of(cluster, key.topic)
    return () if assignment is None else assignment.partitions.get(key.partition, ())


def is_moving(cluster: ClusterView, topic: str) -> bool:
    assignment = assignment_of(cluster, topic)
    return assignment is not None and bool(assignment.adding or assignment.removing)


def active_replicas(cluster: ClusterView, key: TopicPartition) -> Iterator[tuple[int, Partition]]:
    """Return the running brokers that lead or follow the partition, with their replicas."""
    for broker_id, machine in cluster.brokers.items():
        partition = machine.program.partitions.get(key) if machine.running else None
        if partition is not None and partition.role.is_active:
            yield broker_id, partition


def is_in_sync(cluster: ClusterView, key: TopicPartition) -> bool:
    """Return True if the znode's leader acts as the leader and the ISR consists of all replicas on running brokers."""
    state = state_of(cluster, key)
    if state is None:
        return False
    live = {broker for broker in replicas_of(cluster, key) if cluster.brokers[broker].running}
    leads = [broker for broker, partition in active_replicas(cluster, key) if partition.is_leader]
    return leads == [state.leader] and live == set(state.isr)


def is_all_committed(cluster: ClusterView, key: TopicPartition) -> bool:
    """Return True if the partition has one leader, whose high watermark equals its log end offset."""
    leaders = [partition for _, partition in active_replicas(cluster, key) if partition.is_leader]
    return len(leaders) == 1 and leaders[0].high_watermark == leaders[0].log.log_end_offset


def has_no_open_transaction(cluster: ClusterView, key: TopicPartition) -> bool:
    """Return True if the partition has a leader and a read_committed consumer can read up to the high watermark."""
    leaders = [partition for _, partition in active_replicas(cluster, key) if partition.is_leader]
    return bool(leaders) and leaders[0].visible_end(READ_COMMITTED) == leaders[0].high_watermark
