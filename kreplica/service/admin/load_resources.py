"""Builds the admin API's resources for load: live metrics, their history, and the load of topics and groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from kreplica.admin.http.api import Resource
from kreplica.admin.lists.client_list import ClientList
from kreplica.admin.lists.connection_list import ConnectionList
from kreplica.admin.load.client_loads import ClientLoads
from kreplica.admin.load.group_loads import GroupLoads
from kreplica.admin.load.history import History
from kreplica.admin.load.history_resource import HistoryResource
from kreplica.admin.load.topic_loads import TopicLoads
from kreplica.admin.peers.forwarding import OtherBrokers
from kreplica.admin.peers.registrations import Registrations
from kreplica.admin.resources.live_metrics import LiveMetricsResource
from kreplica.server.metadata.metadata_cache import MetadataCache
from kreplica.server.telemetry.clients import TelemetryClients
from kreplica.service.admin.client_connections import ClientConnections
from kreplica.service.admin.group_loads import LocalGroups
from kreplica.service.admin.telemetry_clients import LocalTelemetry
from kreplica.service.broker.coordinators import Coordinators
from kreplica.service.metrics.history_sampler import HistorySampler
from kreplica.service.metrics.live_metrics import LiveMetrics, LiveMetricsDependencies
from kreplica.service.metrics.local_health import LocalHealth
from kreplica.service.metrics.subject_sampler import SubjectSampler
from kreplica.service.metrics.topic_loads import TopicLoadSampler

if TYPE_CHECKING:
    from kreplica.runtime.stalls import StallWatch


class LoadDependencies(LiveMetricsDependencies, Protocol):
    """Parts of a broker that the resources for load need."""

    @property
    def broker_id(self) -> int: ...

    @property
    def coordinators(self) -> Coordinators: ...

    @property
    def metadata(self) -> MetadataCache: ...

    @property
    def telemetry(self) -> TelemetryClients: ...


@dataclass(frozen=True, slots=True)
class ClusterLoad:
    """The load of the cluster as seen by one broker.

    :param sampler: samples the history; started and stopped by the owner.
    """

    live_metrics: LiveMetricsResource
    topics: TopicLoads
    groups: GroupLoads
    history: HistoryResource
    connections: ConnectionList
    clients: Sequence[Resource]
    sampler: HistorySampler

    @property
    def resources(self) -> Sequence[Resource]:
        """The resources for load."""
        return self.live_metrics, self.topics, self.groups, self.history, self.connections, *self.clients


def cluster_load(
    broker: LoadDependencies,
    stalls: StallWatch,
    health: LocalHealth,
    registrations: Registrations,
    others: OtherBrokers,
) -> ClusterLoad:
    """Build the resources, and the sampler of their history."""
    runtime, broker_id = broker.runtime, broker.broker_id
    reactor, now_ms = runtime.reactor, runtime.wall_clock_ms
    topic_loads = TopicLoadSampler(reactor, broker.partitions)
    live, history = LiveMetrics(broker, stalls, topic_loads, health), History()
    subjects = SubjectSampler(runtime, topic_loads, broker.coordinators.lag)
    sampler = HistorySampler(runtime, live, broker.metadata, history, subjects)
    live.rates = lambda: sampler.rates
    connections = ClientConnections(runtime, lambda: broker.server)
    telemetry = LocalTelemetry(runtime, broker_id, broker.telemetry)
    clients = ClientLoads(reactor, now_ms, telemetry, others)
    return ClusterLoad(
        LiveMetricsResource(broker_id, now_ms, live, registrations, others),
        TopicLoads(reactor, now_ms, topic_loads, others),
        GroupLoads(reactor, now_ms, LocalGroups(reactor, broker_id, broker.coordinators.lag), others),
        HistoryResource(broker_id, now_ms, history, (subjects.topics, subjects.groups), broker.metadata, others),
        ConnectionList(reactor, broker_id, connections.read, registrations, others),
        (clients, ClientList(reactor, broker_id, clients, telemetry, others)),
        sampler,
    )
