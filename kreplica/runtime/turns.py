"""Long loops that let others have their turn of the reactor."""

from __future__ import annotations

from twisted.internet.defer import Deferred

from kreplica.runtime import Reactor
from kreplica.runtime.pause import pause

TURN_SECONDS_MAX = 0.005
"""So long a loop over many things may keep the reactor: requests that come meanwhile wait for it."""


class Turns:
    """Made when a loop begins, and asked after each step.

    turns = Turns(reactor)
    for each in many:
        ...
        if turns.is_over:
            await turns.next()
    """

    __slots__ = ("_ends_s", "_reactor")

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        self._begin()

    @property
    def is_over(self) -> bool:
        """Whether this turn has lasted long enough."""
        return self._reactor.seconds() > self._ends_s

    def next(self) -> Deferred[None]:
        """Let everybody else have a turn; what the loop goes over may have changed meanwhile.

        :return: fires when the next turn begins; cancelling it leaves no timer behind.
        """
        return pause(self._reactor, 0).addCallback(self._begin)

    def _begin(self, _: None = None) -> None:
        self._ends_s = self._reactor.seconds() + TURN_SECONDS_MAX
