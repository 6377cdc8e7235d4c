"""Timers of members and of groups."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import IDelayedCall

from kreplica.runtime import Reactor


class SessionTimer:
    """The time by which a member has to be heard of.

    A heartbeat only moves a number: the timer itself is started once, and starts anew for what is left when it fires.
    """

    __slots__ = ("_deadline_s", "_expired", "_fires_s", "_reactor", "_timer")

    def __init__(self, reactor: Reactor, expired: Callable[[], None]) -> None:
        self._reactor = reactor
        self._expired = expired
        self._timer: IDelayedCall | None = None
        self._deadline_s = 0.0
        self._fires_s = 0.0

    def extend(self, timeout_ms: int) -> None:
        """It ends in so many milliseconds from now, whether that is later than before or sooner.

        :param timeout_ms: at once where it is negative, as clients and the log may have it.
        """
        timeout_s = max(timeout_ms / 1000, 0.0)
        self._deadline_s = self._reactor.seconds() + timeout_s
        if self._timer is not None and self._fires_s > self._deadline_s:
            self.end()
        if self._timer is None:
            self._start(timeout_s)

    @property
    def left_s(self) -> float:
        """Until it ends; 0 where it has."""
        return max(self._deadline_s - self._reactor.seconds(), 0.0)

    def end(self) -> None:
        """Nobody waits for the member any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start(self, delay_s: float) -> None:
        self._fires_s = self._reactor.seconds() + delay_s
        self._timer = self._reactor.callLater(delay_s, self._fired)

    def _fired(self) -> None:
        self._timer = None
        left_s = self._deadline_s - self._reactor.seconds()
        if left_s > 0:
            self._start(left_s)
        else:
            self._expired()
