"""Builds the admin API's resources for access: sessions, users, ACLs and delegation tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kreplica.admin.http.api import Resource
from kreplica.admin.resources.acls import Acls
from kreplica.admin.resources.session import SessionResource
from kreplica.admin.resources.tokens import Tokens
from kreplica.admin.resources.users import Users
from kreplica.admin.security.guard import Guard
from kreplica.membership.dynamic_settings import DynamicSettings
from kreplica.membership.scram_writer import ScramWriter
from kreplica.runtime import Runtime
from kreplica.service.broker.watches import Watches
from kreplica.service.plugins import Plugins
from kreplica.zookeeper import ZooKeeperClient


class AccessDependencies(Protocol):
    """Parts of a broker that the resources for access need."""

    @property
    def runtime(self) -> Runtime: ...

    @property
    def client(self) -> ZooKeeperClient: ...

    @property
    def dynamic_settings(self) -> DynamicSettings: ...

    @property
    def plugins(self) -> Plugins: ...

    @property
    def watches(self) -> Watches: ...


def access_resources(broker: AccessDependencies, guard: Guard) -> Sequence[Resource]:
    """Return the resources for sessions, users, ACLs and delegation tokens."""
    settings, plugins = broker.dynamic_settings, broker.plugins
    return (
        SessionResource(guard),
        Users(settings, ScramWriter(settings, broker.client), broker.runtime.offload),
        Acls(broker.watches.acls, plugins.acl_authorizer, plugins.permissions),
        Tokens(broker.watches.tokens),
    )
