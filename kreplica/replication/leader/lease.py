"""Lease that limits how long a leader may act without contact with ZooKeeper.

Once its session may have expired, another broker may lead with an ISR that does not include this one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from twisted.internet.interfaces import IDelayedCall

from kreplica.runtime import Reactor

CHECK_SECONDS = 0.1


class LeaseWaiter(Protocol):
    """An object that is notified when the lease is valid again."""

    def lease_restored(self) -> None: ...


class Lease:
    """Leadership lease of one broker, shared by all of its partitions.

    :param may_acknowledge: returns True while the ZooKeeper session certainly has not expired.
    """

    def __init__(self, reactor: Reactor, may_acknowledge: Callable[[], bool]) -> None:
        self.holds = may_acknowledge
        self._reactor = reactor
        self._waiters: dict[LeaseWaiter, None] = {}
        self._call: IDelayedCall | None = None

    def notify_when_restored(self, waiter: LeaseWaiter) -> None:
        """Notify this object once when the lease is valid again."""
        self._waiters[waiter] = None
        if self._call is None:
            self._call = self._reactor.callLater(CHECK_SECONDS, self._check)

    def stop(self) -> None:
        """Cancel all notifications."""
        self._waiters.clear()
        if self._call is not None and self._call.active():
            self._call.cancel()

    def _check(self) -> None:
        self._call = None
        if not self.holds():
            self._call = self._reactor.callLater(CHECK_SECONDS, self._check)
            return
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters:
            waiter.lease_restored()
