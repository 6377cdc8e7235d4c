"""``/metrics`` is built in slices and has the text of Prometheus's client library."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector
from twisted.internet.defer import Deferred

from kreplica.admin.resources.metrics import SAMPLES_AT_ONCE, Metrics, exposition
from kreplica.interfaces import Buckets, Family, Histogram, MetricKind, Sample
from kreplica.runtime.time_slice import SLICE_SECONDS_MAX
from tests.support.iterated_clock import IteratedClock

VALUES = (0, 1, 0.5, -1.0, 1e-9, 123456.0, 1234567.0, 1e15, 1e300, math.inf, -math.inf, math.nan)


class Collected(Collector):
    def __init__(self, family: Family) -> None:
        self._family = family

    def collect(self) -> Iterator[Metric]:
        family = self._family
        make = CounterMetricFamily if family.kind is MetricKind.COUNTER else GaugeMetricFamily
        metric = make(family.name, family.help, labels=family.labels)
        for labels, value in family.samples:
            metric.add_metric(labels, value)
        yield metric


@pytest.mark.parametrize("kind", list(MetricKind))
@pytest.mark.parametrize(
    ("labels", "values"),
    [
        ((), [()]),
        (("topic", "partition"), [("orders", "0"), ('quo"ted', "1"), ("back\\slash\nline", "2"), ("é", ""), ("", "4")]),
        (("topic",), []),
    ],
)
def test_text_equals_the_client_library(kind: MetricKind, labels: tuple[str, ...], values: list[Any]) -> None:
    """Labels are sorted and escaped, and numbers are written as Go does."""
    samples = [Sample(each, value) for each in values for value in VALUES]
    family = Family("kreplica_something", kind, 'Help with \\ and "quotes"\nand lines.', labels, samples)
    assert b"".join(exposition(family)) == generate_latest(Collected(family))


def test_long_family_is_sliced() -> None:
    """Each slice has at most ``SAMPLES_AT_ONCE`` lines."""
    samples = [Sample((str(number),), number) for number in range(10 * SAMPLES_AT_ONCE + 1)]
    pieces = list(exposition(Family("many", MetricKind.GAUGE, "Many.", ("n",), samples)))
    assert max(piece.count(b"\n") for piece in pieces) == SAMPLES_AT_ONCE
    assert b"".join(pieces).count(b"\n") == len(samples) + 2


def test_slices_yield_to_the_reactor() -> None:
    """Other work runs between the slices, and the page is complete."""
    clock = IteratedClock()
    seconds = clock.seconds
    looks = 0

    def busy() -> float:
        """Advance the clock with each call, so that one slice uses its time."""
        nonlocal looks
        looks += 1
        return seconds() + looks * SLICE_SECONDS_MAX

    clock.seconds = busy  # type: ignore[method-assign]

    class Figures:
        async def families(self) -> AsyncIterator[Family | Histogram]:
            samples = [Sample((str(number),), number) for number in range(20 * SAMPLES_AT_ONCE)]
            yield Family("many", MetricKind.GAUGE, "Many.", ("n",), samples)
            yield Histogram("times", "Times.", (), [Buckets((), [("0.1", 1.0), ("+Inf", 2.0)], 0.5)])

    (route,) = Metrics(Figures(), clock).routes()  # type: ignore[arg-type]
    running: Deferred[Any] = Deferred.fromCoroutine(route.handler(None))  # type: ignore[arg-type]
    time_slice = 0
    while not running.called:
        clock.iterate()
        time_slice += 1
        assert time_slice < 100
    assert time_slice >= 10
    pages: list[Any] = []
    running.addCallback(pages.append)
    text = pages[0].content.decode()
    assert text.count("\nmany{") == 20 * SAMPLES_AT_ONCE
    assert 'times_bucket{le="+Inf"} 2.0' in text
