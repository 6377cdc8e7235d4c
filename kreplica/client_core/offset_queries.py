"""Queries of offsets by time, ends of leader epochs, and committed offsets of groups, without group membership.

Functions named ``request_...`` make one attempt and return a result or an error per partition; the others retry.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeVar

from kreplica.client_core.cluster import BrokerConnection, ClusterCore
from kreplica.client_core.errors import BrokerRefused, ClientError, check
from kreplica.client_core.fetched_batches import Isolation
from kreplica.client_core.metadata import CoordinatorKind
from kreplica.client_core.offsets import (
    CONSUMER,
    CommittedOffset,
    GroupOffsets,
    TimedOffset,
    check_committed,
    list_offsets_body,
    offset_rows,
    parse_committed,
    parse_list_offsets,
    topic_rows,
)
from kreplica.errors import ErrorCode
from kreplica.model import NO_EPOCH, TopicPartition
from kreplica.wire.messages import LIST_OFFSETS, OFFSET_COMMIT, OFFSET_FETCH, OFFSET_FOR_LEADER_EPOCH

T = TypeVar("T")

EPOCH_END_VERSION_MIN = 2
"""First version of OffsetForLeaderEpoch in which brokers check the client's leader epoch (KIP-320)."""


async def offsets_by_time(
    cluster: ClusterCore[Any],
    times: Mapping[TopicPartition, int],
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
    *,
    timeout_s: float | None = None,
) -> dict[TopicPartition, TimedOffset]:
    """Return the offset of each partition's first record at or after a time.

    :param times: milliseconds since 1970, or ``EARLIEST``, ``LATEST``, ``MAX_TIMESTAMP``.
    :raise ClientError: a leader did not respond in time, or a partition does not exist.
    """
    found: dict[TopicPartition, TimedOffset] = {}

    async def attempt() -> None:
        problem: ClientError | None = None
        remaining = {key: time for key, time in times.items() if key not in found}
        for key, result in (await request_offsets(cluster, remaining, isolation)).items():
            if isinstance(result, ClientError):
                problem = result
            else:
                found[key] = result
        if problem is not None:
            raise problem

    await cluster.retrying(attempt, timeout_s)
    return {key: found[key] for key in times}


async def request_offsets(
    cluster: ClusterCore[Any], times: Mapping[TopicPartition, int], isolation: Isolation
) -> dict[TopicPartition, TimedOffset | ClientError]:
    """Like ``offsets_by_time``, but make only one attempt."""

    async def send(connection: BrokerConnection, keys: list[TopicPartition]) -> Mapping[TopicPartition, Any]:
        body = list_offsets_body({key: times[key] for key in keys}, isolation)
        return parse_list_offsets(await cluster.request(connection, LIST_OFFSETS, body))

    return await _at_leaders(cluster, times, send)


async def request_epoch_ends(
    cluster: ClusterCore[Any], epochs: Mapping[TopicPartition, tuple[int, int]]
) -> dict[TopicPartition, tuple[int, int] | ClientError]:
    """Return the ends of leader epochs (KIP-320); make only one attempt.

    :param epochs: the current leader epoch and the requested epoch of each partition.
    :return: the latest epoch in the log that is not later than the requested one, and its end offset; -1 for each if
        there is none.
    """

    async def send(connection: BrokerConnection, keys: list[TopicPartition]) -> Mapping[TopicPartition, Any]:
        if connection.version(OFFSET_FOR_LEADER_EPOCH) < EPOCH_END_VERSION_MIN:
            return {key: (epochs[key][1], -1) for key in keys}

        def row(key: TopicPartition) -> dict[str, Any]:
            current, wanted = epochs[key]
            return {"partition": key.partition, "current_leader_epoch": current, "leader_epoch": wanted}

        rows = [{"topic": each["name"], "partitions": each["rows"]} for each in topic_rows(keys, row, "rows")]
        body = {"replica_id": CONSUMER, "topics": rows}
        response = await cluster.request(connection, OFFSET_FOR_LEADER_EPOCH, body)
        return dict(_parse_epoch_ends(response))

    return await _at_leaders(cluster, epochs, send)


def _parse_epoch_ends(response: dict[str, Any]) -> Iterable[tuple[TopicPartition, Any]]:
    for topic in response["topics"]:
        for row in topic["partitions"]:
            key = TopicPartition(topic["topic"], row["partition"])
            try:
                check(row, f"end of a leader epoch of {key}")
            except ClientError as error:
                yield key, error
            else:
                yield key, (row.get("leader_epoch", NO_EPOCH), row["end_offset"])


async def _at_leaders(
    cluster: ClusterCore[Any],
    keys: Iterable[TopicPartition],
    send: Callable[[BrokerConnection, list[TopicPartition]], Awaitable[Mapping[TopicPartition, T | ClientError]]],
) -> dict[TopicPartition, T | ClientError]:
    """Send one request to each leader for all its partitions; return a result or an error per partition."""
    found: dict[TopicPartition, T | ClientError] = {}
    by_leader: dict[int, list[TopicPartition]] = {}
    for key in keys:
        try:
            by_leader.setdefault(await cluster.leader(key), []).append(key)
        except ClientError as error:
            found[key] = error

    async def query_leader(leader: int, own: list[TopicPartition]) -> None:
        try:
            results = await send(await cluster.connection(leader), own)
        except ClientError as error:
            found.update(dict.fromkeys(own, error))
        else:
            for key in own:
                missing = BrokerRefused(ErrorCode.UNKNOWN_SERVER_ERROR, f"the response does not contain {key}")
                found[key] = results.get(key, missing)

    await cluster.gather([query_leader(leader, by_leader[leader]) for leader in sorted(by_leader)])
    return found


# --- groups ---


async def committed_offsets(
    cluster: ClusterCore[Any],
    group_id: str,
    partitions: Iterable[TopicPartition] | None,
    *,
    stable: bool = True,
    timeout_s: float | None = None,
) -> dict[TopicPartition, CommittedOffset]:
    """Return a group's committed offsets; partitions without one are omitted.

    :param partitions: None returns all partitions with a committed offset.
    :param stable: wait until no open transaction can change the offsets (KIP-447).
    :raise ClientError: the coordinator rejected the request or did not respond in time.
    """
    requested_rows = None
    if partitions is not None:
        requested_rows = topic_rows(partitions, lambda key: key.partition, "partition_indexes")
    body = {
        "group_id": group_id,
        "topics": requested_rows,
        "groups": [{"group_id": group_id, "topics": requested_rows}],
        "require_stable": stable,
    }

    async def attempt(connection: BrokerConnection) -> dict[TopicPartition, CommittedOffset]:
        response = await cluster.request(connection, OFFSET_FETCH, body)
        row = response["groups"][0] if "groups" in response else response
        if "error_code" in row:
            check(row, f"offsets of group {group_id}")
        return dict(parse_committed(row["topics"], group_id))

    return await cluster.at_coordinator(CoordinatorKind.GROUP, group_id, attempt, timeout_s)


async def commit_offsets(
    cluster: ClusterCore[Any],
    group_id: str,
    offsets: GroupOffsets,
    *,
    metadata: str = "",
    timeout_s: float | None = None,
) -> None:
    """Commit offsets for a group without members.

    :param metadata: stored with offsets that have no metadata of their own.
    :raise BrokerRefused: the group has members (UNKNOWN_MEMBER_ID), or a partition does not exist.
    """
    if not offsets:
        return
    body = {
        "group_id": group_id,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "topics": offset_rows(offsets, metadata),
    }

    async def attempt(connection: BrokerConnection) -> None:
        check_committed(await cluster.request(connection, OFFSET_COMMIT, body), f"group {group_id}")

    await cluster.at_coordinator(CoordinatorKind.GROUP, group_id, attempt, timeout_s)
