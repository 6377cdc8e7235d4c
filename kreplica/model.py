"""The frozen values that every room speaks of.  Imports nothing of ours."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

NO_LEADER = -1
"""Leader id of a partition that nobody leads."""

LEADER_DURING_DELETE = -2
"""Leader id that tells brokers that the topic is being deleted (UpdateMetadata)."""

NO_EPOCH = -1
"""Leader epoch that is not known."""

NO_BROKER_EPOCH = -1
"""Broker epoch that is not known."""

ZERO_UUID = UUID(int=0)
"""The topic id that means "none"."""


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Endpoint(NamedTuple):
    """Where one listener of a broker can be reached by those who come in by that listener."""

    listener: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.listener}://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """What a broker says of itself in ``/brokers/ids/N``.

    ``epoch`` is the czxid of that znode (KIP-380): a broker that restarted has a higher one.

    :param intact_since: the epoch of the earliest incarnation since which this broker has lost nothing: each one from
        there on was stopped in order, or killed without the machine going down, so its logs hold whatever a replica
        here held at any time from that registration on.  -1: since this registration (the first start, or the end of a
        log may be lost: KIP-966).  Not the epoch before this one: two restarts may be noticed as one.
    """

    broker_id: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    epoch: int = -1
    timestamp_ms: int = 0
    admin_url: str | None = None
    intact_since: int = NO_BROKER_EPOCH

    def endpoint(self, listener: str) -> Endpoint | None:
        """The endpoint of that listener, or None where the broker has none of that name."""
        for endpoint in self.endpoints:
            if endpoint.listener == listener:
                return endpoint
        return None


class ElectedController(NamedTuple):
    """The controller that ZooKeeper names.

    :param broker_id: None if ``/controller`` is absent.
    :param epoch: ``/controller_epoch``; 0 before the first election.
    """

    broker_id: int | None
    epoch: int


@dataclass(frozen=True, slots=True)
class LeaderAndIsr:
    """A partition's state as the controller decided it; ``partition_epoch`` is the znode's version."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    partition_epoch: int = 0
    eligible_leader_replicas: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class RemovedPartition:
    """What is kept of a partition that was removed.

    :param leader_epoch: its last one; a new partition of that number starts above it, so that no replica of the old one
        and no client takes the two for one.
    :param replicas: brokers that may still have its files: while there is one, the number is not used again.
    """

    leader_epoch: int
    replicas: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicAssignment:
    """Which brokers hold which partition: the first replica of each is the preferred leader.

    :param adding: while replicas move, those that are not in sync yet and shall be.
    :param removing: while replicas move, those that go when the others are in sync.  One that is not among the
        partition's replicas any more has gone already, and has yet to delete its files.
    :param read_only: partitions that are being removed, the highest-numbered ones: they take no more records.
    :param removed: numbers that were partitions once, or still have files somewhere.
    """

    topic: str
    topic_id: UUID
    partitions: dict[int, tuple[int, ...]]
    adding: dict[int, tuple[int, ...]] = field(default_factory=dict)
    removing: dict[int, tuple[int, ...]] = field(default_factory=dict)
    read_only: frozenset[int] = frozenset()
    removed: dict[int, RemovedPartition] = field(default_factory=dict)
