"""Totals over the partitions with a replica on this broker, computed in one pass for metrics, charts and faults."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from kreplica.model import TopicPartition
from kreplica.replication import Partition
from kreplica.runtime import Reactor
from kreplica.runtime.time_slice import TimeSlice
from kreplica.storage.segments.damage import Damage


@dataclass(slots=True)
class PartitionTotals:
    """Totals over all partitions with a replica on this broker.

    :ivar ends: log end offsets of the partitions led by this broker.
    :ivar offline: number of replicas in failed log directories.
    :ivar damaged: the first damage in each log that is still in use.
    :ivar lagging: replicas on this broker that follow a leader and are not in the ISR.
    """

    ends: dict[TopicPartition, int] = field(default_factory=dict)
    replicas: int = 0
    offline: int = 0
    under_replicated: list[TopicPartition] = field(default_factory=list)
    under_min_isr: list[TopicPartition] = field(default_factory=list)
    damaged: dict[TopicPartition, Damage] = field(default_factory=dict)
    lagging: list[Partition] = field(default_factory=list)

    def add(self, partition: Partition, broker_id: int) -> None:
        """Add one partition."""
        key, leadership = partition.topic_partition, partition.leadership
        self.replicas += 1
        self.offline += partition.role.is_offline
        damage = partition.log.damage.by_segment
        if damage and not partition.role.is_offline:
            self.damaged[key] = next(iter(damage.values()))
        if partition.is_leader:
            in_sync = len(leadership.isr)
            self.ends[key] = partition.log.log_end_offset
            if in_sync < len(leadership.replicas):
                self.under_replicated.append(key)
                if in_sync < partition.in_sync_required:
                    self.under_min_isr.append(key)
        elif partition.role.is_follower and broker_id not in leadership.isr:
            self.lagging.append(partition)


async def totals_of(partitions: Iterable[Partition], broker_id: int, reactor: Reactor) -> PartitionTotals:
    """Return the totals; yields to the reactor if there are many partitions."""
    totals, time_slice = PartitionTotals(), TimeSlice(reactor)
    for partition in list(partitions):
        totals.add(partition, broker_id)
        if time_slice.is_over:
            await time_slice.next()
    return totals
