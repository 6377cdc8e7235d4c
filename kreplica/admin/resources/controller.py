"""``/v1/controller``: the elected controller, and the ZooKeeper watches that it and the brokers hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from kreplica.admin.cluster_state.topic_znodes import read_if_connected
from kreplica.admin.http.api import Call, JsonResponse, Route
from kreplica.admin.http.schemas import BOOLEAN, BROKER_ID, COUNT, STRING, TIME_MS, listing, nullable, record
from kreplica.admin.peers.forwarding import OtherBrokers
from kreplica.admin.peers.registrations import Registrations
from kreplica.admin.peers.responses import PeerResponseValidator
from kreplica.cluster import documents, znodes
from kreplica.zookeeper import ZooKeeperClient

PATH = "/v1/controller"

_NULL = "Null if the broker did not respond."

ROW = record(
    {
        "broker_id": BROKER_ID,
        "is_controller": {**nullable(BOOLEAN), "description": f"True if it acts as the controller. {_NULL}"},
        "zookeeper_watches": {**nullable(COUNT), "description": f"ZooKeeper watches of its session. {_NULL}"},
        "controller_watches": {
            **nullable(COUNT),
            "description": f"The part of them that it holds as the controller. {_NULL}",
        },
    },
    title="ControllerCandidate",
)

_NO_CONTROLLER = "Null if no controller is elected or this broker cannot reach ZooKeeper."

RESPONSE = record(
    {
        "broker_id": {**nullable(BROKER_ID), "description": f"ID of the controller. {_NO_CONTROLLER}"},
        "epoch": {**nullable(COUNT), "description": "Controller epoch. Null if this broker cannot reach ZooKeeper."},
        "elected_at_ms": {**nullable(TIME_MS), "description": f"Milliseconds since 1970. {_NO_CONTROLLER}"},
        "brokers": listing(ROW),
        "problems": {**listing(STRING), "description": "A sentence for each broker that did not respond."},
    },
    title="Controller",
)
PEER_RESPONSE = PeerResponseValidator(RESPONSE)


class LocalController(Protocol):
    """The controller of this broker, which may be inactive."""

    @property
    def active(self) -> bool: ...

    @property
    def watches_count(self) -> int: ...


class ControllerResource:
    """Reads the elected controller from ZooKeeper, and the numbers of watches from all brokers."""

    def __init__(
        self,
        broker_id: int,
        client: ZooKeeperClient,
        controller: LocalController,
        registrations: Registrations,
        others: OtherBrokers,
    ) -> None:
        self._broker_id = broker_id
        self._client = client
        self._controller = controller
        self._registrations = registrations
        self._others = others

    def routes(self) -> Sequence[Route]:
        """Return the route that describes the controller."""
        return (
            Route("GET", PATH, self.read, "The controller, and the ZooKeeper watches of brokers.", response=RESPONSE),
        )

    async def read(self, call: Call) -> JsonResponse:
        """``GET /v1/controller``."""

        async def here() -> dict[str, Any]:
            return {"brokers": [self._row()]}

        responses = await self._others.request_all(call, PATH, PEER_RESPONSE, here)
        rows = {row["broker_id"]: row for document in responses.documents.values() for row in document["brokers"]}
        if not call.forwarded:
            for broker_id in await self._registrations.live():
                unknown = dict.fromkeys(("is_controller", "zookeeper_watches", "controller_watches"))
                rows.setdefault(broker_id, {"broker_id": broker_id, **unknown})
        brokers = [row for _, row in sorted(rows.items())]
        elected = await self._elected()
        return JsonResponse({**elected, "brokers": brokers, "problems": list(responses.problems)})

    def _row(self) -> dict[str, Any]:
        return {
            "broker_id": self._broker_id,
            "is_controller": self._controller.active,
            "zookeeper_watches": self._client.watches_count,
            "controller_watches": self._controller.watches_count,
        }

    async def _elected(self) -> dict[str, Any]:
        found = await read_if_connected(self._client, lambda: self._client.get_data(znodes.CONTROLLER))
        epoch = await read_if_connected(self._client, lambda: self._client.get_data(znodes.CONTROLLER_EPOCH))
        return {
            "broker_id": None if found is None else documents.decode_controller(found[0]),
            "epoch": None if epoch is None else documents.decode_controller_epoch(epoch[0]),
            "elected_at_ms": None if found is None else found[1].ctime_ms,
        }
