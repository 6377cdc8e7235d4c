"""Stops accepting connections on a listener while a limit is exceeded, and holds connections that are not served."""

from __future__ import annotations

from typing import Any

from twisted.internet.interfaces import IDelayedCall
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure

from kreplica.runtime import Reactor
from kreplica.server.quotas.connection_limits import ConnectionLimits

HELD_MAX = 1000
"""Maximum number of connections that are held; more are closed at once."""


class AcceptGate:
    """Accepts connections of one listening port only while the limits allow it.

    Further connections wait in the backlog of the operating system.

    :param port: Twisted's listening port.
    :param listener: name of the listener.
    """

    def __init__(self, reactor: Reactor, port: Any, listener: str, limits: ConnectionLimits) -> None:
        self._reactor = reactor
        self._port = port
        self._listener = listener
        self._limits = limits
        self._is_open = True
        self._timer: IDelayedCall | None = None
        self.limits_changed()

    def accepted(self, delay_s: float) -> None:
        """Stop accepting for ``delay_s`` seconds; called while the port accepts a connection."""
        # After the running doRead, Twisted sets numberAccepts to the number of accepted connections, or adds 20 if they
        # are equal. 0 makes this 1, so that the next doRead accepts one connection.
        self._port.numberAccepts = 0
        if delay_s > 0.0:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._reactor.callLater(delay_s, self._delay_is_over)
        self.update()

    def limits_changed(self) -> None:
        """Apply new limits."""
        if self._limits.is_limited:
            self._port.numberAccepts = 1
        self.update()

    def update(self) -> None:
        """Accept connections, or stop accepting them, as the limits require now."""
        limits = self._limits
        is_open = self._timer is None and (not limits.is_limited or limits.has_slot(self._listener))
        if is_open != self._is_open:
            self._is_open = is_open
            if is_open:
                self._port.startReading()
            else:
                self._port.stopReading()

    def stop(self) -> None:
        """Forget the delay, because the listener is closing."""
        self._is_open = True  # so that a later update() does not call startReading()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _delay_is_over(self) -> None:
        self._timer = None
        self.update()


class HeldConnections:
    """Connections that are not served, because their addresses connect too often; their number is bounded."""

    def __init__(self, reactor: Reactor) -> None:
        self.reactor = reactor
        self._held: dict[HeldConnection, None] = {}

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, seconds: float) -> HeldConnection | None:
        """Return the protocol of a connection to hold; None if it must be closed at once."""
        if len(self._held) >= HELD_MAX:
            return None
        return HeldConnection(self, seconds)

    def add(self, connection: HeldConnection) -> None:
        self._held[connection] = None

    def remove(self, connection: HeldConnection) -> None:
        self._held.pop(connection, None)

    def stop(self) -> None:
        """Close all held connections."""
        for connection in list(self._held):
            connection.close()


class HeldConnection(Protocol):
    """Protocol of a connection that is neither read nor written and is closed after a delay."""

    transport: Any

    def __init__(self, held: HeldConnections, seconds: float) -> None:
        self._held = held
        self._seconds = seconds
        self._timer: IDelayedCall | None = None

    def connectionMade(self) -> None:
        self.transport.pauseProducing()
        self._held.add(self)
        self._timer = self._held.reactor.callLater(self._seconds, self._time_is_over)

    def close(self) -> None:
        """Close the connection now."""
        if self._timer is not None:
            self._timer.cancel()
            self._time_is_over()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._held.remove(self)

    def _time_is_over(self) -> None:
        self._timer = None
        self.transport.abortConnection()
