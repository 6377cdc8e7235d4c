"""Wakes coroutines that wait for a change."""

from __future__ import annotations

from twisted.internet.defer import Deferred

from kreplica.runtime import Reactor


class Waiters:
    """Wakes all current waiters; each waiter checks its own condition."""

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        self._waiting: dict[Deferred[None], None] = {}

    def wait(self, timeout_s: float | None = None) -> Deferred[None]:
        """Return a cancellable Deferred that fires at the next ``notify`` or after a timeout."""
        waiter: Deferred[None] = Deferred(self._cancelled)
        self._waiting[waiter] = None
        if timeout_s is not None:
            timer = self._reactor.callLater(timeout_s, self._wake, waiter)

            def cancel_timer(result: None) -> None:
                if timer.active():
                    timer.cancel()
                return result

            waiter.addBoth(cancel_timer)
        return waiter

    def notify(self) -> None:
        """Wake all waiters; they run before this method returns."""
        for waiter in list(self._waiting):
            self._wake(waiter)

    def _wake(self, waiter: Deferred[None]) -> None:
        if waiter in self._waiting:
            del self._waiting[waiter]
            waiter.callback(None)

    def _cancelled(self, waiter: Deferred[None]) -> None:
        self._waiting.pop(waiter, None)
