"""Reads the cluster metadata that the controller published last."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol
from uuid import UUID

from twisted.internet.defer import Deferred

from kreplica.admin.http.problems import Problem
from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import Endpoint
from kreplica.wire.messages import Api

COMPLETE_SECONDS_MAX = 5.0


class PublishedPartition(Protocol):
    """A partition in the metadata.

    :ivar leader: negative if there is no leader.
    """

    @property
    def partition(self) -> int: ...

    @property
    def leader(self) -> int: ...

    @property
    def leader_epoch(self) -> int: ...

    @property
    def replicas(self) -> Sequence[int]: ...

    @property
    def isr(self) -> Sequence[int]: ...

    @property
    def offline_replicas(self) -> Sequence[int]: ...


class PublishedTopic(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def topic_id(self) -> UUID: ...

    @property
    def partitions(self) -> Mapping[int, PublishedPartition]: ...


class PublishedBroker(Protocol):
    @property
    def endpoints(self) -> Mapping[str, Endpoint]: ...

    @property
    def rack(self) -> str | None: ...


class PublishedMetadata(Protocol):
    """The metadata cache of a broker.

    :ivar is_complete: True if the controller has sent full metadata.
    :ivar controller_id: negative if no controller is known.
    """

    @property
    def cluster_id(self) -> str: ...

    @property
    def is_complete(self) -> bool: ...

    @property
    def controller_id(self) -> int: ...

    @property
    def brokers(self) -> Mapping[int, PublishedBroker]: ...

    @property
    def topics(self) -> Mapping[str, PublishedTopic]: ...

    def on_change(self, callback: Callable[[], None]) -> None:
        """Register a callback that runs after every update."""

    def wait_until(self, condition: Callable[[], bool], timeout_s: float) -> Deferred[bool]:
        """Return a Deferred that fires with True when the condition holds after an update, or with False after the
        timeout."""


class BrokerConnections(Protocol):
    """Connections to all brokers, including this one, over Kafka's protocol."""

    def request(
        self, broker_id: int, api: Api, body: dict[str, Any], *, timeout_s: float
    ) -> Deferred[dict[str, Any]]:
        """Send a request; the Deferred fires with the response body or fails with a ``ClientError``."""


def require_complete(published: PublishedMetadata) -> PublishedMetadata:
    """Return the metadata if it is complete.

    :raise Problem: 503 if this broker has no full metadata yet, since lists would be incomplete.
    """
    if not published.is_complete:
        raise Problem(
            503,
            "COORDINATION_UNAVAILABLE",
            "this broker has not received the cluster metadata yet",
            what_to_do="Wait until /health/ready reports ready, or send the request to another broker.",
        )
    return published


async def once_complete(published: PublishedMetadata) -> PublishedMetadata:
    """Return the metadata when it is complete; a broker that has just started waits a moment for it.

    :raise Problem: as ``require_complete``.
    """
    await published.wait_until(lambda: published.is_complete, COMPLETE_SECONDS_MAX)
    return require_complete(published)


def topic_of(published: PublishedMetadata, name: str) -> PublishedTopic:
    """Return a topic.

    :raise Problem: 503 if this broker has no metadata yet.
    :raise KafkaError: UNKNOWN_TOPIC_OR_PARTITION.
    """
    topic = require_complete(published).topics.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} does not exist")
    return topic


def is_offline(partition: PublishedPartition) -> bool:
    """Return True if the partition has no leader."""
    return partition.leader < 0


def is_under_replicated(partition: PublishedPartition) -> bool:
    """Return True if the partition has a leader and a replica is out of sync."""
    return partition.leader >= 0 and len(partition.isr) < len(partition.replicas)
