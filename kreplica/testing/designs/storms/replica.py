"""State of a storm: replicas of one partition, and its znodes."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

Entry = tuple[int, int]
"""Epoch of the leader that wrote a record, and the record's number."""


class ReplicaRole(Enum):
    """Role of a replica in its own view, which may be outdated."""

    IDLE = "idle"
    FOLLOWER = "follower"
    CANDIDATE = "candidate"
    ELECTED = "elected"
    LEADER = "leader"


@dataclass(slots=True)
class Request:
    """A leader's request to follow it."""

    leader: int
    epoch: int


@dataclass(slots=True)
class StormReplica:
    """One replica and its broker.

    :ivar expired: True if the ZooKeeper session has expired, but the broker does not know it yet.
    :ivar notified: True if a watch event about the leader has not been handled yet.
    :ivar ends: as a leader, the log end offsets in the latest fetches of the followers.
    :ivar isr: as a leader, the in-sync replicas according to its last write.
    :ivar isr_version: version of the ISR znode when it was last read or written.
    """

    broker_id: int
    alive: bool = True
    expired: bool = False
    notified: bool = False
    role: ReplicaRole = ReplicaRole.IDLE
    leader: int | None = None
    epoch: int = 0
    log: list[Entry] = field(default_factory=list)
    high_watermark: int = 0
    ends: dict[int, int] = field(default_factory=dict)
    isr: frozenset[int] = frozenset()
    isr_version: int = 0

    @property
    def end(self) -> int:
        return len(self.log)

    def leads(self) -> bool:
        return self.alive and self.role is ReplicaRole.LEADER


@dataclass(slots=True)
class StormZooKeeper:
    """Znodes of the partition.

    :ivar queues: requests by broker (second design).
    """

    isr: frozenset[int]
    isr_version: int = 0
    leader: int | None = None
    epoch: int = 0
    queues: dict[int, list[Request]] = field(default_factory=dict)
