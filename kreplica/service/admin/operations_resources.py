"""Builds the admin API's resources for operators: plans, timeline and explanations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kreplica.admin.http.api import Resource
from kreplica.admin.peers.forwarding import OtherBrokers
from kreplica.admin.peers.registrations import Registrations
from kreplica.admin.plans.reading import PlanReader
from kreplica.admin.plans.replica_sizes import ReplicaSizes
from kreplica.admin.resources.controller import ControllerResource
from kreplica.admin.resources.plans import Plans
from kreplica.admin.resources.timeline import Timeline
from kreplica.admin.resources.why import ClusterSources, LocalSources, Why
from kreplica.admin.why.partition_facts import PartitionFactsReader, TopicConfigs
from kreplica.controller.history.audit_events import KINDS
from kreplica.membership.settings.dynamic_settings import DynamicSettings
from kreplica.server.metadata.metadata_cache import MetadataCache
from kreplica.service.admin.group_facts import LocalGroupFacts
from kreplica.service.broker.coordinators import Coordinators
from kreplica.service.broker.watches import Watches
from kreplica.service.metrics.live_metrics import LiveMetricsDependencies
from kreplica.service.metrics.local_health import LocalHealth
from kreplica.zookeeper import ZooKeeperClient


class OperationsDependencies(LiveMetricsDependencies, Protocol):
    """Parts of a broker that the resources for operators need."""

    @property
    def broker_id(self) -> int: ...

    @property
    def client(self) -> ZooKeeperClient: ...

    @property
    def coordinators(self) -> Coordinators: ...

    @property
    def dynamic_settings(self) -> DynamicSettings: ...

    @property
    def metadata(self) -> MetadataCache: ...

    @property
    def watches(self) -> Watches: ...


def operations_resources(
    broker: OperationsDependencies, health: LocalHealth, registrations: Registrations, others: OtherBrokers
) -> Sequence[Resource]:
    """Return the resources for plans, the timeline and explanations."""
    runtime, broker_id = broker.runtime, broker.broker_id
    connections = broker.coordinators.connections
    return (
        Plans(runtime, broker.client, broker.metadata, registrations, connections),
        Timeline(runtime.reactor, broker_id, broker.controller.history.audit_events, KINDS, others),
        _why(broker, health, registrations, others),
        ControllerResource(runtime.reactor, broker_id, broker.client, broker.controller, registrations, others),
    )


def _why(
    broker: OperationsDependencies, health: LocalHealth, registrations: Registrations, others: OtherBrokers
) -> Why:
    client, connections, dynamic = broker.client, broker.coordinators.connections, broker.dynamic_settings
    history = broker.controller.history
    plans, sizes = PlanReader(client), ReplicaSizes(broker.runtime.reactor.seconds, connections)

    def configs_of(topic: str) -> TopicConfigs:
        return TopicConfigs(dynamic.min_insync_replicas(topic), dynamic.unclean_election_allowed(topic))

    partitions = PartitionFactsReader(
        client,
        broker.metadata,
        registrations,
        connections,
        sizes,
        plans,
        configs_of,
        lambda: broker.watches.cordoned.brokers,
    )
    group_facts = LocalGroupFacts(broker.broker_id, broker.coordinators, broker.runtime.wall_clock_ms)
    local = LocalSources(broker.broker_id, history, history.audit_events, group_facts, health)
    cluster = ClusterSources(client, registrations, connections, partitions, plans, sizes)
    return Why(broker.runtime, local, cluster, others)
