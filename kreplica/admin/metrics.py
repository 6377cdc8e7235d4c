"""``/metrics``: what a broker counts, in Prometheus's text format."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from kreplica.admin.api import Call, Page, Route
from kreplica.interfaces import Family, Histogram
from kreplica.interfaces import MetricKind as Kind
from kreplica.runtime.offload import Offload


class Figures(Protocol):
    """What a broker says of itself."""

    def families(self) -> AsyncIterator[Family | Histogram]:
        """All figures as they are now, a name at a time; it gives up its turn where there are many."""


class Metrics:
    """What was collected is put into text away from the reactor: 10,000 partitions make a megabyte of it."""

    def __init__(self, figures: Figures, offload: Offload) -> None:
        self._figures = figures
        self._offload = offload

    def routes(self) -> Sequence[Route]:
        """One."""
        media_type = CONTENT_TYPE_LATEST.partition(";")[0]
        return (Route("GET", "/metrics", self.read, "What the broker counts, for Prometheus.", media_type=media_type),)

    async def read(self, call: Call) -> Page:
        """``GET /metrics``."""
        collected = [_metric(family) async for family in self._figures.families()]
        return Page(await self._offload.run(_exposed, collected), CONTENT_TYPE_LATEST)


class _Collected(Collector):
    def __init__(self, metrics: list[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        return iter(self._metrics)


def _exposed(metrics: list[Metric]) -> bytes:
    return generate_latest(_Collected(metrics))


def _metric(family: Family | Histogram) -> Metric:
    metric: Metric
    if isinstance(family, Histogram):
        metric = HistogramMetricFamily(family.name, family.help, labels=family.labels)
        for labels, buckets, sum_s in family.rows:
            metric.add_metric(labels, list(buckets), sum_s)
        return metric
    make = CounterMetricFamily if family.kind is Kind.COUNTER else GaugeMetricFamily
    metric = make(family.name, family.help, labels=family.labels)
    for labels, value in family.samples:
        metric.add_metric(labels, value)
    return metric
