"""State and heartbeats of a KIP-848 member."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias
from uuid import UUID

from kreplica.client.group.options import GroupOptions
from kreplica.client_core.metadata import TopicView
from kreplica.model import TopicPartition

JOINING = 0
LEAVING = -1
LEAVING_TEMPORARILY = -2
"""Member epoch of a static member that leaves temporarily."""

IdPartition: TypeAlias = tuple[UUID, int]

Owned: TypeAlias = Mapping[TopicPartition, UUID]
"""Partitions with their topic ids; a recreated topic has a different id."""


class MemberState:
    """State of a member; its heartbeats contain only fields that the coordinator has not acknowledged.

    After an error, the next heartbeat contains all fields.

    :param member_id: chosen by the member (KIP-1082).
    :ivar epoch: last received member epoch; ``JOINING`` while not in the group.
    :ivar interval_s: heartbeat interval.
    :ivar target: partitions of the last received target assignment; None before the first one.
    """

    def __init__(self, options: GroupOptions, member_id: str, topics: Iterable[str]) -> None:
        self.member_id = member_id
        self.epoch = JOINING
        self.interval_s = options.heartbeat_interval_s
        self.target: frozenset[IdPartition] | None = None
        self.topics = sorted(topics)
        self._options = options
        self._owned: Owned = {}
        self._acknowledged: dict[str, Any] = {}

    @property
    def owned(self) -> Owned:
        """The partitions that the member currently owns."""
        return self._owned

    # --- heartbeats ---

    def request_body(self) -> dict[str, Any]:
        """Return the body of the next heartbeat."""
        options = self._options
        fields = {
            "rack_id": options.rack,
            "rebalance_timeout_ms": round(options.rebalance_timeout_s * 1000),
            "subscribed_topic_names": self.topics,
            "server_assignor": options.remote_assignor,
            "topic_partitions": _rows(self._owned),
        }
        new = {
            name: value
            for name, value in fields.items()
            if name not in self._acknowledged or self._acknowledged[name] != value
        }
        return {**self._member(self.epoch), **new}

    def process_response(self, request_body: dict[str, Any], response: dict[str, Any]) -> bool:
        """Process a heartbeat's response.

        :return: True if the target assignment changed.
        """
        self._acknowledged.update({name: value for name, value in request_body.items() if name in _DELTA_FIELDS})
        self.member_id = response["member_id"] or self.member_id
        self.epoch = response["member_epoch"]
        self.interval_s = response["heartbeat_interval_ms"] / 1000 or self.interval_s
        assignment = response["assignment"]
        if assignment is None:
            return False
        rows = assignment["topic_partitions"]
        target = frozenset((row["topic_id"], number) for row in rows for number in row["partitions"])
        if target == self.target:
            return False
        self.target = target
        return True

    def reset_acknowledged(self) -> None:
        """Include all fields in the next heartbeat, because the coordinator may not know them."""
        self._acknowledged = {}

    def leave_body(self) -> dict[str, Any]:
        """Return the body of the heartbeat that leaves the group; a static member leaves temporarily."""
        return self._member(LEAVING if self._options.instance_id is None else LEAVING_TEMPORARILY)

    def reset(self) -> None:
        """Reset the state, because the member is no longer in the group."""
        self.epoch, self.target, self._owned = JOINING, None, {}
        self._acknowledged = {}

    def _member(self, epoch: int) -> dict[str, Any]:
        return {
            "group_id": self._options.group_id,
            "member_id": self.member_id,
            "member_epoch": epoch,
            "instance_id": self._options.instance_id,
        }

    # --- reconciliation ---

    def target_by_name(self, topics: Mapping[str, TopicView]) -> tuple[Owned, bool]:
        """Return the target assignment by topic name.

        :param topics: topics with known metadata.
        :return: the target's partitions of known topics, and True if these are all of its partitions.
        """
        names = {topic.topic_id: name for name, topic in topics.items()}
        names.update({topic_id: partition.topic for partition, topic_id in self._owned.items()})
        target = self.target or frozenset()
        known = {TopicPartition(names[each], number): each for each, number in sorted(target) if each in names}
        return known, len(known) == len(target)

    def to_release(self, target_owned: Owned) -> frozenset[TopicPartition]:
        """Return the owned partitions that are not in the target."""
        return frozenset(each for each, topic_id in self._owned.items() if target_owned.get(each) != topic_id)

    def remove_owned(self, partitions: Iterable[TopicPartition]) -> None:
        """Remove partitions from the owned partitions."""
        removed = frozenset(partitions)
        self._owned = {each: topic_id for each, topic_id in self._owned.items() if each not in removed}

    def add_owned(self, target_owned: Owned) -> None:
        """Add partitions to the owned partitions."""
        self._owned = {**self._owned, **target_owned}


_DELTA_FIELDS = ("rack_id", "rebalance_timeout_ms", "subscribed_topic_names", "server_assignor", "topic_partitions")


def _rows(owned: Owned) -> list[dict[str, Any]]:
    gathered: dict[UUID, list[int]] = {}
    for partition, topic_id in sorted(owned.items()):
        gathered.setdefault(topic_id, []).append(partition.partition)
    return [{"topic_id": topic_id, "partitions": numbers} for topic_id, numbers in gathered.items()]
