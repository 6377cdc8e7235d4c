"""Builds the table of a broker's API handlers; ApiVersions responses list the same APIs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from twisted.internet.defer import Deferred

from kreplica.controller.controller import Controller
from kreplica.controller.event_types import (
    AlterReassignmentsRequested,
    ElectionRequested,
    ElectionType,
    ListReassignmentsRequested,
    ShutdownRequested,
)
from kreplica.membership.follower_incarnations import FollowerIncarnations
from kreplica.membership.host_addresses import HostAddresses
from kreplica.membership.scram_writer import ScramWriter
from kreplica.membership.settings.dynamic_settings import DynamicSettings
from kreplica.membership.settings.settings_writer import SettingsWriter
from kreplica.model import TopicPartition
from kreplica.replication import ControlFence
from kreplica.replication.leader.read_replica import SELECTORS
from kreplica.server.authorization.authorized_operations import AuthorizedOperations
from kreplica.server.fetch.handler import Fetch
from kreplica.server.fetch.partition_reads import PartitionReads
from kreplica.server.fetch.sessions import FetchSessions
from kreplica.server.handlers.cluster import security
from kreplica.server.handlers.cluster.alter_configs import AlterConfigs, IncrementalAlterConfigs
from kreplica.server.handlers.cluster.alter_replica_log_dirs import AlterReplicaLogDirs
from kreplica.server.handlers.cluster.client_quotas import AlterClientQuotas, DescribeClientQuotas
from kreplica.server.handlers.cluster.client_telemetry import GetTelemetrySubscriptions, PushTelemetry
from kreplica.server.handlers.cluster.control import LeaderAndIsr, StopReplica, UpdateMetadata
from kreplica.server.handlers.cluster.controlled_shutdown import ControlledShutdown
from kreplica.server.handlers.cluster.delegation_tokens import (
    CreateDelegationToken,
    DescribeDelegationToken,
    ExpireDelegationToken,
    RenewDelegationToken,
)
from kreplica.server.handlers.cluster.describe_cluster import DescribeCluster
from kreplica.server.handlers.cluster.describe_configs import DescribeConfigs
from kreplica.server.handlers.cluster.describe_log_dirs import DescribeLogDirs
from kreplica.server.handlers.cluster.list_config_resources import ListConfigResources
from kreplica.server.handlers.cluster.scram_credentials import (
    AlterUserScramCredentials,
    DescribeUserScramCredentials,
)
from kreplica.server.handlers.cluster.update_features import UpdateFeatures
from kreplica.server.handlers.groups.find_coordinator import FindCoordinator
from kreplica.server.handlers.topics.alter_partition_reassignments import AlterPartitionReassignments
from kreplica.server.handlers.topics.create_partitions import CreatePartitions
from kreplica.server.handlers.topics.create_topics import CreateTopics
from kreplica.server.handlers.topics.delete_records import DeleteRecords
from kreplica.server.handlers.topics.delete_topics import DeleteTopics
from kreplica.server.handlers.topics.elect_leaders import ElectLeaders
from kreplica.server.handlers.topics.list_offsets import ListOffsets
from kreplica.server.handlers.topics.list_partition_reassignments import ListPartitionReassignments
from kreplica.server.handlers.topics.offset_for_leader_epoch import OffsetForLeaderEpoch
from kreplica.server.handlers.topics.topic_admin import TopicAdmin
from kreplica.server.handlers.transactions.allocate_producer_ids import AllocateProducerIds
from kreplica.server.metadata.creation_limits import TopicCreationLimits
from kreplica.server.metadata.handler import Metadata
from kreplica.server.produce.handler import Produce
from kreplica.server.produce.record_checks import BatchValidation
from kreplica.server.protocol.control_admission import ControlAdmission
from kreplica.server.protocol.handler_table import HandlerEntry, HandlerTable
from kreplica.server.protocol.request import Handler
from kreplica.server.protocol.responses import wait_for_brokers
from kreplica.server.quotas.client_quotas import ClientQuotas
from kreplica.server.quotas.fetch_quota import FetchQuota
from kreplica.server.telemetry.clients import TelemetryClients
from kreplica.service.broker.group_apis import GroupApiDependencies, group_handlers
from kreplica.service.broker.replication import Replication
from kreplica.service.broker.transaction_apis import TransactionApiDependencies, transaction_handlers
from kreplica.service.broker.watches import Watches
from kreplica.storage.directories.log_directories import LogDirectories
from kreplica.wire import messages
from kreplica.wire.messages import Api
from kreplica.zookeeper import ZooKeeperClient

if TYPE_CHECKING:
    from kreplica.membership.acl_store import AclStore

VERSIONS_MIN = {
    # Lower versions use message formats that are not supported (Kafka removed them in KIP-896).
    messages.FETCH.key: 4,
    messages.CREATE_TOPICS.key: 2,
    messages.DELETE_TOPICS.key: 1,
    messages.OFFSET_FOR_LEADER_EPOCH.key: 2,
    messages.DESCRIBE_CONFIGS.key: 1,
    messages.DESCRIBE_LOG_DIRS.key: 1,
    # Version 0 stores offsets in ZooKeeper.
    messages.OFFSET_COMMIT.key: 1,
    messages.OFFSET_FETCH.key: 1,
    # Lower versions have no broker epoch: any client could stop any broker (KIP-380).
    messages.CONTROLLED_SHUTDOWN.key: 2,
    # Lower versions use a different layout for the list of partitions.
    messages.LEADER_AND_ISR.key: 2,
    messages.STOP_REPLICA.key: 3,
    messages.UPDATE_METADATA.key: 5,
}
"""Lowest supported version by API key, if it is not the lowest version with a schema."""

VERSIONS_MAX = {
    # Version 2 adds a regular expression, whose evaluation time is unbounded.
    messages.LIST_TRANSACTIONS.key: 1,
}
"""Highest supported version by API key, if it is not the highest version with a schema."""


TELEMETRY = frozenset({messages.GET_TELEMETRY_SUBSCRIPTIONS.key, messages.PUSH_TELEMETRY.key})
"""APIs advertised only while a client metrics subscription exists, since librdkafka logs a line if it finds them."""

SASL: Sequence[tuple[Api, Handler]] = (
    (messages.SASL_HANDSHAKE, security.sasl_handshake),
    (messages.SASL_AUTHENTICATE, security.sasl_authenticate),
)
"""SASL requests after the first authentication of a connection."""


class ApiDependencies(GroupApiDependencies, TransactionApiDependencies, Protocol):
    """Parts of a broker that the API handlers need."""

    @property
    def broker_id(self) -> int: ...

    @property
    def control_admission(self) -> ControlAdmission: ...

    @property
    def dynamic_settings(self) -> DynamicSettings: ...

    @property
    def fence(self) -> ControlFence: ...

    @property
    def fetch_sessions(self) -> FetchSessions: ...

    @property
    def client(self) -> ZooKeeperClient: ...

    @property
    def watches(self) -> Watches: ...

    @property
    def quotas(self) -> ClientQuotas: ...

    @property
    def telemetry(self) -> TelemetryClients: ...

    @property
    def controller(self) -> Controller: ...

    @property
    def replication(self) -> Replication: ...

    @property
    def directories(self) -> LogDirectories: ...


def _partition_reads(broker: ApiDependencies) -> PartitionReads:
    def rack_of(broker_id: int) -> str | None:
        live = broker.metadata.brokers.get(broker_id)
        return live.rack if live is not None else None

    return PartitionReads(
        broker.runtime.reactor.seconds,
        broker.partitions,
        broker.metadata,
        rack_of=rack_of,
        selector=SELECTORS[broker.settings["replica.selector.class"]],
        throttle=broker.replication.throttle,
    )


def _produce_handler(broker: ApiDependencies) -> Produce:
    runtime = broker.runtime
    return Produce(
        runtime.reactor,
        broker.partitions,
        broker.metadata,
        runtime.wall_clock_ms,
        broker.coordinators.admission,
        BatchValidation(
            runtime.offload, runtime.wall_clock_ms, broker.settings["kreplica.decompressed.batch.max.bytes"]
        ),
        broker.plugins.interception,
    )


def _fetch_handler(broker: ApiDependencies, quota: FetchQuota) -> Fetch:
    permissions = broker.plugins.permissions
    return Fetch(
        broker.runtime.reactor,
        broker.partitions,
        broker.metadata,
        broker.fetch_sessions,
        broker.settings["fetch.max.bytes"],
        _partition_reads(broker),
        permissions,
        FollowerIncarnations(broker.client),
        quota,
    )


def _metadata_handler(broker: ApiDependencies, topics: TopicAdmin, operations: AuthorizedOperations) -> Metadata:
    settings = broker.settings
    return Metadata(
        broker.metadata,
        topics,
        operations,
        auto_create=settings["auto.create.topics.enable"],
        creations=TopicCreationLimits(
            broker.runtime.reactor.seconds,
            settings["kreplica.auto.create.topics.in.progress.max"],
            settings["kreplica.auto.create.topics.address.rate.max"],
        ),
    )


def _controller_handlers(broker: ApiDependencies) -> list[tuple[Api, Handler]]:
    """Return the handlers of requests to the controller."""

    def request_shutdown(broker_id: int, broker_epoch: int) -> Deferred[Any]:
        return broker.controller.submit(ShutdownRequested(broker_id, broker_epoch))

    def request_election(election_type: int, partitions: list[TopicPartition] | None) -> Deferred[Any]:
        return broker.controller.submit(ElectionRequested(ElectionType(election_type), partitions))

    def request_reassignment(targets: Mapping[TopicPartition, tuple[int, ...] | None]) -> Deferred[Any]:
        return broker.controller.submit(AlterReassignmentsRequested(targets))

    def list_reassignments(partitions: list[TopicPartition] | None) -> Deferred[Any]:
        return broker.controller.submit(ListReassignmentsRequested(partitions))

    return [
        (messages.CONTROLLED_SHUTDOWN, ControlledShutdown(request_shutdown)),
        (messages.ELECT_LEADERS, ElectLeaders(request_election, broker.metadata)),
        (messages.ALTER_PARTITION_REASSIGNMENTS, AlterPartitionReassignments(request_reassignment, broker.metadata)),
        (messages.LIST_PARTITION_REASSIGNMENTS, ListPartitionReassignments(list_reassignments, broker.metadata)),
    ]


def _acl_handlers(store: AclStore | None) -> list[tuple[Api, Handler]]:
    if store is None:
        return [
            (messages.DESCRIBE_ACLS, security.describe_acls),
            (messages.CREATE_ACLS, security.create_acls),
            (messages.DELETE_ACLS, security.delete_acls),
        ]
    # Imported only with an authorizer that uses ACLs.
    from kreplica.server.handlers.cluster.acls import CreateAcls, DeleteAcls, DescribeAcls

    return [
        (messages.DESCRIBE_ACLS, DescribeAcls(store)),
        (messages.CREATE_ACLS, CreateAcls(store)),
        (messages.DELETE_ACLS, DeleteAcls(store)),
    ]


def _user_handlers(broker: ApiDependencies) -> list[tuple[Api, Handler]]:
    """Return the handlers for user credentials and client quotas."""
    dynamic, quotas = broker.dynamic_settings, broker.watches.quotas
    return [
        (messages.DESCRIBE_USER_SCRAM_CREDENTIALS, DescribeUserScramCredentials(dynamic)),
        (messages.ALTER_USER_SCRAM_CREDENTIALS, AlterUserScramCredentials(ScramWriter(dynamic, broker.client))),
        (messages.DESCRIBE_CLIENT_QUOTAS, DescribeClientQuotas(broker.quotas, quotas)),
        (messages.ALTER_CLIENT_QUOTAS, AlterClientQuotas(quotas, HostAddresses(broker.runtime.reactor))),
    ]


def _delegation_token_handlers(broker: ApiDependencies) -> list[tuple[Api, Handler]]:
    store, permissions = broker.watches.tokens, broker.plugins.permissions
    return [
        (messages.CREATE_DELEGATION_TOKEN, CreateDelegationToken(store, permissions)),
        (messages.RENEW_DELEGATION_TOKEN, RenewDelegationToken(store, permissions)),
        (messages.EXPIRE_DELEGATION_TOKEN, ExpireDelegationToken(store, permissions)),
        (messages.DESCRIBE_DELEGATION_TOKEN, DescribeDelegationToken(store, permissions)),
    ]


def _telemetry_handlers(broker: ApiDependencies) -> list[tuple[Api, Handler]]:
    clients, runtime = broker.telemetry, broker.runtime
    subscriptions = broker.dynamic_settings.client_metrics
    return [
        (messages.GET_TELEMETRY_SUBSCRIPTIONS, GetTelemetrySubscriptions(clients)),
        (messages.PUSH_TELEMETRY, PushTelemetry(clients, runtime.offload, runtime.wall_clock_ms)),
        (messages.LIST_CONFIG_RESOURCES, ListConfigResources(subscriptions, broker.metadata)),
    ]


def handler_table(broker: ApiDependencies, topics: TopicAdmin, fetch_quota: FetchQuota) -> HandlerTable:
    """Return the table of all APIs that a broker serves, with their handlers."""
    reactor = broker.runtime.reactor
    may_delete: bool = broker.settings["delete.topic.enable"]
    coordinators = broker.coordinators
    internal_topics = coordinators.make_internal_topics(topics)
    operations = AuthorizedOperations(broker.plugins.permissions)
    partitions, metadata, dynamic = broker.partitions, broker.metadata, broker.dynamic_settings
    admission = broker.control_admission
    writer = SettingsWriter(dynamic, broker.client, broker.broker_id)

    produce = _produce_handler(broker)

    def is_controller() -> bool:
        return broker.controller.active

    handlers: list[tuple[Api, Handler]] = [
        (messages.PRODUCE, produce),
        (messages.FETCH, _fetch_handler(broker, fetch_quota)),
        (messages.LIST_OFFSETS, ListOffsets(partitions)),
        (messages.METADATA, wait_for_brokers(metadata, _metadata_handler(broker, topics, operations))),
        (messages.LEADER_AND_ISR, LeaderAndIsr(reactor, admission, broker.fence, partitions, dynamic, metadata)),
        (messages.STOP_REPLICA, StopReplica(reactor, admission, broker.fence, partitions, metadata)),
        (messages.UPDATE_METADATA, UpdateMetadata(admission, broker.fence, metadata, dynamic)),
        (messages.FIND_COORDINATOR, FindCoordinator(coordinators.view, metadata, internal_topics)),
        (messages.CREATE_TOPICS, CreateTopics(topics, metadata, dynamic, is_controller)),
        (messages.DELETE_TOPICS, DeleteTopics(topics, metadata, is_controller, enabled=may_delete)),
        (messages.DELETE_RECORDS, DeleteRecords(reactor, partitions)),
        (messages.OFFSET_FOR_LEADER_EPOCH, OffsetForLeaderEpoch(partitions)),
        (messages.DESCRIBE_CONFIGS, DescribeConfigs(dynamic, metadata)),
        (messages.ALTER_CONFIGS, AlterConfigs(writer)),
        (messages.ALTER_REPLICA_LOG_DIRS, AlterReplicaLogDirs(partitions)),
        (messages.DESCRIBE_LOG_DIRS, DescribeLogDirs(partitions, broker.runtime.disk)),
        (messages.CREATE_PARTITIONS, CreatePartitions(topics, metadata, is_controller)),
        (messages.INCREMENTAL_ALTER_CONFIGS, IncrementalAlterConfigs(writer)),
        (messages.UPDATE_FEATURES, UpdateFeatures(is_controller)),
        (messages.ALLOCATE_PRODUCER_IDS, AllocateProducerIds(broker.client, broker.producer_ids, is_controller)),
        (messages.DESCRIBE_CLUSTER, wait_for_brokers(metadata, DescribeCluster(metadata, operations))),
        *_controller_handlers(broker),
        *SASL,
        *_delegation_token_handlers(broker),
        *_acl_handlers(broker.watches.acls),
        *_user_handlers(broker),
        *_telemetry_handlers(broker),
        *group_handlers(broker),
        *transaction_handlers(broker, internal_topics),
    ]
    return {
        api.key: HandlerEntry(
            api,
            VERSIONS_MIN.get(api.key, api.versions[0]),
            VERSIONS_MAX.get(api.key, api.versions[1]),
            handle,
            produce.handle_run if api is messages.PRODUCE else None,
            dynamic.client_metrics.is_subscribed if api.key in TELEMETRY else None,
        )
        for api, handle in handlers
    }
