"""Open connections of one broker: connection limits, the idle timeout and the orderly shutdown."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import nsmallest
from typing import Any, Protocol

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from kreplica.runtime import Reactor
from kreplica.server.protocol.client_load import ClientLoads
from kreplica.server.protocol.connection import Connection
from kreplica.server.protocol.limits import Bounds
from kreplica.server.protocol.metrics import ServerMetrics
from kreplica.server.quotas.connection_limits import Admission, ConnectionLimits, Decision
from kreplica.server.transport.accept_gate import AcceptGate, HeldConnections
from kreplica.server.transport.flush_scope import FlushScope
from kreplica.server.transport.partial_frames import PartialFrames

log = Logger()

SWEEPS_PER_IDLE_TIME = 8
"""Number of checks for idle connections per idle timeout."""

CLOSED_AT_ONCE = 64
"""Maximum number of excess connections that are closed in one iteration of the event loop."""


class ConnectionResources(Protocol):
    """The resources of a server that its set of connections uses."""

    @property
    def reactor(self) -> Reactor: ...

    @property
    def bounds(self) -> Bounds: ...

    @property
    def metrics(self) -> ServerMetrics: ...

    @property
    def flush_scope(self) -> FlushScope: ...

    @property
    def partial_frames(self) -> PartialFrames: ...

    @property
    def loads(self) -> ClientLoads: ...


class Connections:
    """Set of open connections; one timer checks all of them, and runs while at least one is open.

    :ivar held: accepted connections that are not served, because their addresses connect too often.
    """

    def __init__(self, resources: ConnectionResources, limits: ConnectionLimits) -> None:
        self._resources = resources
        self._limits = limits
        limits.changed = self._limits_changed
        limits.slots_changed = self._update_gates
        self.held = HeldConnections(resources.reactor)
        self._gates: dict[str, list[AcceptGate]] = {}
        self._open: dict[Connection, str] = {}
        self._closing_excess: IDelayedCall | None = None
        self._timer: IDelayedCall | None = None
        self._empty_waiters: list[Deferred[None]] = []
        bounds = resources.bounds
        self._idle_due_s = 0.0
        self._sweep_s = min(bounds.idle_s / SWEEPS_PER_IDLE_TIME, bounds.partial_stall_s / 2)

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Connection]:
        return iter(list(self._open))

    def add_port(self, port: Any, listener: str) -> None:
        """Apply the limits to a listening port."""
        self._gates.setdefault(listener, []).append(
            AcceptGate(self._resources.reactor, port, listener, self._limits)
        )

    def admit(self, listener: str, address: str) -> Admission:
        """Decide whether a connection that was accepted on a listener is served."""
        metrics = self._resources.metrics
        metrics.connections_accepted += 1
        admission = self._limits.admit(listener, address)
        if admission.decision is not Decision.ACCEPTED:
            metrics.connections_refused += 1
        if self._limits.is_limited:
            delay_s = 0.0 if admission.decision is Decision.HELD else admission.delay_s
            for gate in self._gates.get(listener, ()):
                gate.accepted(delay_s)
        return admission

    def opened(self, connection: Connection, address: str) -> None:
        """Add an accepted connection."""
        self._open[connection] = address
        self._limits.opened(connection.listener, address)
        self._resources.metrics.connections = len(self._open)
        if self._timer is None:
            self._timer = self._resources.reactor.callLater(self._sweep_s, self._sweep)

    def closed(self, connection: Connection) -> None:
        """Remove a connection whose transport has closed."""
        address = self._open.pop(connection)
        self._limits.closed(connection.listener, address)
        self._resources.metrics.connections = len(self._open)
        if not self._open:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            empty, self._empty_waiters = self._empty_waiters, []
            for deferred in empty:
                deferred.callback(None)

    # --- limits ------------------------------------------------------------------------------------------------------

    def _limits_changed(self) -> None:
        for gates in self._gates.values():
            for gate in gates:
                gate.limits_changed()
        self._update_gates()

    def _update_gates(self) -> None:
        for gates in self._gates.values():
            for gate in gates:
                gate.update()
        if self._closing_excess is None and self._limits.excess and self._gates:
            self._closing_excess = self._resources.reactor.callLater(0, self._close_excess)

    def _close_excess(self) -> None:
        """Close the connections that have been idle longest, except those of the protected listener."""
        self._closing_excess = None
        protected = self._limits.settings.protected
        closing = sum(connection.closed for connection in self._open)
        excess = self._limits.excess - closing
        if excess <= 0:
            return
        candidates = (each for each in self._open if each.listener != protected and not each.closed)
        # If brokers share a listener with clients, connections of other brokers are closed last.
        count = min(excess, CLOSED_AT_ONCE)
        idlest = nsmallest(count, candidates, key=lambda each: (each.is_control, each.last_active_s))
        for connection in idlest:
            self._limits.excess_closed += 1
            connection.drop("the broker has too many connections (max.connections), and this one was idle longest")
        if excess > len(idlest) > 0:
            self._closing_excess = self._resources.reactor.callLater(0, self._close_excess)

    # --- stop and timeouts -------------------------------------------------------------------------------------------

    def stop_accepting(self) -> None:
        """Forget the listening ports, which are closing, and close the connections that are not served."""
        for gates in self._gates.values():
            for gate in gates:
                gate.stop()
        self._gates.clear()
        self.held.stop()
        if self._closing_excess is not None:
            self._closing_excess.cancel()
            self._closing_excess = None

    async def stop(self, timeout_s: float) -> None:
        """Close each connection after its pending responses are sent; close the remaining ones after the timeout."""
        if self._open:
            timeout = self._resources.reactor.callLater(timeout_s, self._drop_all)
            with self._resources.flush_scope:
                for connection in self:
                    connection.stop()
            empty: Deferred[None] = Deferred()
            self._empty_waiters.append(empty)
            await empty
            if timeout.active():
                timeout.cancel()

    def _drop_all(self) -> None:
        for connection in self:
            connection.drop("the server is stopping, and pending requests of the connection did not finish in time")

    def _sweep(self) -> None:
        now_s = self._resources.reactor.seconds()
        if now_s >= self._idle_due_s:
            self._idle_due_s = now_s + self._resources.bounds.idle_s / SWEEPS_PER_IDLE_TIME
            self._drop_idle(now_s)
        self._resources.partial_frames.sweep()
        self._resources.loads.sweep()
        self._timer = self._resources.reactor.callLater(self._sweep_s, self._sweep) if self._open else None

    def _drop_idle(self, now_s: float) -> None:
        idle_s = self._resources.bounds.idle_s
        for connection in self:
            if now_s - connection.last_active_s >= idle_s:
                self._resources.metrics.connections_idle_closed += 1
                connection.drop(f"idle for {idle_s:g} s")
