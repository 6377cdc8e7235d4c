"""Resources shared by all listeners and connections of one broker."""

from __future__ import annotations

from collections.abc import Callable

from kreplica.runtime import Runtime
from kreplica.server.protocol.client_load import ClientLoads
from kreplica.server.protocol.connection import Connection
from kreplica.server.protocol.dispatch import Dispatch
from kreplica.server.protocol.limits import Bounds
from kreplica.server.quotas.connection_limits import ConnectionLimits
from kreplica.server.transport.connections import Connections
from kreplica.server.transport.control_priority import ControlPriority
from kreplica.server.transport.flush_scope import FlushScope
from kreplica.server.transport.frame_buffers import BufferPool
from kreplica.server.transport.page_prefetch import PagePrefetch
from kreplica.server.transport.partial_frames import PartialFrames
from kreplica.server.transport.read_turns import ReadTurns

SCRATCH_BYTES = 256 * 1024
"""Maximum bytes per socket read; fits the second-level cache, and a larger buffer would help only if
the broker has a single connection."""


class Resources:
    """Shared resources of one broker's server.

    :ivar frame_received: bound method of the dispatcher; sharing it saves 64 bytes per connection.
    :ivar scratch: receive buffer in which frames are parsed; valid until the read that filled it returns.
    """

    def __init__(
        self,
        runtime: Runtime,
        dispatch: Dispatch,
        bounds: Bounds,
        flush_scope: FlushScope,
        limits: ConnectionLimits,
        on_unreadable: Callable[[str, OSError], None] = lambda *_: None,
    ) -> None:
        self.reactor = runtime.reactor
        self.dispatch = dispatch
        self.frame_received = dispatch.frame_received
        self.bounds = bounds
        self.metrics = dispatch.metrics
        self.flush_scope = flush_scope
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self.buffers = BufferPool()
        self.partial_frames = PartialFrames(
            bounds.partial_bytes_max,
            bounds.partial_rate_min,
            bounds.partial_stall_s,
            runtime.reactor.seconds,
            self.metrics,
        )
        self.read_turns = ReadTurns(runtime.reactor)
        self.control = ControlPriority(runtime.reactor.seconds)
        self.page_prefetch = PagePrefetch(runtime.offload, self.metrics, on_unreadable)
        self.loads = ClientLoads(bounds, self.metrics, runtime.reactor.seconds)
        self.connections = Connections(self, limits)

    def connection(self, listener: str, peer: str) -> Connection:
        """Return a connection without a transport."""
        load = self.loads.opened(peer.rpartition(":")[0])
        connection = Connection(listener, peer, self.bounds, self.flush_scope, self.metrics, self.reactor.seconds, load)
        connection.frame_received = self.frame_received
        return connection
