"""Throttles clients that exceeded a quota: throttle time in the response, and a pause in reading (KIP-219)."""

from __future__ import annotations

from typing import Any

from kreplica.cluster.quotas import CONNECTION_CREATION_RATE
from kreplica.server.produce.batching import ProduceRun
from kreplica.server.protocol.connection import Connection
from kreplica.server.protocol.request import Request
from kreplica.server.quotas.client_quotas import ClientQuotas
from kreplica.server.quotas.muted_connections import MutedConnections
from kreplica.server.quotas.throttle_events import ThrottleEvents
from kreplica.server.quotas.throttled_clients import ThrottledKey

Row = dict[str, Any]


class Throttling:
    """Throttles clients, and records it for operators."""

    def __init__(self, quotas: ClientQuotas, muted: MutedConnections, events: ThrottleEvents) -> None:
        self.quotas = quotas
        self._muted = muted
        self._events = events

    def pause(self, name: str, connection: Connection, client_id: str | None, throttle_s: float) -> None:
        """Stop reading, for the throttle time, from the connection of a client that exceeded a quota."""
        quotas = self.quotas
        metrics = quotas.metrics[name]
        metrics.throttled += 1
        metrics.throttled_s += throttle_s
        self._remember(ThrottledKey(name, connection.user, client_id or "", connection.host), throttle_s)
        self._muted.mute(connection, throttle_s)

    def address_held(self, address: str, held_s: float) -> None:
        """Record a connection that was not served because its address connects too often."""
        self._remember(ThrottledKey(CONNECTION_CREATION_RATE, "", "", address), held_s)

    def _remember(self, key: ThrottledKey, throttle_s: float) -> None:
        self.quotas.throttled.add(key, throttle_s)
        self._events.add(key, throttle_s)

    def throttle(self, request: Request, name: str, throttle_s: float) -> None:
        """Pause the client of a request; the response contains the throttle time."""
        request.amend_response(lambda body: with_throttle_time(body, throttle_s))
        self.pause(name, request.connection, request.client_id, throttle_s)

    def throttle_run(self, run: ProduceRun, name: str, throttle_s: float) -> None:
        """Pause the client of several Produce requests; each response contains the throttle time."""
        run.amend_responses(lambda body: with_throttle_time(body, throttle_s))
        self.pause(name, run.connection, run.template.client_id, throttle_s)


def with_throttle_time(body: Row, throttle_s: float) -> Row:
    """Return a response body with a throttle time, the longest if several quotas are exceeded."""
    return {**body, "throttle_time_ms": max(int(throttle_s * 1000) + 1, body.get("throttle_time_ms", 0))}
