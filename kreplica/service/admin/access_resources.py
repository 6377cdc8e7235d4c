"""Builds the admin API's resources for access: sessions, users, ACLs, delegation tokens and quotas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kreplica.admin.http.api import Resource
from kreplica.admin.peers.forwarding import OtherBrokers
from kreplica.admin.resources.acls import Acls
from kreplica.admin.resources.quotas import Quotas
from kreplica.admin.resources.session import SessionResource
from kreplica.admin.resources.tokens import Tokens
from kreplica.admin.resources.users import Users
from kreplica.admin.security.guard import Guard
from kreplica.admin.why.access import AccessExplanations
from kreplica.membership.host_addresses import HostAddresses
from kreplica.membership.scram_writer import ScramWriter
from kreplica.membership.settings.dynamic_settings import DynamicSettings
from kreplica.runtime import Runtime
from kreplica.server.quotas.client_quotas import ClientQuotas
from kreplica.service.admin.quota_facts import LocalQuotaFacts
from kreplica.service.broker.watches import Watches
from kreplica.service.plugins import Plugins
from kreplica.zookeeper import ZooKeeperClient


class QuotaDependencies(Protocol):
    """Parts of a broker that the resource for quotas needs."""

    @property
    def broker_id(self) -> int: ...

    @property
    def runtime(self) -> Runtime: ...

    @property
    def quotas(self) -> ClientQuotas: ...

    @property
    def watches(self) -> Watches: ...


class AccessDependencies(QuotaDependencies, Protocol):
    """Parts of a broker that the resources for access need."""

    @property
    def client(self) -> ZooKeeperClient: ...

    @property
    def dynamic_settings(self) -> DynamicSettings: ...

    @property
    def plugins(self) -> Plugins: ...


def access_resources(broker: AccessDependencies, guard: Guard, others: OtherBrokers) -> Sequence[Resource]:
    """Return the resources for sessions, users, ACLs, delegation tokens and quotas."""
    settings, plugins = broker.dynamic_settings, broker.plugins
    return (
        SessionResource(guard),
        Users(settings, ScramWriter(settings, broker.client), broker.runtime.offload),
        Acls(broker.watches.acls),
        AccessExplanations(plugins.acl_authorizer, plugins.permissions),
        Tokens(broker.watches.tokens),
        quota_resource(broker, others),
    )


def quota_resource(broker: QuotaDependencies, others: OtherBrokers) -> Quotas:
    """Return the resource for quotas."""
    now_ms = broker.runtime.wall_clock_ms
    local = LocalQuotaFacts(broker.broker_id, broker.quotas, now_ms)
    return Quotas(local, broker.watches.quotas, HostAddresses(broker.runtime.reactor), others, now_ms)
