"""What consumers ask besides records: offsets by time, ends of leader epochs, a group's offsets without a membership.

What is called ``ask_...`` tries once, and gives an error for each partition of which nothing came; others try again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeVar

from kreplica.client.cluster import Cluster
from kreplica.client.connection import Connection
from kreplica.client_core.errors import BrokerRefused, ClientError, check
from kreplica.client_core.fetched_batches import Isolation
from kreplica.client_core.metadata import CoordinatorKind
from kreplica.client_core.offsets import (
    CONSUMER,
    CommittedOffset,
    TimedOffset,
    list_offsets_body,
    parse_committed,
    parse_list_offsets,
    topic_rows,
)
from kreplica.errors import ErrorCode
from kreplica.model import NO_EPOCH, TopicPartition
from kreplica.runtime.together import together
from kreplica.wire.messages import LIST_OFFSETS, OFFSET_COMMIT, OFFSET_FETCH, OFFSET_FOR_LEADER_EPOCH

T = TypeVar("T")

EPOCH_END_VERSION_MIN = 2
"""Before it, brokers do not check who asks (KIP-320)."""


async def offsets_by_time(
    cluster: Cluster,
    times: Mapping[TopicPartition, int],
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
    *,
    timeout_s: float | None = None,
) -> dict[TopicPartition, TimedOffset]:
    """The first record of each partition that is not older than a time.

    :param times: milliseconds since 1970, or ``EARLIEST``, ``LATEST``, ``MAX_TIMESTAMP``.
    :raise ClientError: some leader does not answer within the time, or there is no such partition.
    """
    found: dict[TopicPartition, TimedOffset] = {}

    async def attempt() -> None:
        problem: ClientError | None = None
        left = {key: time for key, time in times.items() if key not in found}
        for key, told in (await ask_offsets(cluster, left, isolation)).items():
            if isinstance(told, ClientError):
                problem = told
            else:
                found[key] = told
        if problem is not None:
            raise problem

    await cluster.retrying(attempt, timeout_s)
    return {key: found[key] for key in times}


async def ask_offsets(
    cluster: Cluster, times: Mapping[TopicPartition, int], isolation: Isolation
) -> dict[TopicPartition, TimedOffset | ClientError]:
    """Offsets by time, as ``offsets_by_time``."""

    async def ask(connection: Connection, keys: list[TopicPartition]) -> Mapping[TopicPartition, Any]:
        body = list_offsets_body({key: times[key] for key in keys}, isolation)
        return parse_list_offsets(await cluster.request(connection, LIST_OFFSETS, body))

    return await _at_leaders(cluster, times, ask)


async def ask_epoch_ends(
    cluster: Cluster, epochs: Mapping[TopicPartition, tuple[int, int]]
) -> dict[TopicPartition, tuple[int, int] | ClientError]:
    """Where leader epochs end (KIP-320).

    :param epochs: the leader's, and the one that is asked for.
    :return: the latest epoch up to that one of which the log has something, and where it ends; -1 for none.
    """

    async def ask(connection: Connection, keys: list[TopicPartition]) -> Mapping[TopicPartition, Any]:
        if connection.version(OFFSET_FOR_LEADER_EPOCH) < EPOCH_END_VERSION_MIN:
            return {key: (epochs[key][1], -1) for key in keys}

        def row(key: TopicPartition) -> dict[str, Any]:
            current, wanted = epochs[key]
            return {"partition": key.partition, "current_leader_epoch": current, "leader_epoch": wanted}

        rows = [{"topic": each["name"], "partitions": each["rows"]} for each in topic_rows(keys, row, "rows")]
        body = {"replica_id": CONSUMER, "topics": rows}
        answer = await cluster.request(connection, OFFSET_FOR_LEADER_EPOCH, body)
        return dict(_parse_epoch_ends(answer))

    return await _at_leaders(cluster, epochs, ask)


def _parse_epoch_ends(answer: dict[str, Any]) -> Iterable[tuple[TopicPartition, Any]]:
    for topic in answer["topics"]:
        for row in topic["partitions"]:
            key = TopicPartition(topic["topic"], row["partition"])
            try:
                check(row, f"end of an epoch of {key}")
            except ClientError as error:
                yield key, error
            else:
                yield key, (row.get("leader_epoch", NO_EPOCH), row["end_offset"])


async def _at_leaders(
    cluster: Cluster,
    keys: Iterable[TopicPartition],
    ask: Callable[[Connection, list[TopicPartition]], Awaitable[Mapping[TopicPartition, T | ClientError]]],
) -> dict[TopicPartition, T | ClientError]:
    """Ask each leader of its partitions, all at the same time."""
    found: dict[TopicPartition, T | ClientError] = {}
    led: dict[int, list[TopicPartition]] = {}
    for key in keys:
        try:
            led.setdefault(await cluster.leader(key), []).append(key)
        except ClientError as error:
            found[key] = error

    async def ask_one(leader: int, own: list[TopicPartition]) -> None:
        try:
            told = await ask(await cluster.connection(leader), own)
        except ClientError as error:
            found.update(dict.fromkeys(own, error))
        else:
            for key in own:
                found[key] = told.get(key, BrokerRefused(ErrorCode.UNKNOWN_SERVER_ERROR, f"no answer for {key}"))

    await together([ask_one(leader, led[leader]) for leader in sorted(led)])
    return found


# --- groups ---


async def committed_offsets(
    cluster: Cluster, group_id: str, partitions: Iterable[TopicPartition], timeout_s: float | None = None
) -> dict[TopicPartition, CommittedOffset]:
    """What a group committed, once no transaction is to decide that (KIP-447); without partitions that have none.

    :raise ClientError: the coordinator refuses, or does not answer within the time.
    """
    wanted = topic_rows(partitions, lambda key: key.partition, "partition_indexes")
    body = {
        "group_id": group_id,
        "topics": wanted,
        "groups": [{"group_id": group_id, "topics": wanted}],
        "require_stable": True,
    }

    async def attempt(connection: Connection) -> dict[TopicPartition, CommittedOffset]:
        answer = await cluster.request(connection, OFFSET_FETCH, body)
        row = answer["groups"][0] if "groups" in answer else answer
        if "error_code" in row:
            check(row, f"offsets of group {group_id}")
        return dict(parse_committed(row["topics"], group_id))

    return await cluster.at_coordinator(CoordinatorKind.GROUP, group_id, attempt, timeout_s)


async def commit_offsets(
    cluster: Cluster, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset], timeout_s: float | None = None
) -> None:
    """Commit offsets for a group that has no members.

    :raise BrokerRefused: it has members (UNKNOWN_MEMBER_ID), or a partition is not known.
    """
    if not offsets:
        return

    def row(key: TopicPartition) -> dict[str, Any]:
        committed = offsets[key]
        return {
            "partition_index": key.partition,
            "committed_offset": committed.offset,
            "committed_leader_epoch": committed.leader_epoch,
            "committed_metadata": committed.metadata,
        }

    body = {
        "group_id": group_id,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "topics": topic_rows(offsets, row, "partitions"),
    }

    async def attempt(connection: Connection) -> None:
        for topic in (await cluster.request(connection, OFFSET_COMMIT, body))["topics"]:
            for answered in topic["partitions"]:
                check(answered, f"commit of {topic['name']}-{answered['partition_index']} by group {group_id}")

    await cluster.at_coordinator(CoordinatorKind.GROUP, group_id, attempt, timeout_s)
