"""Offsets by time, and the offsets that groups committed; no membership in a group is needed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

from kreplica.blocking.cluster import Cluster
from kreplica.blocking.connection import Connection
from kreplica.client_core.errors import ClientError, check
from kreplica.client_core.fetched_batches import Isolation
from kreplica.client_core.metadata import CoordinatorKind
from kreplica.client_core.offsets import (
    EARLIEST,
    LATEST,
    CommittedOffset,
    TimedOffset,
    list_offsets_body,
    offset_rows,
    parse_committed,
    parse_list_offsets,
    topic_rows,
)
from kreplica.model import TopicPartition
from kreplica.wire.messages import LIST_OFFSETS, OFFSET_COMMIT, OFFSET_FETCH, Api


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
    problem: ClientError | None = None
    answer = connection.request(LIST_OFFSETS, list_offsets_body(times, isolation))
    for partition, told in parse_list_offsets(answer).items():
        if isinstance(told, ClientError):
            problem = told
        else:
            found[partition] = told
    return problem


# --- groups ---


def committed_offsets(
    cluster: Cluster, group: str, topics: Iterable[str] | None = None, *, stable: bool = False
) -> dict[TopicPartition, CommittedOffset]:
    """What a group committed.

    :param topics: None: all that it committed for.
    :param stable: wait until no transaction that is open is to decide that (KIP-447).
    """
    wanted = None
    if topics is not None:
        partitions = [each for topic in topics for each in topic_partitions(cluster, topic)]
        wanted = topic_rows(partitions, lambda row: row.partition, "partition_indexes")

    def attempt(connection: Connection) -> dict[TopicPartition, CommittedOffset]:
        groups = [{"group_id": group, "topics": wanted}]
        body = {"group_id": group, "topics": wanted, "groups": groups, "require_stable": stable}
        answer = connection.request(OFFSET_FETCH, body)
        row = answer["groups"][0] if "groups" in answer else answer
        if "error_code" in row:
            check(row, f"offsets of group {group}")
        return dict(parse_committed(row["topics"], group))

    return cluster.at_coordinator(CoordinatorKind.GROUP, group, attempt)


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


def commit(connection: Connection, api: Api, body: dict[str, Any], what: str, at_most: int | None = None) -> None:
    """Ask for a commit of offsets, in a transaction or not.

    :raise BrokerRefused: with the first error of a partition.
    """
    for topic in connection.request(api, body, at_most=at_most)["topics"]:
        for row in topic["partitions"]:
            check(row, f"commit of {topic['name']}-{row['partition_index']} by {what}")
