"""Group members that commit: ``python -m benchmarks.commit_load commit HOST:PORT MEMBERS WINDOW COUNT PARTITIONS``.

Each member has its own group and connection, and keeps a window of OffsetCommit requests in flight until it has sent
``COUNT`` requests.  The program prints ``ready``, waits for a line, and prints the total time as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

from benchmarks.frame_load import Connection, drive
from benchmarks.raw_client import RawClient
from kreplica.wire.framing import frame
from kreplica.wire.headers import build_request_header
from kreplica.wire.messages import FIND_COORDINATOR, JOIN_GROUP, OFFSET_COMMIT, OFFSET_FETCH, SYNC_GROUP, Api
from kreplica.wire.messages.consumer_protocol import SUBSCRIPTION, build_versioned

TOPIC = "commits"
OFFSET = 123_456
VERSION = 7
"""Version of OffsetCommit; later versions have the same content in a few bytes fewer."""

VERSIONS = {FIND_COORDINATOR.key: 2, JOIN_GROUP.key: 5, SYNC_GROUP.key: 3, OFFSET_FETCH.key: 5}
COORDINATOR_TIME_S = 20.0


class Member:
    """The only member of its group."""

    def __init__(self, port: int, number: int) -> None:
        self._client = RawClient(port)
        self._group = f"bench-group-{os.getpid()}-{number:03}"
        self._member_id = ""
        self._generation = -1

    def join(self) -> None:
        """Find the coordinator, join as the group's leader, and receive this member's own assignment."""
        self._wait_for_coordinator()
        join = {
            "group_id": self._group,
            "session_timeout_ms": 300_000,
            "rebalance_timeout_ms": 300_000,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": build_versioned(SUBSCRIPTION, 1, {"topics": [TOPIC]})}],
        }
        response = self._request(JOIN_GROUP, join | {"member_id": ""})
        response = self._request(JOIN_GROUP, join | {"member_id": response["member_id"]})
        self._member_id, self._generation = response["member_id"], response["generation_id"]
        sync = {
            "group_id": self._group,
            "generation_id": self._generation,
            "member_id": self._member_id,
            "assignments": [{"member_id": self._member_id, "assignment": b""}],
        }
        self._request(SYNC_GROUP, sync)

    def _commit_body(self, partitions: int) -> dict[str, Any]:
        """Return the body of a commit request for this number of partitions."""
        commit = {"committed_offset": OFFSET, "committed_leader_epoch": 0, "committed_metadata": ""}
        rows = [commit | {"partition_index": index} for index in range(partitions)]
        return {
            "group_id": self._group,
            "generation_id_or_member_epoch": self._generation,
            "member_id": self._member_id,
            "topics": [{"name": TOPIC, "partitions": rows}],
        }

    def commit_frame(self, partitions: int) -> bytes:
        """Return the request that the member sends repeatedly."""
        body = OFFSET_COMMIT.request.build(VERSION, self._commit_body(partitions))
        return frame(build_request_header(1, OFFSET_COMMIT.key, VERSION, 1, "load") + body)

    def check(self, partitions: int) -> None:
        """Raise ``RuntimeError`` if a committed offset is missing."""
        body = {"group_id": self._group, "topics": None}
        response = self._request(OFFSET_FETCH, body)
        offsets = [row["committed_offset"] for topic in response["topics"] for row in topic["partitions"]]
        if offsets != [OFFSET] * partitions:
            raise RuntimeError(f"{self._group} has committed {offsets}")

    def _wait_for_coordinator(self) -> None:
        ends_s = time.monotonic() + COORDINATOR_TIME_S
        while time.monotonic() < ends_s:
            coordinator = self._request(FIND_COORDINATOR, {"key": self._group, "key_type": 0})
            fetched = self._request(OFFSET_FETCH, {"group_id": self._group, "topics": None})
            if not coordinator["error_code"] and not fetched["error_code"]:
                return
            time.sleep(0.05)
        raise RuntimeError(f"{self._group} has no coordinator")

    def _request(self, api: Api, body: dict[str, Any]) -> dict[str, Any]:
        version = VERSIONS[api.key]
        data = self._client.request(api.key, version, api.request.build(version, body))
        return api.response.parse(version, data)


def main(address: str, members: int, window: int, count: int, partitions: int) -> None:
    port = int(address.rpartition(":")[2])
    joined = [Member(port, number) for number in range(members)]
    for member in joined:
        member.join()
    connections = [Connection(port, member.commit_frame(partitions), window, count) for member in joined]
    for connection in connections:
        connection.start()
    print("ready", flush=True)
    sys.stdin.readline()
    started_s, started_cpu_s = time.perf_counter(), time.process_time()
    drive(connections)
    seconds, cpu_s = time.perf_counter() - started_s, time.process_time() - started_cpu_s
    for member in joined:
        member.check(partitions)
    print(json.dumps({"seconds": seconds, "client_cpu_s": cpu_s, "requests": members * count}), flush=True)


if __name__ == "__main__":
    main(sys.argv[2], *map(int, sys.argv[3:]))
