"""Metric families, and their export by plugins."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from zope.interface import Interface


class MetricKind(Enum):
    """Kind of a metric; a COUNTER never decreases during the lifetime of the process."""

    COUNTER = "counter"
    GAUGE = "gauge"


class Sample(NamedTuple):
    """One value of a metric.

    :param labels: values of the family's labels, in the same order.
    """

    labels: tuple[str, ...]
    value: float


@dataclass(frozen=True, slots=True)
class Family:
    """All samples of one metric.

    :param name: the name used by Kafka's exporters if there is one; without ``_total``.
    :param labels: names of the labels.
    """

    name: str
    kind: MetricKind
    help: str
    labels: Sequence[str]
    samples: Sequence[Sample]


class Buckets(NamedTuple):
    """Cumulative histogram of durations.

    :param labels: values of the histogram's labels.
    :param buckets: (upper bound in seconds as text, number of observations up to it), ascending; the last bound is
        ``+Inf``.
    :param sum_s: sum of all observations in seconds.
    """

    labels: Sequence[str]
    buckets: Sequence[tuple[str, float]]
    sum_s: float


@dataclass(frozen=True, slots=True)
class Histogram:
    """All histograms of one metric."""

    name: str
    help: str
    labels: Sequence[str]
    rows: Sequence[Buckets]


class IMetricsReporter(Interface):
    """Exports the metrics of ``/metrics`` to another system (``kreplica.metrics.reporters``)."""

    def report(families: AsyncIterator[Family | Histogram]) -> Awaitable[None]:
        """Export one report; the iterator yields to the reactor between families.

        Called every ``kreplica.metrics.report.interval.ms``, but not before the previous call has ended, and cancelled
        when the broker stops. If it raises, this report is lost.
        """
