"""Adds the values for this broker's charts to its history every five seconds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from kreplica.admin.load.history import SAMPLE_SECONDS, History
from kreplica.runtime import Runtime
from kreplica.runtime.pause import pause
from kreplica.runtime.time_slice import TimeSlice
from kreplica.server.metadata.metadata_cache import MetadataCache
from kreplica.service.metrics.subject_sampler import SubjectSampler

log = Logger()

PAUSE_FACTOR = 50
"""Minimum ratio of the pause after a sample to the duration of the sample."""

GAUGES = {
    "queue_ms": "reactor_delay_p99_ms",
    "connections": "connections",
    "leaders": "leaders",
    "under_replicated": "under_replicated",
    "under_min_isr": "under_min_isr",
    "offline_replicas": "offline",
    "log_bytes": "log_bytes",
}
"""Live metric of each series that is not a rate."""

COUNTERS = {
    "bytes_in": "bytes_in",
    "bytes_out": "bytes_out",
    "messages_in": "messages_in",
    "isr_shrinks": "isr_shrinks",
    "isr_expands": "isr_expands",
}
"""Live metric of each series that is the rate of a counter."""


class Metrics(Protocol):
    """Source of the values (``LiveMetrics``)."""

    async def live_metrics(self) -> Mapping[str, Any]:
        """Return the live metrics."""


class HistorySampler:
    """Samples from ``start`` to ``stop``; reading the live metrics also keeps the rates of topics up to date.

    :param subjects: samples topics and groups; None to sample only the broker.
    :ivar rates: rates over the last interval, shown in lists of brokers; empty before the second sample.
    """

    def __init__(
        self,
        runtime: Runtime,
        metrics: Metrics,
        metadata: MetadataCache,
        history: History,
        subjects: SubjectSampler | None = None,
    ) -> None:
        self._runtime = runtime
        self._metrics = metrics
        self._metadata = metadata
        self._history = history
        self._subjects = subjects
        self._before: tuple[float, Mapping[str, Any]] | None = None
        self._offline: int | None = None
        self._is_old = False
        """True if the metadata has changed since counting started."""
        self._running: Deferred[None] | None = None
        self.rates: Mapping[str, float] = {}
        metadata.on_change(self._metadata_changed)

    def start(self) -> None:
        """Start sampling."""
        self._running = Deferred.fromCoroutine(self._sample_forever())
        self._running.addErrback(_log_failure)

    def stop(self) -> None:
        """Cancel the timer and a running sample."""
        running, self._running = self._running, None
        if running is not None:
            running.cancel()

    def _metadata_changed(self) -> None:
        self._offline, self._is_old = None, True

    async def _sample_forever(self) -> None:
        seconds = self._runtime.reactor.seconds
        while True:
            started_s = seconds()
            await self.sample()
            took_s = seconds() - started_s
            await pause(self._runtime.reactor, max(SAMPLE_SECONDS - took_s, took_s * PAUSE_FACTOR))

    async def sample(self) -> None:
        """Take one sample."""
        now = await self._metrics.live_metrics()
        offline = await self._offline_partitions()
        now_s = self._runtime.reactor.seconds()
        values: dict[str, float | None] = {
            **{name: now[metric] for name, metric in GAUGES.items()},
            "offline_partitions": offline,
        }
        if self._before is not None and now_s > self._before[0]:
            self.rates = _rates(self._before[1], now, now_s - self._before[0])
            values |= self.rates
            values |= _latencies(self._before[1], now)
        self._before = now_s, now
        self._history.add(self._runtime.wall_clock_ms(), values)
        if self._subjects is not None:
            await self._subjects.sample()

    async def _offline_partitions(self) -> int:
        """Count the partitions without a leader; counted again only after the metadata has changed."""
        known = self._offline
        if known is None:
            known, time_slice, self._is_old = 0, TimeSlice(self._runtime.reactor), False
            for topic in list(self._metadata.topics.values()):
                known += sum(partition.leader < 0 for partition in topic.partitions.values())
                if time_slice.is_over:
                    await time_slice.next()
            self._offline = None if self._is_old else known
        return known


def _rates(before: Mapping[str, Any], now: Mapping[str, Any], seconds: float) -> dict[str, float]:
    rates = {name: max(now[metric] - before[metric], 0) / seconds for name, metric in COUNTERS.items()}
    for api in ("produce", "fetch"):
        rates[f"{api}_requests"] = max(now[api]["requests"] - before[api]["requests"], 0) / seconds
    return rates


def _latencies(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the mean time of requests that waited, and of those that did not; None without such requests."""
    found: dict[str, float | None] = {}
    for api in ("produce", "fetch"):
        grown = {name: now[api][name] - before[api][name] for name in now[api]}
        at_once = grown["requests"] - grown["waits"]
        processing_ms = max(grown["time_ms"] - grown["wait_ms"], 0.0)
        found[f"{api}_ms"] = processing_ms / at_once if at_once > 0 else None
        found[f"{api}_wait_ms"] = grown["wait_ms"] / grown["waits"] if grown["waits"] > 0 else None
    return found


def _log_failure(failure: Failure) -> None:
    if failure.check(CancelledError) is None:
        log.failure("sampling the history failed", failure)
