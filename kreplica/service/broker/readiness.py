"""Checks whether a broker can serve clients, and delays the completion of its start until it can."""

from __future__ import annotations

from typing import Protocol

from twisted.logger import Logger

from kreplica.cluster import znodes
from kreplica.membership.session import Membership
from kreplica.model import TopicPartition
from kreplica.replication import Partitions
from kreplica.runtime import Runtime
from kreplica.runtime.pause import pause
from kreplica.server.metadata.metadata_cache import MetadataCache
from kreplica.storage.directories.log_directories import LogDirectories
from kreplica.zookeeper import ClientClosed, SessionState, ZooKeeperClient, ZooKeeperError

log = Logger()

ROLES_SECONDS_MAX = 5.0
"""Maximum time that a starting broker waits for the controller to make its replicas leaders or followers."""

RETRY_SECONDS = 1.0

NAMED_MAX = 10
"""Maximum number of topics or partitions in a log line."""


class ReadinessDependencies(Protocol):
    """Parts of a broker that the readiness checks need."""

    @property
    def runtime(self) -> Runtime: ...

    @property
    def broker_id(self) -> int: ...

    @property
    def client(self) -> ZooKeeperClient: ...

    @property
    def directories(self) -> LogDirectories: ...

    @property
    def membership(self) -> Membership: ...

    @property
    def metadata(self) -> MetadataCache: ...

    @property
    def partitions(self) -> Partitions: ...

    @property
    def stopping(self) -> bool: ...


def not_ready(broker: ReadinessDependencies) -> list[str]:
    """Return the reasons why the broker cannot serve clients, as sentences; empty if it can."""
    reasons = []
    if broker.stopping:
        reasons.append("the broker is stopping")
    if broker.client.state is not SessionState.CONNECTED:
        reasons.append(f"ZooKeeper: the session is {broker.client.state.name.lower()}")
    elif not broker.membership.registered:
        reasons.append("the broker is not registered in ZooKeeper")
    if not _is_in_metadata(broker):
        reasons.append("no controller has sent metadata to this broker yet")
    directories = broker.directories.directories
    if all(directory.offline is not None for directory in directories):
        reasons.append(f"all log directories are offline: {', '.join(d.path for d in directories)}")
    return reasons


async def wait_until_served(broker: ReadinessDependencies, timeout_s: float) -> None:
    """Wait until the metadata contains this broker and all topics, and each local replica is a leader or a follower.

    After a timeout, logs a warning and returns, because a broker can start without a controller.

    :param timeout_s: the maximum time to wait for metadata that contains this broker.
    """
    metadata = broker.metadata
    if not await metadata.wait_until(lambda: _is_in_metadata(broker), timeout_s):
        log.warn("no controller has sent metadata to this broker yet, so it cannot serve clients")
    topics = await _remaining_topics(broker)
    if not await metadata.wait_until(lambda: topics <= metadata.topics.keys(), ROLES_SECONDS_MAX):
        log.warn(
            "the controller has not sent all topics yet; missing: {topics}",
            topics=", ".join(sorted(topics - metadata.topics.keys())[:NAMED_MAX]),
        )
    if not await metadata.wait_until(lambda: not _without_role(broker), ROLES_SECONDS_MAX):
        waiting = _without_role(broker)
        log.warn(
            "{count} partitions with a log on this broker are neither leaders nor followers yet: {partitions}",
            count=len(waiting),
            partitions=", ".join(map(str, waiting[:NAMED_MAX])),
        )


async def _remaining_topics(broker: ReadinessDependencies) -> set[str]:
    """Return the topics in ZooKeeper that are not being deleted."""
    while True:
        try:
            topics = set(await broker.client.get_children(znodes.TOPICS))
            return topics - set(await broker.client.get_children(znodes.DELETE_TOPICS))
        except ClientClosed:
            raise
        except ZooKeeperError as error:
            # ``Membership`` replaces an expired session.
            log.warn("cannot read the topics from ZooKeeper, retrying: {error}", error=str(error))
            await pause(broker.runtime.reactor, RETRY_SECONDS)


def _is_in_metadata(broker: ReadinessDependencies) -> bool:
    return broker.broker_id in broker.metadata.brokers


def _without_role(broker: ReadinessDependencies) -> list[TopicPartition]:
    """Return the partitions whose local replica no controller has made a leader or follower."""
    return [key for key in broker.directories.logs if broker.partitions.get(key) is None]
