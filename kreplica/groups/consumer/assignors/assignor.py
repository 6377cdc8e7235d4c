"""What an assignor is, and what it is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol
from uuid import UUID

from kreplica.groups.consumer.assignment import NOTHING, Assignment


class Subscriber(NamedTuple):
    """A member, as assignors see it.

    :param topic_ids: of the topics that it is subscribed to and that exist.
    :param target: what it was to have so far.
    """

    topic_ids: frozenset[UUID]
    instance_id: str | None = None
    target: Assignment = NOTHING


class TopicClass(NamedTuple):
    """Topics with the same subscribers.

    :param subscribers: ids of members, sorted.
    :param topic_ids: sorted.
    """

    subscribers: list[str]
    topic_ids: list[UUID]


@dataclass(frozen=True, slots=True)
class Group:
    """What is to be shared out, and among whom.

    :param members: by member id.
    :param partition_counts: of every topic that some member is subscribed to.
    """

    members: Mapping[str, Subscriber]
    partition_counts: Mapping[UUID, int]

    def classes(self) -> list[TopicClass]:
        """The topics that have subscribers, those with the same ones together."""
        alike: dict[frozenset[UUID], list[str]] = {}
        for member_id in sorted(self.members):
            alike.setdefault(self.members[member_id].topic_ids, []).append(member_id)
        subscriptions = list(alike)
        topics: dict[tuple[int, ...], list[UUID]] = {}
        for topic_id in sorted(self.partition_counts):
            key = tuple(index for index, topic_ids in enumerate(subscriptions) if topic_id in topic_ids)
            if key:
                topics.setdefault(key, []).append(topic_id)
        return [
            TopicClass(sorted(member_id for index in key for member_id in alike[subscriptions[index]]), topic_ids)
            for key, topic_ids in topics.items()
        ]


class Assignor(Protocol):
    """A way to share out partitions."""

    @property
    def name(self) -> str:
        """By which clients ask for it (``group.remote.assignor``)."""

    @property
    def class_name(self) -> str:
        """By which Kafka's settings may name it too."""

    def assign(self, group: Group) -> Mapping[str, Assignment]:
        """Give every partition of a topic with subscribers to one of them.

        :return: for each member, also one that gets nothing.
        """
