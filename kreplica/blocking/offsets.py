"""Offsets by time, and the offsets that groups committed; no membership in a group is needed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from kreplica.blocking.batches import Isolation
from kreplica.blocking.cluster import Cluster, CoordinatorKind
from kreplica.blocking.connection import Connection
from kreplica.blocking.errors import ClientError, check
from kreplica.model import NO_EPOCH, TopicPartition
from kreplica.wire.messages import LIST_OFFSETS, OFFSET_COMMIT, OFFSET_FETCH, Api

EARLIEST = -2
"""As a time: the first offset there is."""

LATEST = -1
"""As a time: where the records end that a reader of that isolation may see."""

MAX_TIMESTAMP = -3
"""As a time: the record with the highest timestamp (KIP-734)."""

NO_OFFSET = -1
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


def topic_partitions(cluster: Cluster, topic: str) -> list[TopicPartition]:
    """All partitions of a topic."""
    return [TopicPartition(topic, each.partition) for each in cluster.find_topic(topic).partitions]


def earliest_offsets(cluster: Cluster, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Where logs begin."""
    found = offsets_by_time(cluster, dict.fromkeys(partitions, EARLIEST))
    return {partition: timed.offset for partition, timed in found.items()}


def end_offsets(
    cluster: Cluster, partitions: Iterable[TopicPartition], isolation: Isolation = Isolation.READ_UNCOMMITTED
) -> dict[TopicPartition, int]:
    """Where what may be read ends: the offsets of the next records.

    :param isolation: with ``READ_COMMITTED``, before the first transaction that is open.
    """
    found = offsets_by_time(cluster, dict.fromkeys(partitions, LATEST), isolation)
    return {partition: timed.offset for partition, timed in found.items()}


def offsets_by_time(
    cluster: Cluster,
    times: Mapping[TopicPartition, int],
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
    *,
    timeout_s: float | None = None,
) -> dict[TopicPartition, TimedOffset]:
    """The first record of each partition that is not older than a time.

    :param times: milliseconds since 1970, or ``EARLIEST``, ``LATEST``, ``MAX_TIMESTAMP``.
    :raise ClientError: some leader does not answer within the time.
    """
    found: dict[TopicPartition, TimedOffset] = {}

    def attempt() -> None:
        problem: ClientError | None = None
        for leader, asked in _by_leader(cluster, [each for each in times if each not in found]):
            try:
                connection = cluster.connection(leader)
                problem = _ask_leader(connection, {each: times[each] for each in asked}, isolation, found) or problem
            except ClientError as error:
                problem = error
        if problem is not None:
            raise problem

    cluster.retrying(attempt, timeout_s)
    return {partition: found[partition] for partition in times}


def _by_leader(cluster: Cluster, partitions: list[TopicPartition]) -> list[tuple[int, list[TopicPartition]]]:
    led = sorted((cluster.leader(partition), partition) for partition in partitions)
    return [(leader, [each for _, each in group]) for leader, group in groupby(led, key=lambda pair: pair[0])]


def _ask_leader(
    connection: Connection,
    times: Mapping[TopicPartition, int],
    isolation: Isolation,
    found: dict[TopicPartition, TimedOffset],
) -> ClientError | None:
    """Note what a leader answers, and give the last error that it answers for a partition."""
    topics = [
        {"name": topic, "partitions": [{"partition_index": each.partition, "timestamp": times[each]} for each in group]}
        for topic, group in groupby(sorted(times), key=lambda each: each.topic)
    ]
    body = {"replica_id": CONSUMER, "isolation_level": int(isolation), "topics": topics}
    problem: ClientError | None = None
    for topic in connection.request(LIST_OFFSETS, body)["topics"]:
        for row in topic["partitions"]:
            partition = TopicPartition(topic["name"], row["partition_index"])
            try:
                check(row, f"offset of {partition}")
            except ClientError as error:
                problem = error
            else:
                # Version 0 gives a list, which is empty where nothing is that young.
                old = row.get("old_style_offsets", [NO_OFFSET]) or [NO_OFFSET]
                found[partition] = TimedOffset(row.get("offset", old[0]), row.get("timestamp", -1))
    return problem


# --- groups ---


def committed_offsets(cluster: Cluster, group: str, topics: Iterable[str] | None = None) -> dict[
    TopicPartition, CommittedOffset
]:  # fmt: skip
    """What a group committed.

    :param topics: None: all that it committed for.
    """
    wanted = None
    if topics is not None:
        partitions = [each for topic in topics for each in topic_partitions(cluster, topic)]
        wanted = _topic_rows(partitions, lambda row: row.partition, "partition_indexes")

    def attempt(connection: Connection) -> dict[TopicPartition, CommittedOffset]:
        body = {"group_id": group, "topics": wanted, "groups": [{"group_id": group, "topics": wanted}]}
        answer = connection.request(OFFSET_FETCH, body)
        row = answer["groups"][0] if "groups" in answer else answer
        if "error_code" in row:
            check(row, f"offsets of group {group}")
        return dict(_committed(row["topics"], group))

    return cluster.at_coordinator(CoordinatorKind.GROUP, group, attempt)


def _committed(topics: list[dict[str, Any]], group: str) -> Iterable[tuple[TopicPartition, CommittedOffset]]:
    for topic in topics:
        for row in topic["partitions"]:
            check(row, f"offsets of group {group}")
            if row["committed_offset"] >= 0:
                epoch = row.get("committed_leader_epoch", NO_EPOCH)
                committed = CommittedOffset(row["committed_offset"], epoch, row["metadata"] or "")
                yield TopicPartition(topic["name"], row["partition_index"]), committed


def commit_offsets(cluster: Cluster, group: str, offsets: Mapping[TopicPartition, int], metadata: str = "") -> None:
    """Commit offsets for a group that has no members.

    :raise BrokerRefused: it has members (UNKNOWN_MEMBER_ID), or a partition is not known.
    """
    if not offsets:
        return
    body = {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "topics": offset_rows(offsets, metadata),
    }
    cluster.at_coordinator(
        CoordinatorKind.GROUP, group, lambda connection: commit(connection, OFFSET_COMMIT, body, f"group {group}")
    )


def offset_rows(offsets: Mapping[TopicPartition, int], metadata: str = "") -> list[dict[str, Any]]:
    """Offsets as requests carry them."""

    def row(partition: TopicPartition) -> dict[str, Any]:
        return {
            "partition_index": partition.partition,
            "committed_offset": offsets[partition],
            "committed_metadata": metadata,
        }

    return _topic_rows(offsets, row, "partitions")


def commit(connection: Connection, api: Api, body: dict[str, Any], what: str, at_most: int | None = None) -> None:
    """Ask for a commit of offsets, in a transaction or not.

    :raise BrokerRefused: with the first error of a partition.
    """
    for topic in connection.request(api, body, at_most=at_most)["topics"]:
        for row in topic["partitions"]:
            check(row, f"commit of {topic['name']}-{row['partition_index']} by {what}")


def _topic_rows(partitions: Iterable[TopicPartition], row: Any, name: str) -> list[dict[str, Any]]:
    return [
        {"name": topic, name: [row(each) for each in group]}
        for topic, group in groupby(sorted(partitions), key=lambda each: each.topic)
    ]
