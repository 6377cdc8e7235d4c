"""``/health/live`` and ``/health/ready``: for whatever restarts a process or sends it traffic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kreplica.admin.http.api import Answer, Call, Route
from kreplica.admin.http.schemas import STRING, listing, record

LIVE = "/health/live"
READY = "/health/ready"


class Readiness(Protocol):
    """What a broker says of itself."""

    def not_ready(self) -> list[str]:
        """Each reason why clients cannot be served yet, as a sentence; none where they can."""


class Health:
    """Live: the process answers.  Ready: clients are served; 503 says why they are not."""

    def __init__(self, readiness: Readiness) -> None:
        self._readiness = readiness

    def routes(self) -> Sequence[Route]:
        """Two, for the two questions that a supervisor asks."""
        ready = record({"status": STRING, "reasons": listing(STRING)}, optional=("reasons",))
        return (
            Route("GET", LIVE, self.live, "Whether the process lives.", answer=record({"status": STRING})),
            Route(
                "GET",
                READY,
                self.ready,
                "Whether clients are served.",
                answer=ready,
                other_answers={503: ("Clients are not served yet; the reasons say why.", ready)},
            ),
        )

    async def live(self, call: Call) -> Answer:
        """``GET /health/live``."""
        return Answer({"status": "live"})

    async def ready(self, call: Call) -> Answer:
        """``GET /health/ready``."""
        reasons = self._readiness.not_ready()
        if reasons:
            return Answer({"status": "not ready", "reasons": reasons}, status=503)
        return Answer({"status": "ready"})
