"""Computes the live metrics of the dashboard's charts, from the same counters as ``/metrics``."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Protocol

from kreplica import __version__
from kreplica.controller.controller import Controller
from kreplica.model import TopicPartition
from kreplica.runtime import Reactor
from kreplica.runtime.interpreter import interpreter
from kreplica.runtime.stalls import BOUNDS_S, StallWatch
from kreplica.runtime.time_slice import TimeSlice
from kreplica.server.protocol.metrics import ApiMetrics, ServerMetrics
from kreplica.server.transport.listeners import Server
from kreplica.service.metrics.local_health import HealthDependencies, LocalHealth
from kreplica.service.metrics.topic_loads import TopicLoadSampler
from kreplica.wire.messages import FETCH, PRODUCE, Api

PERCENTILE = 0.99
RECENT_SECONDS, SNAPSHOT_SECONDS = 10.0, 1.0


class LiveMetricsDependencies(HealthDependencies, Protocol):
    """Parts of a broker that the live metrics need."""

    @property
    def controller(self) -> Controller: ...

    @property
    def server(self) -> Server | None: ...


class LiveMetrics:
    """Implements ``admin.resources.live_metrics.LocalMetrics``.

    :ivar rates: returns the rates of the last seconds by series of the history; set by the owner.
    """

    def __init__(
        self, broker: LiveMetricsDependencies, stalls: StallWatch, topic_loads: TopicLoadSampler, health: LocalHealth
    ) -> None:
        self._broker = broker
        self._topic_loads = topic_loads
        self._health = health
        self.rates: Callable[[], Mapping[str, float]] = dict
        self._delays = RecentDelays(broker.runtime.reactor.seconds, stalls)
        self._messages = CountedMessages()

    async def live_metrics(self) -> Mapping[str, Any]:
        """Return the live metrics; totals over partitions come from the health report."""
        broker = self._broker
        report = await self._health.report()
        totals = report.totals
        await self._messages.update(totals.ends, broker.runtime.reactor)
        controller, writes = broker.controller, broker.replication.isr_writes
        watch = broker.certificates.watch
        loads, rates = await self._topic_loads.current(), self.rates()
        return {
            **_requests(broker.server.metrics if broker.server is not None else ServerMetrics()),
            "messages_in": self._messages.count,
            "leaders": len(totals.ends),
            "replicas": totals.replicas,
            "under_replicated": len(totals.under_replicated),
            "under_min_isr": len(totals.under_min_isr),
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
            "python": str(interpreter()),
            "log_bytes": sum(load.disk_bytes for load in loads.values()),
            "usable_bytes": report.usable_bytes,
            "offline_log_dirs": sum(each.offline is not None for each in broker.directories.directories),
            **{f"{name}_rate": rates.get(name, 0.0) for name in ("bytes_in", "bytes_out", "messages_in")},
        }


class RecentDelays:
    """Reactor delays in the last ``RECENT_SECONDS``, so that delays at startup do not hide current ones.

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
    """Counts new messages by comparing log end offsets between two reads, so that appends need no counter."""

    def __init__(self) -> None:
        self._ends: Mapping[TopicPartition, int] = {}
        self.count = 0
        """Number of new messages since the first read, in partitions led by this broker at two consecutive reads."""

    async def update(self, ends: Mapping[TopicPartition, int], reactor: Reactor) -> None:
        """Add the growth since the previous log end offsets; yields to the reactor if there are many partitions."""
        known, self._ends = self._ends, ends
        time_slice = TimeSlice(reactor)
        for key, end in ends.items():
            self.count += max(end - known.get(key, end), 0)
            if time_slice.is_over:
                await time_slice.next()


def percentile_ms(counts: Iterable[int]) -> float:
    """Return the smallest bucket bound that covers 99 % of the delays, in milliseconds; the largest if none does."""
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
