"""Timer of a member's session."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import IDelayedCall

from kreplica.runtime import Reactor


class SessionTimer:
    """Expires, once, if the coordinator has not responded for too long.

    :param limit_s: time after the last acknowledged request at which the coordinator may remove the member.
    :param on_expired: called when the session expires.
    """

    def __init__(self, reactor: Reactor, limit_s: float, on_expired: Callable[[], None]) -> None:
        self._reactor = reactor
        self._limit_s = limit_s
        self._on_expired = on_expired
        self._timer: IDelayedCall | None = None
        self._contact_s = float("-inf")

    def is_stale(self, sent_s: float) -> bool:
        """Return True if the session expired before the response to a request sent at ``sent_s``.

        A process that was suspended receives such responses before its timers fire.
        """
        return self._reactor.seconds() >= max(sent_s, self._contact_s) + self._limit_s

    def record_contact(self, sent_s: float) -> None:
        """Restart the timer after a response; the session timeout is measured from the sending of the request."""
        self.end()
        self._contact_s = max(sent_s, self._contact_s)
        left_s = sent_s + self._limit_s - self._reactor.seconds()
        self._timer = self._reactor.callLater(max(left_s, 0.0), self._expire)

    def end(self) -> None:
        """Stop the timer."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def _expire(self) -> None:
        self._timer = None
        self._on_expired()
