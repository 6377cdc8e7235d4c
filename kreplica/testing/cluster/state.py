"""A cluster in this process as its own files and znodes have it, looked at from outside, without any request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Protocol, TypeVar

from kreplica.cluster import documents, znodes
from kreplica.model import LeaderAndIsr, TopicAssignment, TopicPartition
from kreplica.replication import READ_COMMITTED, Partition, Role
from kreplica.service.composition.broker import Broker
from kreplica.zookeeper.embedded.server import EmbeddedCoordinator
from kreplica.zookeeper.embedded.znode import Znode

ProgramT = TypeVar("ProgramT", covariant=True)


class MachineView(Protocol[ProgramT]):
    """What is looked at of a machine."""

    @property
    def running(self) -> bool: ...

    @property
    def program(self) -> ProgramT: ...


class ClusterView(Protocol):
    """What is looked at of a cluster."""

    @property
    def coordinator(self) -> MachineView[EmbeddedCoordinator]: ...

    @property
    def brokers(self) -> Mapping[int, MachineView[Broker]]: ...


ACTING = (Role.LEADER, Role.FOLLOWER)


@lru_cache(maxsize=10_000)
def _state(path: str, data: bytes, version: int) -> LeaderAndIsr:
    return documents.decode_partition_state(path, data, version)


@lru_cache(maxsize=1_000)
def _assignment(topic: str, data: bytes) -> TopicAssignment:
    return documents.decode_topic(topic, data)


def znode(cluster: ClusterView, path: str) -> Znode | None:
    """A znode as the coordinator has it in memory; None also where no coordinator serves."""
    machine = cluster.coordinator
    serving = machine.program.serving if machine.running else None
    return None if serving is None else serving.tree.nodes.get(path)


def state_of(cluster: ClusterView, key: TopicPartition) -> LeaderAndIsr | None:
    """What the partition's state znode says."""
    path = znodes.partition_state_path(*key)
    node = znode(cluster, path)
    return None if node is None else _state(path, node.data or b"", node.version)


def assignment_of(cluster: ClusterView, topic: str) -> TopicAssignment | None:
    """What the topic's znode says."""
    node = znode(cluster, znodes.topic_path(topic))
    return None if node is None else _assignment(topic, node.data or b"")


def replicas_of(cluster: ClusterView, key: TopicPartition) -> tuple[int, ...]:
    """The partition's assignment; empty where there is none."""
    assignment = assignment_of(cluster, key.topic)
    return () if assignment is None else assignment.partitions.get(key.partition, ())


def is_moving(cluster: ClusterView, topic: str) -> bool:
    """Whether a reassignment of the topic is under way."""
    assignment = assignment_of(cluster, topic)
    return assignment is not None and bool(assignment.adding or assignment.removing)


def acting(cluster: ClusterView, key: TopicPartition) -> Iterator[tuple[int, Partition]]:
    """The running brokers that lead or follow the partition, with what they hold of it."""
    for broker_id, machine in cluster.brokers.items():
        partition = machine.program.partitions.get(key) if machine.running else None
        if partition is not None and partition.role in ACTING:
            yield broker_id, partition


def is_in_sync(cluster: ClusterView, key: TopicPartition) -> bool:
    """Whether the partition is led, and every replica whose broker runs is in sync, by its znode and by its leader."""
    state = state_of(cluster, key)
    if state is None:
        return False
    live = {broker for broker in replicas_of(cluster, key) if cluster.brokers[broker].running}
    leads = [broker for broker, partition in acting(cluster, key) if partition.is_leader]
    return leads == [state.leader] and live == set(state.isr)


def is_all_committed(cluster: ClusterView, key: TopicPartition) -> bool:
    """Whether the partition is led, and the high watermark is at the end of the leader's log."""
    leaders = [partition for _, partition in acting(cluster, key) if partition.is_leader]
    return len(leaders) == 1 and leaders[0].high_watermark == leaders[0].log.log_end_offset


def is_decided(cluster: ClusterView, key: TopicPartition) -> bool:
    """Whether the partition is led, and no transaction is open there: who reads what is committed reads to the end."""
    leaders = [partition for _, partition in acting(cluster, key) if partition.is_leader]
    return bool(leaders) and leaders[0].visible_end(READ_COMMITTED) == leaders[0].high_watermark
