"""``/metrics`` is built in slices, with the same text as Prometheus's client library produces."""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from twisted.internet.defer import Deferred

from kreplica.admin.resources.metrics import SAMPLES_AT_ONCE, Metrics, exposition
from kreplica.interfaces import Buckets, Family, Histogram, MetricKind, Sample
from kreplica.model import TopicPartition
from kreplica.runtime.time_slice import SLICE_SECONDS_MAX
from kreplica.service.metrics.partition_metrics import Detail, partition_families
from tests.support.iterated_clock import IteratedClock

VALUES = (0, 1, 0.5, -1.0, 1e-9, 123456.0, 1234567.0, 1e15, 1e300, math.inf, -math.inf, math.nan)


class FamilyCollector(Collector):
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
    """The text equals that of the client library: sorted and escaped labels, and numbers formatted as in Go."""
    samples = [Sample(each, value) for each in values for value in VALUES]
    family = Family("kreplica_something", kind, 'Help with \\ and "quotes"\nand lines.', labels, samples)
    assert b"".join(exposition(family, {})) == generate_latest(FamilyCollector(family))


def test_long_family_is_sliced() -> None:
    """A long family is split into slices of at most ``SAMPLES_AT_ONCE`` lines."""
    samples = [Sample((str(number),), number) for number in range(10 * SAMPLES_AT_ONCE + 1)]
    pieces = list(exposition(Family("many", MetricKind.GAUGE, "Many.", ("n",), samples), {}))
    assert max(piece.count(b"\n") for piece in pieces) == SAMPLES_AT_ONCE
    assert b"".join(pieces).count(b"\n") == len(samples) + 2


PARTITIONS = [
    SimpleNamespace(
        topic_partition=TopicPartition(f"topic-{number // 10}", number % 10),
        is_leader=number % 10 < 4,
        high_watermark=number,
        log=SimpleNamespace(
            segments=SimpleNamespace(size_bytes=100 * number),
            log_start_offset=0,
            log_end_offset=number,
            producers=SimpleNamespace(ongoing_transactions=()),
        ),
        leadership=SimpleNamespace(leader=1, replicas=(1, 2, 3), isr=(1, 2)),
    )
    for number in range(500)
]


def scraped(detail: Detail) -> dict[str, dict[tuple[str, ...], float]]:
    """Scrape the metrics of many partitions, and return the values by name and labels."""

    class Source:
        async def families(self) -> AsyncIterator[Family | Histogram]:
            async for family in partition_families(clock, PARTITIONS, detail):  # type: ignore[arg-type]
                yield family

    clock = IteratedClock()
    (route,) = Metrics(Source(), clock).routes()  # type: ignore[arg-type]
    running: Deferred[Any] = Deferred.fromCoroutine(route.handler(None))  # type: ignore[arg-type]
    pages: list[Any] = []
    running.addCallback(pages.append)
    text = pages[0].content.decode()
    return {
        family.name: {tuple(sample.labels.values()): sample.value for sample in family.samples}
        for family in text_string_to_metric_families(text)
    }


def test_sums_by_topic_equal_the_sums_of_partitions() -> None:
    """A query that sums by topic returns the same result with both values of ``kreplica.metrics.detail``."""
    detailed, summed = scraped(Detail.PARTITION), scraped(Detail.TOPIC)
    assert detailed.keys() - summed.keys() == {"kafka_topic_partition_leader"}
    for name, samples in summed.items():
        expected: dict[tuple[str, ...], float] = {}
        for labels, value in detailed[name].items():
            (topic,) = (label for label in labels if label.startswith("topic-"))
            expected[(topic,)] = expected.get((topic,), 0) + value
        assert samples == expected, name
    assert len(detailed["kafka_log_log_size"]) == len(PARTITIONS)
    assert summed["kafka_log_log_size"][("topic-1",)] == 14_500


def test_ten_thousand_partitions() -> None:
    """Six gauges for ten thousand partitions are formatted in less than 0.2 s of CPU time."""
    partitions = range(10_000)
    families = [
        Family(f"gauge_{number}", MetricKind.GAUGE, "", ("topic", "partition"), samples)
        for number in range(6)
        for samples in [[Sample((f"topic-{each // 10}", str(each % 10)), each) for each in partitions]]
    ]
    began_s, texts = time.thread_time(), {}  # type: ignore[var-annotated]
    size = sum(len(piece) for family in families for piece in exposition(family, texts))
    assert size > 2_000_000
    assert time.thread_time() - began_s < 0.2


def test_slices_yield_to_the_reactor() -> None:
    """The page is complete although other work runs between its slices."""
    clock = IteratedClock()
    seconds = clock.seconds
    looks = 0

    def busy() -> float:
        """Advance the clock with each call, so that each slice uses up its time."""
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
