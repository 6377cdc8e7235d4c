"""GetTelemetrySubscriptions (key 71) and PushTelemetry (key 72): metrics of clients (KIP-714).

No permission is required, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import DeferredLock
from twisted.logger import Logger

from kreplica.errors import ErrorCode, KafkaError, ProtocolError
from kreplica.runtime.offload import Offload
from kreplica.server.protocol.request import Request
from kreplica.server.protocol.responses import run_handler
from kreplica.server.telemetry.clients import COMPRESSION_TYPES, Push, TelemetryClient, TelemetryClients
from kreplica.server.telemetry.otlp import InvalidTelemetry, count_metrics
from kreplica.wire.compression import DecompressedTooLarge

log = Logger()

WAITING_MAX = 32
"""Maximum number of pushes that wait for earlier ones to be decoded."""

DECOMPRESSED_BYTES_MAX = 8 * 2**20
"""Maximum size of the metrics of one push when decompressed, unless ``telemetry.max.bytes`` is higher."""


class GetTelemetrySubscriptions:
    """Returns the subscription of a client: its metrics and the push interval."""

    def __init__(self, clients: TelemetryClients) -> None:
        self._clients = clients

    def __call__(self, request: Request) -> None:
        instance_id = request.body["client_instance_id"]
        try:
            client = self._clients.subscribe(instance_id, request.connection, request.client_id)
        except KafkaError as error:
            request.respond({"error_code": int(error.code)})
            return
        request.respond(
            {
                "error_code": 0,
                "client_instance_id": client.instance_id,
                "subscription_id": client.subscription_id,
                "accepted_compression_types": COMPRESSION_TYPES,
                "push_interval_ms": client.subscribed.interval_ms,
                "telemetry_max_bytes": self._clients.push_bytes_max,
                # Totals, because only the last push is kept.
                "delta_temporality": False,
                "requested_metrics": client.subscribed.metrics,
            }
        )


class PushTelemetry:
    """Stores the metrics that clients push; a thread decodes the pushes first, one at a time.

    :param now_ms: the wall clock.
    """

    def __init__(self, clients: TelemetryClients, offload: Offload, now_ms: Callable[[], int]) -> None:
        self._clients = clients
        self._offload = offload
        self._now_ms = now_ms
        self._decoding = DeferredLock()

    def __call__(self, request: Request) -> None:
        body = request.body
        codec, size = body["compression_type"], len(body["metrics"])
        try:
            client = self._clients.begin_push(
                body["client_instance_id"],
                request.connection,
                request.client_id,
                subscription_id=body["subscription_id"],
                codec=codec,
                size=size,
                terminating=body["terminating"],
            )
            if len(self._decoding.waiting) >= WAITING_MAX:
                raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "too many pushes are waiting")
        except KafkaError as error:
            self._reject(request, error.code)
            return
        if size:
            run_handler(request, self._store(request, client, codec, bytes(body["metrics"])))
        else:
            request.respond({"error_code": 0})

    async def _store(self, request: Request, client: TelemetryClient, codec: int, data: bytes) -> None:
        await self._decoding.acquire()
        try:
            size_max = decompressed_bytes_max(self._clients.push_bytes_max)
            metrics = await self._offload.run(count_metrics, codec, data, size_max)
        except DecompressedTooLarge:
            self._reject(request, ErrorCode.TELEMETRY_TOO_LARGE)
        except (ProtocolError, InvalidTelemetry) as error:
            log.info("{request}: rejected: {error}", request=request.description, error=str(error))
            self._reject(request, ErrorCode.INVALID_RECORD)
        else:
            self._clients.keep(client, Push(codec, data, metrics, self._now_ms()))
            request.respond({"error_code": 0})
        finally:
            self._decoding.release()

    def _reject(self, request: Request, code: ErrorCode) -> None:
        self._clients.rejected += 1
        request.respond({"error_code": int(code)})


def decompressed_bytes_max(push_bytes_max: int) -> int:
    """Return the maximum size of the metrics of one push when decompressed."""
    return max(DECOMPRESSED_BYTES_MAX, push_bytes_max)
