"""Builds the replication of a broker: partitions, follower fetchers, and ISR updates by leaders."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from kreplica.client.client_runtime import EndpointMaker
from kreplica.membership.settings.dynamic_settings import DynamicSettings
from kreplica.model import TopicPartition
from kreplica.replication import ControlFence, Partitions, Purgatory
from kreplica.replication.follower.fetchers import Fetchers
from kreplica.replication.leader.isr_notifications import IsrNotifications
from kreplica.replication.leader.isr_writes import IsrWrites
from kreplica.replication.leader.lag_check_timer import LagCheckTimer
from kreplica.runtime import Runtime
from kreplica.server.metadata.metadata_cache import MetadataCache
from kreplica.service.broker.peers import Peers
from kreplica.service.broker.settings_maps import fetcher_config, replication_throttle
from kreplica.service.broker.watches import Watches
from kreplica.settings.broker_settings import BrokerSettings
from kreplica.storage.directories.log_directories import LogDirectories
from kreplica.zookeeper import SessionState, ZooKeeperClient


class ReplicationDependencies(Protocol):
    """Parts of a broker that replication needs."""

    @property
    def runtime(self) -> Runtime: ...

    @property
    def settings(self) -> BrokerSettings: ...

    @property
    def broker_id(self) -> int: ...

    @property
    def inter_broker_endpoint(self) -> EndpointMaker: ...

    @property
    def client(self) -> ZooKeeperClient: ...

    @property
    def directories(self) -> LogDirectories: ...

    @property
    def dynamic_settings(self) -> DynamicSettings: ...

    @property
    def fence(self) -> ControlFence: ...

    @property
    def metadata(self) -> MetadataCache: ...

    @property
    def peers(self) -> Peers: ...

    @property
    def watches(self) -> Watches: ...


class Replication:
    """The replication of one broker; started after the broker has registered, stopped before the logs are closed.

    :param purgatory: holds the requests that wait for records or acknowledgements.
    """

    def __init__(self, broker: ReplicationDependencies, purgatory: Purgatory) -> None:
        reactor, client, settings = broker.runtime.reactor, broker.client, broker.settings
        lag_s_max = settings["replica.lag.time.max.ms"] / 1000
        plans = broker.watches.plan_throttle
        self.throttle = replication_throttle(reactor, broker.broker_id, broker.dynamic_settings, plans)
        self.fetchers = Fetchers(
            broker.runtime,
            broker.broker_id,
            lambda: broker.fence.broker_epoch,
            broker.peers.endpoint_of,
            fetcher_config(settings, broker.inter_broker_endpoint),
            self.throttle,
        )
        self.isr_notifications = IsrNotifications(reactor, client)
        self.isr_writes = IsrWrites(reactor, client, self.isr_notifications)

        self.partitions = Partitions(
            reactor,
            broker.broker_id,
            broker.directories,
            broker.dynamic_settings.partition_settings,
            partial(may_exist, broker.metadata),
            purgatory,
            fetching=self.fetchers,
            propose=self.isr_writes.propose,
            may_acknowledge=lambda: not client.session_may_have_expired,
            lag_s_max=lag_s_max,
        )
        self._client = client
        self._fence = broker.fence
        self._unsubscribe: Callable[[], None] = lambda: None
        self.lag_check_timer = LagCheckTimer(reactor, self.partitions, lag_s_max / 2)

    def start(self) -> None:
        """Start checking followers for lag and watching the ZooKeeper session."""
        self.lag_check_timer.start()
        self._unsubscribe = self._client.on_session_event(self._session_changed)

    def _session_changed(self, state: SessionState) -> None:
        if state.lost:
            self._fence.session_ended()
            self.partitions.session_lost()

    async def stop(self) -> None:
        """Stop leading and following partitions; pending requests fail."""
        self._unsubscribe()
        self.lag_check_timer.stop()
        self.partitions.stop()
        await self.fetchers.close()
        self.isr_writes.stop()
        self.isr_notifications.stop()


def may_exist(metadata: MetadataCache, key: TopicPartition) -> bool:
    """Return False only if the published metadata shows that the partition does not exist.

    Before the first metadata arrives, any partition may exist; a client that receives an unknown-topic error would
    treat its topic as deleted.
    """
    if not metadata.brokers:
        return True
    topic = metadata.topic(key.topic)
    return topic is not None and key.partition in topic.partitions
