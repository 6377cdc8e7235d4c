"""Asks a leader where its logs begin and end, for partitions whose position it does not have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twisted.internet.defer import Deferred

from kreplica.client.connection import Connection
from kreplica.model import TopicPartition
from kreplica.replication.follower.follower_state import Followed
from kreplica.wire.messages import LIST_OFFSETS

EARLIEST, LATEST = -2, -1

Row = dict[str, Any]
Ranges = dict[TopicPartition, tuple[int, int]]
"""(start, end) by partition."""


async def find_ranges(
    connection: Connection, followed: Sequence[Followed], *, broker_id: int, timeout_s: float
) -> Ranges:
    """What the leader has; partitions of which it refuses to say so are left out.

    :param broker_id: the follower, who is told of the end of the log and not of what is committed.
    :raise ClientError: the connection is gone.
    """
    ends = _ask(connection, followed, LATEST, broker_id, timeout_s)
    starts = _ask(connection, followed, EARLIEST, broker_id, timeout_s)
    starts.addErrback(lambda _: {})  # the same connection: the first says what happened to it
    found_ends = _offsets(await ends)
    found_starts = _offsets(await starts)
    return {key: (found_starts[key], end) for key, end in found_ends.items() if key in found_starts}


def _ask(
    connection: Connection, followed: Sequence[Followed], place: int, broker_id: int, timeout_s: float
) -> Deferred[Row]:
    topics: dict[str, list[Row]] = {}
    for one in followed:
        row = {"partition_index": one.key.partition, "current_leader_epoch": one.leader_epoch, "timestamp": place}
        topics.setdefault(one.key.topic, []).append(row)
    body = {
        "replica_id": broker_id,
        "isolation_level": 0,
        "topics": [{"name": topic, "partitions": rows} for topic, rows in topics.items()],
    }
    return connection.request(LIST_OFFSETS, connection.version(LIST_OFFSETS), body, timeout_s=timeout_s)


def _offsets(answer: Row) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic["name"], row["partition_index"]): row["offset"]
        for topic in answer.get("topics", ())
        for row in topic["partitions"]
        if not row["error_code"]
    }
