"""Interface of assignors and their input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol
from uuid import UUID

from kreplica.groups.consumer.assignment import NO_PARTITIONS, Assignment


class Subscriber(NamedTuple):
    """The attributes of a member that assignors use.

    :param topic_ids: existing topics that the member is subscribed to.
    :param target: its previous target.
    """

    topic_ids: frozenset[UUID]
    instance_id: str | None = None
    target: Assignment = NO_PARTITIONS


class TopicClass(NamedTuple):
    """Topics with the same subscribers.

    :param subscribers: member ids, sorted.
    :param topic_ids: sorted.
    """

    subscribers: list[str]
    topic_ids: list[UUID]


@dataclass(frozen=True, slots=True)
class Group:
    """Input of an assignor.

    :param members: by member id.
    :param partition_counts: number of partitions by id of each subscribed topic.
    """

    members: Mapping[str, Subscriber]
    partition_counts: Mapping[UUID, int]

    def classes(self) -> list[TopicClass]:
        """Group the topics that have subscribers by their sets of subscribers."""
        members_by_topics: dict[frozenset[UUID], list[str]] = {}
        for member_id in sorted(self.members):
            members_by_topics.setdefault(self.members[member_id].topic_ids, []).append(member_id)
        subscriptions = list(members_by_topics)
        topics: dict[tuple[int, ...], list[UUID]] = {}
        for topic_id in sorted(self.partition_counts):
            key = tuple(index for index, topic_ids in enumerate(subscriptions) if topic_id in topic_ids)
            if key:
                topics.setdefault(key, []).append(topic_id)
        return [
            TopicClass(
                sorted(member_id for index in key for member_id in members_by_topics[subscriptions[index]]), topic_ids
            )
            for key, topic_ids in topics.items()
        ]


class Assignor(Protocol):
    """A partition assignment strategy."""

    @property
    def name(self) -> str:
        """Name by which clients select the assignor (``group.remote.assignor``)."""

    @property
    def class_name(self) -> str:
        """Class name accepted in Kafka's settings."""

    def assign(self, group: Group) -> Mapping[str, Assignment]:
        """Assign every partition of a subscribed topic to one of its subscribers.

        :return: the assignment of each member, which may be empty.
        """
