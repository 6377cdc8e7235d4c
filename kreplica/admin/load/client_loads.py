"""Clients with telemetry (KIP-714); each is known only to the broker to which it pushes its metrics."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from kreplica.admin.http.api import Call, JsonResponse, Route
from kreplica.admin.load.shared_loads import Load, Rows, SharedLoads
from kreplica.admin.load.tables import NUMBER, NUMBER_OR_NULL, TEXT, TEXTS, Table, TableFormat
from kreplica.admin.peers.forwarding import OtherBrokers
from kreplica.runtime import Reactor
from kreplica.runtime.time_slice import TimeSlice

PATH = "/v1/loads/clients"

SUBSCRIBED, UNSUBSCRIBED, TERMINATED = "SUBSCRIBED", "UNSUBSCRIBED", "TERMINATED"
STATES = (SUBSCRIBED, UNSUBSCRIBED, TERMINATED)

TABLE = TableFormat(
    {
        "client_instance_id": (TEXT, "IDs of the clients as shown by Kafka's tools."),
        "broker_id": (NUMBER, "This broker."),
        "client_id": (TEXT, "`client.id`; may be empty."),
        "software_name": (TEXT, "Client library (KIP-511), or `unknown`."),
        "software_version": (TEXT, "Its version, or `unknown`."),
        "address": (TEXT, "Address and port of the last request."),
        "user": (TEXT, "Authenticated user of the last request."),
        "state": (TEXT, "SUBSCRIBED, UNSUBSCRIBED or TERMINATED."),
        "subscriptions": (TEXTS, "Names of the subscriptions that apply."),
        "push_interval_ms": (NUMBER, "Interval between two pushes."),
        "last_request_at_ms": (NUMBER, "Time of the last request for a subscription, or push."),
        "pushed_at_ms": (NUMBER_OR_NULL, "Time of the last push of metrics; null if none are in memory."),
        "pushes": (NUMBER, "Number of pushes with metrics to this broker."),
        "metrics": (NUMBER, "Number of metrics of the last push."),
        "bytes": (NUMBER, "Compressed size of the last push."),
    }
)


class ClientLoad(NamedTuple):
    """A client; see ``TABLE``."""

    client_instance_id: str
    broker_id: int
    client_id: str
    software_name: str
    software_version: str
    address: str
    user: str
    state: str
    subscriptions: Sequence[str]
    push_interval_ms: int
    last_request_at_ms: int
    pushed_at_ms: int | None
    pushes: int
    metrics: int
    bytes: int


class LocalClients(Protocol):
    """The clients that push to this broker."""

    async def current(self) -> Sequence[ClientLoad]:
        """Return all clients."""

    async def metrics(self, client_instance_id: str) -> Mapping[str, Any] | None:
        """Return the last metrics of a client: its labels, metrics and whether they are complete; None without any."""


class ClientLoads:
    """Serves this broker's table, and merges the tables of all brokers.

    :param now_ms: the wall clock.
    """

    def __init__(
        self, reactor: Reactor, now_ms: Callable[[], int], local: LocalClients, others: OtherBrokers
    ) -> None:
        self._reactor = reactor
        self._now_ms = now_ms
        self._local = local
        self._all = SharedLoads(reactor, others, PATH, TABLE, self._table, self._merge, "ClientLoads")

    def routes(self) -> Sequence[Route]:
        """Return the route for other brokers."""
        summary = "Clients that push metrics to this broker, in columns; GET /v1/clients merges all brokers."
        return (Route("GET", PATH, self.read, summary, response=TABLE.described_schema("ClientLoads")),)

    async def read(self, call: Call) -> JsonResponse:
        """``GET /v1/loads/clients``."""
        return JsonResponse(await self._table())

    def all(self, call: Call) -> Awaitable[Load[dict[str, ClientLoad]]]:
        """Return the clients of all brokers by ID; see ``SharedLoads.current``."""
        return self._all.current(call)

    async def _table(self) -> Table:
        return await TABLE.document(self._reactor, self._now_ms(), await self._local.current())

    async def _merge(self, tables: list[Rows]) -> dict[str, ClientLoad]:
        """Return the clients; if a client has moved to another broker, the row with its last request."""
        time_slice = TimeSlice(self._reactor)
        merged: dict[str, ClientLoad] = {}
        for rows in tables:
            for row in rows:
                client = ClientLoad(*row)
                previous = merged.get(client.client_instance_id)
                if previous is None or previous.last_request_at_ms < client.last_request_at_ms:
                    merged[client.client_instance_id] = client
                if time_slice.is_over:
                    await time_slice.next()
        return merged
