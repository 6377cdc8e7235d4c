"""Builds the admin API's resources for records and groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kreplica.admin.groups.coordinators import GroupCoordinators
from kreplica.admin.http.api import Resource
from kreplica.admin.load.group_loads import GroupLoads
from kreplica.admin.peers.forwarding import OtherBrokers
from kreplica.admin.peers.leaders import Leaders
from kreplica.admin.resources.groups import Groups
from kreplica.admin.resources.messages import Messages
from kreplica.admin.resources.standalone import StandaloneBrokers, StandaloneResource
from kreplica.membership.settings.dynamic_settings import DynamicSettings
from kreplica.runtime import Runtime
from kreplica.server.metadata.metadata_cache import MetadataCache
from kreplica.service.admin.group_documents import GroupDocuments
from kreplica.service.admin.record_formats import record_formats
from kreplica.service.broker.coordinators import Coordinators
from kreplica.service.plugins import Plugins
from kreplica.settings.broker_settings import BrokerSettings


class DataDependencies(Protocol):
    """Parts of a broker that the resources for records and groups need."""

    @property
    def runtime(self) -> Runtime: ...

    @property
    def settings(self) -> BrokerSettings: ...

    @property
    def broker_id(self) -> int: ...

    @property
    def coordinators(self) -> Coordinators: ...

    @property
    def metadata(self) -> MetadataCache: ...

    @property
    def dynamic_settings(self) -> DynamicSettings: ...

    @property
    def plugins(self) -> Plugins: ...

    @property
    def standalone(self) -> StandaloneBrokers | None: ...


def data_resources(broker: DataDependencies, others: OtherBrokers, loads: GroupLoads) -> Sequence[Resource]:
    """Return the resources for records, groups and, in a ``standalone`` process, its brokers."""
    runtime, connections = broker.runtime, broker.coordinators.data_connections
    leaders = Leaders(broker.metadata, connections)
    documents = GroupDocuments(broker.coordinators)
    coordinators = GroupCoordinators(runtime.reactor, broker.broker_id, documents, connections)
    formats, schemas = record_formats(runtime, broker.settings, broker.plugins.formats)
    return (
        Messages(runtime, leaders, formats, schemas, broker.dynamic_settings.log_config),
        Groups(runtime, leaders, coordinators, documents.lag_of, others, loads),
        StandaloneResource(broker.standalone),
    )
