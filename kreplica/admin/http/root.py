"""Dispatches every request of the admin API: checks access, authenticates the caller, then calls the route."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Collection, Sequence
from typing import Protocol

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.resource import IResource, Resource
from twisted.web.server import NOT_DONE_YET, Request

from kreplica.admin.http.access import Access
from kreplica.admin.http.api import Call, Route
from kreplica.admin.http.api import Resource as AdminResource
from kreplica.admin.http.callers import Caller
from kreplica.admin.http.openapi import OpenApi
from kreplica.admin.http.problems import Problem
from kreplica.admin.http.routing import Router, write_problem
from kreplica.runtime import Runtime

log = Logger()

_METHOD = re.compile(rb"[A-Z]{1,20}")


class Guard(Protocol):
    """Authenticates and authorizes callers (``kreplica.admin.security.guard``)."""

    @property
    def schemes(self) -> Sequence[str]:
        """Names of the OpenAPI security schemes for callers; empty without authentication."""

    @property
    def public(self) -> Collection[str]:
        """Names of the routes that need no authentication."""

    def authenticate(self, request: Request) -> Caller | Awaitable[Caller]:
        """Return the caller of a request.

        :raise Problem: 401, 403, 429 or 503; an awaitable may raise it as well.
        """

    def authorize(self, route: Route, call: Call) -> None:
        """Check that the caller may use the route.

        :raise Problem: 403.
        """


class Root(Resource):
    """All resources of one admin API and their OpenAPI document.

    :ivar guard: the authentication and authorization of callers.
    """

    isLeaf = True

    def __init__(self, runtime: Runtime, resources: Sequence[AdminResource], access: Access, guard: Guard) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._access = access
        self.guard = guard
        routes = [route for resource in resources for route in resource.routes()]
        openapi = OpenApi(routes, schemes=guard.schemes, public=guard.public)
        self._router = Router(runtime, [*routes, *openapi.routes()], guard.authorize)
        self._routes: IResource = self._router.app.resource()

    def render(self, request: Request) -> int:
        """Handle one request."""
        try:
            self._access.check(request)
            _check_syntax(request)
            caller = self.guard.authenticate(request)
        except Problem as problem:
            _reject(request, problem)
            return NOT_DONE_YET
        if isinstance(caller, Caller):
            self._serve(request, caller)
        else:
            # Continues after a disconnect, so that failures are counted and limits hold.
            authenticating = Deferred.fromCoroutine(self._serve_later(request, caller))
            authenticating.addErrback(_log_failure, request)
        return NOT_DONE_YET

    def _serve(self, request: Request, caller: Caller) -> None:
        request.caller = caller  # type: ignore[attr-defined]
        self._routes.render(request)

    async def _serve_later(self, request: Request, authenticated: Awaitable[Caller]) -> None:
        try:
            caller = await authenticated
        except Problem as problem:
            _reject(request, problem)
        else:
            if request.channel is not None:  # the client is still connected
                self._serve(request, caller)

    def stop(self) -> None:
        """Close open streams."""
        self._router.stop()


def _reject(request: Request, problem: Problem) -> None:
    if request.channel is not None:
        write_problem(request, problem)
        request.finish()


def _log_failure(failure: Failure, request: Request) -> None:
    log.failure("authenticating a caller failed", failure)
    _reject(request, Problem(500, "UNKNOWN_SERVER_ERROR", "an unexpected error; see the broker's log"))


def _check_syntax(request: Request) -> None:
    """Reject malformed methods, and paths that are not UTF-8, which Klein cannot handle."""
    if _METHOD.fullmatch(request.method) is None:
        raise Problem(400, "INVALID_REQUEST", "the method is not a valid HTTP method")
    try:
        b"/".join(request.postpath or ()).decode()
    except UnicodeDecodeError:
        raise Problem(400, "INVALID_REQUEST", "the path is not UTF-8") from None
