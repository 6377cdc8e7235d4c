"""Source and target topics of a copy: lookup, checks and creation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kreplica.blocking import Cluster
from kreplica.blocking.admin import create_topic
from kreplica.client_core.configs import ConfigEntry
from kreplica.client_core.errors import BrokerRefused, GaveUp
from kreplica.client_core.metadata import TopicView
from kreplica.client_core.topics import BROKERS_DEFAULT
from kreplica.errors import ErrorCode, KreplicaError

TOPIC_WAIT_S = 3.0
"""Time for which a missing topic is looked up again, since brokers learn of a new topic after a delay."""

ADD_PARTITIONS = "add partitions, or use --by-key"


class TopicUnusable(KreplicaError):
    """A topic does not exist, or cannot receive the records; the message says what to do."""


@dataclass(frozen=True, slots=True)
class TopicCreation:
    """Settings for the creation of a missing target topic.

    :param partitions: number of partitions; None for as many as the source needs.
    :param replication_factor: None for the brokers' default.
    """

    create: bool = False
    partitions: int | None = None
    replication_factor: int | None = None
    configs: Mapping[str, str] = field(default_factory=dict)


def existing_topic(cluster: Cluster, name: str) -> TopicView:
    """Return a topic, waiting up to ``TOPIC_WAIT_S`` for it to appear.

    :raise TopicUnusable: the topic does not exist.
    """
    try:
        return cluster.find_topic(name, TOPIC_WAIT_S)
    except GaveUp as error:
        cause = error.__cause__
        if isinstance(cause, BrokerRefused) and cause.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise TopicUnusable(f"there is no topic {name!r}") from None
        raise


def find_target(cluster: Cluster, name: str, creation: TopicCreation) -> TopicView | None:
    """Return the target topic; None if it must be created.

    :raise TopicUnusable: the topic does not exist and may not be created.
    """
    if creation.create:
        cluster.retrying(lambda: cluster.refresh((name,)))
        return cluster.view.topics.get(name)
    try:
        return existing_topic(cluster, name)
    except TopicUnusable as error:
        raise TopicUnusable(f"{error}: create it with --create") from None


def create_target(cluster: Cluster, name: str, creation: TopicCreation, needed: int | None) -> TopicView:
    """Create the target topic.

    :param needed: number of partitions that the source needs; if None or 0, the brokers' default is used.
    """
    count = creation.partitions or needed or BROKERS_DEFAULT
    return create_topic(cluster, name, count, creation.replication_factor or BROKERS_DEFAULT, creation.configs)


def check_partition_count(source: str, needed: int, target: TopicView) -> None:
    """Check that each partition of the source exists in the target.

    :raise TopicUnusable: the target has fewer partitions.
    """
    count = len(target.partitions)
    if count < needed:
        raise TopicUnusable(f"{source} has {needed} partitions and {target.name} has {count}: {ADD_PARTITIONS}")


def keeps_timestamps(settings: Mapping[str, ConfigEntry]) -> bool:
    """Return True if a topic stores the producers' timestamps, False if its brokers replace them.

    :param settings: settings of the topic.
    """
    timestamp_type = settings.get("message.timestamp.type")
    return timestamp_type is None or timestamp_type.value != "LogAppendTime"


def find_or_create(cluster: Cluster, name: str, creation: TopicCreation, needed: int | None) -> TopicView:
    """Return the target topic; create it if it does not exist and may be created.

    :param needed: see ``create_target``.
    :raise TopicUnusable: the topic does not exist and may not be created.
    """
    target = find_target(cluster, name, creation)
    return create_target(cluster, name, creation, needed) if target is None else target
