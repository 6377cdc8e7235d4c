"""Finds the faults of this broker; the API, explanations, metrics and the timeline use the same report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kreplica.admin.health.broker_facts import BrokerFacts, StallFacts, stall_text
from kreplica.admin.health.cluster_faults import under_min_isr_fault, under_replicated_fault
from kreplica.admin.health.faults import BROKER_KINDS, Fault, broker_fault, partition_names
from kreplica.model import TopicPartition
from kreplica.replication import Partition, Partitions
from kreplica.runtime import Runtime
from kreplica.runtime.reused_result import ReusedResult
from kreplica.runtime.stalls import StallWatch
from kreplica.service.broker.listener_certificates import ListenerCertificates
from kreplica.service.broker.replication import Replication
from kreplica.service.metrics.directory_faults import damage_faults, directory_faults
from kreplica.service.metrics.disk_usage import DiskUsage, Usage
from kreplica.service.metrics.partition_totals import PartitionTotals, totals_of
from kreplica.storage.directories.log_directories import LogDirectories
from kreplica.zookeeper import SessionState, ZooKeeperClient

REUSE_SECONDS = 0.5

STALL_RECENT_MS = 5 * 60 * 1000
"""Maximum age of a stall for which the broker is reported as ``stalling``."""

FETCH_PENDING_S_MAX = 5.0
"""Time after which a leader that does not respond to a fetch is considered unreachable; fetches wait for records for
half a second.
"""


class HealthDependencies(Protocol):
    """Parts of a broker whose faults are reported."""

    @property
    def broker_id(self) -> int: ...

    @property
    def runtime(self) -> Runtime: ...

    @property
    def certificates(self) -> ListenerCertificates: ...

    @property
    def client(self) -> ZooKeeperClient: ...

    @property
    def directories(self) -> LogDirectories: ...

    @property
    def partitions(self) -> Partitions: ...

    @property
    def replication(self) -> Replication: ...


@dataclass(frozen=True, slots=True)
class LocalReport:
    """The faults and totals of one broker at one point in time.

    :param usable_bytes: free bytes in the online log directory that has the least; None if unknown.
    """

    faults: Sequence[Fault] = ()
    totals: PartitionTotals = field(default_factory=PartitionTotals)
    usable_bytes: int | None = None

    def counts(self) -> dict[str, int]:
        """Return the number of faults of each kind that a broker reports."""
        counts = dict.fromkeys(BROKER_KINDS, 0)
        for fault in self.faults:
            counts[fault.kind] += 1
        return counts


class LocalHealth:
    """Computes the report of a broker on demand, at most once every ``REUSE_SECONDS``."""

    def __init__(self, broker: HealthDependencies, stalls: StallWatch) -> None:
        self._broker = broker
        self._stalls = stalls
        self._usage = DiskUsage(broker.runtime)
        self._report: ReusedResult[LocalReport] = ReusedResult(broker.runtime.reactor, REUSE_SECONDS)
        self._pending: dict[int, tuple[tuple[int, int], float]] = {}
        """The oldest pending fetch from each leader, and the time at which it was first seen."""

    async def report(self) -> LocalReport:
        """Return the current report."""
        return await self._report.current(self._make)

    async def _make(self) -> LocalReport:
        broker = self._broker
        totals = await totals_of(broker.partitions, broker.broker_id, broker.runtime.reactor)
        online = [each.path for each in broker.directories.directories if each.offline is None]
        usage = self._usage.current(online)
        usable_bytes = min((free for path, (_, free) in usage.items() if path in online and free >= 0), default=None)
        return LocalReport(list(self._faults(totals, usage)), totals, usable_bytes)

    async def faults(self) -> Sequence[Fault]:
        """Return the current faults."""
        return (await self.report()).faults

    async def faults_of(self, key: TopicPartition) -> Sequence[Fault]:
        """Return the faults of this broker that affect its replica of a partition."""
        report = await self.report()
        return [fault for fault in report.faults if key in fault.partitions or not fault.partitions]

    # --- faults ------------------------------------------------------------------------------------------------------

    def _faults(self, totals: PartitionTotals, usage: Usage) -> Iterator[Fault]:
        broker, broker_id = self._broker, self._broker.broker_id
        yield from self._zookeeper()
        directories = broker.directories.directories
        for directory in directories:
            yield from directory_faults(broker_id, directory, usage)
        yield from damage_faults(broker_id, directories, totals.damaged)
        unopened = sorted(broker.partitions.without_resources)
        if unopened:
            text = f"Broker {broker_id} has no space or file descriptor to open {partition_names(unopened)}."
            yield broker_fault("unopened_replicas", broker_id, text, unopened)
        if totals.under_min_isr:
            yield under_min_isr_fault(sorted(totals.under_min_isr))
        if totals.under_replicated:
            yield under_replicated_fault(sorted(totals.under_replicated), totals.under_min_isr)
        yield from self._unreachable_leaders()
        yield from self._throttled_faults(totals.lagging)
        yield from self._event_loop()
        for each in broker.certificates.watch.expiring:
            kind = "certificate_expired" if each.days < 0 else "certificate_expiring"
            yield broker_fault(kind, broker_id, f"Broker {broker_id}: {each.text}", detail=each.listener)

    def _zookeeper(self) -> Iterator[Fault]:
        client, broker_id = self._broker.client, self._broker.broker_id
        if client.state is SessionState.CONNECTED:
            return
        problem = f" ({client.last_problem})" if client.last_problem else ""
        consequence = "its session has ended: it leads no partition" if client.state.lost else "its session may expire"
        text = f"Broker {broker_id} has no connection to ZooKeeper{problem}; {consequence}."
        yield broker_fault("zookeeper_lost", broker_id, text)

    def _unreachable_leaders(self) -> Iterator[Fault]:
        now_s, broker_id = self._broker.runtime.reactor.seconds(), self._broker.broker_id
        before, self._pending = self._pending, {}
        for fetcher in self._broker.replication.fetchers:
            problem, pending = fetcher.problem, fetcher.pending
            if pending is not None:
                known = before.get(fetcher.leader_id)
                since_s = known[1] if known is not None and known[0] == pending else now_s
                self._pending[fetcher.leader_id] = pending, since_s
                if now_s - since_s > FETCH_PENDING_S_MAX:
                    problem = problem or f"no response for {now_s - since_s:.0f} s"
            if problem and fetcher.keys:
                keys, leader_id = sorted(fetcher.keys), fetcher.leader_id
                text = f"Broker {broker_id} cannot fetch {partition_names(keys)} from broker {leader_id}: {problem}."
                yield broker_fault("leader_unreachable", broker_id, text, keys, detail=str(leader_id))

    def _throttled_faults(self, lagging: Sequence[Partition]) -> Iterator[Fault]:
        throttle, broker_id = self._broker.replication.throttle, self._broker.broker_id
        limited = {
            partition.topic_partition: min(bucket.rate for bucket in buckets)
            for partition in lagging
            if (buckets := throttle.follower_throttles(partition.topic_partition, partition.leadership.adding))
        }
        if limited:
            keys, rate = sorted(limited), min(limited.values())
            limit = f"at no more than {rate:,} bytes per second (throttle)"
            text = f"Broker {broker_id} copies {partition_names(keys)} {limit}."
            yield broker_fault("throttled_replicas", broker_id, text, keys)

    def _event_loop(self) -> Iterator[Fault]:
        broker_id = self._broker.broker_id
        recent = [each for each in self._recent_stalls() if self._now_ms() - each.at_ms <= STALL_RECENT_MS]
        if recent:
            yield broker_fault("stalling", broker_id, stall_text(broker_id, recent))

    def facts(self) -> BrokerFacts:
        """Return the facts for an explanation of the broker."""
        return BrokerFacts(self._recent_stalls(), self._stalls.stalls, self._broker.certificates.watch.expiries)

    def _recent_stalls(self) -> list[StallFacts]:
        """Return the last stalls of the event loop, newest first."""
        now_ms, stalls = self._now_ms(), self._stalls
        return [
            StallFacts(now_ms - round(stalls.ago_s(each) * 1000), round(each.seconds * 1000), each.cause)
            for each in reversed(stalls.recent)
        ]

    def _now_ms(self) -> int:
        return self._broker.runtime.wall_clock_ms()
