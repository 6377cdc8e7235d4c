"""Where every path of the admin API leads, and what is answered to those that lead nowhere."""

from __future__ import annotations

import json

from klein import Klein
from klein.resource import KleinResource
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from twisted.web.http import INTERNAL_SERVER_ERROR
from twisted.web.iweb import IRequest
from werkzeug.exceptions import HTTPException

from kreplica.admin.groups import GroupsApp
from kreplica.admin.health import HealthApp
from kreplica.admin.metrics import MetricsApp


class Root:
    """All resources of one broker's admin API."""

    app = Klein()

    def __init__(self, health: HealthApp, metrics: MetricsApp, groups: GroupsApp) -> None:
        self._groups = groups
        self._health = health
        self._metrics = metrics

    @app.route("/health/", branch=True)
    def health(self, request: IRequest) -> KleinResource:
        return self._health.app.resource()

    @app.route("/v1/groups", methods=["GET", "HEAD"])
    def groups(self, request: IRequest) -> Deferred[bytes]:
        return self._groups.listed(request)

    @app.route("/v1/groups/<path:group_id>/lag", methods=["GET", "HEAD"])
    def lag(self, request: IRequest, group_id: str) -> Deferred[bytes]:
        return self._groups.lag(request, group_id)

    @app.route("/metrics", methods=["GET", "HEAD"])
    def metrics(self, request: IRequest) -> Deferred[bytes]:
        return self._metrics.answer(request)

    @app.handle_errors(HTTPException)
    def nothing_there(self, request: IRequest, failure: Failure) -> bytes:
        """A path that leads nowhere, or a method that it does not take (RFC 9457)."""
        error = failure.value
        assert isinstance(error, HTTPException)
        request.setResponseCode(error.code or INTERNAL_SERVER_ERROR)
        request.setHeader(b"content-type", b"application/problem+json")
        problem = {"title": error.name, "status": error.code, "instance": request.uri.decode(errors="replace")}
        return json.dumps(problem).encode() + b"\n"
