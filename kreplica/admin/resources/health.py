"""``/health/live`` and ``/health/ready``: health checks for supervisors and load balancers.

``/v1/health``: the faults of the cluster, for operators.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kreplica.admin.health.cluster_health import LOCAL_PATH, ClusterHealth
from kreplica.admin.health.schemas import HEALTH, LOCAL
from kreplica.admin.http.api import Call, JsonResponse, Route
from kreplica.admin.http.schemas import STRING, listing, record

LIVE = "/health/live"
READY = "/health/ready"
CLUSTER = "/v1/health"


class Readiness(Protocol):
    """The readiness of a broker."""

    def not_ready(self) -> list[str]:
        """Return the reasons why clients cannot be served yet, as sentences; empty if they can be."""


class Health:
    """Liveness: the process responds. Readiness: clients are served; otherwise the status is 503, with reasons."""

    def __init__(self, readiness: Readiness, cluster: ClusterHealth) -> None:
        self._readiness = readiness
        self._cluster = cluster

    def routes(self) -> Sequence[Route]:
        """Return all routes."""
        ready = record({"status": STRING, "reasons": listing(STRING)}, optional=("reasons",))
        return (
            Route("GET", LIVE, self.live, "Liveness of the process.", response=record({"status": STRING})),
            Route(
                "GET",
                READY,
                self.ready,
                "Readiness to serve clients.",
                response=ready,
                other_responses={503: ("Clients are not served yet; `reasons` says why.", ready)},
            ),
            Route("GET", CLUSTER, self.cluster, "The faults of the cluster and its brokers.", response=HEALTH),
            Route("GET", LOCAL_PATH, self.broker, "The faults of this broker.", response=LOCAL),
        )

    async def live(self, call: Call) -> JsonResponse:
        """``GET /health/live``."""
        return JsonResponse({"status": "live"})

    async def ready(self, call: Call) -> JsonResponse:
        """``GET /health/ready``."""
        reasons = self._readiness.not_ready()
        if reasons:
            return JsonResponse({"status": "not ready", "reasons": reasons}, status=503)
        return JsonResponse({"status": "ready"})

    async def cluster(self, call: Call) -> JsonResponse:
        """``GET /v1/health``."""
        return JsonResponse((await self._cluster.current(call)).document())

    async def broker(self, call: Call) -> JsonResponse:
        """``GET /v1/health/broker``."""
        return JsonResponse(await self._cluster.local_document())
