"""Offsets by time and committed offsets of groups, without group membership."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kreplica.blocking.cluster import Cluster
from kreplica.blocking.coroutines import run
from kreplica.client_core import offset_queries
from kreplica.client_core.fetched_batches import Isolation
from kreplica.client_core.offsets import EARLIEST, LATEST, CommittedOffset, GroupOffsets, TimedOffset
from kreplica.model import TopicPartition


def topic_partitions(cluster: Cluster, topic: str) -> list[TopicPartition]:
    """Return all partitions of a topic."""
    return [TopicPartition(topic, each.partition) for each in cluster.find_topic(topic).partitions]


def earliest_offsets(cluster: Cluster, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the log start offsets of the partitions."""
    found = offsets_by_time(cluster, dict.fromkeys(partitions, EARLIEST))
    return {partition: timed.offset for partition, timed in found.items()}


def end_offsets(
    cluster: Cluster, partitions: Iterable[TopicPartition], isolation: Isolation = Isolation.READ_UNCOMMITTED
) -> dict[TopicPartition, int]:
    """Return the high watermarks of the partitions or, with ``READ_COMMITTED``, their last stable offsets."""
    found = offsets_by_time(cluster, dict.fromkeys(partitions, LATEST), isolation)
    return {partition: timed.offset for partition, timed in found.items()}


def offsets_by_time(
    cluster: Cluster,
    times: Mapping[TopicPartition, int],
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
    *,
    timeout_s: float | None = None,
) -> dict[TopicPartition, TimedOffset]:
    """Return the offset of each partition's first record at or after a time.

    :param times: milliseconds since 1970, or ``EARLIEST``, ``LATEST``, ``MAX_TIMESTAMP``.
    :raise ClientError: a leader did not respond in time.
    """
    return run(offset_queries.offsets_by_time(cluster.core, times, isolation, timeout_s=timeout_s))


def committed_offsets(
    cluster: Cluster, group: str, topics: Iterable[str] | None = None, *, stable: bool = False
) -> dict[TopicPartition, CommittedOffset]:
    """Return a group's committed offsets.

    :param topics: None means all topics in which the group has committed offsets.
    :param stable: wait until no open transaction can change the offsets (KIP-447).
    """
    partitions = None
    if topics is not None:
        partitions = [each for topic in topics for each in topic_partitions(cluster, topic)]
    return run(offset_queries.committed_offsets(cluster.core, group, partitions, stable=stable))


def commit_offsets(cluster: Cluster, group: str, offsets: GroupOffsets, metadata: str = "") -> None:
    """Commit offsets for a group without members.

    :raise BrokerRefused: the group has members (UNKNOWN_MEMBER_ID), or a partition does not exist.
    """
    run(offset_queries.commit_offsets(cluster.core, group, offsets, metadata=metadata))
