"""Wakes a waiting coroutine."""

from __future__ import annotations

from twisted.internet.defer import Deferred

from kreplica.runtime import Reactor


class Notifier:
    """Wakes one waiter; a notification that precedes the wait is not lost."""

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        self._is_notified = False
        self._waiting: Deferred[None] | None = None

    def notify(self) -> None:
        """Wake the waiter; if there is none, the next wait returns immediately."""
        self._is_notified = True
        self._wake()

    async def wait(self, at_most_s: float | None = None) -> bool:
        """Wait for a notification or a timeout; may be cancelled.

        :return: True if notified.
        """
        if not self._is_notified:
            waiting = self._waiting = Deferred(self._cancelled)
            timer = None if at_most_s is None else self._reactor.callLater(at_most_s, self._wake)
            try:
                await waiting
            finally:
                if timer is not None and timer.active():
                    timer.cancel()
        is_notified, self._is_notified = self._is_notified, False
        return is_notified

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.callback(None)

    def _cancelled(self, _: Deferred[None]) -> None:
        self._waiting = None
