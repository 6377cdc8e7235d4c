"""Attacks on the memory of a real process: memory is bounded, other clients are served, and memory is released."""

from __future__ import annotations

import http.client
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ZookeeperError

from kreplica.errors import ErrorCode
from kreplica.wire.batch_building import build_batch
from kreplica.wire.headers import build_request_header
from kreplica.wire.messages import CREATE_TOPICS, FIND_COORDINATOR, JOIN_GROUP, PRODUCE
from kreplica.wire.records import Record
from tests.support.blocking_client import BlockingClient
from tests.support.standalone import StandaloneProcess

pytestmark = pytest.mark.soak

MIB = 2**20
PRODUCE_SECONDS_MAX = 2.0
"""Limit for one produce request: other tests may slow it down, but it must not wait until the attack ends."""


@pytest.fixture
def process(tmp_path: Path) -> Iterator[StandaloneProcess]:
    with StandaloneProcess(tmp_path) as running:
        with BlockingClient("127.0.0.1", running.port, timeout_s=30) as client:
            topic = {"name": "t", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
            client.request(CREATE_TOPICS, {"topics": [topic], "timeout_ms": 20_000, "validate_only": False}, version=2)
            produce(client)
        yield running


def produce(client: BlockingClient, size: int = 200_000) -> float:
    """Produce a record, and return the duration in seconds."""
    records = build_batch([Record(0, 0, None, bytes(size))])
    body = {
        "transactional_id": None,
        "acks": -1,
        "timeout_ms": 10_000,
        "topic_data": [{"name": "t", "partition_data": [{"index": 0, "records": records}]}],
    }
    started_s = time.monotonic()
    answer = client.request(PRODUCE, body, version=7)
    assert answer["responses"][0]["partition_responses"][0]["error_code"] == 0
    return time.monotonic() - started_s


def slowest_produce(port: int, count: int = 50) -> float:
    """Return the longest duration of ``count`` produce requests from an honest client."""
    with BlockingClient("127.0.0.1", port, timeout_s=30) as client:
        return max(produce(client) for _ in range(count))


def memory_after_attack(process: StandaloneProcess, below: int) -> int:
    """Return the process's memory once it is below a bound, or after 20 seconds; sessions expire after six."""
    deadline_s = time.monotonic() + 20
    while process.resident_bytes() > below and time.monotonic() < deadline_s:
        slowest_produce(process.port, 1)
    return process.resident_bytes()


def test_half_sent_requests(process: StandaloneProcess) -> None:
    """S2: twelve requests of 100 MiB each lack their last 5 MiB, and send one more byte from time to time."""
    before = process.resident_bytes()
    header = bytes(build_request_header(1, PRODUCE.key, 7, 1, "attacker"))
    with ExitStack() as stack:
        attackers = []
        for _ in range(12):
            attacker = stack.enter_context(socket.create_connection(("127.0.0.1", process.port)))
            attacker.settimeout(0.5)
            attackers.append(attacker)
            try:
                attacker.sendall(struct.pack(">i", 100 * MIB) + header + bytes(95 * MIB))
            except OSError:
                pass  # the broker has stopped reading it, or has closed it
        slowest = 0.0
        for _ in range(20):
            for attacker in attackers:
                try:
                    attacker.send(b"x")
                except OSError:
                    pass
            slowest = max(slowest, slowest_produce(process.port, 10))
        peak = process.resident_bytes()
    after = memory_after_attack(process, before + 100 * MIB)
    print(f"\nS2: before {before >> 20}, peak {peak >> 20}, after {after >> 20} MiB; slowest produce {slowest:.3f} s")
    assert slowest < PRODUCE_SECONDS_MAX
    assert peak - before < (512 + 100 + 100) * MIB
    assert after - before < 100 * MIB


def test_group_metadata(process: StandaloneProcess) -> None:
    """S5: members join a hundred groups with 12 MiB of metadata each, then three hundred with 1 MiB."""
    with BlockingClient("127.0.0.1", process.port, timeout_s=30) as client:
        deadline_s = time.monotonic() + 30
        while client.request(FIND_COORDINATOR, {"key": "g", "key_type": 0}, version=2)["error_code"]:
            assert time.monotonic() < deadline_s
    before = process.resident_bytes()
    codes: dict[int, int] = {}
    slowest = 0.0
    with ExitStack() as stack:
        for number in range(400):
            client = stack.enter_context(BlockingClient("127.0.0.1", process.port, timeout_s=30))
            size = 12 * MIB if number < 100 else 1 * MIB
            body = {
                "group_id": f"attack-{number}",
                "session_timeout_ms": 6000,
                "rebalance_timeout_ms": 6000,
                "member_id": "",
                "protocol_type": "consumer",
                "protocols": [{"name": "range", "metadata": bytes(size)}],
            }
            code = client.request(JOIN_GROUP, body, version=3)["error_code"]
            codes[code] = codes.get(code, 0) + 1
            if number % 50 == 0:
                slowest = max(slowest, slowest_produce(process.port, 10))
        peak = process.resident_bytes()
    after = memory_after_attack(process, before + 60 * MIB)
    print(f"\nS5: before {before >> 20}, peak {peak >> 20}, after {after >> 20} MiB; {codes}; slowest {slowest:.3f} s")
    assert codes[ErrorCode.MESSAGE_TOO_LARGE] == 100
    assert codes[ErrorCode.GROUP_MAX_SIZE_REACHED] > 100
    assert slowest < PRODUCE_SECONDS_MAX
    assert peak - before < (128 + 150) * MIB
    assert after - before < 100 * MIB


def test_znodes(process: StandaloneProcess) -> None:
    """S9: 900 MB of znodes are rejected at the quota; the broker keeps running, and deletions release the memory."""
    before = process.resident_bytes()
    made = []
    kazoo = KazooClient(f"127.0.0.1:{process.coordinator_port}")
    kazoo.start()
    refused = 0
    for number in range(900):
        try:
            made.append(kazoo.create(f"/junk-{number}", bytes(1_000_000)))
        except ZookeeperError:
            refused += 1
    peak = process.resident_bytes()
    slowest = slowest_produce(process.port)
    with BlockingClient("127.0.0.1", process.port, timeout_s=30) as client:
        topic = {"name": "u", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
        answer = client.request(
            CREATE_TOPICS, {"topics": [topic], "timeout_ms": 20_000, "validate_only": False}, version=2
        )
    for path in made:
        kazoo.delete(path)
    kazoo.stop()
    kazoo.close()
    after = memory_after_attack(process, before + 100 * MIB)
    print(f"\nS9: before {before >> 20}, peak {peak >> 20}, after {after >> 20} MiB; {refused} refused; {slowest:.3f}")
    assert answer["topics"][0]["error_code"] == 0
    assert refused > 500
    assert slowest < PRODUCE_SECONDS_MAX
    assert peak - before < (384 + 150) * MIB
    assert after - before < 150 * MIB


def test_half_sent_http_requests(process: StandaloneProcess) -> None:
    """S11: a client sends 1,100 incomplete requests to the admin port."""
    with ExitStack() as stack:
        for _ in range(1100):
            attacker = stack.enter_context(socket.create_connection(("127.0.0.1", process.admin_port)))
            attacker.sendall(b"GET /health/live HTTP/1.1\r\nHost: 127")
        with closing(http.client.HTTPConnection("127.0.0.1", process.admin_port, timeout=10)) as checker:
            checker.request("GET", "/health/live")
            assert checker.getresponse().status == 200
