"""Topics, settings, replica sizes and delegation tokens: the parts of the admin client for scripts and Spark jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kreplica.blocking.cluster import Cluster
from kreplica.blocking.coroutines import run
from kreplica.blocking.offsets import topic_partitions
from kreplica.client_core.admin import Admin
from kreplica.client_core.admin.delegation_tokens import DelegationToken
from kreplica.client_core.configs import ConfigChange, ConfigEntry, ConfigResource
from kreplica.client_core.errors import ClientError
from kreplica.client_core.metadata import TopicView
from kreplica.client_core.topics import BROKERS_DEFAULT
from kreplica.model import TopicPartition


@dataclass(frozen=True, slots=True)
class ReplicaSize:
    """Size of a replica in a log directory of its broker.

    :param offset_lag: lag behind the leader's high watermark or, for a future replica, behind the current replica.
    :param is_future: True if the replica is being moved to this directory.
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
    """Create a topic and wait until each of its partitions has a leader.

    :raise BrokerRefused: the topic already exists, or the controller rejected the request.
    """
    run(Admin(cluster.core).create_topic(name, partitions, replication_factor, configs, timeout_s=timeout_s))
    return cluster.retrying(lambda: cluster.topic(name), timeout_s)


def delete_topic(cluster: Cluster, name: str, *, timeout_s: float | None = None) -> None:
    """Delete a topic.

    :raise BrokerRefused: the topic does not exist, or the controller rejected the request.
    """
    run(Admin(cluster.core).delete_topics([name], timeout_s=timeout_s)).raise_first()


def topic_names(cluster: Cluster) -> list[str]:
    """Return the names of all topics that are not internal, sorted."""
    return [topic.name for topic in run(Admin(cluster.core).list_topics())]


def topic_settings(cluster: Cluster, topic: str) -> Mapping[str, ConfigEntry]:
    """Return all configuration entries of a topic, by name."""
    return run(Admin(cluster.core).describe_config(ConfigResource.topic(topic)))


def broker_settings(cluster: Cluster, broker_id: int) -> Mapping[str, ConfigEntry]:
    """Return all configuration entries of a broker, by name, as reported by that broker."""
    return run(Admin(cluster.core).describe_config(ConfigResource.broker(broker_id)))


def change_topic_settings(cluster: Cluster, topic: str, changes: Mapping[str, str | None]) -> None:
    """Change configuration entries of a topic (KIP-339).

    :param changes: name -> new value; None restores the default.
    :raise BrokerRefused: a name or value is invalid; nothing was changed.
    """
    config_changes = [
        ConfigChange.delete(name) if value is None else ConfigChange.set(name, value) for name, value in changes.items()
    ]
    run(Admin(cluster.core).alter_config(ConfigResource.topic(topic), config_changes))


def replica_sizes(cluster: Cluster, topics: Sequence[str] | None = None) -> list[ReplicaSize]:
    """Return the sizes of replicas; each live broker reports the sizes of its own replicas.

    :param topics: None means all topics.
    :raise ClientError: a live broker did not respond.
    """
    partitions = None
    if topics is not None:
        partitions = [partition for topic in topics for partition in topic_partitions(cluster, topic)]
    found = run(Admin(cluster.core).describe_log_dirs(partitions=partitions)).raise_first()
    return [
        ReplicaSize(broker_id, directory.path, partition, each.size_bytes, each.offset_lag, each.is_future)
        for broker_id, directories in found.items()
        for directory in directories
        for partition, each in directory.replicas.items()
    ]


def size_of_leaders(cluster: Cluster, topic: str) -> dict[int, int]:
    """Return the size on disk of each partition's leader replica in bytes; empty if a broker did not respond."""
    try:
        sizes = {(size.broker_id, size.partition): size.size_bytes for size in replica_sizes(cluster, [topic])}
    except ClientError:
        return {}
    view = cluster.find_topic(topic)
    leaders = {each.partition: (each.leader, TopicPartition(topic, each.partition)) for each in view.partitions}
    return {partition: sizes[leader] for partition, leader in leaders.items() if leader in sizes}


def create_delegation_token(
    cluster: Cluster, *, renewers: Iterable[str] = (), max_lifetime_ms: int | None = None, owner: str | None = None
) -> DelegationToken:
    """Create a token; clients that authenticate with it act as its owner for a limited time.

    :param renewers: principals that may renew and expire the token, such as ``User:scheduler``.
    :param max_lifetime_ms: at most ``delegation.token.max.lifetime.ms``, the default.
    :param owner: principal that clients with the token act as; by default, the client's own principal.
    :raise BrokerRefused: tokens are disabled, or the client is not authorized or has itself authenticated with a token.
    """
    created = Admin(cluster.core).create_delegation_token(
        renewers=renewers, max_lifetime_ms=max_lifetime_ms, owner=owner
    )
    return run(created)


def renew_delegation_token(cluster: Cluster, hmac: bytes, period_ms: int | None = None) -> int:
    """Extend the validity of a token; return its new expiry time in milliseconds since 1970.

    :param period_ms: time from now; by default, ``delegation.token.expiry.time.ms``.
    :raise BrokerRefused: the token has expired, or belongs to another user.
    """
    return run(Admin(cluster.core).renew_delegation_token(hmac, period_ms))


def expire_delegation_token(cluster: Cluster, hmac: bytes, period_ms: int | None = None) -> int:
    """Delete a token or set its expiry time; return the expiry time in milliseconds since 1970.

    :param period_ms: time from now; None deletes the token.
    :raise BrokerRefused: the token has expired, or belongs to another user.
    """
    return run(Admin(cluster.core).expire_delegation_token(hmac, period_ms))


def delegation_tokens(cluster: Cluster, owners: Iterable[str] | None = None) -> Sequence[DelegationToken]:
    """Return the tokens that the client is allowed to see.

    :param owners: return only tokens of these principals; None returns all tokens.
    """
    return run(Admin(cluster.core).describe_delegation_tokens(owners))
