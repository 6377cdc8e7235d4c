"""History for charts: ring buffers, sampling, and the merged history of all brokers."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from kreplica.admin.load.history import COARSE_MS, COARSE_POINTS, FINE_MS, FINE_POINTS, SERIES, History, span_of
from kreplica.service.metrics.history_sampler import COUNTERS, GAUGES, HistorySampler

NOW_MS = 1_800_000_000_000


def history_of(values, step_ms=FINE_MS, names=("bytes_in",)):
    history = History(names)
    for index, value in enumerate(values):
        history.add(NOW_MS - (len(values) - 1 - index) * step_ms, {names[0]: value})
    return history


def read(history, from_ms, to_ms=NOW_MS, name="bytes_in"):
    span = span_of(from_ms, to_ms, NOW_MS)
    return span, history.read([name], span)[name]


def test_fine_points():
    """The last 15 minutes have a point every 5 seconds, or null if there is no sample."""
    span, points = read(history_of([1.0, None, 3.0]), NOW_MS - 20_000)
    assert (span.step_ms, span.from_ms, span.count) == (FINE_MS, NOW_MS - 20_000, 5)
    assert points == {"mean": [None, None, 1.0, None, 3.0], "peak": [None, None, 1.0, None, 3.0]}


def test_coarse_points():
    """Longer ranges have the mean and the maximum per minute, so that short peaks remain visible."""
    span, points = read(history_of([float(number % 12) for number in range(24)]), NOW_MS - 3_600_000)
    assert (span.step_ms, span.count) == (COARSE_MS, 61)
    assert points["mean"][-3:-1] == [5.0, 5.5]
    assert points["peak"][-3:-1] == [10.0, 11.0]


def test_six_hours_in_constant_memory():
    """Points older than six hours are overwritten, so that memory use does not grow."""
    history = History()
    size = history.size_bytes
    assert size < 200_000
    for minute in range(COARSE_POINTS + 30):
        history.add(NOW_MS + minute * COARSE_MS, dict.fromkeys(SERIES, float(minute)))
    assert history.size_bytes == size
    now_ms = NOW_MS + (COARSE_POINTS + 29) * COARSE_MS
    span = span_of(now_ms - 24 * 3_600_000, now_ms, now_ms)
    points = history.read(["connections"], span)["connections"]["mean"]
    assert (span.count, points[0], points[-1]) == (COARSE_POINTS, 30.0, COARSE_POINTS + 29.0)


def test_old_range_uses_coarse_points():
    """A short range an hour ago is read from the points per minute."""
    span = span_of(NOW_MS - 3_600_000, NOW_MS - 3_300_000, NOW_MS)
    assert (span.step_ms, span.count) == (COARSE_MS, 6)
    assert span_of(NOW_MS - FINE_MS * FINE_POINTS, NOW_MS, NOW_MS).count == FINE_POINTS


def test_clock_that_was_set_back():
    """If the clock is set back, sampling continues, and old values are not shown as new ones."""
    history = history_of([1.0])
    history.add(NOW_MS - FINE_POINTS * FINE_MS, {"bytes_in": 9.0})
    _, points = read(history, NOW_MS - 10_000)
    assert points["mean"] == [None, None, None]


@pytest.mark.parametrize("name", SERIES)
def test_each_series_has_a_unit(name):
    unit, text = SERIES[name]
    assert unit
    assert text.endswith(".")


class SlowClock(Clock):
    """A clock that advances with each call, so that a loop yields after each element."""

    def seconds(self):
        self.rightNow += 0.01
        return self.rightNow


class LiveMetrics:
    """Live metrics, all of them zero."""

    async def live_metrics(self):
        requests = {"requests": 0, "time_ms": 0.0, "waits": 0, "wait_ms": 0.0}
        gauges = dict.fromkeys([*GAUGES.values(), *COUNTERS.values()], 0)
        return {**gauges, "produce": requests, "fetch": requests}


def test_metadata_that_changes_while_offline_partitions_are_counted():
    """If metadata changes while offline partitions are counted, the next sample counts them again."""
    clock, changed, values = SlowClock(), [], []
    topics = {name: SimpleNamespace(partitions={0: SimpleNamespace(leader=1)}) for name in ("a", "b")}
    metadata = SimpleNamespace(topics=topics, on_change=changed.append)
    history = SimpleNamespace(add=lambda _, sample: values.append(sample["offline_partitions"]))
    runtime = SimpleNamespace(reactor=clock, wall_clock_ms=lambda: NOW_MS)
    sampler = HistorySampler(runtime, LiveMetrics(), metadata, history)

    def sample():
        sampling = Deferred.fromCoroutine(sampler.sample())
        for _ in range(len(topics)):
            yield
            clock.advance(0)
        assert sampling.called

    for number, _ in enumerate(sample()):
        if number == 0:  # topic a was counted
            topics["a"].partitions[0].leader = -1
            changed[0]()
    list(sample())
    assert values == [0, 1]
