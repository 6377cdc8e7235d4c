"""Helper functions that build metric families."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kreplica.interfaces import Buckets, Family, Histogram, Sample
from kreplica.interfaces import MetricKind as Kind

Row = tuple[Sequence[str], Sequence[float], Sequence[int], float]
"""Label values; bucket bounds; number of values per bucket, including the last one above all bounds; their sum."""


def gauge(name: str, text: str, value: float) -> Family:
    """Return a gauge with one sample."""
    return Family(name, Kind.GAUGE, text, (), [Sample((), value)])


def counter(name: str, text: str, value: float) -> Family:
    """Return a counter with one sample."""
    return Family(name, Kind.COUNTER, text, (), [Sample((), value)])


def by_api(name: str, text: str, values: Iterable[tuple[str, float]]) -> Family:
    """Return a counter with one sample per API."""
    samples = [Sample((api,), value) for api, value in values]
    return Family(f"kafka_network_requestmetrics_{name}", Kind.COUNTER, text, ("request",), samples)


def histogram(name: str, text: str, rows: Iterable[Row], labels: Sequence[str] = ()) -> Histogram:
    """Return a histogram with one set of buckets per row."""
    return Histogram(name, text, labels, [_buckets(*row) for row in rows])


def _buckets(labels: Sequence[str], bounds: Sequence[float], counts: Sequence[int], total: float) -> Buckets:
    buckets, below = [], 0
    for bound, count in zip([*map(str, bounds), "+Inf"], counts, strict=True):
        below += count
        buckets.append((bound, float(below)))
    return Buckets(labels, buckets, total)
