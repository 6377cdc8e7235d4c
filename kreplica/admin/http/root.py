"""Dispatches every request of the admin API: checks access, then calls the route."""

from __future__ import annotations

import re
from collections.abc import Sequence

from twisted.web.resource import IResource, Resource
from twisted.web.server import NOT_DONE_YET, Request

from kreplica.admin.http.access import Access
from kreplica.admin.http.api import Resource as AdminResource
from kreplica.admin.http.openapi import OpenApi
from kreplica.admin.http.problems import Problem
from kreplica.admin.http.routing import Router, write_problem
from kreplica.runtime import Runtime

_METHOD = re.compile(rb"[A-Z]{1,20}")


class Root(Resource):
    """All resources of one admin API and their OpenAPI document."""

    isLeaf = True

    def __init__(self, runtime: Runtime, resources: Sequence[AdminResource], access: Access) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._access = access
        routes = [route for resource in resources for route in resource.routes()]
        openapi = OpenApi(routes, needs_token=access.token is not None)
        self._router = Router(runtime, [*routes, *openapi.routes()])
        self._routes: IResource = self._router.app.resource()

    def render(self, request: Request) -> int:
        """Handle one request."""
        try:
            self._access.check(request)
            _check_syntax(request)
        except Problem as problem:
            write_problem(request, problem)
            request.finish()
            return NOT_DONE_YET
        self._routes.render(request)
        return NOT_DONE_YET

    def stop(self) -> None:
        """Close open streams."""
        self._router.stop()


def _check_syntax(request: Request) -> None:
    """Reject malformed methods, and paths that are not UTF-8, which Klein cannot handle."""
    if _METHOD.fullmatch(request.method) is None:
        raise Problem(400, "INVALID_REQUEST", "the method is not a valid HTTP method")
    try:
        b"/".join(request.postpath or ()).decode()
    except UnicodeDecodeError:
        raise Problem(400, "INVALID_REQUEST", "the path is not UTF-8") from None
