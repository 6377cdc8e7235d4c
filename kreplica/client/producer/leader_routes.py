"""Requests in flight to one leader, and the queues that are waiting to send to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.python.failure import Failure

from kreplica.client.connection import Connection
from kreplica.client_core.produce_requests import REQUESTS_MAX
from kreplica.runtime import Reactor

if TYPE_CHECKING:
    from kreplica.client.producer.accumulator import OutgoingQueue

THROTTLE_S_MAX = 60.0
"""Maximum throttle time that the client respects."""


class LeaderRoute:
    """State of a sender's requests to one leader.

    :param on_free: called when another request may be sent.
    :ivar in_flight: number of requests in flight.
    :ivar parked: queues that are waiting to send.
    """

    def __init__(self, leader: int, reactor: Reactor, on_free: Callable[[LeaderRoute], None]) -> None:
        self.leader = leader
        self.in_flight = 0
        self.parked: dict[OutgoingQueue, None] = {}
        self._reactor = reactor
        self._on_free = on_free
        self._connecting: Deferred[Connection] | None = None
        self._throttled: IDelayedCall | None = None
        self._is_closed = False

    @property
    def is_free(self) -> bool:
        """True if a request may be sent now."""
        return self.in_flight < REQUESTS_MAX and self._connecting is None and self._throttled is None

    def throttle(self, seconds: float) -> None:
        """Send nothing for a response's throttle time (KIP-219)."""
        if seconds > 0 and self._throttled is None:
            self._throttled = self._reactor.callLater(min(seconds, THROTTLE_S_MAX), self._end_throttle)

    def connect(self, connecting: Deferred[Connection], on_failed: Callable[[LeaderRoute, Failure], None]) -> None:
        """Wait for a connection; then call ``on_free``, or ``on_failed`` if the attempt failed."""
        if self._connecting is not None:
            return
        self._connecting = connecting
        connecting.addBoth(self._connected, on_failed)

    def close(self) -> None:
        """Cancel timers and the connection attempt."""
        self._is_closed = True
        self._on_free = lambda _: None
        self.parked.clear()
        if self._throttled is not None:
            self._throttled.cancel()
            self._throttled = None
        if self._connecting is not None:
            self._connecting.cancel()

    def _connected(self, outcome: Connection | Failure, on_failed: Callable[[LeaderRoute, Failure], None]) -> None:
        self._connecting = None
        if self._is_closed:
            return
        if isinstance(outcome, Failure):
            on_failed(self, outcome)
        else:
            self._on_free(self)

    def _end_throttle(self) -> None:
        self._throttled = None
        self._on_free(self)
