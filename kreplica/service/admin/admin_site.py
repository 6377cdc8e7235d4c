"""Builds a broker's admin API from the broker's parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from kreplica.admin.cluster_state.counts import CachedCounts
from kreplica.admin.health.cluster_health import ClusterHealth
from kreplica.admin.http.api import Resource
from kreplica.admin.http.root import Root
from kreplica.admin.http.site import AdminSite
from kreplica.admin.peers.forwarding import Forwarding, OtherBrokers
from kreplica.admin.peers.registrations import RegistrationReader
from kreplica.admin.resources.brokers import Brokers
from kreplica.admin.resources.cluster import Cluster, Identity
from kreplica.admin.resources.configs import Configs
from kreplica.admin.resources.dashboard import Dashboard
from kreplica.admin.resources.elections import Elections
from kreplica.admin.resources.health import Health
from kreplica.admin.resources.metrics import Metrics
from kreplica.admin.resources.partitions import Partitions
from kreplica.admin.resources.topics import Topics
from kreplica.membership import SettingsWriter
from kreplica.server.handlers.topics.topic_admin import TopicAdmin
from kreplica.service.admin.access import admin_access, admin_guard, admin_token
from kreplica.service.admin.access_resources import AccessDependencies, access_resources
from kreplica.service.admin.data_resources import DataDependencies, data_resources
from kreplica.service.admin.load_resources import ClusterLoad, LoadDependencies, cluster_load
from kreplica.service.admin.operations_resources import OperationsDependencies, operations_resources
from kreplica.service.admin.tls import admin_tls, admin_trust
from kreplica.service.metrics.broker_metrics import BrokerMetrics, MetricsDependencies
from kreplica.service.metrics.health_watch import HealthWatch
from kreplica.service.metrics.local_health import LocalHealth
from kreplica.settings.broker_settings import BrokerSettings

if TYPE_CHECKING:
    from kreplica.runtime.stalls import StallWatch
    from kreplica.service.broker.bearer_tokens import BearerTokens


ADMIN_LISTENER = "admin"
"""Name of the admin listener in metrics and warnings; the names of Kafka's listeners are in upper case."""


class AdminDependencies(
    AccessDependencies, DataDependencies, OperationsDependencies, LoadDependencies, MetricsDependencies, Protocol
):
    """Parts of a broker that the admin API needs."""

    @property
    def topic_admin(self) -> TopicAdmin: ...

    @property
    def settings(self) -> BrokerSettings: ...

    @property
    def bearer_tokens(self) -> BearerTokens: ...

    def not_ready(self) -> list[str]: ...


def admin_site(broker: AdminDependencies, stalls: StallWatch, listener: tuple[str, int]) -> AdminSite:
    """Create the admin site without starting it.

    :param listener: the host and port to listen on.
    :raise SettingsError: the token, certificate or key cannot be read.
    """
    health = LocalHealth(broker, stalls)
    metrics = Metrics(BrokerMetrics(broker, stalls, health), broker.runtime.reactor)
    host, port = listener
    access = admin_access(broker.settings, host)
    token = admin_token(broker.runtime.disk, broker.settings)
    credentials = broker.dynamic_settings.scram_credentials
    permissions, bearer_tokens = broker.plugins.permissions, broker.bearer_tokens.for_admin
    guard = admin_guard(broker.runtime, broker.settings, token, credentials, permissions, bearer_tokens)
    tls = admin_tls(broker.runtime, broker.settings)
    if tls is not None:
        broker.certificates.watch.add(ADMIN_LISTENER, tls)
    reactor = broker.runtime.reactor
    registrations = RegistrationReader(reactor, broker.client)
    trust_policy = admin_trust(broker.runtime.disk, broker.settings)
    forwarding = Forwarding(
        reactor, broker.runtime.offload, broker.broker_id, registrations, trust_policy=trust_policy, token=token
    )
    load = cluster_load(broker, stalls, health, registrations, forwarding)
    operations = operations_resources(broker, health, registrations, forwarding)
    data = data_resources(broker, forwarding, load.groups)
    protected = access_resources(broker, guard, forwarding)
    parts = (*resources(broker, health, registrations, forwarding, load), *operations, *data, *protected, metrics)
    root = Root(broker.runtime, parts, access, guard)
    background = (load.sampler, HealthWatch(reactor, health, broker.controller.history))
    return AdminSite(reactor, root, host=host, port=port, tls=tls, background=background, closing=forwarding.close)


def resources(
    broker: AdminDependencies,
    local: LocalHealth,
    registrations: RegistrationReader,
    others: OtherBrokers,
    load: ClusterLoad,
) -> Sequence[Resource]:
    """Return the resources for the cluster's state and load, for health and for the dashboard."""
    counts = CachedCounts(broker.runtime.reactor, broker.metadata, broker.dynamic_settings.min_insync_replicas)
    health = ClusterHealth(broker.runtime.reactor, broker.broker_id, broker.metadata, counts, local, others)
    return (
        *_basic(broker, registrations, load, counts, health),
        *load.resources,
        Health(broker, health),
        Dashboard(broker.runtime.offload),
    )


def _basic(
    broker: AdminDependencies,
    registrations: RegistrationReader,
    load: ClusterLoad,
    counts: CachedCounts,
    health: ClusterHealth,
) -> Sequence[Resource]:
    """Return the resources for the cluster, brokers, topics and partitions, their configurations and elections."""
    reactor, client, published, dynamic = (
        broker.runtime.reactor,
        broker.client,
        broker.metadata,
        broker.dynamic_settings,
    )
    connections = broker.coordinators.connections
    identity = Identity(broker.broker_id, broker.settings["zookeeper.connect"], broker.standalone is not None)
    writer = SettingsWriter(dynamic, client, broker.broker_id)
    configs = Configs(published, client, dynamic, writer, connections)
    deletion_enabled = broker.settings["delete.topic.enable"]
    return (
        Cluster(reactor, published, client, identity, health, lambda: broker.watches.cordoned.brokers),
        Brokers(broker.runtime, published, registrations, client, connections, counts, health, load.live_metrics.rows),
        Topics(
            reactor,
            published,
            client,
            broker.topic_admin,
            configs,
            counts,
            dynamic,
            (load.topics, load.groups),
            deletion_enabled=deletion_enabled,
        ),
        Partitions(reactor, published, client, connections, counts),
        configs,
        Elections(reactor, published, client, connections),
    )
