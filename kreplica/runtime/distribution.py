"""Histogram with fixed bucket bounds."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Bounds for durations from half a millisecond to ten seconds."""


class Distribution:
    """Counts of values per bucket, and their sum.

    :param bounds: inclusive upper bounds, ascending.
    :ivar counts: number of values in each bucket, not cumulative; the last one is for values above all bounds.
    """

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float] = SECONDS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def note(self, value: float, times: int = 1) -> None:
        """Count a value ``times`` times."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times
