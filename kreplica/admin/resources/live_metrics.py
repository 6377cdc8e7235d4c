"""``/v1/live-metrics``: live metrics of all brokers.

The dashboard computes rates from two responses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from kreplica.admin.http.api import Call, JsonResponse, Route
from kreplica.admin.http.schemas import BOOLEAN, BROKER_ID, COUNT, STRING, TIME_MS, listing, nullable, record
from kreplica.admin.peers.forwarding import OtherBrokers
from kreplica.admin.peers.registrations import Registrations
from kreplica.admin.peers.responses import PeerResponseValidator

PATH = "/v1/live-metrics"
DEPRECATED_PATH = "/v1/figures"

_NUMBER = {"type": "number", "minimum": 0}
REQUESTS = record(
    {
        "requests": COUNT,
        "time_ms": {**_NUMBER, "description": "Sum of the request durations."},
        "waits": {**COUNT, "description": "Requests that waited for replicas (Produce) or new records (Fetch)."},
        "wait_ms": {**_NUMBER, "description": "The part of `time_ms` of the requests that waited."},
    },
    title="RequestMetrics",
    optional=("waits", "wait_ms"),
)

CERTIFICATE = record(
    {
        "listener": STRING,
        "subject": {**STRING, "description": "Distinguished name of the certificate in the chain that expires first."},
        "expires_at_ms": TIME_MS,
        "days": {"type": "number", "description": "Days until it expires; negative if it has expired."},
    },
    title="CertificateExpiry",
)

METRICS = {
    "bytes_in": (COUNT, "Bytes of produce requests."),
    "bytes_out": (COUNT, "Bytes of fetch responses to consumers and followers."),
    "messages_in": (COUNT, "Records appended to partitions led by this broker, since the first request for metrics."),
    "produce": (REQUESTS, "Produce requests."),
    "fetch": (REQUESTS, "Fetch requests of consumers and followers."),
    "leaders": (COUNT, "Partitions that this broker leads."),
    "replicas": (COUNT, "Replicas on this broker."),
    "under_replicated": (COUNT, "Under-replicated partitions that this broker leads."),
    "under_min_isr": (COUNT, "Partitions led by this broker with too few in-sync replicas for acks=all."),
    "offline": (COUNT, "Replicas in a failed log directory."),
    "isr_shrinks": (COUNT, "Replicas that left an ISR."),
    "isr_expands": (COUNT, "Replicas that joined an ISR."),
    "connections": (COUNT, "Open connections."),
    "is_controller": (BOOLEAN, "True if the broker is the controller."),
    "controller_events": (COUNT, "Number of events that the broker handled as the controller."),
    "controller_queue": (COUNT, "Events waiting for the controller."),
    "reactor_delay_p99_ms": (_NUMBER, "99th percentile of recent reactor timer delays."),
    "certificates": (listing(CERTIFICATE), "The certificate of each listener with TLS."),
    "version": (STRING, "Version of kreplica."),
    "python": (STRING, "Version of Python; `optimized` if it was compiled with profile-guided optimization."),
    "log_bytes": (COUNT, "Size of all logs."),
    "usable_bytes": (COUNT, "Free space of the log directory with the least; null if none is online."),
    "offline_log_dirs": (COUNT, "Failed log directories."),
    "bytes_in_rate": (_NUMBER, "Bytes of produce requests per second, over the last few seconds."),
    "bytes_out_rate": (_NUMBER, "Bytes of fetch responses per second, over the last few seconds."),
    "messages_in_rate": (_NUMBER, "Records appended per second, over the last few seconds."),
    "warnings": (listing(STRING), "A sentence for each certificate that expires soon or has expired."),
}
"""Schema and description of each metric by name."""

ABSENT_FROM_OLDER_BROKERS = (
    "version",
    "python",
    "log_bytes",
    "usable_bytes",
    "offline_log_dirs",
    "bytes_in_rate",
    "bytes_out_rate",
    "messages_in_rate",
)
"""Metrics that an older broker does not send."""

MEMBERS = {name: {**nullable(schema), "description": text} for name, (schema, text) in METRICS.items()}

ROW = record(
    {
        "broker_id": BROKER_ID,
        "live": {**BOOLEAN, "description": "True if the broker responded; otherwise its metrics are null."},
        **MEMBERS,
    },
    title="BrokerMetrics",
    optional=ABSENT_FROM_OLDER_BROKERS,
)


_PROBLEMS = {**listing(STRING), "description": "A sentence for each broker that did not respond."}
RESPONSE = record({"at_ms": TIME_MS, "brokers": listing(ROW), "problems": _PROBLEMS}, title="LiveMetrics")
PEER_RESPONSE = PeerResponseValidator(RESPONSE)


class LocalMetrics(Protocol):
    """The live metrics of this broker."""

    async def live_metrics(self) -> Mapping[str, Any]:
        """Return all of ``METRICS``; yields to the reactor if there are many partitions."""


class LiveMetricsResource:
    """Collects the live metrics of all brokers.

    :param now_ms: the wall clock.
    """

    def __init__(
        self,
        broker_id: int,
        now_ms: Callable[[], int],
        metrics: LocalMetrics,
        registrations: Registrations,
        others: OtherBrokers,
    ) -> None:
        self._broker_id = broker_id
        self._now_ms = now_ms
        self._metrics = metrics
        self._registrations = registrations
        self._others = others

    def routes(self) -> Sequence[Route]:
        """Return the route of the live metrics, also under its deprecated path."""
        summary = "Live metrics of all brokers, for charts."
        return (
            Route("GET", PATH, self.read, summary, response=RESPONSE),
            Route("GET", DEPRECATED_PATH, self.read, "Use `/v1/live-metrics`.", response=RESPONSE, is_deprecated=True),
        )

    async def read(self, call: Call) -> JsonResponse:
        """``GET /v1/live-metrics``."""
        rows, problems = await self.rows(call)
        return JsonResponse({"at_ms": self._now_ms(), "brokers": list(rows.values()), "problems": list(problems)})

    async def rows(self, call: Call) -> tuple[Mapping[int, dict[str, Any]], Sequence[str]]:
        """Return the metrics of each broker by its ID, and a sentence for each broker that did not respond."""

        async def read_local() -> dict[str, Any]:
            return {"brokers": [{"broker_id": self._broker_id, "live": True, **await self._metrics.live_metrics()}]}

        responses = await self._others.request_all(call, PATH, PEER_RESPONSE, read_local)
        rows = {row["broker_id"]: row for document in responses.documents.values() for row in document["brokers"]}
        if not call.forwarded:
            for broker_id in await self._registrations.live():
                rows.setdefault(broker_id, {"broker_id": broker_id, "live": False, **dict.fromkeys(METRICS)})
        return dict(sorted(rows.items())), responses.problems
