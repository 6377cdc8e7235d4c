"""Builds the server of a broker: handlers, permissions and client quotas."""

from __future__ import annotations

from typing import Protocol

from kreplica.server.handlers.topics.topic_admin import TopicAdmin
from kreplica.server.quotas.fetch_quota import FetchQuota
from kreplica.server.quotas.limited_mutations import limited_mutations
from kreplica.server.quotas.muted_connections import MutedConnections
from kreplica.server.quotas.throttle_events import ThrottleEvents
from kreplica.server.quotas.throttled_handlers import ThrottledHandlers
from kreplica.server.quotas.throttling import Throttling
from kreplica.server.transport.flush_scope import FlushScope
from kreplica.server.transport.listeners import Server
from kreplica.service.broker.api_table import ApiDependencies, handler_table
from kreplica.service.broker.connection_settings import ConnectionLimitsUpdate
from kreplica.service.broker.settings_maps import bounds


class ServerDependencies(ApiDependencies, Protocol):
    """Parts of a broker that its server needs."""

    @property
    def flush_scope(self) -> FlushScope: ...

    @property
    def connection_limits(self) -> ConnectionLimitsUpdate: ...


def build_server(broker: ServerDependencies, topics: TopicAdmin) -> Server:
    """Return the server, without listeners.

    Each request is checked against client quotas, then permissions, then the quota of created partitions.
    """
    runtime, settings, quotas, metadata = broker.runtime, broker.settings, broker.quotas, broker.metadata
    muted = MutedConnections(runtime.reactor)
    events = ThrottleEvents(runtime.reactor, broker.controller.history.audit_events.record)
    throttling = Throttling(quotas, muted, events)
    broker.connection_limits.limits.on_held = throttling.address_held
    fetch_quota = FetchQuota(throttling)
    table = handler_table(broker, topics, fetch_quota)
    table = limited_mutations(throttling, metadata, settings["num.partitions"], table)
    if broker.plugins.permissions is not None:
        from kreplica.server.authorization import guarded

        table = guarded(table, broker.plugins.permissions, metadata)
    throttled = ThrottledHandlers(throttling)

    def stop_throttling() -> None:
        muted.stop()
        events.stop()

    server = Server(
        runtime,
        throttled.table(table),
        bounds(settings),
        flush_scope=broker.flush_scope,
        limits=broker.connection_limits.limits,
        on_unreadable=broker.directories.unreadable,
        on_stopping=stop_throttling,
    )

    def quotas_changed() -> None:
        fetch_quota.update()
        server.replace_handlers(throttled.table(table))

    fetch_quota.update()
    quotas.changed = quotas_changed
    return server
