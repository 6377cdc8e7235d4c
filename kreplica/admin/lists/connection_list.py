"""``/v1/brokers/{broker_id}/connections``: the open connections of a broker, with their clients and load."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from kreplica.admin.http.api import AFTER, LIMIT, Call, JsonResponse, Route
from kreplica.admin.http.problems import Problem
from kreplica.admin.http.schemas import BOOLEAN, COUNT, IN_BROKER, RATE_OR_NULL, STRING, TIME_MS, nullable
from kreplica.admin.lists.columns import Column, Columns
from kreplica.admin.lists.pages import read_page
from kreplica.admin.peers.forwarding import OtherBrokers
from kreplica.admin.peers.registrations import Registrations
from kreplica.admin.peers.responses import PeerResponseValidator
from kreplica.runtime import Reactor

PATH = "/v1/brokers/{broker_id}/connections"

_KERNEL = "Null if the operating system does not count them."
_SINCE = "since the last request for this list, or since the connection was opened"
_RATE_TEXT = f"Bytes per second {_SINCE}. {_KERNEL}"

COLUMNS = Columns(
    "address",
    [
        Column("address", {**STRING, "description": "Address and port of the client."}, is_default=True),
        Column("listener", STRING, is_default=True),
        Column("user", {**STRING, "description": "Authenticated user, such as `User:alice`."}, is_default=True),
        Column(
            "client_id",
            {**nullable(STRING), "description": "`client.id`, as in ApiVersions. Null before that request."},
            is_default=True,
        ),
        Column(
            "software_name",
            {**nullable(STRING), "description": "Client library (KIP-511). Null if the client does not send it."},
            is_default=True,
        ),
        Column("software_version", nullable(STRING), is_default=True),
        Column(
            "client_instance_id",
            {
                **nullable(STRING),
                "description": "ID in `/v1/clients` of a client with telemetry (KIP-714). Null for other clients.",
            },
            is_default=True,
        ),
        Column(
            "is_broker",
            {**BOOLEAN, "description": "True if the client is another broker: a follower or the controller."},
            is_default=True,
        ),
        Column("opened_at_ms", TIME_MS, is_default=True),
        Column("idle_ms", {**COUNT, "description": "Time since the last byte was received or sent."}, is_default=True),
        Column(
            "in_flight",
            {**COUNT, "description": "Requests whose responses have not been sent yet, including waiting fetches."},
            is_default=True,
        ),
        Column("bytes_in", {**nullable(COUNT), "description": f"Bytes received. {_KERNEL}"}, is_default=True),
        Column("bytes_out", {**nullable(COUNT), "description": f"Bytes acknowledged. {_KERNEL}"}, is_default=True),
        Column("bytes_in_rate", {**RATE_OR_NULL, "description": _RATE_TEXT}, is_default=True),
        Column("bytes_out_rate", {**RATE_OR_NULL, "description": _RATE_TEXT}, is_default=True),
    ],
)  # fmt: skip
RESPONSE = COLUMNS.page_schema("connections", "ClientConnection")
PEER_RESPONSE = PeerResponseValidator(RESPONSE)

Row = Mapping[str, Any]


class ConnectionList:
    """Reads the connections of this broker, or requests them from another one.

    :param read: returns the rows of this broker's connections by address.
    """

    def __init__(
        self,
        reactor: Reactor,
        broker_id: int,
        read: Callable[[], Awaitable[Mapping[str, Row]]],
        registrations: Registrations,
        others: OtherBrokers,
    ) -> None:
        self._registrations = registrations
        self._reactor = reactor
        self._broker_id = broker_id
        self._read = read
        self._others = others

    def routes(self) -> Sequence[Route]:
        """Return the route of the list."""
        return (
            Route(
                "GET",
                PATH,
                self.list_all,
                "The connections of a broker: clients, their libraries and load.",
                response=RESPONSE,
                query=(IN_BROKER, LIMIT, AFTER, *COLUMNS.parameters()),
                problems={404: "The broker is not alive.", 503: "The broker has no admin listener."},
            ),
        )

    async def list_all(self, call: Call) -> JsonResponse:
        """``GET /v1/brokers/{broker_id}/connections``."""
        broker_id = int(call.path["broker_id"])
        selection = COLUMNS.selection(call)
        if broker_id != self._broker_id:
            if broker_id not in await self._registrations.live():
                raise Problem(
                    404,
                    "BROKER_ID_NOT_REGISTERED",
                    f"broker {broker_id} is not alive, and only it can list its connections",
                    what_to_do="GET /v1/brokers lists the known brokers.",
                )
            path = PATH.replace("{broker_id}", str(broker_id))
            document = await self._others.request(broker_id, call, path, PEER_RESPONSE, query=call.query)
            return JsonResponse(document)
        rows = await self._read()
        values = {name: _getter(rows, name) for name in COLUMNS.names}
        page = await read_page(self._reactor, sorted(rows), call, selection, values)
        return JsonResponse(
            {"connections": page.rows, "next": page.following, "total": page.total, "problems": []}
        )


def _getter(rows: Mapping[str, Row], name: str) -> Callable[[str], Any]:
    return lambda address: rows[address][name]
