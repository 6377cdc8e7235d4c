"""Open connections to this broker, for ``/v1/brokers/{broker_id}/connections``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kreplica.runtime import Runtime
from kreplica.runtime.time_slice import TimeSlice
from kreplica.server.protocol.connection import Connection
from kreplica.server.transport.listeners import Server
from kreplica.server.transport.tcp_counters import transferred

RATE_SECONDS_MIN = 1.0
"""Minimum interval over which a rate is computed; until it has passed, the earlier reading is kept."""

Row = dict[str, Any]
Reading = tuple[float, int, int]
"""Time, bytes in and bytes out."""


class ClientConnections:
    """Lists the open connections; keeps one reading of the byte counters of each.

    :param server: returns the server; None before the broker has started.
    """

    def __init__(self, runtime: Runtime, server: Callable[[], Server | None]) -> None:
        self._runtime = runtime
        self._server = server
        self._readings: dict[Connection, Reading] = {}

    async def read(self) -> Mapping[str, Row]:
        """Return one row per connection, by the client's address and port."""
        server = self._server()
        connections: Iterable[Connection] = server.resources.connections if server is not None else ()
        time_slice = TimeSlice(self._runtime.reactor)
        rows: dict[str, Row] = {}
        readings: dict[Connection, Reading] = {}
        for connection in connections:
            if not connection.closed:
                rows[connection.peer] = self._row(connection, readings)
            if time_slice.is_over:
                await time_slice.next()
        self._readings = readings
        return rows

    def _row(self, connection: Connection, readings: dict[Connection, Reading]) -> Row:
        now_s, now_ms = self._runtime.reactor.seconds(), self._runtime.wall_clock_ms()
        row: Row = {
            "address": connection.peer,
            "listener": connection.listener,
            "user": connection.user,
            **connection.names._asdict(),
            "is_broker": connection.is_control,
            "opened_at_ms": now_ms - round((now_s - connection.opened_s) * 1000),
            "idle_ms": max(round((now_s - connection.last_active_s) * 1000), 0),
            "in_flight": connection.outstanding,
            **dict.fromkeys(("bytes_in", "bytes_out", "bytes_in_rate", "bytes_out_rate")),
        }
        counted = transferred(connection.transport)
        if counted is None:
            return row
        bytes_in, bytes_out = counted
        before = self._readings.get(connection, (connection.opened_s, 0, 0))
        seconds = now_s - before[0]
        readings[connection] = (now_s, bytes_in, bytes_out) if seconds >= RATE_SECONDS_MIN else before
        row |= {"bytes_in": bytes_in, "bytes_out": bytes_out}
        if seconds > 0:
            row["bytes_in_rate"] = max(bytes_in - before[1], 0) / seconds
            row["bytes_out_rate"] = max(bytes_out - before[2], 0) / seconds
        return row
