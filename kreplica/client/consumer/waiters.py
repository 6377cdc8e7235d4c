"""Waiting for something to change."""

from __future__ import annotations

from twisted.internet.defer import Deferred

from kreplica.runtime import Reactor


class Changes:
    """Wakes all who wait at that moment; each looks for itself what has changed."""

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        self._waiting: dict[Deferred[None], None] = {}

    def wait(self, timeout_s: float | None = None) -> Deferred[None]:
        """Fires at the next ``fire``, or when so many seconds are over; cancelling it leaves nothing behind."""
        waiter: Deferred[None] = Deferred(self._left)
        self._waiting[waiter] = None
        if timeout_s is not None:
            timer = self._reactor.callLater(timeout_s, self._wake, waiter)

            def over(result: None) -> None:
                if timer.active():
                    timer.cancel()
                return result

            waiter.addBoth(over)
        return waiter

    def fire(self) -> None:
        """Wake all; they run before this returns."""
        for waiter in list(self._waiting):
            self._wake(waiter)

    def _wake(self, waiter: Deferred[None]) -> None:
        if waiter in self._waiting:
            del self._waiting[waiter]
            waiter.callback(None)

    def _left(self, waiter: Deferred[None]) -> None:
        self._waiting.pop(waiter, None)
