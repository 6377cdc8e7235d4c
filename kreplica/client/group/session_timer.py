"""For how long a member may believe that it is one."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import IDelayedCall

from kreplica.runtime import Reactor


class Session:
    """Lasts from one answer to the next; when none came for too long, it is over, once.

    :param limit_s: after what was answered was asked, the group may take the member for dead.
    :param over: is called then.
    """

    def __init__(self, reactor: Reactor, limit_s: float, over: Callable[[], None]) -> None:
        self._reactor = reactor
        self._limit_s = limit_s
        self._over = over
        self._timer: IDelayedCall | None = None
        self._heard_s = float("-inf")

    @property
    def is_on(self) -> bool:
        """Whether it has begun, and is not over."""
        return self._timer is not None

    def is_stale(self, asked_s: float) -> bool:
        """Whether an answer to what was asked then comes too late: nothing was heard for so long that it is over.

        A process that stood still finds such answers when it goes on, and its timers only after them.
        """
        return self._reactor.seconds() >= max(asked_s, self._heard_s) + self._limit_s

    def heard(self, asked_s: float) -> None:
        """The coordinator answered what it was asked then: it takes the member for one since that time at least."""
        self.end()
        self._heard_s = max(asked_s, self._heard_s)
        left_s = asked_s + self._limit_s - self._reactor.seconds()
        self._timer = self._reactor.callLater(max(left_s, 0.0), self._is_over)

    def end(self) -> None:
        """Nothing is waited for."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def _is_over(self) -> None:
        self._timer = None
        self._over()
