"""Clients that push metrics to this broker, for ``/v1/clients``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kreplica.admin.load.client_loads import SUBSCRIBED, TERMINATED, UNSUBSCRIBED, ClientLoad
from kreplica.cluster.uuids import uuid_from_text
from kreplica.runtime import Runtime
from kreplica.runtime.time_slice import TimeSlice
from kreplica.server.handlers.cluster.client_telemetry import decompressed_bytes_max
from kreplica.server.telemetry.clients import TelemetryClient, TelemetryClients
from kreplica.server.telemetry.otlp import PushedMetrics, read_metrics


class LocalTelemetry:
    """Implements ``admin.load.client_loads.LocalClients``."""

    def __init__(self, runtime: Runtime, broker_id: int, clients: TelemetryClients) -> None:
        self._runtime = runtime
        self._broker_id = broker_id
        self._clients = clients

    async def current(self) -> Sequence[ClientLoad]:
        """Return all clients."""
        time_slice = TimeSlice(self._runtime.reactor)
        now_s, now_ms = self._runtime.reactor.seconds(), self._runtime.wall_clock_ms()
        loads = []
        for client in self._clients:
            loads.append(self._load(client, lambda at_s: now_ms - round((now_s - at_s) * 1000)))
            if time_slice.is_over:
                await time_slice.next()
        return loads

    async def metrics(self, client_instance_id: str) -> Mapping[str, Any] | None:
        """Return the latest metrics of a client, parsed in a thread; None if there are none."""
        client = self._clients.find(uuid_from_text(client_instance_id))
        if client is None or client.push is None:
            return None
        size_max = decompressed_bytes_max(self._clients.push_bytes_max)
        codec, data = client.push.codec, client.push.data
        pushed: PushedMetrics = await self._runtime.offload.run(read_metrics, codec, data, size_max)
        return {
            "labels": dict(pushed.labels),
            "metrics": [each._asdict() for each in pushed.values],
            "is_complete": pushed.is_complete,
        }

    def _load(self, client: TelemetryClient, time_ms: Callable[[float], int]) -> ClientLoad:
        attributes, subscribed, push = client.attributes, client.subscribed, client.push
        state = SUBSCRIBED if subscribed.metrics else UNSUBSCRIBED
        return ClientLoad(
            attributes.client_instance_id,
            self._broker_id,
            attributes.client_id,
            attributes.client_software_name,
            attributes.client_software_version,
            f"{attributes.client_source_address}:{attributes.client_source_port}",
            client.user,
            TERMINATED if client.is_terminating else state,
            list(subscribed.names),
            subscribed.interval_ms,
            time_ms(client.last_s),
            None if push is None else push.at_ms,
            client.pushes,
            0 if push is None else push.metrics,
            0 if push is None else len(push.data),
        )
