"""Immutable value types shared by all packages. Imports no other module of kreplica."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

NO_LEADER = -1
"""Leader ID of a partition without a leader."""

LEADER_DURING_DELETE = -2
"""Leader ID in UpdateMetadata for a topic that is being deleted."""

NO_EPOCH = -1
"""Unknown leader epoch."""

NO_BROKER_EPOCH = -1
"""Unknown broker epoch."""

ZERO_UUID = UUID(int=0)
"""Topic ID of a topic without an ID."""


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Endpoint(NamedTuple):
    """Advertised address of one listener of a broker."""

    listener: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.listener}://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """Registration of a broker in ``/brokers/ids/N``.

    ``epoch`` is the czxid of that znode (KIP-380), so it increases with every restart.

    :param intact_since: epoch of the earliest registration since which the broker has lost no records: every process
        since then stopped cleanly, or was killed while its machine kept running. -1 if that is this registration:
        at the first start, or if the end of a log may be lost (KIP-966). Other brokers may notice two restarts as
        one, so this is not the epoch of the previous registration.
    """

    broker_id: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    epoch: int = -1
    timestamp_ms: int = 0
    admin_url: str | None = None
    intact_since: int = NO_BROKER_EPOCH

    def endpoint(self, listener: str) -> Endpoint | None:
        """Return the endpoint of a listener, or None if the broker has no listener of that name."""
        for endpoint in self.endpoints:
            if endpoint.listener == listener:
                return endpoint
        return None


class ElectedController(NamedTuple):
    """The active controller according to ZooKeeper.

    :param broker_id: None if ``/controller`` is absent.
    :param epoch: ``/controller_epoch``; 0 before the first election.
    """

    broker_id: int | None
    epoch: int


@dataclass(frozen=True, slots=True)
class LeaderAndIsr:
    """Partition state decided by the controller; ``partition_epoch`` is the version of the znode."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    partition_epoch: int = 0
    eligible_leader_replicas: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class RemovedPartition:
    """Record of a removed partition.

    :param leader_epoch: its last leader epoch. A new partition with the same number starts above it, so that replicas
        and clients can distinguish the two.
    :param replicas: brokers that may still have its files. The partition number is not reused until none is left.
    """

    leader_epoch: int
    replicas: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicAssignment:
    """Replica assignment of a topic; the first replica of each partition is its preferred leader.

    :param adding: during a reassignment, new replicas that must join the ISR.
    :param removing: during a reassignment, replicas to remove once the others are in sync. A broker that is no longer
        among the partition's replicas only has to delete its files.
    :param read_only: partitions that are being removed, always the highest-numbered ones; they accept no records.
    :param removed: numbers of removed partitions; their files may still exist.
    """

    topic: str
    topic_id: UUID
    partitions: dict[int, tuple[int, ...]]
    adding: dict[int, tuple[int, ...]] = field(default_factory=dict)
    removing: dict[int, tuple[int, ...]] = field(default_factory=dict)
    read_only: frozenset[int] = frozenset()
    removed: dict[int, RemovedPartition] = field(default_factory=dict)
