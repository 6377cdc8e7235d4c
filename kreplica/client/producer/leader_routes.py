"""The way to one leader: how much is under way, and what waits until more may go."""

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
"""A broker that asks for more silence than this gets this much."""


class Route:
    """Owned by a sender; one for each leader.

    :param free: is called when more may go than before.
    :ivar under_way: requests without an answer.
    :ivar parked: queues that wait until more may go.
    """

    def __init__(self, leader: int, reactor: Reactor, free: Callable[[Route], None]) -> None:
        self.leader = leader
        self.under_way = 0
        self.parked: dict[OutgoingQueue, None] = {}
        self._reactor = reactor
        self._free = free
        self._connecting: Deferred[Connection] | None = None
        self._silence: IDelayedCall | None = None
        self._is_closed = False

    @property
    def is_free(self) -> bool:
        """Whether a request may go now."""
        return self.under_way < REQUESTS_MAX and self._connecting is None and self._silence is None

    def be_silent(self, seconds: float) -> None:
        """The broker wants to hear nothing for so long (KIP-219)."""
        if seconds > 0 and self._silence is None:
            self._silence = self._reactor.callLater(min(seconds, THROTTLE_S_MAX), self._speak)

    def connect(self, connecting: Deferred[Connection], torn: Callable[[Route, Failure], None]) -> None:
        """Wait for a connection; what is parked then goes on, or learns why not."""
        if self._connecting is not None:
            return
        self._connecting = connecting
        connecting.addBoth(self._connected, torn)

    def close(self) -> None:
        """End all timers, and the try to connect, of which nobody is told any more."""
        self._is_closed = True
        self._free = lambda _: None
        self.parked.clear()
        if self._silence is not None:
            self._silence.cancel()
            self._silence = None
        if self._connecting is not None:
            self._connecting.cancel()

    def _connected(self, outcome: Connection | Failure, torn: Callable[[Route, Failure], None]) -> None:
        self._connecting = None
        if self._is_closed:
            return
        if isinstance(outcome, Failure):
            torn(self, outcome)
        else:
            self._free(self)

    def _speak(self) -> None:
        self._silence = None
        self._free(self)
