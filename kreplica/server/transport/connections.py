"""Open connections of one broker: connection limits, the idle timeout and the orderly stop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from kreplica.runtime import Reactor
from kreplica.server.protocol.client_load import ClientLoads
from kreplica.server.protocol.connection import Connection
from kreplica.server.protocol.limits import Bounds
from kreplica.server.protocol.metrics import ServerMetrics
from kreplica.server.transport.flush_scope import FlushScope
from kreplica.server.transport.partial_frames import PartialFrames

log = Logger()

SWEEPS_PER_IDLE_TIME = 8
"""Number of checks for idle connections per idle timeout."""


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
    """Set of open connections; one timer checks all of them, and runs while at least one is open."""

    def __init__(self, resources: ConnectionResources) -> None:
        self._resources = resources
        self._open: dict[Connection, str] = {}
        self._per_host: dict[str, int] = {}
        self._timer: IDelayedCall | None = None
        self._empty: list[Deferred[None]] = []
        bounds = resources.bounds
        self._idle_due_s = 0.0
        self._sweep_s = min(bounds.idle_s / SWEEPS_PER_IDLE_TIME, bounds.partial_stall_s / 2)

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Connection]:
        return iter(list(self._open))

    def admit(self, host: str) -> bool:
        """Return True if another connection from the host is allowed; log the reason if it is not."""
        bounds, metrics = self._resources.bounds, self._resources.metrics
        metrics.connections_accepted += 1
        if len(self._open) >= bounds.connections_max:
            reason = f"{bounds.connections_max} connections are open (max.connections)"
        elif self._per_host.get(host, 0) >= bounds.connections_per_host_max:
            reason = f"it has {bounds.connections_per_host_max} connections open (max.connections.per.ip)"
        else:
            return True
        metrics.connections_refused += 1
        log.info("refusing a connection from {host}: {reason}", host=host, reason=reason)
        return False

    def opened(self, connection: Connection, host: str) -> None:
        """Add an accepted connection."""
        self._open[connection] = host
        self._per_host[host] = self._per_host.get(host, 0) + 1
        self._resources.metrics.connections = len(self._open)
        if self._timer is None:
            self._timer = self._resources.reactor.callLater(self._sweep_s, self._sweep)

    def closed(self, connection: Connection) -> None:
        """Remove a connection whose transport has closed."""
        host = self._open.pop(connection)
        self._per_host[host] -= 1
        if not self._per_host[host]:
            del self._per_host[host]
        self._resources.metrics.connections = len(self._open)
        if not self._open:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            empty, self._empty = self._empty, []
            for deferred in empty:
                deferred.callback(None)

    async def stop(self, timeout_s: float) -> None:
        """Close each connection after its pending responses are sent; after the timeout close the others at once."""
        if self._open:
            late = self._resources.reactor.callLater(timeout_s, self._drop_all)
            with self._resources.flush_scope:
                for connection in self:
                    connection.stop()
            empty: Deferred[None] = Deferred()
            self._empty.append(empty)
            await empty
            if late.active():
                late.cancel()

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
