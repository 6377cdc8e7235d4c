"""Looks up the start and end offsets of a leader's logs after OFFSET_OUT_OF_RANGE."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twisted.internet.defer import Deferred

from kreplica.client.connection import Connection
from kreplica.model import TopicPartition
from kreplica.replication.follower.follower_state import FollowerState
from kreplica.wire.messages import LIST_OFFSETS

EARLIEST, LATEST = -2, -1

Row = dict[str, Any]
Ranges = dict[TopicPartition, tuple[int, int]]
"""Start and end offset by partition."""


async def find_ranges(
    connection: Connection, states: Sequence[FollowerState], *, broker_id: int, timeout_s: float
) -> Ranges:
    """Return the offsets by partition; partitions for which the leader returned an error are absent.

    :param broker_id: ID of the follower; the leader then returns the log end instead of the high watermark.
    :raise ClientError: the connection was lost.
    """
    ends = _request_offsets(connection, states, LATEST, broker_id, timeout_s)
    starts = _request_offsets(connection, states, EARLIEST, broker_id, timeout_s)
    starts.addErrback(lambda _: {})  # on the same connection, so the first request reports any error
    found_ends = _offsets(await ends)
    found_starts = _offsets(await starts)
    return {key: (found_starts[key], end) for key, end in found_ends.items() if key in found_starts}


def _request_offsets(
    connection: Connection, states: Sequence[FollowerState], timestamp: int, broker_id: int, timeout_s: float
) -> Deferred[Row]:
    topics: dict[str, list[Row]] = {}
    for state in states:
        row = {
            "partition_index": state.key.partition,
            "current_leader_epoch": state.leader_epoch,
            "timestamp": timestamp,
        }
        topics.setdefault(state.key.topic, []).append(row)
    body = {
        "replica_id": broker_id,
        "isolation_level": 0,
        "topics": [{"name": topic, "partitions": rows} for topic, rows in topics.items()],
    }
    return connection.request(LIST_OFFSETS, connection.version(LIST_OFFSETS), body, timeout_s=timeout_s)


def _offsets(response: Row) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic["name"], row["partition_index"]): row["offset"]
        for topic in response.get("topics", ())
        for row in topic["partitions"]
        if not row["error_code"]
    }
