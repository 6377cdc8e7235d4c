"""Builds a broker's group and transaction coordinators and connects them to its other parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from kreplica.client.client_runtime import EndpointMaker
from kreplica.cluster.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from kreplica.coordination import BrokerConnections, EndOffsets, Shards, StateLog, StateLogConfig
from kreplica.groups.consumer_coordinator import ConsumerCoordinator
from kreplica.groups.coordinator import GroupCoordinator
from kreplica.groups.lag_tracking import LagConfig, LagTracker
from kreplica.groups.memory_limits import GroupMemory
from kreplica.groups.offset_memory import OffsetMemory
from kreplica.groups.offsets import Offsets
from kreplica.groups.shard import GroupShard
from kreplica.membership.producer_ids import ProducerIds
from kreplica.membership.settings.dynamic_settings import DynamicSettings
from kreplica.model import TopicPartition
from kreplica.replication import Partitions
from kreplica.runtime import Runtime
from kreplica.server.metadata.internal_topics import InternalTopic, InternalTopics
from kreplica.server.metadata.metadata_cache import MetadataCache
from kreplica.server.transport.flush_scope import FlushScope
from kreplica.service.broker.cluster_view import PublishedCluster
from kreplica.service.broker.peers import Peers
from kreplica.service.broker.settings_maps import admin_listener, groups_config, transactions_config
from kreplica.service.plugins import Plugins
from kreplica.settings.broker_settings import BrokerSettings
from kreplica.transactions import Markers, TransactionCoordinator
from kreplica.transactions.admission import Admission
from kreplica.transactions.shard import TransactionShard
from kreplica.transactions.verification import Verifier

if TYPE_CHECKING:
    from kreplica.server.handlers.topics.topic_admin import TopicAdmin


class CoordinatorDependencies(Protocol):
    """Parts of a broker that its coordinators need."""

    @property
    def runtime(self) -> Runtime: ...

    @property
    def settings(self) -> BrokerSettings: ...

    @property
    def broker_id(self) -> int: ...

    @property
    def inter_broker_endpoint(self) -> EndpointMaker: ...

    @property
    def dynamic_settings(self) -> DynamicSettings: ...

    @property
    def metadata(self) -> MetadataCache: ...

    @property
    def peers(self) -> Peers: ...

    @property
    def partitions(self) -> Partitions: ...

    @property
    def producer_ids(self) -> ProducerIds: ...

    @property
    def flush_scope(self) -> FlushScope: ...

    @property
    def plugins(self) -> Plugins: ...


class Coordinators:
    """The coordinators of one broker; stopped when the broker stops serving.

    :ivar view: cluster metadata for the coordinators.
    :ivar connections: connections to all brokers, including this one.
    :ivar data_connections: separate connections for slow requests of the admin API, such as reading records.
    :ivar admission: admits transactional writes after verification.
    :ivar groups: the coordinator of classic groups and of offsets.
    :ivar consumer_groups: the coordinator of KIP-848 groups.
    :ivar group_memory: limits the memory for all groups.
    :ivar offset_memory: limits the memory for all committed offsets.
    :ivar lag: tracks the lag of groups.
    :ivar transactions: the transaction coordinator.
    """

    def __init__(self, broker: CoordinatorDependencies) -> None:
        self._broker = broker
        self.view = PublishedCluster(broker.metadata)
        runtime, endpoint_of = broker.runtime, broker.peers.endpoint_of
        self.connections = BrokerConnections(
            runtime, endpoint_of, f"broker-{broker.broker_id}-coordinator", broker.inter_broker_endpoint
        )
        self.data_connections = BrokerConnections(
            runtime, endpoint_of, f"broker-{broker.broker_id}-admin", broker.inter_broker_endpoint
        )
        self._internal_topics: InternalTopics | None = None
        self.verifier = Verifier(broker.runtime.reactor, self.view, self.connections, broker.flush_scope.at_end)
        self.admission = Admission(self.verifier, lambda: broker.dynamic_settings.verifies_transactions)
        self.groups = self._make_groups()
        self.lag = self._make_lag()
        self.consumer_groups = ConsumerCoordinator(
            broker.runtime, self.groups.shards, self.view, groups_config(broker.settings).consumer
        )
        self.transactions = self._make_transactions()

    def _make_groups(self) -> GroupCoordinator:
        broker = self._broker
        settings = broker.settings
        config = groups_config(settings)
        self.group_memory = GroupMemory(config.memory)
        self.offset_memory = OffsetMemory(config.offset_memory)
        shards = Shards(
            broker.runtime,
            broker.partitions,
            CONSUMER_OFFSETS,
            lambda log: GroupShard(
                broker.runtime, log, self.view, config, Offsets(log, self.offset_memory), self.group_memory
            ),
            lambda: self.view.partition_count(CONSUMER_OFFSETS),
            broker.flush_scope.at_end,
            StateLogConfig(
                timeout_s=settings["offsets.commit.timeout.ms"] / 1000,
                codec=settings["offsets.topic.compression.codec"],
            ),
        )
        groups = GroupCoordinator(broker.runtime, shards, config.classic)
        self.view.on_topics_removed(groups.topics_removed)
        return groups

    def _make_lag(self) -> LagTracker:
        broker = self._broker
        interval_s = broker.settings["kreplica.groups.lag.interval.ms"] / 1000

        def local_high_watermark(key: TopicPartition) -> int | None:
            partition = broker.partitions.get(key)
            return partition.high_watermark if partition is not None and partition.is_leader else None

        def local_log_start(key: TopicPartition) -> int | None:
            partition = broker.partitions.get(key)
            return partition.log.log_start_offset if partition is not None and partition.is_leader else None

        end_offsets = EndOffsets(self.view, self.connections, local_high_watermark, local_log_start)
        config, partition_count = LagConfig(interval_s), self.view.partition_count
        return LagTracker(broker.runtime, self.groups.shards, end_offsets, config, partition_count)

    def _make_transactions(self) -> TransactionCoordinator:
        broker = self._broker

        def make_shards(make: Callable[[StateLog], TransactionShard]) -> Shards[TransactionShard]:
            return Shards(
                broker.runtime,
                broker.partitions,
                TRANSACTION_STATE,
                make,
                lambda: self.view.partition_count(TRANSACTION_STATE),
                broker.flush_scope.at_end,
                StateLogConfig(),
            )

        return TransactionCoordinator(
            broker.runtime,
            make_shards,
            Markers(broker.runtime.reactor, self.view, self.connections),
            broker.producer_ids.next,
            transactions_config(broker.settings),
        )

    def make_internal_topics(self, topics: TopicAdmin) -> InternalTopics:
        """Return the creator of the coordinators' internal topics, which works on demand; called once."""
        internal_topics = InternalTopics(topics, self._broker.metadata, internal_topic_configs(self._broker.settings))
        self._internal_topics = internal_topics
        return internal_topics

    def create_topics(self) -> None:
        """Start creating the coordinators' topics before a client needs them."""
        if self._internal_topics is not None:
            for topic in (CONSUMER_OFFSETS, TRANSACTION_STATE):
                self._internal_topics.ensure(topic)

    def start(self) -> None:
        """Start the background work of the coordinators."""
        # Only the admin API and metrics reporters read the lag.
        if admin_listener(self._broker.settings) is not None or self._broker.plugins.has_reporters:
            self.lag.start()
        self.transactions.start()

    def stop(self) -> None:
        """Stop all background work; pending requests fail."""
        if self._internal_topics is not None:
            self._internal_topics.stop()
        self.lag.stop()
        self.transactions.stop()
        self.verifier.stop()
        self.connections.stop()
        self.data_connections.stop()


def internal_topic_settings(brokers: int) -> dict[str, str]:
    """Return settings for internal topics and groups that suit clusters with few brokers.

    Replication factors are at most the number of brokers, and groups start without the initial rebalance delay.
    """
    return {
        "offsets.topic.replication.factor": str(min(3, brokers)),
        "transaction.state.log.replication.factor": str(min(3, brokers)),
        "transaction.state.log.min.isr": str(min(2, brokers)),
        "group.initial.rebalance.delay.ms": "0",
    }


def internal_topic_configs(settings: BrokerSettings) -> Mapping[str, InternalTopic]:
    """Return the configurations of the coordinators' topics, by topic name."""
    return {
        CONSUMER_OFFSETS: InternalTopic(
            CONSUMER_OFFSETS,
            settings["offsets.topic.num.partitions"],
            settings["offsets.topic.replication.factor"],
            {
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(settings["offsets.topic.segment.bytes"]),
            },
        ),
        TRANSACTION_STATE: InternalTopic(
            TRANSACTION_STATE,
            settings["transaction.state.log.num.partitions"],
            settings["transaction.state.log.replication.factor"],
            {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": str(settings["transaction.state.log.min.isr"]),
                "segment.bytes": str(settings["transaction.state.log.segment.bytes"]),
                "unclean.leader.election.enable": "false",
            },
        ),
    }
