"""``/v1/clients``: clients with telemetry (KIP-714), and the metrics that they push."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kreplica.admin.http.api import AFTER, LIMIT, Call, JsonResponse, Parameter, Route
from kreplica.admin.http.problems import Problem
from kreplica.admin.http.schemas import BOOLEAN, BROKER_ID, COUNT, STRING, TIME_MS, listing, nullable, one_of, record
from kreplica.admin.lists.columns import Column, Columns
from kreplica.admin.lists.pages import read_page
from kreplica.admin.load.client_loads import STATES, ClientLoad, ClientLoads, LocalClients
from kreplica.admin.peers.forwarding import OtherBrokers
from kreplica.admin.peers.responses import PeerResponseValidator
from kreplica.runtime import Reactor

PATH = "/v1/clients"
ONE = "/v1/clients/{client_instance_id}"

MEMBERS = {
    "client_instance_id": {**STRING, "description": "The client's ID as shown by Kafka's tools."},
    "broker_id": {**BROKER_ID, "description": "The broker that received its last request."},
    "client_id": STRING,
    "software_name": {**STRING, "description": "Client library (KIP-511), or `unknown`."},
    "software_version": STRING,
    "address": {**STRING, "description": "Address and port of its last request."},
    "user": {**STRING, "description": "Authenticated user, such as `User:alice`."},
    "state": {
        **one_of(*STATES),
        "description": "UNSUBSCRIBED: no subscription applies. TERMINATED: it has pushed its last metrics.",
    },
    "subscriptions": {**listing(STRING), "description": "Subscriptions that apply."},
    "push_interval_ms": {**COUNT, "description": "Interval between two pushes."},
    "last_request_at_ms": TIME_MS,
    "pushed_at_ms": {**nullable(TIME_MS), "description": "Time of its last push with metrics; null if unknown."},
    "pushes": {**COUNT, "description": "Number of pushes with metrics to this broker."},
    "metrics": {**COUNT, "description": "Number of metrics in its last push."},
    "bytes": {**COUNT, "description": "Compressed size of its last push."},
}
COLUMNS = Columns(
    "client_instance_id", [Column(name, schema, is_default=True) for name, schema in MEMBERS.items()]
)
TEXTS = {"type": "object", "additionalProperties": STRING}
METRIC = record(
    {
        "name": STRING,
        "kind": {**one_of("gauge", "sum"), "description": "`sum`: a total since the client's start."},
        "unit": STRING,
        "attributes": {**TEXTS, "description": "For example, the broker or topic of the value."},
        "value": {"type": ["number", "null"], "description": "Null if the client's value is not a number."},
        "at_ms": {**TIME_MS, "description": "Time of the measurement in milliseconds since 1970; 0 if unknown."},
    },
    title="ClientMetric",
)
METRICS = record(
    {
        "labels": {**TEXTS, "description": "For example, the client's group."},
        "metrics": listing(METRIC),
        "is_complete": {**BOOLEAN, "description": "False if some values are not shown."},
    },
    title="ClientMetrics",
)
PEER_METRICS = PeerResponseValidator(METRICS)
IN_CLIENT = Parameter(
    "client_instance_id", {"type": "string", "pattern": "^[A-Za-z0-9_-]{22}$"}, "The client instance ID."
)


class ClientList:
    """Lists the clients of all brokers, and requests their metrics from the brokers that have them."""

    def __init__(
        self, reactor: Reactor, broker_id: int, loads: ClientLoads, local: LocalClients, others: OtherBrokers
    ) -> None:
        self._reactor = reactor
        self._broker_id = broker_id
        self._loads = loads
        self._local = local
        self._others = others

    def routes(self) -> Sequence[Route]:
        """Return the routes of all clients and of one client."""
        return (
            Route(
                "GET",
                PATH,
                self.list_all,
                "Clients that request metrics subscriptions (KIP-714) from any broker.",
                response=COLUMNS.page_schema("clients", "Client"),
                query=(LIMIT, AFTER, *COLUMNS.parameters()),
            ),
            Route(
                "GET",
                ONE,
                self.metrics,
                "The last metrics of a client.",
                response=METRICS,
                query=(IN_CLIENT,),
                problems={404: "No broker has metrics for the client."},
            ),
        )

    async def list_all(self, call: Call) -> JsonResponse:
        """``GET /v1/clients``."""
        selection = COLUMNS.selection(call)
        load = await self._loads.all(call)
        values = {name: _getter(load.content, name) for name in COLUMNS.names}
        page = await read_page(self._reactor, sorted(load.content), call, selection, values)
        return JsonResponse(
            {"clients": page.rows, "next": page.following, "total": page.total, "problems": list(load.problems)}
        )

    async def metrics(self, call: Call) -> JsonResponse:
        """``GET /v1/clients/{client_instance_id}``."""
        client_instance_id = call.path["client_instance_id"]
        document = await self._local.metrics(client_instance_id)
        if document is None and not call.forwarded:
            client = (await self._loads.all(call)).content.get(client_instance_id)
            if client is not None and client.broker_id != self._broker_id:
                path = ONE.replace("{client_instance_id}", client_instance_id)
                document = await self._others.request(client.broker_id, call, path, PEER_METRICS)
        if document is None:
            raise Problem(
                404,
                "UNKNOWN_CLIENT",
                f"no broker has metrics for the client {client_instance_id}",
                what_to_do="GET /v1/clients lists the clients; PATCH /v1/configs/client-metrics/NAME subscribes to "
                "their metrics.",
            )
        return JsonResponse(document)


def _getter(clients: Mapping[str, ClientLoad], name: str) -> Callable[[str], Any]:
    index = ClientLoad._fields.index(name)
    return lambda client: clients[client][index]
