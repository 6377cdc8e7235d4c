"""Session timer of a classic group's member; when it expires, ``session_expiry`` removes the member.

For the timers of KIP-848 groups, see ``consumer/member_timers.py``.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import IDelayedCall

from kreplica.runtime import Reactor


class SessionTimer:
    """Calls ``on_expired`` if a member sends no heartbeat within its session timeout.

    A heartbeat only moves the deadline. The reactor timer is rescheduled for the remaining time when it fires.
    """

    __slots__ = ("_deadline_s", "_fires_s", "_on_expired", "_reactor", "_timer")

    def __init__(self, reactor: Reactor, on_expired: Callable[[], None]) -> None:
        self._reactor = reactor
        self._on_expired = on_expired
        self._timer: IDelayedCall | None = None
        self._deadline_s = 0.0
        self._fires_s = 0.0

    def extend(self, timeout_ms: int) -> None:
        """Set the deadline to ``timeout_ms`` from now, which may be earlier than the current deadline.

        :param timeout_ms: the session expires immediately if negative; clients and the log may contain such values.
        """
        timeout_s = max(timeout_ms / 1000, 0.0)
        self._deadline_s = self._reactor.seconds() + timeout_s
        if self._timer is not None and self._fires_s > self._deadline_s:
            self.end()
        if self._timer is None:
            self._start(timeout_s)

    @property
    def remaining_s(self) -> float:
        """Seconds until the session expires; 0 if it has expired."""
        return max(self._deadline_s - self._reactor.seconds(), 0.0)

    def end(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start(self, delay_s: float) -> None:
        self._fires_s = self._reactor.seconds() + delay_s
        self._timer = self._reactor.callLater(delay_s, self._fired)

    def _fired(self) -> None:
        self._timer = None
        remaining_s = self._deadline_s - self._reactor.seconds()
        if remaining_s > 0:
            self._start(remaining_s)
        else:
            self._on_expired()
