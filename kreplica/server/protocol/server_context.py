"""What all listeners and connections of one broker share."""

from __future__ import annotations

from collections.abc import Callable

from kreplica.runtime import Runtime
from kreplica.server.protocol.connection import Connection
from kreplica.server.protocol.dispatch import Dispatch
from kreplica.server.protocol.limits import Bounds
from kreplica.server.transport.connections import Connections
from kreplica.server.transport.control_priority import ControlFirst
from kreplica.server.transport.flush_scope import Turn
from kreplica.server.transport.frame_buffers import BufferPool
from kreplica.server.transport.page_prefetch import ColdReads
from kreplica.server.transport.partial_frames import PartialFrames
from kreplica.server.transport.read_turns import ReadTurns

SCRATCH_BYTES = 256 * 1024
"""One read takes so much at most.  It fits a core's second-level cache; more gains only with a single connection."""


class Resources:
    """Made once per broker.

    :ivar frame_received: the dispatch's, made once: it would take 64 bytes of each connection.
    :ivar scratch: what a read fills, and frames are parsed in; good until the read that filled it returns.
    """

    def __init__(
        self,
        runtime: Runtime,
        dispatch: Dispatch,
        bounds: Bounds,
        turn: Turn,
        unreadable: Callable[[str, OSError], None] = lambda *_: None,
    ) -> None:
        self.reactor = runtime.reactor
        self.dispatch = dispatch
        self.frame_received = dispatch.frame_received
        self.bounds = bounds
        self.metrics = dispatch.metrics
        self.turn = turn
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self.buffers = BufferPool()
        self.partial = PartialFrames(
            bounds.partial_bytes_max,
            bounds.partial_rate_min,
            bounds.partial_stall_s,
            runtime.reactor.seconds,
            self.metrics,
        )
        self.read_turns = ReadTurns(runtime.reactor)
        self.control = ControlFirst(runtime.reactor.seconds)
        self.cold_reads = ColdReads(runtime.offload, self.metrics, unreadable)
        self.connections = Connections(self)

    def connection(self, listener: str, peer: str) -> Connection:
        """A connection that has no transport yet."""
        return Connection(listener, peer, self.bounds, self.turn, self.metrics, self.reactor.seconds)
