"""Topics, settings and sizes: the little administration that scripts need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kreplica.blocking.cluster import Cluster
from kreplica.blocking.connection import Connection
from kreplica.client_core.configs import (
    ConfigChange,
    ConfigEntry,
    ConfigResource,
    change_row,
    parse_entry,
    resource_row,
)
from kreplica.client_core.errors import BrokerRefused, ClientError, check
from kreplica.client_core.metadata import TopicView
from kreplica.client_core.topics import BROKERS_DEFAULT, NewTopic, new_topic_row
from kreplica.errors import ErrorCode
from kreplica.model import TopicPartition
from kreplica.wire.messages import (
    CREATE_TOPICS,
    DELETE_TOPICS,
    DESCRIBE_CONFIGS,
    DESCRIBE_LOG_DIRS,
    INCREMENTAL_ALTER_CONFIGS,
)

CREATE_TIMEOUT_MS = 20_000
DELETE_BY_NAME_MAX = 5


@dataclass(frozen=True, slots=True)
class ReplicaSize:
    """What a replica takes in a log directory of its broker.

    :param offset_lag: how far it is behind the leader's high watermark; of a future replica, behind the present one.
    :param is_future: it is being moved to this directory.
    """

    broker_id: int
    log_dir: str
    partition: TopicPartition
    size_bytes: int
    offset_lag: int
    is_future: bool


def create_topic(
    cluster: Cluster,
    name: str,
    partitions: int = BROKERS_DEFAULT,
    replication_factor: int = BROKERS_DEFAULT,
    configs: Mapping[str, str] | None = None,
    *,
    timeout_s: float | None = None,
) -> TopicView:
    """Make a topic, and wait until each of its partitions has a leader.

    :raise BrokerRefused: it is there already, or refused.
    """
    topic = new_topic_row(NewTopic(name, partitions, replication_factor, configs or {}))
    body = {"topics": [topic], "timeout_ms": CREATE_TIMEOUT_MS, "validate_only": False}
    doubtful = False

    def create(connection: Connection) -> None:
        nonlocal doubtful
        again, doubtful = doubtful, True
        try:
            check(connection.request(CREATE_TOPICS, body)["topics"][0], f"topic {name}")
        except BrokerRefused as error:
            if not (again and error.code is ErrorCode.TOPIC_ALREADY_EXISTS):
                doubtful = again or error.code is ErrorCode.REQUEST_TIMED_OUT
                raise

    cluster.at_controller(create, timeout_s)

    def led() -> TopicView:
        cluster.doubt()
        view = cluster.topic(name)
        for partition in view.partitions:
            cluster.leader(TopicPartition(name, partition.partition))
        return view

    return cluster.retrying(led, timeout_s)


def delete_topic(cluster: Cluster, name: str, *, timeout_s: float | None = None) -> None:
    """Delete a topic.

    :raise BrokerRefused: there is none, or it may not be deleted.
    """
    body = {"topic_names": [name], "timeout_ms": CREATE_TIMEOUT_MS}

    def delete(connection: Connection) -> None:
        check(connection.request(DELETE_TOPICS, body, at_most=DELETE_BY_NAME_MAX)["responses"][0], f"topic {name}")

    cluster.at_controller(delete, timeout_s)


def topic_names(cluster: Cluster) -> list[str]:
    """All topics that are not internal, by name."""
    view = cluster.retrying(lambda: cluster.refresh(None))
    return sorted(topic.name for topic in view.topics.values() if not topic.is_internal)


def topic_settings(cluster: Cluster, topic: str) -> dict[str, ConfigEntry]:
    """All settings of a topic, by name."""
    return _settings(cluster, ConfigResource.topic(topic), lambda body: cluster.ask(DESCRIBE_CONFIGS, body))


def broker_settings(cluster: Cluster, broker_id: int) -> dict[str, ConfigEntry]:
    """All settings of a broker, by name; it is asked itself."""

    def ask(body: dict[str, Any]) -> dict[str, Any]:
        if not cluster.view.brokers:
            cluster.refresh()
        return cluster.connection(broker_id).request(DESCRIBE_CONFIGS, body)

    return _settings(cluster, ConfigResource.broker(broker_id), ask)


def _settings(cluster: Cluster, resource: ConfigResource, ask: Any) -> dict[str, ConfigEntry]:
    rows = [resource_row(resource, configuration_keys=None)]
    body = {"resources": rows, "include_synonyms": False, "include_documentation": False}

    def attempt() -> dict[str, ConfigEntry]:
        row = ask(body)["results"][0]
        check(row, f"settings of {resource}")
        return {each["name"]: parse_entry(each) for each in row["configs"]}

    return cluster.retrying(attempt)


def change_topic_settings(cluster: Cluster, topic: str, changes: Mapping[str, str | None]) -> None:
    """Set some settings of a topic; None: back to the default (KIP-339).

    :raise BrokerRefused: one is not known or not valid; nothing was changed.
    """
    resource = ConfigResource.topic(topic)
    wanted = [
        ConfigChange.delete(name) if value is None else ConfigChange.set(name, value) for name, value in changes.items()
    ]
    rows = [resource_row(resource, configs=[change_row(each) for each in wanted])]
    body = {"resources": rows, "validate_only": False}

    def attempt(connection: Connection) -> None:
        check(connection.request(INCREMENTAL_ALTER_CONFIGS, body)["responses"][0], f"settings of {resource}")

    cluster.at_controller(attempt)


def replica_sizes(cluster: Cluster, topics: Sequence[str] | None = None) -> list[ReplicaSize]:
    """What replicas take on disk, as each live broker says of its own.

    :param topics: None: all that there are.
    :raise ClientError: a broker that the cluster knows does not answer.
    """
    rows = None
    if topics is not None:
        views = [cluster.find_topic(topic) for topic in topics]
        rows = [{"topic": view.name, "partitions": [each.partition for each in view.partitions]} for view in views]
    brokers = sorted(cluster.retrying(cluster.refresh).brokers)
    return [size for broker_id in brokers for size in _sizes_of(cluster, broker_id, {"topics": rows})]


def _sizes_of(cluster: Cluster, broker_id: int, body: dict[str, Any]) -> list[ReplicaSize]:
    def attempt() -> list[ReplicaSize]:
        if broker_id not in cluster.view.brokers:
            cluster.refresh()
        answer = cluster.connection(broker_id).request(DESCRIBE_LOG_DIRS, body)
        return [
            ReplicaSize(
                broker_id,
                directory["log_dir"],
                TopicPartition(topic["name"], row["partition_index"]),
                row["partition_size"],
                row["offset_lag"],
                row["is_future_key"],
            )
            for directory in answer["results"]
            for topic in directory["topics"]
            for row in topic["partitions"]
        ]

    return cluster.retrying(attempt)


def size_of_leaders(cluster: Cluster, topic: str) -> dict[int, int]:
    """Bytes on disk of each partition's leader, as far as brokers say: what a copy of the topic will read."""
    try:
        sizes = {(size.broker_id, size.partition): size.size_bytes for size in replica_sizes(cluster, [topic])}
    except ClientError:
        return {}
    view = cluster.find_topic(topic)
    leaders = {each.partition: (each.leader, TopicPartition(topic, each.partition)) for each in view.partitions}
    return {partition: sizes[leader] for partition, leader in leaders.items() if leader in sizes}
