"""Offsets in questions and answers: by time (ListOffsets), and those that groups committed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple, TypeAlias

from kreplica.client_core.errors import ClientError, check
from kreplica.client_core.fetched_batches import Isolation
from kreplica.model import NO_EPOCH, TopicPartition

EARLIEST = -2
"""As a time: the first offset there is."""

LATEST = -1
"""As a time: where the records end that a reader of that isolation may see."""

MAX_TIMESTAMP = -3
"""As a time: the record with the highest timestamp (KIP-734)."""

NO_OFFSET = -1
NO_GENERATION = -1
CONSUMER = -1
SINGLE_GROUP_MAX = 7
"""Later versions of OffsetFetch ask for several groups."""


@dataclass(frozen=True, slots=True)
class TimedOffset:
    """An offset by time.

    :param offset: ``NO_OFFSET`` where no record is that young.
    :param timestamp_ms: of the record found; -1 where a log's start or end was asked for, or none was found.
    """

    offset: int
    timestamp_ms: int = -1


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """What a group committed for a partition."""

    offset: int
    leader_epoch: int = NO_EPOCH
    metadata: str = ""


class GroupIdentity(NamedTuple):
    """Identity with which a consumer commits offsets for its group, also within a transaction (KIP-447).

    :param generation: generation of a classic group, or member epoch; ``NO_GENERATION`` without a membership.
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
    """A question for offsets by time.

    :param times: milliseconds since 1970, or ``EARLIEST``, ``LATEST``, ``MAX_TIMESTAMP``.
    """

    def row(partition: TopicPartition) -> dict[str, Any]:
        return {"partition_index": partition.partition, "timestamp": times[partition]}

    rows = topic_rows(times, row, "partitions")
    return {"replica_id": CONSUMER, "isolation_level": int(isolation), "topics": rows}


def parse_list_offsets(answer: dict[str, Any]) -> dict[TopicPartition, TimedOffset | ClientError]:
    """What an answer to it says of each partition: an offset, or an error."""
    found: dict[TopicPartition, TimedOffset | ClientError] = {}
    for topic in answer["topics"]:
        for row in topic["partitions"]:
            partition = TopicPartition(topic["name"], row["partition_index"])
            try:
                check(row, f"offset of {partition}")
            except ClientError as error:
                found[partition] = error
            else:
                # Version 0 gives a list, which is empty where nothing is that young.
                old = row.get("old_style_offsets", [NO_OFFSET]) or [NO_OFFSET]
                found[partition] = TimedOffset(row.get("offset", old[0]), row.get("timestamp", -1))
    return found


def parse_committed(topics: list[dict[str, Any]], group: str) -> Iterator[tuple[TopicPartition, CommittedOffset]]:
    """What a group committed, by the rows of an answer; partitions for which it did not are left out.

    :raise BrokerRefused: at the first error of a partition.
    """
    for topic in topics:
        for row in topic["partitions"]:
            check(row, f"offsets of group {group}")
            if row["committed_offset"] >= 0:
                epoch = row.get("committed_leader_epoch", NO_EPOCH)
                committed = CommittedOffset(row["committed_offset"], epoch, row["metadata"] or "")
                yield TopicPartition(topic["name"], row["partition_index"]), committed


def check_committed(answer: Mapping[str, Any], what: str) -> None:
    """Check the response to a commit of offsets.

    :param what: names the committing group or transaction in the error.
    :raise BrokerRefused: with the first error of a partition.
    """
    for topic in answer["topics"]:
        for row in topic["partitions"]:
            check(row, f"commit of {topic['name']}-{row['partition_index']} by {what}")


def offset_rows(offsets: GroupOffsets, metadata: str = "") -> list[dict[str, Any]]:
    """Offsets as requests carry them.

    :param metadata: of those that bring none.
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
    """Partitions, gathered under the names of their topics.

    :param row: gives what the request has for a partition; ``name`` is what it calls all of them.
    """
    return [
        {"name": topic, name: [row(each) for each in group]}
        for topic, group in groupby(sorted(partitions), key=lambda each: each.topic)
    ]
