"""What a member of a group of KIP-848 knows, and what it says in its heartbeats: pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias
from uuid import UUID

from kreplica.client.group.options import GroupOptions
from kreplica.client_core.metadata import TopicView
from kreplica.model import TopicPartition

JOINING = 0
LEAVING = -1
LEAVING_FOR_A_WHILE = -2
"""Of a static member."""

IdPartition: TypeAlias = tuple[UUID, int]

Owned: TypeAlias = Mapping[TopicPartition, UUID]
"""Partitions, each with the id of its topic: one that was deleted and made again is another one."""


class Standing:
    """A member says only what the coordinator has not taken in yet, and all of it after an answer was missed.

    :param member_id: chosen by the member itself (KIP-1082).
    :ivar epoch: what it was told last; ``JOINING`` while it is no member.
    :ivar interval_s: how often it is to be heard.
    :ivar target: what it may own, as the coordinator said last; None while it has said nothing yet.
    """

    def __init__(self, options: GroupOptions, member_id: str, topics: Iterable[str]) -> None:
        self.member_id = member_id
        self.epoch = JOINING
        self.interval_s = options.heartbeat_interval_s
        self.target: frozenset[IdPartition] | None = None
        self.topics = sorted(topics)
        self._options = options
        self._owned: Owned = {}
        self._taken_in: dict[str, Any] = {}

    @property
    def owned(self) -> Owned:
        """What it owns now."""
        return self._owned

    # --- heartbeats ---

    def question(self) -> dict[str, Any]:
        """The next heartbeat, of which ``answered`` is told."""
        options = self._options
        said = {
            "rack_id": options.rack,
            "rebalance_timeout_ms": round(options.rebalance_timeout_s * 1000),
            "subscribed_topic_names": self.topics,
            "server_assignor": options.remote_assignor,
            "topic_partitions": _rows(self._owned),
        }
        new = {
            name: value for name, value in said.items() if name not in self._taken_in or self._taken_in[name] != value
        }
        return {**self._member(self.epoch), **new}

    def answered(self, question: dict[str, Any], answer: dict[str, Any]) -> bool:
        """Take an answer in.

        :return: whether the target has changed.
        """
        self._taken_in.update({name: value for name, value in question.items() if name in _CHANGING})
        self.member_id = answer["member_id"] or self.member_id
        self.epoch = answer["member_epoch"]
        self.interval_s = answer["heartbeat_interval_ms"] / 1000 or self.interval_s
        assignment = answer["assignment"]
        if assignment is None:
            return False
        rows = assignment["topic_partitions"]
        target = frozenset((row["topic_id"], number) for row in rows for number in row["partitions"])
        if target == self.target:
            return False
        self.target = target
        return True

    def not_answered(self) -> None:
        """What was said may be known to the coordinator, or not."""
        self._taken_in = {}

    def last_words(self) -> dict[str, Any]:
        """The heartbeat that says that it goes; a static member is expected back."""
        return self._member(LEAVING if self._options.instance_id is None else LEAVING_FOR_A_WHILE)

    def lost(self) -> None:
        """It is no member any more, as far as it knows: it has nothing, and joins again."""
        self.epoch, self.target, self._owned = JOINING, None, {}
        self._taken_in = {}

    def _member(self, epoch: int) -> dict[str, Any]:
        return {
            "group_id": self._options.group_id,
            "member_id": self.member_id,
            "member_epoch": epoch,
            "instance_id": self._options.instance_id,
        }

    # --- reconciliation ---

    def wanted(self, topics: Mapping[str, TopicView]) -> tuple[Owned, bool]:
        """The target by the names of its topics.

        :param topics: as far as they are known.
        :return: also, whether all are known; partitions of others are left out.
        """
        names = {topic.topic_id: name for name, topic in topics.items()}
        names.update({topic_id: partition.topic for partition, topic_id in self._owned.items()})
        target = self.target or frozenset()
        known = {TopicPartition(names[each], number): each for each, number in sorted(target) if each in names}
        return known, len(known) == len(target)

    def surplus(self, wanted: Owned) -> frozenset[TopicPartition]:
        """What it owns, and is to give up."""
        return frozenset(each for each, topic_id in self._owned.items() if wanted.get(each) != topic_id)

    def gave_up(self, partitions: Iterable[TopicPartition]) -> None:
        """It owns these no more."""
        gone = frozenset(partitions)
        self._owned = {each: topic_id for each, topic_id in self._owned.items() if each not in gone}

    def takes(self, wanted: Owned) -> None:
        """It owns these too."""
        self._owned = {**self._owned, **wanted}


_CHANGING = ("rack_id", "rebalance_timeout_ms", "subscribed_topic_names", "server_assignor", "topic_partitions")


def _rows(owned: Owned) -> list[dict[str, Any]]:
    gathered: dict[UUID, list[int]] = {}
    for partition, topic_id in sorted(owned.items()):
        gathered.setdefault(topic_id, []).append(partition.partition)
    return [{"topic_id": topic_id, "partitions": numbers} for topic_id, numbers in gathered.items()]
