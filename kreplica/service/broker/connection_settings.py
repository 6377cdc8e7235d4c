"""Keeps connection limits up to date with the broker's settings and the quotas of IP addresses."""

from __future__ import annotations

from kreplica.cluster.quotas import CONNECTION_CREATION_RATE, QuotaEntity
from kreplica.cluster.znodes import DEFAULT_ENTITY
from kreplica.membership.host_addresses import HostAddresses
from kreplica.membership.quota_store import Quotas
from kreplica.membership.settings.dynamic_settings import DynamicSettings
from kreplica.runtime import Reactor
from kreplica.server.quotas.client_quotas import ClientQuotas
from kreplica.server.quotas.connection_limits import ConnectionLimits, ConnectionSettings, ListenerLimit
from kreplica.settings.broker_settings import BrokerSettings
from kreplica.settings.validators import parse_connection_overrides

MAX, RATE, PER_IP = "max.connections", "max.connection.creation.rate", "max.connections.per.ip"
OVERRIDES = "max.connections.per.ip.overrides"


class ConnectionLimitsUpdate:
    """Applies settings and quotas to the connection limits; owned by the broker.

    :param static: settings from the broker's file, including the listeners.
    :param quotas: the quotas of users and client IDs.
    """

    def __init__(
        self, reactor: Reactor, static: BrokerSettings, dynamic: DynamicSettings, quotas: ClientQuotas
    ) -> None:
        self._quotas = quotas
        windows = (static["quota.window.num"], float(static["quota.window.size.seconds"]))
        self.limits = ConnectionLimits(reactor.seconds, windows)
        self._override_hosts, self._rate_hosts = HostAddresses(reactor), HostAddresses(reactor)
        self._static = static
        self._dynamic = dynamic
        self._overrides: str | None = None
        dynamic.broker_changed.append(self._apply_settings)
        self._apply_settings()

    def replace_quotas(self, quotas: Quotas) -> None:
        """Apply all quotas; called whenever quotas change."""
        self._quotas.replace(quotas)
        rates = {
            entity.ip: values[CONNECTION_CREATION_RATE]
            for entity, values in quotas.items()
            if entity.ip not in (None, DEFAULT_ENTITY)
        }
        default = quotas.get(QuotaEntity(ip=DEFAULT_ENTITY), {}).get(CONNECTION_CREATION_RATE)
        self._rate_hosts.resolve_all(rates, lambda resolved: self.limits.limit_addresses(resolved, default))

    def stop(self) -> None:
        """Stop looking up host names."""
        self._override_hosts.stop()
        self._rate_hosts.stop()

    def _apply_settings(self) -> None:
        settings = self._dynamic.effective
        listeners = [endpoint.listener for endpoint in self._static.listeners]
        limits = {}
        for listener in listeners:
            values = settings.of_listener(listener, (MAX, RATE))
            limits[listener] = ListenerLimit(values[MAX], values[RATE])
        protected = self._static.inter_broker_listener if len(listeners) > 1 else None
        self.limits.configure(
            ConnectionSettings(settings[MAX], settings[RATE], settings[PER_IP], limits, protected)
        )
        overrides = settings[OVERRIDES]
        if overrides != self._overrides:
            self._overrides = overrides
            self._override_hosts.resolve_all(parse_connection_overrides(overrides), self.limits.override_addresses)
