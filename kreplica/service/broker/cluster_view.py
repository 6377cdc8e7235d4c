"""Provides coordinators with a view of the cluster, based on the metadata that the controller publishes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from uuid import UUID

from kreplica.model import ZERO_UUID, TopicPartition
from kreplica.server.metadata.metadata_cache import MetadataCache, PartitionMetadata


class PublishedCluster:
    """Implements ``coordination.ClusterView`` with a metadata cache."""

    def __init__(self, metadata: MetadataCache) -> None:
        self._metadata = metadata

    @property
    def is_complete(self) -> bool:
        return self._metadata.is_complete

    def partition_count(self, topic: str) -> int | None:
        known = self._metadata.topic(topic)
        return len(known.partitions) if known is not None else None

    def _partition(self, key: TopicPartition) -> PartitionMetadata | None:
        topic = self._metadata.topic(key.topic)
        return topic.partitions.get(key.partition) if topic is not None else None

    def leader_of(self, key: TopicPartition) -> int | None:
        partition = self._partition(key)
        return partition.leader if partition is not None and partition.leader in self._metadata.brokers else None

    def topic_id(self, topic: str) -> UUID | None:
        topic_id = self._metadata.topic_id(topic)
        return topic_id if topic_id != ZERO_UUID else None

    def topic_name(self, topic_id: UUID) -> str | None:
        return self._metadata.name_of(topic_id)

    def topics(self) -> Iterable[str]:
        return sorted(self._metadata.topics)

    def racks_of(self, key: TopicPartition) -> frozenset[str]:
        partition = self._partition(key)
        live = self._metadata.brokers
        replicas = partition.replicas if partition is not None else ()
        racks = (live[replica].rack for replica in replicas if replica in live)
        return frozenset(rack for rack in racks if rack)

    def on_change(self, callback: Callable[[], None]) -> None:
        self._metadata.on_change(callback)

    def on_topics_removed(self, callback: Callable[[Sequence[str]], None]) -> None:
        self._metadata.on_topics_removed(callback)
