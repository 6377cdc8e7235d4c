"""``/health/live`` and ``/health/ready``: for whatever restarts a process or sends it traffic."""

from __future__ import annotations

import json
from typing import Any, Protocol

from klein import Klein
from twisted.web.http import OK, SERVICE_UNAVAILABLE
from twisted.web.iweb import IRequest


class Readiness(Protocol):
    """What a broker says of itself."""

    def not_ready(self) -> list[str]:
        """Each reason why clients cannot be served yet, as a sentence; none where they can."""


class HealthApp:
    """Live: the process answers.  Ready: clients are served; 503 says why they are not."""

    app = Klein()

    def __init__(self, readiness: Readiness) -> None:
        self._readiness = readiness

    @app.route("/live", methods=["GET", "HEAD"])
    def live(self, request: IRequest) -> bytes:
        return _json(request, OK, {"status": "live"})

    @app.route("/ready", methods=["GET", "HEAD"])
    def ready(self, request: IRequest) -> bytes:
        reasons = self._readiness.not_ready()
        if reasons:
            return _json(request, SERVICE_UNAVAILABLE, {"status": "not ready", "reasons": reasons})
        return _json(request, OK, {"status": "ready"})


def _json(request: IRequest, code: int, body: dict[str, Any]) -> bytes:
    request.setResponseCode(code)
    request.setHeader(b"content-type", b"application/json")
    request.setHeader(b"cache-control", b"no-store")
    return json.dumps(body).encode() + b"\n"
