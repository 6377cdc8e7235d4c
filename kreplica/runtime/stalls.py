"""How long the reactor was kept from its work: nothing may hold it for more than a few milliseconds."""

from __future__ import annotations

from bisect import bisect_left

from twisted.internet.interfaces import IDelayedCall

from kreplica.runtime import Reactor

INTERVAL_S = 0.05
BOUNDS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)


class StallWatch:
    """A timer that looks how late it is; of use on a real reactor only.

    :ivar counts: how often it was late by at most each of ``BOUNDS_S``, and by more.
    :ivar sum_s: of all delays together.
    """

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        self._due_s = 0.0
        self._timer: IDelayedCall | None = None
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.sum_s = 0.0

    def start(self) -> None:
        """Look from now on."""
        self._due_s = self._reactor.seconds() + INTERVAL_S
        self._timer = self._reactor.callLater(INTERVAL_S, self._look)

    def _look(self) -> None:
        late_s = max(self._reactor.seconds() - self._due_s, 0.0)
        self.counts[bisect_left(BOUNDS_S, late_s)] += 1
        self.sum_s += late_s
        self.start()

    def stop(self) -> None:
        """Look no more; again does nothing."""
        timer, self._timer = self._timer, None
        if timer is not None and timer.active():
            timer.cancel()
