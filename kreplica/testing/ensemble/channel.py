"""Ordered messages between two servers, with random latency."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias

from kreplica.runtime import Reactor

Message: TypeAlias = tuple[Callable[..., None], tuple[Any, ...]]


class Channel:
    """One direction of a connection between two servers; messages arrive in order, or not at all.

    :param reactor: the receiver's reactor, in whose process messages are handled.
    :param latency_s: returns the latency of the next message; a message never overtakes an earlier one.
    """

    def __init__(self, reactor: Reactor, latency_s: Callable[[], float]) -> None:
        self._reactor = reactor
        self._latency_s = latency_s
        self._last_arrival_s = 0.0
        self._in_flight: deque[Message] = deque()
        self._held: list[Message] | None = None
        self.is_closed = False

    def send(self, function: Callable[..., None], *args: Any) -> None:
        """Call a function in the receiver's process, after the latency and all earlier messages."""
        if self.is_closed:
            return
        if self._held is not None:
            self._held.append((function, args))
            return
        now_s = self._reactor.seconds()
        self._last_arrival_s = max(self._last_arrival_s, now_s + self._latency_s())
        self._in_flight.append((function, args))
        self._reactor.callLater(self._last_arrival_s - now_s, self._deliver)

    def _deliver(self) -> None:
        # The next message in order: two calls for the same time may be reordered by rounding.
        function, args = self._in_flight.popleft()
        if not self.is_closed:
            function(*args)

    def hold(self) -> None:
        """Keep later messages until ``release``; messages in flight still arrive."""
        if self._held is None:
            self._held = []

    def release(self) -> None:
        """Send the held messages; idempotent."""
        held, self._held = self._held, None
        for function, args in held or ():
            self.send(function, *args)

    def close(self) -> None:
        """Drop all messages that have not arrived; idempotent."""
        self.is_closed = True
        self._held = None
