"""ListOffsets and committed offsets, as encoded in requests and responses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple, TypeAlias

from kreplica.client_core.errors import ClientError, check
from kreplica.client_core.fetched_batches import Isolation
from kreplica.model import NO_EPOCH, TopicPartition

EARLIEST = -2
"""Special time that requests the log start offset."""

LATEST = -1
"""Special time that requests the high watermark, or the last stable offset with ``READ_COMMITTED``."""

MAX_TIMESTAMP = -3
"""Special time that requests the record with the highest timestamp (KIP-734)."""

NO_OFFSET = -1
NO_GENERATION = -1
CONSUMER = -1
SINGLE_GROUP_MAX = 7
"""Last version of OffsetFetch with a single group."""


@dataclass(frozen=True, slots=True)
class TimedOffset:
    """Offset of a record that was looked up by time.

    :param offset: ``NO_OFFSET`` if no record is that recent.
    :param timestamp_ms: the record's timestamp; -1 for the start or end of a log, or if no record was found.
    """

    offset: int
    timestamp_ms: int = -1


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """A group's committed offset in one partition."""

    offset: int
    leader_epoch: int = NO_EPOCH
    metadata: str = ""


class GroupIdentity(NamedTuple):
    """Identity of a consumer that commits offsets for its group, directly or within a transaction (KIP-447).

    :param generation: generation of a classic group, or member epoch; ``NO_GENERATION`` for a non-member.
    """

    group_id: str
    generation: int = NO_GENERATION
    member_id: str = ""
    instance_id: str | None = None


GroupOffsets: TypeAlias = (
    Mapping[TopicPartition, int]
    | Mapping[TopicPartition, CommittedOffset]
    | Mapping[TopicPartition, int | CommittedOffset]
)
"""Offsets that a group commits."""


def list_offsets_body(times: Mapping[TopicPartition, int], isolation: Isolation) -> dict[str, Any]:
    """Build a ListOffsets request.

    :param times: milliseconds since 1970, or ``EARLIEST``, ``LATEST``, ``MAX_TIMESTAMP``.
    """

    def row(partition: TopicPartition) -> dict[str, Any]:
        return {"partition_index": partition.partition, "timestamp": times[partition]}

    rows = topic_rows(times, row, "partitions")
    return {"replica_id": CONSUMER, "isolation_level": int(isolation), "topics": rows}


def parse_list_offsets(response: dict[str, Any]) -> dict[TopicPartition, TimedOffset | ClientError]:
    """Parse a ListOffsets response: an offset or an error for each partition."""
    found: dict[TopicPartition, TimedOffset | ClientError] = {}
    for topic in response["topics"]:
        for row in topic["partitions"]:
            partition = TopicPartition(topic["name"], row["partition_index"])
            try:
                check(row, f"offset of {partition}")
            except ClientError as error:
                found[partition] = error
            else:
                # Version 0 has a list, which is empty if no record is that recent.
                old = row.get("old_style_offsets", [NO_OFFSET]) or [NO_OFFSET]
                found[partition] = TimedOffset(row.get("offset", old[0]), row.get("timestamp", -1))
    return found


def parse_committed(topics: list[dict[str, Any]], group: str) -> Iterator[tuple[TopicPartition, CommittedOffset]]:
    """Parse the topics in an OffsetFetch response; partitions without a committed offset are skipped.

    :raise BrokerRefused: a partition has an error; the first one is raised.
    """
    for topic in topics:
        for row in topic["partitions"]:
            check(row, f"offsets of group {group}")
            if row["committed_offset"] >= 0:
                epoch = row.get("committed_leader_epoch", NO_EPOCH)
                committed = CommittedOffset(row["committed_offset"], epoch, row["metadata"] or "")
                yield TopicPartition(topic["name"], row["partition_index"]), committed


def check_committed(response: Mapping[str, Any], what: str) -> None:
    """Raise the first error in the response to an offset commit.

    :param what: the committing group or transaction, for the error message.
    :raise BrokerRefused: a partition has an error; the first one is raised.
    """
    for topic in response["topics"]:
        for row in topic["partitions"]:
            check(row, f"commit of {topic['name']}-{row['partition_index']} by {what}")


def offset_rows(offsets: GroupOffsets, metadata: str = "") -> list[dict[str, Any]]:
    """Return offsets as encoded in commit requests.

    :param metadata: used for offsets that have no metadata of their own.
    """

    def row(partition: TopicPartition) -> dict[str, Any]:
        offset = offsets[partition]
        committed = offset if isinstance(offset, CommittedOffset) else CommittedOffset(offset, metadata=metadata)
        return {
            "partition_index": partition.partition,
            "committed_offset": committed.offset,
            "committed_leader_epoch": committed.leader_epoch,
            "committed_metadata": committed.metadata,
        }

    return topic_rows(offsets, row, "partitions")


def topic_rows(
    partitions: Iterable[TopicPartition], row: Callable[[TopicPartition], Any], name: str
) -> list[dict[str, Any]]:
    """Group partitions by topic, as in requests.

    :param row: returns the entry for a partition.
    :param name: field of a topic that contains the entries.
    """
    return [
        {"name": topic, name: [row(each) for each in group]}
        for topic, group in groupby(sorted(partitions), key=lambda each: each.topic)
    ]
