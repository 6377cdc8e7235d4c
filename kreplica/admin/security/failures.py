"""Limits failed authentications by client address, so that passwords cannot be guessed quickly."""

from __future__ import annotations

from collections.abc import Callable

from twisted.logger import Logger

from kreplica.admin.http.problems import Problem

log = Logger()

FAILURES_MAX = 10
"""Maximum number of failures of an address in ``WINDOW_S``."""

WINDOW_S = 60.0
ADDRESSES_MAX = 10_000
"""Maximum number of remembered addresses; above it, the oldest is dropped."""


class FailureLimit:
    """Counts failures by address.

    :param seconds: monotonic clock.
    """

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self._failures: dict[str, tuple[float, int]] = {}

    def check(self, address: str) -> None:
        """Check that an address may try again.

        :raise Problem: 429.
        """
        until_s, count = self._failures.get(address, (0.0, 0))
        if count >= FAILURES_MAX and self._seconds() < until_s:
            raise Problem(
                429,
                "TOO_MANY_REQUESTS",
                f"{count} authentications from {address} failed",
                what_to_do=f"Wait up to {WINDOW_S:.0f} seconds, then use valid credentials.",
            )

    def record(self, address: str) -> None:
        """Count and log a failure; the first one of an address starts its window."""
        now_s = self._seconds()
        until_s, count = self._failures.pop(address, (0.0, 0))
        if now_s >= until_s:
            until_s, count = now_s + WINDOW_S, 0
        self._failures[address] = (until_s, count + 1)
        log.warn("admin API: authentication from {address} failed ({count})", address=address, count=count + 1)
        if len(self._failures) > ADDRESSES_MAX:
            del self._failures[next(iter(self._failures))]
