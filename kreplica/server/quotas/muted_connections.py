"""Connections that are temporarily not read, because their clients exceeded a quota."""

from __future__ import annotations

import heapq
from itertools import count

from twisted.internet.interfaces import IDelayedCall

from kreplica.runtime import Reactor
from kreplica.server.protocol.connection import Connection

SWEEP_MIN = 64
"""Number of muted connections below which closed ones are kept until their time is over."""


class MutedConnections:
    """Resumes each connection when its time is over; one timer serves all of them.

    A closed connection is forgotten when the number of muted connections has doubled, or its time is over.
    """

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        self._until: list[tuple[float, int, Connection]] = []
        self._numbers = count()
        self._sweep_at = SWEEP_MIN
        self._timer: IDelayedCall | None = None
        self._timer_s = 0.0

    def __len__(self) -> int:
        return len(self._until)

    def mute(self, connection: Connection, seconds: float) -> None:
        """Stop reading from a connection for some time; its pending requests still get responses."""
        connection.suspend()
        until_s = self._reactor.seconds() + seconds
        heapq.heappush(self._until, (until_s, next(self._numbers), connection))
        if len(self._until) >= self._sweep_at:
            self._until = [entry for entry in self._until if not entry[2].closed]
            heapq.heapify(self._until)
            self._sweep_at = max(2 * len(self._until), SWEEP_MIN)
        self._set_timer()

    def stop(self) -> None:
        """Forget all connections, because the server stops."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._until.clear()

    def _set_timer(self) -> None:
        if not self._until:
            return
        first_s = self._until[0][0]
        if self._timer is not None:
            if first_s >= self._timer_s:
                return
            self._timer.cancel()
        self._timer_s = first_s
        self._timer = self._reactor.callLater(max(first_s - self._reactor.seconds(), 0.0), self._resume_due)

    def _resume_due(self) -> None:
        self._timer = None
        now_s = self._reactor.seconds()
        while self._until and self._until[0][0] <= now_s:
            heapq.heappop(self._until)[2].resume()
        self._set_timer()
