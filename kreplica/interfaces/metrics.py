"""Figures, and who is told of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from zope.interface import Interface


class MetricKind(Enum):
    """COUNTER only grows while the process lives."""

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
    kind: MetricKind
    help: str
    labels: Sequence[str]
    samples: Sequence[Sample]


class Buckets(NamedTuple):
    """How often something took how long.

    :param labels: the values of the histogram's labels.
    :param buckets: (upper bound in seconds, as text; how many were no longer), growing; the last is ``+Inf``.
    :param sum_s: of all together.
    """

    labels: Sequence[str]
    buckets: Sequence[tuple[str, float]]
    sum_s: float


@dataclass(frozen=True, slots=True)
class Histogram:
    """Histograms of one name."""

    name: str
    help: str
    labels: Sequence[str]
    rows: Sequence[Buckets]


class IMetricsReporter(Interface):
    """Tells somebody else what ``/metrics`` tells Prometheus (``kreplica.metrics.reporters``)."""

    def report(families: AsyncIterator[Family | Histogram]) -> Awaitable[None]:
        """Tell it; families come one at a time, and others have their turns between them.

        Called every ``kreplica.metrics.report.interval.ms``, never again before the last call has ended, and cancelled
        where the broker stops.  Where it raises: this report is lost.
        """
