"""``/metrics``: metrics in the Prometheus text format."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Protocol

from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from kreplica.admin.http.api import Call, RawResponse, Route
from kreplica.interfaces import Family, Histogram
from kreplica.interfaces import MetricKind as Kind
from kreplica.runtime import Reactor
from kreplica.runtime.time_slice import TimeSlice

SAMPLES_AT_ONCE = 200
"""Number of samples that are encoded between two checks of the clock."""


LabelTexts = dict[tuple[str, ...], dict[tuple[str, ...], str]]
"""Encoded labels, by the names of the labels and by their values: many families have the same partitions."""


class MetricsSource(Protocol):
    """The metrics of this broker."""

    def families(self) -> AsyncIterator[Family | Histogram]:
        """Yield all metric families; yields to the reactor if there are many samples."""


class Metrics:
    """Encodes the text in slices: 10,000 partitions make megabytes, and a thread would hold the GIL."""

    def __init__(self, source: MetricsSource, reactor: Reactor) -> None:
        self._source = source
        self._reactor = reactor

    def routes(self) -> Sequence[Route]:
        """Return the route of the metrics."""
        media_type = CONTENT_TYPE_LATEST.partition(";")[0]
        return (Route("GET", "/metrics", self.read, "Metrics in Prometheus format.", media_type=media_type),)

    async def read(self, call: Call) -> RawResponse:
        """``GET /metrics``."""
        time_slice = TimeSlice(self._reactor)
        pieces = []
        texts: LabelTexts = {}
        async for family in self._source.families():
            for piece in exposition(family, texts):
                pieces.append(piece)
                if time_slice.is_over:
                    await time_slice.next()
        return RawResponse(b"".join(pieces), CONTENT_TYPE_LATEST)


def exposition(family: Family | Histogram, texts: LabelTexts) -> Iterator[bytes]:
    """Yield a family in Prometheus's text format: a histogram at once, others ``SAMPLES_AT_ONCE`` samples at a time.

    :param texts: labels of earlier families of the same scrape; those of this family are added.
    """
    if isinstance(family, Histogram):
        yield generate_latest(_Collected(family))
        return
    name = f"{family.name}_total" if family.kind is Kind.COUNTER else family.name
    text = family.help.replace("\\", r"\\").replace("\n", r"\n")
    yield f"# HELP {name} {text}\n# TYPE {name} {family.kind.value}\n".encode()
    order = sorted(range(len(family.labels)), key=family.labels.__getitem__)
    labels = [(f'{family.labels[index]}="', index) for index in order]
    label_texts = texts.setdefault(tuple(family.labels), {})
    for start in range(0, len(family.samples), SAMPLES_AT_ONCE):
        lines = []
        for values, value in family.samples[start : start + SAMPLES_AT_ONCE]:
            label_text = label_texts.get(values)
            if label_text is None:
                text = ",".join([f'{label}{_escape(values[index])}"' for label, index in labels])
                label_text = label_texts[values] = f"{{{text}}}" if text else ""
            lines.append(f"{name}{label_text} {_number(value)}\n")
        yield "".join(lines).encode()


def _number(value: float) -> str:
    """Return a number as Go writes it."""
    if type(value) is int and -1_000_000 < value < 1_000_000:
        return f"{value}.0"  # the most frequent case
    return floatToGoString(value)  # type: ignore[no-untyped-call, no-any-return]


def _escape(value: str) -> str:
    if "\\" in value or "\n" in value or '"' in value:
        return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
    return value


class _Collected(Collector):
    """Adapts a histogram to the client library."""

    def __init__(self, histogram: Histogram) -> None:
        self._histogram = histogram

    def collect(self) -> Iterator[Metric]:
        histogram = self._histogram
        metric = HistogramMetricFamily(histogram.name, histogram.help, labels=histogram.labels)
        for labels, buckets, sum_s in histogram.rows:
            metric.add_metric(labels, list(buckets), sum_s)
        yield metric
