"""Consumer groups of one member each, which commit and send heartbeats."""

from __future__ import annotations

import time
from dataclasses import replace

from benchmarks.growth_load import Broker, Clients, Connection, Kind
from benchmarks.growth_topics import create
from kreplica.wire.messages import FIND_COORDINATOR, HEARTBEAT, JOIN_GROUP, OFFSET_COMMIT, SYNC_GROUP
from kreplica.wire.messages.consumer_protocol import SUBSCRIPTION, build_versioned

FOUND, JOINED, SYNCED = Kind(FIND_COORDINATOR, 2), Kind(JOIN_GROUP, 3), Kind(SYNC_GROUP, 2)
COMMITTED, HEARD = Kind(OFFSET_COMMIT, 6), Kind(HEARTBEAT, 2)
TOPIC = "committed"
SESSION_MS = 600_000
COORDINATOR_TIME_S = 30.0


class Groups:
    """Consumer groups on one broker."""

    def __init__(self, broker: Broker, clients: Clients, count: int) -> None:
        self._broker = broker
        self._clients = clients
        create(clients.connections[0], [(TOPIC, 0)])
        joined = [_join(clients.connections[0], f"group-{number:04}") for number in range(count)]
        offset = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": 0, "committed_metadata": ""}
        topic = {"name": TOPIC, "partitions": [offset]}
        self._commits = [
            COMMITTED.frame(
                {
                    "group_id": group,
                    "generation_id_or_member_epoch": generation,
                    "member_id": member,
                    "topics": [topic],
                }
            )
            for group, generation, member in joined
        ]
        self._heartbeats = [
            HEARD.frame({"group_id": group, "generation_id": generation, "member_id": member})
            for group, generation, member in joined
        ]

    def commit_us(self, count: int, *, alone: bool = False) -> float:
        """Return the CPU time per commit of one offset; each group commits in turn.

        Simultaneous commits to the same partition of the offsets topic are written together.

        :param alone: True to wait for each response before the next request.
        """
        clients = replace(self._clients, window=1) if alone else self._clients
        return clients.cost_us(self._broker, COMMITTED, self._commits, count)

    def heartbeat_us(self, count: int) -> float:
        """Return the CPU time per heartbeat; each group sends one in turn."""
        return self._clients.cost_us(self._broker, HEARD, self._heartbeats, count)


def _join(connection: Connection, group: str) -> tuple[str, int, str]:
    """Join a group; return the group, its generation, and the ID of its only member."""
    _wait_for_coordinator(connection, group)
    metadata = build_versioned(SUBSCRIPTION, 1, {"topics": [TOPIC]})
    response = connection.request(
        JOINED,
        {
            "group_id": group,
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": SESSION_MS,
            "member_id": "",
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": metadata}],
        },
    )
    member, generation = response["member_id"], response["generation_id"]
    assignments = [{"member_id": member, "assignment": b""}]
    connection.request(
        SYNCED,
        {"group_id": group, "generation_id": generation, "member_id": member, "assignments": assignments},
    )
    return group, generation, member


def _wait_for_coordinator(connection: Connection, group: str) -> None:
    """Wait for the group's coordinator, because the first request creates the offsets topic; fail after some time."""
    ends_s = time.monotonic() + COORDINATOR_TIME_S
    while True:
        try:
            connection.request(FOUND, {"key": group, "key_type": 0})
            return
        except RuntimeError:
            if time.monotonic() > ends_s:
                raise
        time.sleep(0.02)
