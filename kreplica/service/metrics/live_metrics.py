"""Computes the live metrics of the dashboard's charts, from the same counters as ``/metrics``."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from kreplica import __version__
from kreplica.controller.controller import Controller
from kreplica.model import TopicPartition
from kreplica.replication import Partition, Partitions
from kreplica.runtime import Runtime
from kreplica.runtime.stalls import BOUNDS_S, StallWatch
from kreplica.runtime.time_slice import TimeSlice
from kreplica.server.protocol.metrics import ApiMetrics, ServerMetrics
from kreplica.server.transport.listeners import Server
from kreplica.service.broker.listener_certificates import ListenerCertificates
from kreplica.service.broker.replication import Replication
from kreplica.service.metrics.machine_metrics import smallest_free_space
from kreplica.service.metrics.topic_loads import TopicLoadSampler
from kreplica.storage.directories.log_directories import LogDirectories
from kreplica.wire.messages import FETCH, PRODUCE, Api

PERCENTILE = 0.99
RECENT_SECONDS, SNAPSHOT_SECONDS = 10.0, 1.0
REUSE_SECONDS = 0.5


class LiveMetricsDependencies(Protocol):
    """Parts of a broker that the live metrics need."""

    @property
    def runtime(self) -> Runtime: ...

    @property
    def certificates(self) -> ListenerCertificates: ...

    @property
    def controller(self) -> Controller: ...

    @property
    def partitions(self) -> Partitions: ...

    @property
    def replication(self) -> Replication: ...

    @property
    def server(self) -> Server | None: ...

    @property
    def directories(self) -> LogDirectories: ...


class LiveMetrics:
    """Implements ``admin.resources.figures.LocalMetrics``.

    :ivar rates: returns the rates of the last seconds by series of the history; set by the owner.
    """

    def __init__(self, broker: LiveMetricsDependencies, stalls: StallWatch, topic_loads: TopicLoadSampler) -> None:
        self._broker = broker
        self._topic_loads = topic_loads
        self.rates: Callable[[], Mapping[str, float]] = dict
        self._delays = RecentDelays(broker.runtime.reactor.seconds, stalls)
        self._messages = CountedMessages()
        self._totals = PartitionTotals({})
        self._totals_at_s: float | None = None

    async def live_metrics(self) -> Mapping[str, Any]:
        """Return the live metrics; totals over partitions are reused for ``REUSE_SECONDS``."""
        broker = self._broker
        now_s = broker.runtime.reactor.seconds()
        if self._totals_at_s is None or now_s - self._totals_at_s >= REUSE_SECONDS:
            self._totals_at_s = now_s
            self._totals = await self._count()
        totals, controller, writes = self._totals, broker.controller, broker.replication.isr_writes
        watch = broker.certificates.watch
        loads, rates = await self._topic_loads.current(), self.rates()
        usable_bytes = await smallest_free_space(broker.runtime, broker.directories.directories)
        return {
            **_requests(broker.server.metrics if broker.server is not None else ServerMetrics()),
            "messages_in": self._messages.count,
            "leaders": len(totals.ends),
            "replicas": totals.replicas,
            "under_replicated": totals.under_replicated,
            "under_min_isr": totals.under_min_isr,
            "offline": totals.offline,
            "isr_shrinks": writes.shrinks,
            "isr_expands": writes.expands,
            "is_controller": controller.active,
            "controller_events": controller.queue.events_handled,
            "controller_queue": len(controller.queue),
            "reactor_delay_p99_ms": self._delays.percentile_ms,
            "certificates": [asdict(each) for each in watch.expiries],
            "warnings": [each.text for each in watch.expiring],
            "version": __version__,
            "log_bytes": sum(load.disk_bytes for load in loads.values()),
            "usable_bytes": usable_bytes,
            "offline_log_dirs": sum(each.offline is not None for each in broker.directories.directories),
            **{f"{name}_rate": rates.get(name, 0.0) for name in ("bytes_in", "bytes_out", "messages_in")},
        }

    async def _count(self) -> PartitionTotals:
        totals, time_slice = PartitionTotals({}), TimeSlice(self._broker.runtime.reactor)
        for partition in list(self._broker.partitions):
            totals.add(partition)
            if time_slice.is_over:
                await time_slice.next()
        self._messages.update(totals.ends)
        return totals


@dataclass(slots=True)
class PartitionTotals:
    """Totals over all partitions with a replica on this broker.

    :ivar ends: log end offsets of partitions led here.
    """

    ends: dict[TopicPartition, int]
    replicas: int = 0
    under_replicated: int = 0
    under_min_isr: int = 0
    offline: int = 0

    def add(self, partition: Partition) -> None:
        """Add one partition."""
        self.replicas += 1
        self.offline += partition.role.is_offline
        if partition.is_leader:
            in_sync = len(partition.leadership.isr)
            self.ends[partition.topic_partition] = partition.log.log_end_offset
            self.under_replicated += in_sync < len(partition.leadership.replicas)
            self.under_min_isr += in_sync < partition.in_sync_required


class RecentDelays:
    """Reactor delays of the last ``RECENT_SECONDS``, so that delays at start-up do not hide current ones.

    :param seconds: the reactor's clock.
    """

    def __init__(self, seconds: Callable[[], float], stalls: StallWatch) -> None:
        self._seconds = seconds
        self._stalls = stalls
        self._snapshots: deque[tuple[float, Sequence[int]]] = deque([(seconds(), tuple(stalls.counts))])

    @property
    def percentile_ms(self) -> float:
        """``percentile_ms`` of the recent delays."""
        now_s, counts = self._seconds(), tuple(self._stalls.counts)
        if now_s - self._snapshots[-1][0] >= SNAPSHOT_SECONDS:
            self._snapshots.append((now_s, counts))
        while len(self._snapshots) > 2 and now_s - self._snapshots[1][0] > RECENT_SECONDS:
            self._snapshots.popleft()
        before = self._snapshots[0][1]
        return percentile_ms(after - earlier for after, earlier in zip(counts, before, strict=True))


class CountedMessages:
    """Counts new messages by comparing log end offsets between two reads, so that appends do no counting."""

    def __init__(self) -> None:
        self._ends: dict[TopicPartition, int] = {}
        self.count = 0
        """Number of new messages since the first read, over partitions that were led here at both reads."""

    def update(self, ends: Mapping[TopicPartition, int]) -> None:
        """Add the growth since the previous log end offsets."""
        known = self._ends
        self.count += sum(max(end - known.get(key, end), 0) for key, end in ends.items())
        self._ends = dict(ends)


def percentile_ms(counts: Iterable[int]) -> float:
    """Return the smallest bucket bound that covers 99 % of the delays, in milliseconds; the largest bound if none
    does."""
    rows = list(counts)
    needed, below = sum(rows) * PERCENTILE, 0
    for bound_s, count in zip(BOUNDS_S, rows, strict=False):
        below += count
        if below >= needed:
            return bound_s * 1000
    return BOUNDS_S[-1] * 1000


def _requests(metrics: ServerMetrics) -> dict[str, Any]:
    produce, fetch = (_of(metrics, api) for api in (PRODUCE, FETCH))
    return {
        "bytes_in": produce.bytes_in,
        "bytes_out": fetch.bytes_out,
        "produce": _times(produce),
        "fetch": _times(fetch),
        "connections": metrics.connections,
    }


def _times(metrics: ApiMetrics) -> dict[str, Any]:
    return {
        "requests": metrics.requests,
        "time_ms": metrics.response_time_s * 1000,
        "waits": metrics.waits,
        "wait_ms": metrics.wait_time_s * 1000,
    }


def _of(metrics: ServerMetrics, api: Api) -> ApiMetrics:
    return metrics.apis.get(api.key) or ApiMetrics()
