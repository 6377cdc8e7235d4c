"""Transport of a server connection that accepts all output and keeps it, except file ranges."""

from __future__ import annotations

from test_server_dispatch import MemoryTransport

from kreplica.runtime.disk import FileRange
from kreplica.server.transport.outgoing_buffers import Piece, piece_size


class Sink(MemoryTransport):
    def send(self, pieces: list[Piece]) -> int:
        self.sends += [bytes(piece) for piece in pieces if not isinstance(piece, FileRange)]
        return sum(map(piece_size, pieces))
