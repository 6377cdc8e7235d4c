"""Cluster state for the audit: assigned replicas, in-sync replicas and high watermarks."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from kreplica.blocking import Cluster
from kreplica.blocking.admin import replica_sizes, topic_settings
from kreplica.client_core.addresses import Address
from kreplica.client_core.errors import ClientError
from kreplica.client_core.fetched_batches import Isolation
from kreplica.client_core.metadata import ClusterView
from kreplica.client_core.offsets import EARLIEST, LATEST, list_offsets_body, parse_list_offsets
from kreplica.model import NO_LEADER, TopicPartition
from kreplica.wire.messages import LIST_OFFSETS

LEADERS_TIMEOUT_S = 10.0
CLEANUP_POLICY = "cleanup.policy"


class PartitionFacts(NamedTuple):
    """State of a partition in the cluster.

    :param in_sync: replicas that were in sync both before and after the high watermark was read.
    :param start: log start offset of the leader; None if there is no leader.
    :param high_watermark: high watermark of the leader; None if there is no leader.
    """

    replicas: tuple[int, ...]
    in_sync: frozenset[int]
    topic_id: UUID
    start: int | None = None
    high_watermark: int | None = None


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """State of the cluster.

    :param compacted: compacted topics.
    :param sizes: size of replicas in bytes, by broker and partition, if the brokers report it.
    """

    cluster_id: str | None
    brokers: Mapping[int, Address]
    partitions: Mapping[TopicPartition, PartitionFacts]
    compacted: frozenset[str]
    sizes: Mapping[tuple[int, TopicPartition], int]


def cluster_facts(cluster: Cluster, topics: Collection[str]) -> ClusterFacts:
    """Request the state of a cluster.

    :param topics: empty: all topics, including internal ones.
    :raise ClientError: no broker responds.
    """
    first_facts = _partitions(cluster.retrying(lambda: cluster.refresh(None)), topics)
    starts = _leader_offsets(cluster, first_facts, EARLIEST)
    high_watermarks = _leader_offsets(cluster, first_facts, LATEST)
    # A replica that was in sync before and after has all committed records; a single response may be stale.
    view = cluster.retrying(lambda: cluster.refresh(None))
    second_facts = _partitions(view, topics)
    found = {
        each: second._replace(
            in_sync=first_facts[each].in_sync & second.in_sync,
            start=starts.get(each),
            high_watermark=high_watermarks.get(each),
        )
        for each, second in second_facts.items()
        if each in first_facts
    }
    compacted = {name for name in {each.topic for each in found} if _is_compacted(cluster, name)}
    return ClusterFacts(
        view.cluster_id,
        {broker_id: broker.address for broker_id, broker in view.brokers.items()},
        found,
        frozenset(compacted),
        _sizes(cluster),
    )


def _partitions(view: ClusterView, topics: Collection[str]) -> dict[TopicPartition, PartitionFacts]:
    return {
        TopicPartition(topic.name, each.partition): PartitionFacts(
            each.replicas, frozenset(each.in_sync), topic.topic_id
        )
        for topic in view.topics.values()
        if not topics or topic.name in topics
        for each in topic.partitions
    }


def _leader_offsets(cluster: Cluster, requested: Collection[TopicPartition], time_ms: int) -> dict[TopicPartition, int]:
    """Return the offset at ``time_ms`` of each partition whose leader responds within ``LEADERS_TIMEOUT_S``."""
    found: dict[TopicPartition, int] = {}

    def attempt() -> None:
        problem: ClientError | None = None
        by_leader: dict[int, list[TopicPartition]] = {}
        for each in requested:
            topic = cluster.view.topics.get(each.topic)
            view = topic.partition(each.partition) if topic is not None else None
            if each not in found and view is not None and view.leader != NO_LEADER:
                by_leader.setdefault(view.leader, []).append(each)
        for leader, partitions in by_leader.items():
            body = list_offsets_body(dict.fromkeys(partitions, time_ms), Isolation.READ_UNCOMMITTED)
            try:
                response = cluster.connection(leader).request(LIST_OFFSETS, body)
            except ClientError as error:
                cluster.refresh(None)
                problem = error
                continue
            for partition, result in parse_list_offsets(response).items():
                if isinstance(result, ClientError):
                    problem = result
                else:
                    found[partition] = result.offset
        if problem is not None:
            raise problem

    try:
        cluster.retrying(attempt, LEADERS_TIMEOUT_S)
    except ClientError:
        return found  # without the partitions whose leaders do not respond
    return found


def _is_compacted(cluster: Cluster, topic: str) -> bool:
    try:
        return "compact" in (topic_settings(cluster, topic)[CLEANUP_POLICY].value or "")
    except (ClientError, KeyError):
        return False


def _sizes(cluster: Cluster) -> dict[tuple[int, TopicPartition], int]:
    try:
        return {(each.broker_id, each.partition): each.size_bytes for each in replica_sizes(cluster)}
    except ClientError:
        return {}
