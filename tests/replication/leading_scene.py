"""A leader on an in-memory disk, with a virtual clock and lease; the test acts as the followers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.task import Clock

from kreplica.model import TopicPartition
from kreplica.replication.leader.leader_state import LeaderContext, LeaderState
from kreplica.replication.leader.lease import Lease
from kreplica.replication.leadership import Leadership
from kreplica.replication.partition import Partition
from kreplica.replication.purgatory import Purgatory
from kreplica.storage.directories.opening import LogToOpen
from kreplica.storage.log.appending import append_as_leader
from kreplica.storage.log.log import Log
from kreplica.storage.log.results import only_result
from kreplica.storage.log_config import LogConfig
from kreplica.testing.simulator.disk import MemoryDisk
from kreplica.wire.batch_building import NEXT_OFFSET, build_batch
from kreplica.wire.records import Record

LEADER, SECOND, THIRD = 1, 2, 3
ALL_REPLICAS = (LEADER, SECOND, THIRD)
LAG_S = 10.0
EPOCHS = {SECOND: 20, THIRD: 30}
"""Broker epochs of the followers."""


def batch(records: int = 1) -> bytearray:
    return bytearray(build_batch([Record(NEXT_OFFSET, 1000, None, b"value")] * records))


def leadership(
    leader_epoch: int = 5, isr: tuple[int, ...] = ALL_REPLICAS, partition_epoch: int = 0, **more: Any
) -> Leadership:
    """Return a leadership with broker 1 as leader of three replicas."""
    more.setdefault("leader", LEADER)
    more.setdefault("replicas", ALL_REPLICAS)
    return Leadership(
        leader_epoch=leader_epoch, isr=isr, partition_epoch=partition_epoch, controller_epoch=1, **more
    )


class Leading:
    """Broker 1 as a leader.

    :ivar proposed: the partitions that proposed an ISR change, in order.
    """

    def __init__(self, propose: Callable[[LeaderState], None] | None = None) -> None:
        self.clock = Clock()
        self.has_lease = True
        self.proposed: list[LeaderState] = []
        self.disk = MemoryDisk(lambda: 0, directories=["/data"])
        self._turns: list[Callable[[], object]] = []
        clock: Any = self.clock
        self.context = LeaderContext(
            LEADER,
            Purgatory(self._turns.append),
            Lease(clock, lambda: self.has_lease),
            self.clock.seconds,
            propose or self.proposed.append,
            LAG_S,
        )

    def partition(
        self, first: Leadership | None = None, *, min_insync_replicas: int = 1, records: int = 0, **config: Any
    ) -> Partition:
        """Return a partition that this broker leads, with a number of uncommitted records of epoch 0."""
        key = TopicPartition("t", 0)
        log = LogToOpen(f"/data/{key}", key, LogConfig(**config), self.disk, lambda: 1000).open()[0]
        for _ in range(records):
            append_as_leader(log, batch(), 0, now_ms=0)
        first = first or leadership()
        partition = Partition(
            key,
            first.topic_id,
            log,
            self.context,
            high_watermark=0,
            min_insync_replicas=min_insync_replicas,
        )
        partition.lead(first)
        return partition

    def end_turn(self) -> None:
        """Notify the watchers of changed partitions."""
        turns, self._turns[:] = list(self._turns), []
        for turn in turns:
            turn()


def append(partition: Partition, records: int = 1, *, acks_all: bool = True) -> int:
    """Append batches of one record each, and return the offset after the last record."""
    for _ in range(records):
        only_result(partition.append([batch()], 1000, all_in_sync=acks_all))
    return partition.log.log_end_offset


def sync(log: Log) -> None:
    """Sync all records."""
    unsynced = log.unsynced()
    unsynced.sync()
    log.mark_synced(unsynced)


def fetch(partition: Partition, replica: int, offset: int, now_s: float = 0.0, **more: int) -> None:
    """Record a follower's fetch in the current epoch."""
    broker_epoch = more.pop("broker_epoch", EPOCHS.get(replica, replica * 10))
    partition.role.record_fetch(replica, broker_epoch, offset, now_s, **more)
