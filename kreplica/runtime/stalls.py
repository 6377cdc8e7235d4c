"""Measures how long the event loop was blocked, which should be at most a few milliseconds."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from typing import NamedTuple

from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from kreplica.runtime import Reactor

INTERVAL_S = 0.05
LOG_INTERVAL_S = 10.0
"""Minimum time between two log lines about stalls."""

RECENT_MAX = 16
UNKNOWN = "unknown"

log = Logger()

BOUNDS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)


class Stall(NamedTuple):
    """A period in which the event loop was blocked.

    :param at_s: end of the period, by the reactor's clock.
    :param cause: the request or task that blocked it, or ``UNKNOWN``.
    """

    at_s: float
    seconds: float
    cause: str


class StallWatch:
    """A timer that measures how late it is; useful only on a real reactor (``Runtime.is_simulated``).

    :param threshold_s: minimum delay of a stall, which is logged with its cause.
    :ivar counts: number of delays in each bucket of ``BOUNDS_S``, and above the last bound.
    :ivar sum_s: sum of all delays.
    :ivar recent: the last stalls, oldest first.
    :ivar stalls: number of stalls since the start.
    :ivar stalled_s: total duration of all stalls.
    :ivar longest_s: duration of the longest stall.
    """

    def __init__(self, reactor: Reactor, threshold_s: float = 0.1) -> None:
        self._reactor = reactor
        self._threshold_s = threshold_s
        self._due_s = 0.0
        self._timer: IDelayedCall | None = None
        self._noted: tuple[float, str] | None = None
        self._logged_s = -LOG_INTERVAL_S
        self._unlogged = 0
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.sum_s = 0.0
        self.recent: deque[Stall] = deque(maxlen=RECENT_MAX)
        self.stalls = 0
        self.stalled_s = self.longest_s = 0.0

    def start(self) -> None:
        """Start measuring."""
        self._due_s = self._reactor.seconds() + INTERVAL_S
        self._timer = self._reactor.callLater(INTERVAL_S, self._measure)

    def ago_s(self, stall: Stall) -> float:
        """Return how long ago a stall ended, in seconds."""
        return self._reactor.seconds() - stall.at_s

    def note(self, cause: str, seconds: float) -> None:
        """Report long work; the longest since the last measurement is reported as the cause of a stall.

        :param seconds: duration of the work, or a lower bound.
        """
        if self._noted is None or seconds > self._noted[0]:
            self._noted = seconds, cause

    def _measure(self) -> None:
        now_s = self._reactor.seconds()
        late_s = max(now_s - self._due_s, 0.0)
        self.counts[bisect_left(BOUNDS_S, late_s)] += 1
        self.sum_s += late_s
        noted, self._noted = self._noted, None
        if late_s >= self._threshold_s:
            self._stalled(Stall(now_s, late_s, UNKNOWN if noted is None else noted[1]))
        self.start()

    def _stalled(self, stall: Stall) -> None:
        self.recent.append(stall)
        self.stalls += 1
        self.stalled_s += stall.seconds
        self.longest_s = max(self.longest_s, stall.seconds)
        if stall.at_s - self._logged_s < LOG_INTERVAL_S:
            self._unlogged += 1
            return
        log.warn(
            "the event loop was blocked for {duration_ms} ms by: {cause} ({unlogged} more since the last such line)",
            duration_ms=round(stall.seconds * 1000),
            cause=stall.cause,
            unlogged=self._unlogged,
        )
        self._logged_s, self._unlogged = stall.at_s, 0

    def stop(self) -> None:
        """Stop measuring; idempotent."""
        timer, self._timer = self._timer, None
        if timer is not None and timer.active():
            timer.cancel()
