"""Telling a coroutine that there is something to do."""

from __future__ import annotations

from twisted.internet.defer import Deferred

from kreplica.runtime import Reactor


class Bell:
    """Rings for one who waits; where it rang before, the next wait is over at once."""

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        self._has_rung = False
        self._waiting: Deferred[None] | None = None

    def ring(self) -> None:
        """Wake who waits, or who will."""
        self._has_rung = True
        self._wake()

    async def wait(self, at_most_s: float | None = None) -> bool:
        """Until it rings, or the time is over; may be cancelled, and leaves nothing behind.

        :return: whether it rang.
        """
        if not self._has_rung:
            waiting = self._waiting = Deferred(self._left)
            timer = None if at_most_s is None else self._reactor.callLater(at_most_s, self._wake)
            try:
                await waiting
            finally:
                if timer is not None and timer.active():
                    timer.cancel()
        has_rung, self._has_rung = self._has_rung, False
        return has_rung

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.callback(None)

    def _left(self, _: Deferred[None]) -> None:
        self._waiting = None
