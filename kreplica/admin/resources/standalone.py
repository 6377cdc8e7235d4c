"""``/v1/standalone``: kills, pauses and isolates brokers of a standalone process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from kreplica.admin.http.api import Call, JsonResponse, Route
from kreplica.admin.http.problems import Problem
from kreplica.admin.http.schemas import BOOLEAN, BROKER_ID, IN_BROKER, listing, one_of, record, written

PREFIX = "/v1/standalone"

RUNNING, PAUSED, ISOLATED, DEAD = "running", "paused", "cut", "dead"

ACTIONS = {
    "kill": "Kill a broker like kill -9: nothing is flushed, and its ZooKeeper session expires.",
    "start": "Start a dead broker from its directory; the response is sent when it is ready.",
    "pause": "Pause a broker, as SIGSTOP does.",
    "resume": "Resume a paused broker.",
    "cut": "Isolate a broker from the other brokers, ZooKeeper and clients.",
    "mend": "End the isolation of a broker; delayed data is delivered.",
}
_NEEDS_LIVE_BROKER = ("pause", "cut")


@dataclass(frozen=True, slots=True)
class BrokerState:
    """The state of a broker.

    :param state: ``RUNNING``, ``PAUSED``, ``ISOLATED`` (but running) or ``DEAD``.
    :param starting: True while a dead broker starts.
    """

    state: str
    starting: bool = False


class StandaloneBrokers(Protocol):
    """The brokers of a standalone process, which can be killed and isolated individually."""

    def states(self) -> Mapping[int, BrokerState]:
        """Return the state of each broker by ID."""

    async def do(self, action: str, broker_id: int) -> None:
        """Apply one of ``ACTIONS`` to a broker; idempotent.

        :raise KreplicaError: the broker cannot start; the message gives the reason.
        """


class StandaloneResource:
    """Resource that lists and controls the brokers of a standalone process.

    :param brokers: None if the process is not a standalone process with several brokers.
    """

    def __init__(self, brokers: StandaloneBrokers | None) -> None:
        self._brokers = brokers

    def routes(self) -> Sequence[Route]:
        """Return the routes that list the brokers and apply each action."""
        reason = "This process is not a standalone process with several brokers."
        list_route = Route(
            "GET",
            PREFIX,
            self.states,
            "The brokers of this process and their states.",
            response=record({"brokers": listing(STATE)}),
            problems={404: reason},
        )
        action_routes = [
            Route(
                "POST",
                f"{PREFIX}/brokers/{{broker_id}}/{action}",
                partial(self.act, action),
                summary,
                response=written({"brokers": listing(STATE)}),
                query=(IN_BROKER,),
                problems={404: f"{reason} Or it has no broker with this ID.", 409: "The broker is dead or starting."},
            )
            for action, summary in ACTIONS.items()
        ]
        return (list_route, *action_routes)

    async def states(self, call: Call) -> JsonResponse:
        """``GET /v1/standalone``."""
        return JsonResponse({"brokers": _rows(self._available())})

    async def act(self, action: str, call: Call) -> JsonResponse:
        """``POST /v1/standalone/brokers/{broker_id}/{action}``."""
        brokers = self._available()
        broker_id = int(call.path["broker_id"])
        states = brokers.states()
        if broker_id not in states:
            ids = ", ".join(map(str, states))
            raise Problem(
                404, "BROKER_ID_NOT_REGISTERED", f"this process has no broker {broker_id}; its brokers are {ids}"
            )
        if states[broker_id].state == DEAD and action in _NEEDS_LIVE_BROKER:
            raise Problem(
                409, "BROKER_NOT_AVAILABLE", f"broker {broker_id} is dead", what_to_do="Start the broker and retry."
            )
        if not call.dry_run:
            await brokers.do(action, broker_id)
        return JsonResponse({"brokers": _rows(brokers), "dry_run": call.dry_run, "znodes": []})

    def _available(self) -> StandaloneBrokers:
        if self._brokers is None:
            raise Problem(
                404,
                "NOT_FOUND",
                "this process is not a standalone process with several brokers",
                what_to_do="Start one: twistd -n kreplica standalone --brokers 3",
            )
        return self._brokers


STATE = record(
    {
        "broker_id": BROKER_ID,
        "state": one_of(RUNNING, PAUSED, ISOLATED, DEAD),
        "starting": {**BOOLEAN, "description": "True while a dead broker starts."},
    },
    title="StandaloneBroker",
)


def _rows(brokers: StandaloneBrokers) -> list[dict[str, Any]]:
    return [
        {"broker_id": broker_id, "state": broker.state, "starting": broker.starting}
        for broker_id, broker in brokers.states().items()
    ]
