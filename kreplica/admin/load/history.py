"""Chart data of the last hours, in ring buffers of fixed size."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan, nan

FINE_MS, FINE_POINTS = 5_000, 180
"""Points of 5 seconds for 15 minutes."""

COARSE_MS, COARSE_POINTS = 60_000, 360
"""Points of a minute for 6 hours."""

SLACK_POINTS = 4
"""Points that may be missing at the start of a range with 5-second points, because brokers' clocks differ."""

SAMPLE_SECONDS = FINE_MS / 1000
"""Interval of the samples."""

SERIES: Mapping[str, tuple[str, str]] = {
    "bytes_in": ("bytes/s", "Bytes of produce requests."),
    "bytes_out": ("bytes/s", "Bytes of fetch responses to consumers and followers."),
    "messages_in": ("records/s", "Records appended to partitions that the broker leads."),
    "produce_requests": ("requests/s", "Produce requests."),
    "fetch_requests": ("requests/s", "Fetch requests of consumers and followers."),
    "queue_ms": ("ms", "99th percentile of the event loop's delay: the time that a request waits before it is read."),
    "produce_ms": ("ms", "Mean time to process a produce request that did not wait."),
    "produce_wait_ms": ("ms", "Mean time of produce requests that waited for replicas (acks=all)."),
    "fetch_ms": ("ms", "Mean time to process a fetch request that did not wait."),
    "fetch_wait_ms": ("ms", "Mean time of fetch requests that waited for new records: long polling, not latency."),
    "connections": ("connections", "Open connections of clients and brokers."),
    "leaders": ("partitions", "Partitions that the broker leads."),
    "under_replicated": ("partitions", "Under-replicated partitions that the broker leads."),
    "under_min_isr": ("partitions", "Partitions led by the broker with too few in-sync replicas for acks=all."),
    "offline_partitions": ("partitions", "Partitions of the cluster without a leader, in the broker's metadata."),
    "offline_replicas": ("partitions", "Replicas of the broker in failed log directories."),
    "isr_shrinks": ("replicas/s", "Replicas that left an ISR."),
    "isr_expands": ("replicas/s", "Replicas that joined an ISR."),
    "log_bytes": ("bytes", "Size of all logs of the broker."),
}
"""Unit and description of each series."""


@dataclass(frozen=True, slots=True)
class Span:
    """A range of points.

    :param first: number of the first point: its time divided by ``step_ms``.
    """

    step_ms: int
    first: int
    count: int

    @property
    def from_ms(self) -> int:
        """Time of the first point in milliseconds since 1970."""
        return self.first * self.step_ms


def span_of(from_ms: int, to_ms: int, now_ms: int) -> Span:
    """Return the finest points that are kept for a range of time."""
    oldest_ms = now_ms - FINE_MS * (FINE_POINTS + SLACK_POINTS)
    is_fine = to_ms - from_ms <= FINE_MS * FINE_POINTS and from_ms >= oldest_ms
    step_ms, points = (FINE_MS, FINE_POINTS) if is_fine else (COARSE_MS, COARSE_POINTS)
    last = to_ms // step_ms
    first = max(from_ms // step_ms, last - points + 1)
    return Span(step_ms, first, last - first + 1)


class _Ring:
    """Means and maxima of all series in periods of equal length; a new period overwrites the oldest one."""

    def __init__(self, step_ms: int, points: int, names: Iterable[str], value_type: str) -> None:
        self.step_ms = step_ms
        self._points = points
        self._numbers = array("i", [-1]) * points
        self.means = {name: array(value_type, [nan]) * points for name in names}
        self.peaks = {name: array(value_type, [nan]) * points for name in names}
        self._counts = dict.fromkeys(self.means, 0)

    @property
    def size_bytes(self) -> int:
        values = (*self.means.values(), *self.peaks.values())
        return self._points * (self._numbers.itemsize + sum(each.itemsize for each in values))

    def add(self, at_ms: int, values: Mapping[str, float | None]) -> None:
        number = at_ms // self.step_ms
        index = number % self._points
        if self._numbers[index] != number:
            self._numbers[index] = number
            for name in self.means:
                self.means[name][index] = self.peaks[name][index] = nan
            self._counts = dict.fromkeys(self.means, 0)
        for name, value in values.items():
            if value is not None:
                count = self._counts[name] = self._counts[name] + 1
                mean = self.means[name][index]
                self.means[name][index] = value if count == 1 else mean + (value - mean) / count
                peak = self.peaks[name][index]
                self.peaks[name][index] = value if isnan(peak) else max(peak, value)

    def read(self, values: array[float], span: Span) -> list[float | None]:
        found: list[float | None] = []
        for number in range(span.first, span.first + span.count):
            index = number % self._points
            value = values[index] if self._numbers[index] == number else nan
            found.append(None if isnan(value) else round(value, 3))
        return found


class History:
    """Values of all series, for 15 minutes in steps of 5 seconds, and for 6 hours in steps of a minute.

    :param value_type: type code of the arrays: ``d``, or ``f`` for half the memory and 7 significant digits.
    """

    def __init__(self, names: Sequence[str] = tuple(SERIES), value_type: str = "d") -> None:
        self._rings = {
            step_ms: _Ring(step_ms, points, names, value_type)
            for step_ms, points in ((FINE_MS, FINE_POINTS), (COARSE_MS, COARSE_POINTS))
        }

    @property
    def size_bytes(self) -> int:
        """Size of all buffers, which does not change."""
        return sum(ring.size_bytes for ring in self._rings.values())

    def add(self, at_ms: int, values: Mapping[str, float | None]) -> None:
        """Add a sample; the value of a series without data is None."""
        for ring in self._rings.values():
            ring.add(at_ms, values)

    def read(self, names: Iterable[str], span: Span) -> dict[str, dict[str, list[float | None]]]:
        """Return the mean and the maximum of each point, by series; None without data."""
        ring = self._rings[span.step_ms]
        return {
            name: {"mean": ring.read(ring.means[name], span), "peak": ring.read(ring.peaks[name], span)}
            for name in names
        }
