"""Brokers, topics and leaders as immutable values, parsed from Metadata responses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any
from uuid import UUID

from kreplica.client_core.addresses import Address
from kreplica.errors import ErrorCode
from kreplica.model import NO_EPOCH, NO_LEADER, ZERO_UUID


class CoordinatorKind(IntEnum):
    """Type of a coordinator's key: group id or transactional id."""

    GROUP = 0
    TRANSACTION = 1


@dataclass(frozen=True, slots=True)
class BrokerView:
    """A broker and its address."""

    broker_id: int
    address: Address
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionView:
    """A partition.

    :param leader: the leader's broker id; ``NO_LEADER`` if there is none.
    """

    partition: int
    leader: int = NO_LEADER
    leader_epoch: int = NO_EPOCH
    replicas: tuple[int, ...] = ()
    in_sync: tuple[int, ...] = ()
    offline_replicas: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic.

    :param partitions: in ascending order of number; without gaps, except while a partition is being removed.
    """

    name: str
    partitions: tuple[PartitionView, ...]
    topic_id: UUID = ZERO_UUID
    is_internal: bool = False

    def partition(self, number: int) -> PartitionView | None:
        """Return the partition with this number, or None."""
        if 0 <= number < len(self.partitions) and self.partitions[number].partition == number:
            return self.partitions[number]
        return next((each for each in self.partitions if each.partition == number), None)


@dataclass(frozen=True, slots=True)
class ClusterView:
    """Brokers and the requested topics.

    :param controller_id: -1 if unknown.
    :param problems: topic -> error code, for topics without metadata.
    """

    cluster_id: str | None = None
    controller_id: int = -1
    brokers: Mapping[int, BrokerView] = field(default_factory=dict)
    topics: Mapping[str, TopicView] = field(default_factory=dict)
    problems: Mapping[str, ErrorCode] = field(default_factory=dict)


def parse_view(response: dict[str, Any], previous: ClusterView, *, is_complete: bool = False) -> ClusterView:
    """Parse a Metadata response.

    An outdated broker may report an earlier leader, so a known partition with a later leader epoch is kept.

    :param previous: the view before the response.
    :param is_complete: True if the response contains all topics; missing topics then no longer exist.
    """
    brokers = {
        row["node_id"]: BrokerView(row["node_id"], Address(row["host"], row["port"]), row.get("rack"))
        for row in response["brokers"]
    }
    topics = {} if is_complete else dict(previous.topics)
    problems: dict[str, ErrorCode] = {}
    for row in response["topics"]:
        code = ErrorCode.of(row["error_code"])
        if code is ErrorCode.NONE or row["partitions"]:
            topics[row["name"]] = _topic(row, previous.topics.get(row["name"]))
        else:
            problems[row["name"]] = code
            topics.pop(row["name"], None)
    return ClusterView(response.get("cluster_id"), response.get("controller_id", -1), brokers, topics, problems)


def _topic(row: dict[str, Any], previous: TopicView | None) -> TopicView:
    topic_id = row.get("topic_id", ZERO_UUID)
    known = {each.partition: each for each in previous.partitions} if previous and previous.topic_id == topic_id else {}
    partitions = []
    for part in sorted(row["partitions"], key=lambda part: int(part["partition_index"])):
        new = _partition(part)
        old = known.get(new.partition)
        partitions.append(old if old is not None and old.leader_epoch > new.leader_epoch != NO_EPOCH else new)
    return TopicView(row["name"], tuple(partitions), topic_id, row.get("is_internal", False))


def _partition(row: dict[str, Any]) -> PartitionView:
    return PartitionView(
        row["partition_index"],
        row["leader_id"],
        row.get("leader_epoch", NO_EPOCH),
        tuple(row["replica_nodes"]),
        tuple(row["isr_nodes"]),
        tuple(row.get("offline_replicas", ())),
    )
