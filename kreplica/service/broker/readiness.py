"""Whether a broker can serve clients, and the waits of a start until it can."""

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
"""So long a start waits for a controller to say what is to become of the logs on disk."""

RETRY_SECONDS = 1.0

NAMED_MAX = 10


class ReadinessParts(Protocol):
    """Parts of a broker that the readiness checks use."""

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


def not_ready(broker: ReadinessParts) -> list[str]:
    """Why clients cannot be served just now, as sentences; none where they can."""
    reasons = []
    if broker.stopping:
        reasons.append("the broker is stopping")
    if broker.client.state is not SessionState.CONNECTED:
        reasons.append(f"ZooKeeper: the session is {broker.client.state.name.lower()}")
    elif not broker.membership.registered:
        reasons.append("the broker is not registered in ZooKeeper")
    if not _is_served(broker):
        reasons.append("no controller has told this broker of itself yet")
    directories = broker.directories.directories
    if all(directory.offline is not None for directory in directories):
        reasons.append(f"all log directories are offline: {', '.join(d.path for d in directories)}")
    return reasons


async def wait_until_served(broker: ReadinessParts, timeout_s: float) -> None:
    """Wait until clients find what they had before: this broker, every topic, and who leads what is here.

    Whatever does not come in time is told in the log, and the broker goes on: a cluster without a controller has its
    clients wait, not its brokers.

    :param timeout_s: for a controller that knows this broker.
    """
    metadata = broker.metadata
    if not await metadata.wait_until(lambda: _is_served(broker), timeout_s):
        log.warn("no controller has told this broker of itself yet: clients have to wait for one")
    topics = await _topics_that_stay(broker)
    if not await metadata.wait_until(lambda: topics <= metadata.topics.keys(), ROLES_SECONDS_MAX):
        log.warn(
            "the controller has not told of all topics yet; missing: {topics}",
            topics=", ".join(sorted(topics - metadata.topics.keys())[:NAMED_MAX]),
        )
    if not await metadata.wait_until(lambda: not _without_role(broker), ROLES_SECONDS_MAX):
        waiting = _without_role(broker)
        log.warn(
            "the controller has not said yet who leads {count} of the partitions that are here: {partitions}",
            count=len(waiting),
            partitions=", ".join(map(str, waiting[:NAMED_MAX])),
        )


async def _topics_that_stay(broker: ReadinessParts) -> set[str]:
    """The topics that are in ZooKeeper now, but for those that are being deleted: who starts has to know them."""
    while True:
        try:
            topics = set(await broker.client.get_children(znodes.TOPICS))
            return topics - set(await broker.client.get_children(znodes.DELETE_TOPICS))
        except ClientClosed:
            raise
        except ZooKeeperError as error:
            # A session that has ended is replaced by the membership.
            log.warn("reading the topics in ZooKeeper again: {error}", error=str(error))
            await pause(broker.runtime.reactor, RETRY_SECONDS)


def _is_served(broker: ReadinessParts) -> bool:
    return broker.broker_id in broker.metadata.brokers


def _without_role(broker: ReadinessParts) -> list[TopicPartition]:
    """The logs on disk of which no controller has told this broker anything yet."""
    return [key for key in broker.directories.logs if broker.partitions.get(key) is None]
