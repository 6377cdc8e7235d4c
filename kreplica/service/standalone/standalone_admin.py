"""The admin port of a process with several brokers, which stays open even if all brokers are dead.

Requests for the process itself are handled here; all others go to the first running broker.
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Sequence
from typing import Any

from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request

from kreplica.admin.http.access import Access
from kreplica.admin.http.api import Call, Route
from kreplica.admin.http.callers import Caller
from kreplica.admin.http.problems import Problem
from kreplica.admin.http.root import Guard, Root
from kreplica.admin.http.routing import write_problem
from kreplica.admin.resources.dashboard import Dashboard
from kreplica.admin.resources.standalone import PREFIX, StandaloneResource
from kreplica.runtime import Runtime
from kreplica.service.standalone.hosted_brokers import HostedBrokers

DASHBOARD = b"/dashboard/"


class ProcessGuard:
    """Authenticates and authorizes callers with the first running broker, which has their sessions and permissions.

    :param own: used while no broker is running.
    """

    def __init__(self, brokers: HostedBrokers, own: Guard) -> None:
        self._brokers = brokers
        self._own = own

    @property
    def schemes(self) -> Sequence[str]:
        return self._own.schemes

    @property
    def public(self) -> Collection[str]:
        return self._own.public

    def authenticate(self, request: Request) -> Caller | Awaitable[Caller]:
        return self._current().authenticate(request)

    def authorize(self, route: Route, call: Call) -> None:
        self._current().authorize(route, call)

    def _current(self) -> Guard:
        running = (broker.admin for broker in self._brokers.running().values() if broker.admin is not None)
        first: Any = next(running, None)
        return self._own if first is None else first.root.guard


class ProcessRoot(Resource):
    """Dispatches every request to the process's admin port.

    :param access: the same access rules as those of each broker.
    :param guard: authenticates callers while no broker is running.
    """

    isLeaf = True

    def __init__(self, runtime: Runtime, brokers: HostedBrokers, access: Access, guard: Guard) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._brokers = brokers
        self._access = access
        self._guard = guard
        own = (StandaloneResource(brokers), Dashboard(runtime.offload))
        self._own = Root(runtime, own, access, ProcessGuard(brokers, guard))
        self._forwarded: dict[Request, int] = {}
        brokers.on_change(self._broker_changed)

    def render(self, request: Request) -> int:
        """Dispatch one request."""
        path = request.path
        if path == PREFIX.encode() or path.startswith(PREFIX.encode() + b"/"):
            return self._own.render(request)
        for broker_id, broker in self._brokers.running().items():
            if broker.admin is not None:
                self._forward(request, broker_id, broker.admin.root)
                return NOT_DONE_YET
        if path == b"/" or path.startswith(DASHBOARD):
            return self._own.render(request)
        self._write_no_broker_problem(request)
        return NOT_DONE_YET

    def stop(self) -> None:
        """Close open streams."""
        self._own.stop()

    # --- forwarded requests ------------------------------------------------------------------------------------------

    def _forward(self, request: Request, broker_id: int, root: Any) -> None:
        self._forwarded[request] = broker_id
        request.notifyFinish().addBoth(lambda _: self._forwarded.pop(request, None) and None)
        # Run as an event of the broker's host, so that its log lines contain the host's name.
        self._brokers.machines[broker_id].call(self._render, root, request)

    def _render(self, root: Any, request: Request) -> None:
        if request in self._forwarded:  # the client has not disconnected in the meantime
            root.render(request)

    def _broker_changed(self, broker_id: int) -> None:
        """Abort pending requests to a broker that can no longer respond, so that clients can retry."""
        if broker_id in self._brokers.running() and not self._brokers.is_isolated(broker_id):
            return
        for request, receiver in list(self._forwarded.items()):
            if receiver == broker_id:
                channel: Any = request.channel
                channel.forceAbortClient()

    def _write_no_broker_problem(self, request: Request) -> None:
        try:
            self._access.check(request)
            self._guard.authenticate(request)
        except Problem as problem:
            write_problem(request, problem)
        else:
            write_problem(request, _no_broker_problem())
        request.finish()


def _no_broker_problem() -> Problem:
    return Problem(
        503,
        "BROKER_NOT_AVAILABLE",
        "no broker of this process is running",
        what_to_do=f"Start one: POST {PREFIX}/brokers/1/start",
    )
