"""``/v1/controller``: the elected controller, the ZooKeeper watches that it and the brokers hold, and its resignation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from kreplica.admin.cluster_state.topic_znodes import read_if_connected
from kreplica.admin.cluster_state.znode_writes import ZnodeWrites, write
from kreplica.admin.http.api import Call, JsonResponse, Route
from kreplica.admin.http.problems import Problem
from kreplica.admin.http.schemas import BOOLEAN, BROKER_ID, COUNT, STRING, TIME_MS, listing, nullable, record, written
from kreplica.admin.peers.forwarding import OtherBrokers
from kreplica.admin.peers.registrations import Registrations
from kreplica.admin.peers.responses import PeerResponseValidator
from kreplica.cluster import documents, znodes
from kreplica.runtime import Reactor
from kreplica.runtime.pause import pause
from kreplica.zookeeper import Check, Operation, SetData, Stat, ZooKeeperClient, read_all

PATH = "/v1/controller"

_NULL = "Null if the broker did not respond."

ROW = record(
    {
        "broker_id": BROKER_ID,
        "is_controller": {**nullable(BOOLEAN), "description": f"True if it acts as the controller. {_NULL}"},
        "zookeeper_watches": {**nullable(COUNT), "description": f"ZooKeeper watches of its session. {_NULL}"},
        "controller_watches": {
            **nullable(COUNT),
            "description": f"Number of these watches that it holds as the controller. {_NULL}",
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

RESIGN_TIMEOUT_S = 10.0
POLL_SECONDS = 0.1

_TERM = {"broker_id": BROKER_ID, "epoch": COUNT}

RESIGNED = written(
    {
        **_TERM,
        "previous": {**record(_TERM), "description": "The controller that resigned; in a dry run, the current one."},
    },
    title="ControllerResigned",
)


class LocalController(Protocol):
    """The controller of this broker, which may be inactive."""

    @property
    def active(self) -> bool: ...

    @property
    def watches_count(self) -> int: ...


class ControllerResource:
    """Reads the elected controller from ZooKeeper, counts watches on all brokers, and makes the controller resign."""

    def __init__(
        self,
        reactor: Reactor,
        broker_id: int,
        client: ZooKeeperClient,
        controller: LocalController,
        registrations: Registrations,
        others: OtherBrokers,
    ) -> None:
        self._reactor = reactor
        self._broker_id = broker_id
        self._client = client
        self._controller = controller
        self._registrations = registrations
        self._others = others

    def routes(self) -> Sequence[Route]:
        """Return the routes that describe the controller and make it resign."""
        return (
            Route("GET", PATH, self.read, "The controller, and the ZooKeeper watches of brokers.", response=RESPONSE),
            Route(
                "POST",
                f"{PATH}/resign",
                self.resign,
                "Make the controller resign, so that another broker is elected.",
                response=RESIGNED,
                znodes=(znodes.CONTROLLER,),
                problems={
                    409: "No controller is elected, it was already asked to resign, or it changed concurrently.",
                    504: "No new controller was elected in time.",
                },
            ),
        )

    async def read(self, call: Call) -> JsonResponse:
        """``GET /v1/controller``."""

        async def read_local() -> dict[str, Any]:
            return {"brokers": [self._row()]}

        responses = await self._others.request_all(call, PATH, PEER_RESPONSE, read_local)
        rows = {row["broker_id"]: row for document in responses.documents.values() for row in document["brokers"]}
        if not call.forwarded:
            for broker_id in await self._registrations.live():
                unknown = dict.fromkeys(("is_controller", "zookeeper_watches", "controller_watches"))
                rows.setdefault(broker_id, {"broker_id": broker_id, **unknown})
        brokers = [row for _, row in sorted(rows.items())]
        elected = await self._elected_controller()
        return JsonResponse({**elected, "brokers": brokers, "problems": list(responses.problems)})

    def _row(self) -> dict[str, Any]:
        return {
            "broker_id": self._broker_id,
            "is_controller": self._controller.active,
            "zookeeper_watches": self._client.watches_count,
            "controller_watches": self._controller.watches_count,
        }

    async def _elected_controller(self) -> dict[str, Any]:
        reactor, client = self._reactor, self._client
        found = await read_if_connected(reactor, client, lambda: client.get_data(znodes.CONTROLLER))
        epoch = await read_if_connected(reactor, client, lambda: client.get_data(znodes.CONTROLLER_EPOCH))
        return {
            "broker_id": None if found is None else documents.decode_controller(found[0]),
            "epoch": None if epoch is None else documents.decode_controller_epoch(epoch[0]),
            "elected_at_ms": None if found is None else found[1].ctime_ms,
        }

    # --- resignation -------------------------------------------------------------------------------------------------

    async def resign(self, call: Call) -> JsonResponse:
        """``POST /v1/controller/resign``."""
        found = await self._read_term()
        if found is None:
            raise Problem(
                409, "CONFLICT", "no controller is elected; nothing was written", what_to_do="Retry in a moment."
            )
        (data, stat), (epoch_data, epoch_stat) = found
        previous = _term(data, epoch_data)
        if documents.has_resignation(data):
            raise Problem(
                409,
                "CONFLICT",
                f"broker {previous['broker_id']} was already asked to resign and has not done so yet",
                what_to_do="Wait for a new epoch in GET /v1/controller.",
            )
        operations: list[Operation] = [
            Check(znodes.CONTROLLER_EPOCH, epoch_stat.version),
            SetData(znodes.CONTROLLER, documents.with_resignation(data), stat.version),
        ]
        znode_rows = await write(self._client, ZnodeWrites(operations), dry_run=call.dry_run)
        elected = previous if call.dry_run else await self._wait_for_successor(previous)
        return JsonResponse({**elected, "previous": previous, "dry_run": call.dry_run, "znodes": znode_rows})

    async def _read_term(self) -> tuple[tuple[bytes, Stat], tuple[bytes, Stat]] | None:
        """Read ``/controller`` and ``/controller_epoch`` in one state of the tree; None without a controller."""
        results = await read_all(self._client, [znodes.CONTROLLER, znodes.CONTROLLER_EPOCH])
        controller, epoch = results
        return (controller, epoch) if isinstance(controller, tuple) and isinstance(epoch, tuple) else None

    async def _wait_for_successor(self, previous: Mapping[str, Any]) -> dict[str, Any]:
        """Return the next elected controller, which may be the same broker.

        :raise Problem: 504 after ``RESIGN_TIMEOUT_S``.
        """
        end_s = self._reactor.seconds() + RESIGN_TIMEOUT_S
        while self._reactor.seconds() < end_s:
            await pause(self._reactor, POLL_SECONDS)
            found = await self._read_term()
            if found is not None:
                elected = _term(found[0][0], found[1][0])
                if elected["epoch"] > previous["epoch"]:
                    return elected
        raise Problem(
            504,
            "REQUEST_TIMED_OUT",
            f"broker {previous['broker_id']} was asked to resign; no controller was elected in {RESIGN_TIMEOUT_S:g} s",
            what_to_do="GET /v1/controller shows whether a controller with a higher epoch is elected.",
        )


def _term(controller: bytes, epoch: bytes) -> dict[str, Any]:
    return {
        "broker_id": documents.decode_controller(controller),
        "epoch": documents.decode_controller_epoch(epoch),
    }
