"""Interface of the roles of a replica, and the roles of a replica that does not lead.

The role of a leader is ``leader.leader_state.LeaderState``. A follower's fetch position belongs to its fetcher.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Protocol

from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import LeaderAndIsr
from kreplica.replication.leadership import Leadership
from kreplica.replication.purgatory import Watched
from kreplica.runtime.disk import Buffer
from kreplica.storage.log.appending import reject
from kreplica.storage.log.log import Log
from kreplica.storage.log.results import Outcome
from kreplica.storage.producers.producer_state import Origin
from kreplica.wire.batches import BatchHeader

UNKNOWN_OFFSET = -1


class RolePartition(Watched, Protocol):
    """The operations of a partition that its role needs."""

    leadership: Leadership
    high_watermark: int

    @property
    def log(self) -> Log: ...

    @property
    def role(self) -> Role: ...

    @property
    def acknowledgeable_end_offset(self) -> int: ...

    @property
    def in_sync_required(self) -> int: ...

    def step_down(self, state: LeaderAndIsr) -> None: ...

    def stop(self) -> None: ...


class Role:
    """Role of a replica until its next change; by default, operations of a leader have no effect or raise
    ``unavailable``.
    """

    __slots__ = ("partition",)

    name: ClassVar[str]
    is_leader: ClassVar[bool] = False
    is_follower: ClassVar[bool] = False
    is_active: ClassVar[bool] = False
    """True for a leader or a follower."""
    is_offline: ClassVar[bool] = False

    def __init__(self, partition: RolePartition) -> None:
        self.partition = partition

    def unavailable(self) -> KafkaError:
        """Return the error for an operation that the role does not permit."""
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def append(
        self,
        batches: Sequence[Buffer],
        now_ms: int,
        *,
        all_in_sync: bool,
        origin: Origin,
        transaction: BatchHeader | None,
    ) -> Sequence[Outcome]:
        """See ``Partition.append``."""
        return reject(self.partition.log, batches, self.unavailable(), now_ms)

    def record_fetch(
        self,
        replica_id: int,
        broker_epoch: int,
        fetch_offset: int,
        now_s: float,
        log_start_offset: int = UNKNOWN_OFFSET,
    ) -> None:
        """See ``LeaderState.record_fetch``."""
        raise self.unavailable()

    def mark_sent(self, replica_id: int, offset: int) -> bool:
        """See ``LeaderState.mark_sent``."""
        return False

    def known_end_offset(self, replica_id: int) -> int | None:
        """Return a follower's log end offset, or None if it has not fetched in this leader epoch."""
        return None

    @property
    def epoch_start_offset(self) -> int:
        """Log end offset at which this leader's epoch started; the current log end if another broker leads."""
        return self.partition.log.log_end_offset

    @property
    def low_watermark(self) -> int:
        """The smallest log start offset of the in-sync replicas (KIP-107)."""
        return self.partition.log.log_start_offset

    def advance(self) -> None:
        """Advance the high watermark, if this broker leads."""

    def check_lag(self) -> None:
        """Propose the removal of lagging followers from the ISR, if this broker leads."""

    def state_changed(self) -> None:
        """Apply a change of the partition state within the leader epoch, or of the topic's settings."""


class StoppedRole(Role):
    """Role of a replica that has not received a role yet, or was stopped."""

    __slots__ = ()
    name = "stopped"


class FollowerRole(Role):
    """Role of a follower; the partition may have no leader."""

    __slots__ = ()
    name = "follower"
    is_follower = is_active = True


class OfflineRole(Role):
    """The replica's log directory failed."""

    __slots__ = ()
    name = "offline"
    is_offline = True

    def unavailable(self) -> KafkaError:
        name = self.partition.topic_partition
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the directory of {name} is offline")
