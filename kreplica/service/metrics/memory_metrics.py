"""Metrics of the memory that a broker uses for clients; docs/reference/limits.md lists the limits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from kreplica.interfaces import Family, Sample
from kreplica.interfaces import MetricKind as Kind
from kreplica.server.fetch.sessions import SESSION_PARTITION_BYTES, FetchSessions
from kreplica.server.telemetry.clients import TelemetryClients
from kreplica.server.transport.listeners import Server
from kreplica.service.broker.coordinators import Coordinators
from kreplica.storage.directories.log_directories import LogDirectories
from kreplica.storage.producers.producer_limits import PRODUCER_BYTES

if TYPE_CHECKING:
    from kreplica.admin.http.site import AdminSite


class MemoryDependencies(Protocol):
    """Parts of a broker that the memory metrics read."""

    @property
    def coordinators(self) -> Coordinators: ...

    @property
    def directories(self) -> LogDirectories: ...

    @property
    def fetch_sessions(self) -> FetchSessions: ...

    @property
    def telemetry(self) -> TelemetryClients: ...

    @property
    def server(self) -> Server | None: ...

    @property
    def admin(self) -> AdminSite | None: ...


def memory_families(broker: MemoryDependencies) -> Iterator[Family]:
    """Yield the bytes in use and the number of rejections at the limit, by kind of memory."""
    used, rejected = _rows(broker)
    yield Family(
        "kreplica_memory_held_bytes",
        Kind.GAUGE,
        "Memory used for clients, by kind.",
        ("kind",),
        [Sample((kind,), float(size)) for kind, size in used.items()],
    )
    yield Family(
        "kreplica_memory_refusals",
        Kind.COUNTER,
        "Requests rejected or connections closed at a memory limit.",
        ("kind",),
        [Sample((kind,), float(count)) for kind, count in rejected.items()],
    )


def _rows(broker: MemoryDependencies) -> tuple[dict[str, int], dict[str, int]]:
    groups = broker.coordinators.group_memory
    offsets = broker.coordinators.offset_memory
    sessions = broker.fetch_sessions
    transactions = broker.coordinators.transactions.memory
    producers = broker.directories.producer_limits
    used = {
        "groups": groups.held_bytes,
        "offsets": offsets.held_bytes,
        "fetch_sessions": sessions.partition_count * SESSION_PARTITION_BYTES,
        "producers": producers.count * PRODUCER_BYTES,
        "transactional_ids": transactions.held_bytes,
        "client_metrics": broker.telemetry.kept_bytes,
    }
    rejected = {
        "groups": groups.rejected,
        "offsets": offsets.rejected,
        "fetch_sessions": sessions.rejected,
        "producers": producers.rejected,
        "transactional_ids": transactions.rejected,
    }
    if broker.server is not None:
        used["partial_requests"] = broker.server.resources.partial_frames.held_bytes
        rejected["partial_requests"] = broker.server.metrics.partial_evictions
        used["unread_responses"] = broker.server.resources.loads.held_bytes
        rejected["unread_responses"] = broker.server.metrics.unread_evictions
    if broker.admin is not None:
        connections = broker.admin.connections
        rejected["http"] = connections.evicted + connections.refused
    return used, rejected
