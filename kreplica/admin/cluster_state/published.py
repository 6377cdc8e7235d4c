"""What a broker knows of the cluster without asking anybody: what the controller published last."""

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
    """:ivar leader: below 0 where there is none."""

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


class Published(Protocol):
    """The metadata cache of a broker.

    :ivar is_complete: whether a controller has told of everything there is.
    :ivar controller_id: below 0 where none has said anything.
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
        """Call back after every update, from now on."""

    def wait_until(self, condition: Callable[[], bool], timeout_s: float) -> Deferred[bool]:
        """Fires with True when the condition holds after some update, with False when the time is up."""


class BrokerConnections(Protocol):
    """The ways to all brokers, this one among them, by Kafka's protocol."""

    def request(
        self, broker_id: int, api: Api, body: dict[str, Any], *, timeout_s: float
    ) -> Deferred[dict[str, Any]]:
        """:return: the answer's body; fails with a ``ClientError``."""


def all_of(published: Published) -> Published:
    """The same, once it is all there is.

    :raise Problem: 503 where no controller has told this broker of everything yet: a list would lack what is there.
    """
    if not published.is_complete:
        raise Problem(
            503,
            "COORDINATION_UNAVAILABLE",
            "no controller has told this broker what the cluster holds yet",
            what_to_do="Wait until /health/ready says that it is ready, or ask another broker.",
        )
    return published


async def once_complete(published: Published) -> Published:
    """The same; a broker that has just started waits a moment for the controller to tell it of everything.

    :raise Problem: as ``all_of``.
    """
    await published.wait_until(lambda: published.is_complete, COMPLETE_SECONDS_MAX)
    return all_of(published)


def topic_of(published: Published, name: str) -> PublishedTopic:
    """:raise Problem: 503 where this broker knows nothing yet.
    :raise KafkaError: UNKNOWN_TOPIC_OR_PARTITION.
    """
    topic = all_of(published).topics.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
    return topic


def is_offline(partition: PublishedPartition) -> bool:
    """Whether nobody leads it."""
    return partition.leader < 0


def is_under_replicated(partition: PublishedPartition) -> bool:
    """Whether a replica is not in sync."""
    return len(partition.isr) < len(partition.replicas)
