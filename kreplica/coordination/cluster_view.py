"""What coordinators see of the cluster's metadata; whoever builds a broker fills it in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol
from uuid import UUID

from kreplica.model import TopicPartition


class ClusterView(Protocol):
    """As this broker was last told by the controller; it may lag behind."""

    @property
    def is_complete(self) -> bool:
        """Whether a controller has said everything there is: a topic that is not known then does not exist."""

    def partition_count(self, topic: str) -> int | None:
        """How many partitions a topic has; None where this broker has not heard of it."""

    def leader_of(self, key: TopicPartition) -> int | None:
        """The broker that leads a partition, where one does that lives."""

    def topic_id(self, topic: str) -> UUID | None:
        """A topic's id; None where this broker has not heard of the topic."""

    def topic_name(self, topic_id: UUID) -> str | None:
        """The topic that has an id; None where there is none."""

    def topics(self) -> Iterable[str]:
        """The names of all topics, sorted."""

    def racks_of(self, key: TopicPartition) -> frozenset[str]:
        """The racks of a partition's live replicas, as far as they say."""

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call back, from now on, whenever anything of this may have changed."""

    def on_topics_removed(self, callback: Callable[[Sequence[str]], None]) -> None:
        """Call back, from now on, with topics that were deleted, also with one that was made again since."""
