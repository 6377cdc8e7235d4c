"""An honest client during an attack: ``python honest_client.py HOST PORT TOPIC GROUP``, until standard input is closed.

It produces one small record and sends one heartbeat every 20 ms, and prints their latencies as JSON.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any

from kreplica.wire import messages
from kreplica.wire.batch_building import build_batch
from kreplica.wire.records import Record
from tests.support.blocking_client import BlockingClient

INTERVAL_S = 0.02
TIMEOUT_S = 10.0
SESSION_TIMEOUT_MS = 10_000
JOIN_VERSION, SYNC_VERSION, HEARTBEAT_VERSION, PRODUCE_VERSION = 3, 2, 2, 8

BATCH = build_batch([Record(0, 0, None, b"x" * 100)])


class HonestClient:
    """One connection for produce requests, one for a consumer group's heartbeats; reconnects after an error."""

    def __init__(self, host: str, port: int, topic: str, group: str) -> None:
        self._address = host, port
        self._topic, self._group = topic, group
        self._clients: dict[str, BlockingClient] = {}
        self._member = {"group_id": group, "generation_id": 0, "member_id": ""}
        self.latencies_ms: dict[str, list[float]] = {"produce": [], "heartbeat": []}
        self.errors: list[str] = []

    def join(self) -> None:
        """Join the group as its only member."""
        client = self._client("heartbeat")
        protocols = [{"name": "range", "metadata": b""}]
        body = {
            "group_id": self._group,
            "session_timeout_ms": SESSION_TIMEOUT_MS,
            "rebalance_timeout_ms": SESSION_TIMEOUT_MS,
            "member_id": "",
            "protocol_type": "consumer",
            "protocols": protocols,
        }
        deadline_s = time.monotonic() + 60
        while (joined := client.request(messages.JOIN_GROUP, body, version=JOIN_VERSION))["error_code"]:
            assert time.monotonic() < deadline_s, f"cannot join: error {joined['error_code']}"
            time.sleep(0.2)
        self._member = {key: joined[key] for key in ("generation_id", "member_id")} | {"group_id": self._group}
        assignments = [{"member_id": joined["member_id"], "assignment": b""}]
        client.request(messages.SYNC_GROUP, {**self._member, "assignments": assignments}, version=SYNC_VERSION)

    def step(self) -> None:
        """Send one produce request and one heartbeat."""
        row = {"index": 0, "records": BATCH}
        topic_data = [{"name": self._topic, "partition_data": [row]}]
        body = {"transactional_id": None, "acks": 1, "timeout_ms": 5000, "topic_data": topic_data}
        produced = self._measure("produce", messages.PRODUCE, body, PRODUCE_VERSION)
        if produced is not None and (code := produced["responses"][0]["partition_responses"][0]["error_code"]):
            self.errors.append(f"produce: error {code}")
        response = self._measure("heartbeat", messages.HEARTBEAT, self._member, HEARTBEAT_VERSION)
        if response is not None and response["error_code"]:
            self.errors.append(f"heartbeat: error {response['error_code']}")

    def _measure(self, kind: str, api: Any, body: dict[str, Any], version: int) -> dict[str, Any] | None:
        started_s = time.perf_counter()
        answer = None
        try:
            answer = self._client(kind).request(api, body, version=version)
        except OSError as error:
            self.errors.append(f"{kind}: {error!r}")
            if (client := self._clients.pop(kind, None)) is not None:
                client.close()
        self.latencies_ms[kind].append(1000 * (time.perf_counter() - started_s))
        return answer

    def _client(self, kind: str) -> BlockingClient:
        if kind not in self._clients:
            self._clients[kind] = BlockingClient(*self._address, client_id=f"honest_client-{kind}", timeout_s=TIMEOUT_S)
        return self._clients[kind]


def main(host: str, port: str, topic: str, group: str) -> None:
    """Send requests until standard input is closed, then print the latencies and errors."""
    honest_client = HonestClient(host, int(port), topic, group)
    honest_client.join()
    honest_client.step()
    honest_client.latencies_ms = {"produce": [], "heartbeat": []}
    print("ready", flush=True)
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    while not ended.wait(INTERVAL_S):
        honest_client.step()
    print(json.dumps({"latencies_ms": honest_client.latencies_ms, "errors": honest_client.errors[:20]}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
