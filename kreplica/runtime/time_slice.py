"""Limits the time for which a long loop blocks the reactor."""

from __future__ import annotations

from twisted.internet.defer import Deferred

from kreplica.runtime import Reactor
from kreplica.runtime.pause import pause

SLICE_SECONDS_MAX = 0.005
"""Longest time, in seconds, that a loop may block the reactor."""


class TimeSlice:
    """Decides when a long loop yields to the reactor. Example::

        time_slice = TimeSlice(reactor)
        for each in many:
            ...
            if time_slice.is_over:
                await time_slice.next()
    """

    __slots__ = ("_ends_s", "_reactor")

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        self._begin()

    @property
    def is_over(self) -> bool:
        """True when the loop should yield."""
        return self._reactor.seconds() > self._ends_s

    def next(self) -> Deferred[None]:
        """Yield to the reactor; the collection that the loop iterates over may change meanwhile.

        :return: a Deferred that fires in the next iteration of the reactor; cancelling it cancels the timer.
        """
        return pause(self._reactor, 0).addCallback(self._begin)

    def _begin(self, _: None = None) -> None:
        self._ends_s = self._reactor.seconds() + SLICE_SECONDS_MAX
