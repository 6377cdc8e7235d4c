"""The transport and the requests of a connection, as the connection sees them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kreplica.server.transport.outgoing_buffers import Piece


class Transport(Protocol):
    """Transport of a connection; its methods neither raise nor call the connection before they return."""

    def send(self, pieces: list[Piece]) -> int:
        """Send buffers in order, after those of earlier calls.

        :return: bytes written at once; the remaining ones are reported to ``Connection.sent`` when they are written.
        """

    def pause_reading(self) -> None:
        """Stop delivering frames, and keep the data already read."""

    def resume_reading(self) -> None:
        """Resume delivering frames."""

    def close(self) -> None:
        """Close after all buffers are sent."""

    def abort(self) -> None:
        """Close at once."""

    def mark_control(self) -> None:
        """Read this connection before others."""

    def release_frame(self) -> None:
        """Reuse the memory of the frame that was kept (``Connection.keeps_frame``)."""

    @property
    def held_bytes(self) -> int:
        """Bytes in memory that are not written yet."""


class OutstandingRequest(Protocol):
    """Request whose response is not sent yet, as its connection sees it; implemented by ``Request``."""

    size: int
    is_complete: bool
    pieces: list[Piece] | None
    response_bytes: int

    @property
    def description(self) -> str:
        """API, version, size, client ID and peer, for the log."""

    def abandon(self) -> list[Callable[[], object]]:
        """Drop the response, since the connection has closed; return the callbacks to run."""
