"""Limits automatic topic creation: topics in progress, and topics per second for each client address."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

BURST_S = 50
"""Time for which the unused allowance of an address accumulates: 1,000 topics at 20 topics per second."""


class TopicCreationLimits:
    """Limits of automatic topic creation on one broker.

    :param seconds: monotonic clock.
    :param in_progress_max: ``kreplica.auto.create.topics.in.progress.max``.
    :param address_rate_max: ``kreplica.auto.create.topics.address.rate.max``.
    """

    def __init__(self, seconds: Callable[[], float], in_progress_max: int = 100, address_rate_max: int = 20) -> None:
        self._seconds = seconds
        self._in_progress_max = in_progress_max
        self._rate = address_rate_max
        self._in_progress = 0
        self._full_at_s: dict[str, float] = {}
        """Time at which the full burst of an address is available again; past times are removed."""

    def admit(self, address: str, count: int) -> int:
        """Return the number of topics that may be created now; the caller calls ``finished`` when they end."""
        now_s = self._seconds()
        full_at_s = max(self._full_at_s.pop(address, now_s), now_s)
        available = int((BURST_S - (full_at_s - now_s)) * self._rate)
        admitted = max(min(count, available, self._in_progress_max - self._in_progress), 0)
        self._in_progress += admitted
        full_at_s += admitted / self._rate
        if full_at_s > now_s:
            self._full_at_s[address] = full_at_s
        self._forget(now_s)
        return admitted

    def finished(self, count: int) -> None:
        """Record the end of creations, successful or not."""
        self._in_progress -= count

    def _forget(self, now_s: float) -> None:
        """Remove at most two addresses whose full burst is available again; each call adds at most one."""
        for address in list(islice(self._full_at_s, 2)):
            if self._full_at_s[address] <= now_s:
                del self._full_at_s[address]
