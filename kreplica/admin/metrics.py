"""``/metrics``: what a broker counts, in Prometheus's text format."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector
from twisted.internet.defer import Deferred
from twisted.web.iweb import IRequest

from kreplica.runtime.offload import Offload


class Kind(Enum):
    """COUNTER only grows while the process lives; its samples are named ``..._total``."""

    COUNTER = "counter"
    GAUGE = "gauge"


class Sample(NamedTuple):
    """:param labels: the values of the family's labels, in their order."""

    labels: Sequence[str]
    value: float


@dataclass(frozen=True, slots=True)
class Family:
    """Figures of one name.

    :param name: as Kafka's exporters have it where they have it; without ``_total``.
    :param labels: their names.
    """

    name: str
    kind: Kind
    help: str
    labels: Sequence[str]
    samples: Sequence[Sample]


@dataclass(frozen=True, slots=True)
class Histogram:
    """How often something took how long.

    :param buckets: (upper bound in seconds, as text; how many were no longer), growing; the last is ``+Inf``.
    :param sum_s: of all together.
    """

    name: str
    help: str
    buckets: Sequence[tuple[str, float]]
    sum_s: float


class Figures(Protocol):
    """What a broker says of itself."""

    def families(self) -> AsyncIterator[Family | Histogram]:
        """All figures as they are now, a name at a time; it gives up its turn where there are many."""


class MetricsApp:
    """What was collected is put into text away from the reactor: 10,000 partitions make a megabyte of it."""

    def __init__(self, figures: Figures, offload: Offload) -> None:
        self._figures = figures
        self._offload = offload

    def answer(self, request: IRequest) -> Deferred[bytes]:
        """The text, and its type."""
        request.setHeader(b"content-type", CONTENT_TYPE_LATEST.encode())
        request.setHeader(b"cache-control", b"no-store")
        return Deferred.fromCoroutine(self._text())

    async def _text(self) -> bytes:
        collected = [_metric(family) async for family in self._figures.families()]
        return await self._offload.run(_exposed, collected)


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
        metric = HistogramMetricFamily(family.name, family.help)
        metric.add_metric([], [(bound, count) for bound, count in family.buckets], family.sum_s)
        return metric
    make = CounterMetricFamily if family.kind is Kind.COUNTER else GaugeMetricFamily
    metric = make(family.name, family.help, labels=family.labels)
    for labels, value in family.samples:
        metric.add_metric(labels, value)
    return metric
