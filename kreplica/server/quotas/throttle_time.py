"""Throttle times: rates over sliding windows, and token buckets, computed as in Kafka."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Protocol, TypeVar

Key = TypeVar("Key", bound=Hashable)

THROTTLE_MAX_S = 3600.0
"""Maximum throttle time, which applies to a quota of 0."""


class UsageMeter(Protocol):
    """The measured use of a quota."""

    def is_idle(self, now_s: float) -> bool: ...


Use = TypeVar("Use", bound=UsageMeter)


def evict_usages(usages: dict[Key, Use], count_max: int, now_s: float) -> bool:
    """Remove idle entries, and then the oldest ones, if there are too many.

    :param usages: the use by client, in the order of their first use.
    :return: True if any were removed.
    """
    if len(usages) < count_max:
        return False
    for key in [key for key, usage in usages.items() if usage.is_idle(now_s)]:
        del usages[key]
    for key in list(usages)[: max(len(usages) - count_max // 2, 0)]:
        del usages[key]
    return True


class MeasuredRate:
    """Rate of a client over the last windows, and the time for which the client must pause.

    :param windows: number of windows, ``quota.window.num``.
    :param window_s: length of one window.
    :ivar limit: allowed units per second.
    :ivar burst: units that are allowed at once, after a pause.
    :ivar recorded: units of the last windows.
    """

    __slots__ = ("_limit", "_samples", "_windows", "burst", "recorded", "window_s")

    def __init__(self, limit: float, windows: int, window_s: float) -> None:
        self._windows = windows
        self.window_s = window_s
        self._samples: list[tuple[float, float]] = []
        self.recorded = 0.0
        self.limit = limit

    @property
    def limit(self) -> float:
        return self._limit

    @limit.setter
    def limit(self, limit: float) -> None:
        self._limit = limit
        self.burst = limit * max(self._windows - 1, 1) * self.window_s

    def record(self, units: float, now_s: float) -> float:
        """Record units, and return the seconds for which the client must pause; 0.0 if the rate is allowed."""
        samples = self._samples
        if not samples or now_s - samples[-1][0] >= self.window_s:
            self._begin_window(now_s)
        start_s, sum_ = samples[-1]
        samples[-1] = (start_s, sum_ + units)
        self.recorded += units
        if self.recorded <= self.burst:
            return 0.0  # the rate is measured over at least all windows but one
        elapsed_s = self._elapsed_s(now_s, samples[0][0])
        allowed = self._limit * elapsed_s
        if self.recorded <= allowed:
            return 0.0
        return min((self.recorded - allowed) / self._limit, THROTTLE_MAX_S) if self._limit > 0 else THROTTLE_MAX_S

    def rate(self, now_s: float) -> float:
        """Return the current rate, in units per second."""
        oldest_s = now_s - self._windows * self.window_s
        samples = [sample for sample in self._samples if sample[0] > oldest_s]
        return sum(units for _, units in samples) / self._elapsed_s(now_s, samples[0][0]) if samples else 0.0

    def is_idle(self, now_s: float) -> bool:
        """Return True if nothing was recorded within all windows."""
        return not self._samples or now_s - self._samples[-1][0] >= self._windows * self.window_s

    def _begin_window(self, now_s: float) -> None:
        samples = self._samples
        oldest_s = now_s - self._windows * self.window_s
        while samples and samples[0][0] <= oldest_s:
            self.recorded -= samples.pop(0)[1]
        if not samples:
            self.recorded = 0.0  # without the rounding errors of subtractions
        samples.append((now_s, 0.0))

    def _elapsed_s(self, now_s: float, start_s: float) -> float:
        """Return the time over which the rate is measured: at least all windows but one."""
        elapsed_s = now_s - start_s
        missing = max(self._windows - 1, 1) - int(elapsed_s / self.window_s)
        return elapsed_s + max(missing, 0) * self.window_s


class TokenBucket:
    """Bucket that is filled at a rate; more tokens may be taken than it contains, but then it must recover (KIP-599).

    :ivar limit: tokens per second.
    """

    __slots__ = ("_burst_s", "_filled_s", "_tokens", "limit")

    def __init__(self, limit: float, windows: int, window_s: float) -> None:
        self.limit = limit
        self._burst_s = windows * window_s
        self._tokens = limit * self._burst_s
        self._filled_s = 0.0

    def wait_s(self, now_s: float) -> float:
        """Return the seconds until the bucket is no longer overdrawn; 0.0 if it is not overdrawn."""
        self._fill(now_s)
        if self._tokens >= 0.0:
            return 0.0
        return min(-self._tokens / self.limit, THROTTLE_MAX_S) if self.limit > 0 else THROTTLE_MAX_S

    def record(self, units: float, now_s: float) -> float:
        """Take tokens, and return ``wait_s``."""
        self._fill(now_s)
        self._tokens -= units
        return self.wait_s(now_s)

    def is_idle(self, now_s: float) -> bool:
        """Return True if the bucket is full."""
        self._fill(now_s)
        return self._tokens >= self.limit * self._burst_s

    def _fill(self, now_s: float) -> None:
        filled = self._tokens + (now_s - self._filled_s) * self.limit
        self._tokens = min(filled, self.limit * self._burst_s)
        self._filled_s = now_s
