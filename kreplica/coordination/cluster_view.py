"""Cluster metadata that coordinators need."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol
from uuid import UUID

from kreplica.model import TopicPartition


class ClusterView(Protocol):
    """Metadata last received from the controller; may be outdated."""

    @property
    def is_complete(self) -> bool:
        """True if a controller has sent complete metadata, so that a topic that is not in it does not exist."""

    def partition_count(self, topic: str) -> int | None:
        """Return the number of partitions of a topic; None if the topic is unknown."""

    def leader_of(self, key: TopicPartition) -> int | None:
        """Return the live leader of a partition, or None."""

    def topic_id(self, topic: str) -> UUID | None:
        """Return the id of a topic; None if the topic is unknown."""

    def topic_name(self, topic_id: UUID) -> str | None:
        """Return the name of the topic with this id; None if the id is unknown."""

    def topics(self) -> Iterable[str]:
        """Return the names of all topics, sorted."""

    def racks_of(self, key: TopicPartition) -> frozenset[str]:
        """Return the known racks of a partition's live replicas."""

    def on_change(self, callback: Callable[[], None]) -> None:
        """Register a callback for changes of the metadata."""

    def on_topics_removed(self, callback: Callable[[Sequence[str]], None]) -> None:
        """Register a callback for deleted topics, including topics that have been created again since."""
