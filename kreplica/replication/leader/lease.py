"""Lease that limits how long a leader may act without contact to ZooKeeper.

After its session may have expired, another broker may lead with an ISR that does not include this one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from twisted.internet.interfaces import IDelayedCall

from kreplica.runtime import Reactor

LOOK_AGAIN_SECONDS = 0.1


class HeldBack(Protocol):
    """An object that is notified when the lease holds again."""

    def lease_is_back(self) -> None: ...


class Lease:
    """Leadership lease of one broker, shared by all of its partitions.

    :param may_acknowledge: returns True while the ZooKeeper session certainly has not expired.
    """

    def __init__(self, reactor: Reactor, may_acknowledge: Callable[[], bool]) -> None:
        self.holds = may_acknowledge
        self._reactor = reactor
        self._held_back: dict[HeldBack, None] = {}
        self._call: IDelayedCall | None = None

    def when_back(self, held_back: HeldBack) -> None:
        """Notify this object once when the lease holds again."""
        self._held_back[held_back] = None
        if self._call is None:
            self._call = self._reactor.callLater(LOOK_AGAIN_SECONDS, self._look)

    def stop(self) -> None:
        """Cancel all notifications."""
        self._held_back.clear()
        if self._call is not None and self._call.active():
            self._call.cancel()

    def _look(self) -> None:
        self._call = None
        if not self.holds():
            self._call = self._reactor.callLater(LOOK_AGAIN_SECONDS, self._look)
            return
        held_back, self._held_back = self._held_back, {}
        for one in held_back:
            one.lease_is_back()
