"""Calls to admin resources without HTTP; parameters and responses are checked against their schemas."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from jsonschema import Draft202012Validator
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from kreplica.admin.http.api import Call, JsonResponse, Resource, Route
from kreplica.admin.http.json_stream import dumped
from kreplica.admin.http.problems import Problem
from kreplica.admin.peers.forwarding import PeerResponses
from kreplica.admin.peers.registrations import RegistrationReader
from kreplica.admin.peers.responses import PeerResponseValidator
from kreplica.runtime.stalls import INTERVAL_S, StallWatch
from kreplica.service.admin.access_resources import quota_resource
from kreplica.service.admin.admin_site import resources
from kreplica.service.admin.data_resources import data_resources
from kreplica.service.admin.load_resources import ClusterLoad, cluster_load
from kreplica.service.admin.operations_resources import operations_resources
from kreplica.service.metrics.health_watch import HealthWatch
from kreplica.service.metrics.local_health import LocalHealth
from kreplica.testing.cluster.cluster import SimulatedCluster

Run = Callable[[Deferred[Any]], Any]


class PeerAdminApis:
    """The admin APIs of other brokers, with the interface of ``Forwarding`` but without HTTP."""

    def __init__(self, broker_id: int, cluster: DirectCluster) -> None:
        self._broker_id = broker_id
        self._cluster = cluster

    async def request(
        self, broker_id: int, call: Call, path: str, validator: PeerResponseValidator, *, query: Any = None, **more: Any
    ) -> Any:
        if call.forwarded:
            raise Problem(421, "misdirected", "it was forwarded already")
        other = self._cluster.running(broker_id)
        if other is None:
            raise Problem(502, "no response", f"cannot send a request to broker {broker_id}")
        if not self._cluster.reaches(self._broker_id, broker_id):
            raise Problem(504, "no response in time", f"broker {broker_id} did not respond within 5 s")
        given = {name: value for name, value in (query or {}).items() if value is not None}
        document = (await other.answer_async("GET", unquote(path), forwarded=True, **given)).document
        return validator.read(broker_id, 200, dumped(document))

    async def request_all(
        self, call: Call, path: str, validator: PeerResponseValidator, here: Any, *, query: Any = None, each: Any = None
    ) -> PeerResponses:
        documents, problems = {self._broker_id: await here()}, []
        for broker_id in () if call.forwarded else self._cluster.known - {self._broker_id}:
            try:
                own = {**(query or {}), **(each or {}).get(broker_id, {})}
                documents[broker_id] = await self.request(broker_id, call, path, validator, query=own)
            except Problem as problem:
                problems.append(f"broker {broker_id}: {problem.detail}")
        return PeerResponses(dict(sorted(documents.items())), problems)


class DirectCluster:
    """The admin API of each broker of a simulated cluster, by broker ID.

    :ivar known: brokers that are registered or were recently.
    :ivar loads: the load of each broker whose API was used; its sampler is not started.
    :ivar watches: per broker, a watch that records faults on the timeline when a test calls ``check``.
    """

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._apis: dict[int, tuple[Any, Direct]] = {}
        self._stalls: dict[int, tuple[StallWatch, Clock]] = {}
        self.loads: dict[int, ClusterLoad] = {}
        self._health: dict[int, LocalHealth] = {}
        self.watches: dict[int, HealthWatch] = {}
        self.known = set(cluster.brokers)

    def running(self, broker_id: int) -> Direct | None:
        """Return the broker's admin API, or None if the broker is not running."""
        machine = self._cluster.brokers[broker_id]
        return self[broker_id] if machine.running else None

    def __getitem__(self, broker_id: int) -> Direct:
        broker = self._cluster.brokers[broker_id].program
        made = self._apis.get(broker_id)
        if made is None or made[0] is not broker:
            registrations = RegistrationReader(broker.runtime.reactor, broker.client)
            clock = Clock()
            stalls = StallWatch(clock)
            stalls.start()
            self._stalls[broker_id] = stalls, clock
            others = PeerAdminApis(broker_id, self)
            health = self._health[broker_id] = LocalHealth(broker, stalls)
            self.watches[broker_id] = HealthWatch(broker.runtime.reactor, health, broker.controller.history)
            load = self.loads[broker_id] = cluster_load(broker, stalls, health, registrations, others)
            parts = (
                *resources(broker, health, registrations, others, load),
                *data_resources(broker, others, load.groups),
                *operations_resources(broker, health, registrations, others),
                quota_resource(broker, others),
            )
            made = self._apis[broker_id] = broker, Direct(parts, self._cluster.run_until)
        return made[1]

    def reaches(self, source: int, destination: int) -> bool:
        """Return True if a broker can exchange requests with another one."""
        network, ends = self._cluster.simulation.network, (f"broker-{source}", f"broker-{destination}")
        is_cut = network.is_cut(*ends) or network.is_cut(*reversed(ends))
        return not is_cut and not self._cluster.brokers[destination].host.is_paused

    def stalls_of(self, broker_id: int) -> StallWatch:
        return self._stalls[broker_id][0]

    def health_of(self, broker_id: int) -> LocalHealth:
        return self._health[broker_id]

    def stall(self, broker_id: int, cause: str, seconds: float) -> None:
        """Report a stall to a broker's stall watch, which has its own clock."""
        assert self[broker_id]
        stalls, clock = self._stalls[broker_id]
        stalls.note(cause, seconds)
        clock.advance(INTERVAL_S + seconds)

    def pass_time(self, broker_id: int, seconds: float) -> None:
        """Advance the clock of a broker's stall watch without a stall."""
        for _ in range(round(seconds / INTERVAL_S)):
            self._stalls[broker_id][1].advance(INTERVAL_S)


class Direct:
    """The admin API of one broker, called without HTTP.

    :param run: advances time until a Deferred fires, and returns its result.
    """

    def __init__(self, resources: Sequence[Resource], run: Run) -> None:
        self._routes = [route for resource in resources for route in resource.routes()]
        self._run = run

    def answer(self, method: str, path: str, body: Any = None, **more: Any) -> JsonResponse:
        """Call a route and wait for its response.

        :param more: query parameters, and attributes of ``Call``.
        """
        return self._run(Deferred.fromCoroutine(self.answer_async(method, path, body, **more)))

    def document(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        """Return the document of the response."""
        return self.answer(method, path, body, **more).document

    async def answer_async(self, method: str, path: str, body: Any = None, **more: Any) -> JsonResponse:
        """Call a route and return its response, as ``answer`` does without a coroutine."""
        route, in_path = self._find_route(method, path)
        reply = await route.handler(_call(route, in_path, body, more))
        assert isinstance(reply, JsonResponse)
        if route.response is not None:
            Draft202012Validator(route.response).validate(reply.document)
        return reply

    def handler(self, method: str, path: str) -> tuple[Callable[[Call], Any], Call]:
        """Return a route's handler and the call to pass to it, for responses that are not documents."""
        route, in_path = self._find_route(method, path)
        return route.handler, _call(route, in_path, None, {})

    def _find_route(self, method: str, path: str) -> tuple[Route, Mapping[str, str]]:
        for route in self._routes:
            pattern = re.sub(r"\{(\w+):path\}", r"(?P<\1>.+)", route.path)
            pattern = re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", pattern)
            found = re.fullmatch(pattern, path)
            if found is not None and route.method == method:
                return route, found.groupdict()
        raise AssertionError(f"there is no route {method} {path}")


def _call(route: Route, in_path: Mapping[str, str], body: Any, more: dict[str, Any]) -> Call:
    members = ("dry_run", "if_match", "authorization", "forwarded", "last_event_id")
    query = {parameter.name: more.pop(parameter.name, parameter.default) for parameter in route.query}
    if route.body is not None:
        body = {} if body is None else body
        Draft202012Validator(route.body).validate(body)
    assert not set(more) - set(members), more
    return Call(path=in_path, query=query, body=body, **more)
