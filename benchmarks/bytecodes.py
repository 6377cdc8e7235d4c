"""Cost of a request in Python by package, counted in bytecodes, which are not affected by other programs.

The brokers run in a simulated cluster.  The simulator itself and system calls are not counted; the benchmarks
``broker`` and ``efficiency`` measure both Python and system calls.  The duration of a bytecode on this machine is
measured as well.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import kreplica
from kreplica.server.transport.outgoing_buffers import Piece, piece_size
from kreplica.testing.cluster.cluster import SimulatedCluster
from kreplica.wire.batch_building import NEXT_OFFSET, build_batch
from kreplica.wire.headers import build_request_header
from kreplica.wire.messages import FETCH, PRODUCE, Api
from kreplica.wire.records import Record

HOME = str(Path(kreplica.__file__).parent)
GENERATED = ("<parser", "<builder")
NOT_COUNTED = ("testing",)
RECORD_BYTES = 1000
WARM_UP, ROUNDS = 20, 50
RUN = 8

Counts = Counter[str]
Body = dict[str, Any]


def run(scale: str = "quick") -> list[dict[str, Any]]:
    """Count the bytecodes of frequent requests.

    :return: one row per package and one for the total.
    """
    rounds = ROUNDS if scale == "quick" else 10 * ROUNDS
    cost_ns = bytecode_ns()
    alone, three = Leader(1), Leader(3)
    return [
        *_rows("Produce, one batch, acks=1", *_counted(alone, PRODUCE, 9, _produce(1), rounds), cost_ns),
        *_rows("Produce, one of eight in one read",
               *_counted(alone, PRODUCE, 9, _produce(1), rounds, times=RUN), cost_ns),
        *_rows("Fetch, one partition, no session", *_counted(alone, FETCH, 11, _FETCH, rounds), cost_ns),
        *_rows("Produce, acks=all, with replication to two followers",
               *_counted(three, PRODUCE, 9, _produce(-1), rounds), cost_ns),
    ]  # fmt: skip


def bytecode_ns() -> float:
    """Return the CPU time of a simple bytecode in ns: the shortest of five runs of a loop of four bytecodes."""
    count, best_s = 1_000_000, float("inf")
    for _ in range(5):
        started_s = time.process_time()
        total = 0
        for number in range(count):
            total += number
        best_s = min(best_s, time.process_time() - started_s)
    return best_s / count / 4 * 1e9


class Sink:
    """Connection transport that discards everything and counts the responses."""

    def __init__(self) -> None:
        self.responses = 0

    def send(self, pieces: list[Piece]) -> int:
        """Discard a response, and report all its bytes as sent."""
        self.responses += 1
        return sum(map(piece_size, pieces))

    held_bytes = 0

    def pause_reading(self) -> None:
        """Do nothing, because the connection has no reader."""

    resume_reading = close = abort = mark_control = pause_reading


class Leader:
    """The leader of a partition with a replica on every broker, and a connection to it."""

    def __init__(self, brokers: int) -> None:
        self.cluster = SimulatedCluster(seed=1, brokers=brokers)
        self.cluster.start()
        client = self.cluster.client()
        self.cluster.run_until(client.create_topic("t", 1, replication_factor=brokers))
        self.cluster.wait_in_sync("t", [0])
        server = self.cluster.brokers[self.cluster.leader_of("t", 0)].program.server
        self._resources = server.resources
        self._connection = self._resources.connection("PLAINTEXT", "127.0.0.1:1")
        self._sink = Sink()
        self._connection.attach(self._sink)

    def request(self, frame: bytes, times: int = 1) -> None:
        """Pass a frame to the broker ``times`` times, as if one read had returned all copies; wait for a response."""
        before = self._sink.responses
        frames = [memoryview(bytearray(frame)) for _ in range(times)]
        with self._resources.flush_scope:
            for view in frames:
                self._resources.dispatch.frame_received(self._connection, view)
        if self._sink.responses == before:
            self.cluster.run_until(lambda: self._sink.responses > before)


def _produce(acks: int) -> Body:
    batch = build_batch([Record(NEXT_OFFSET, 1_700_000_000_000, None, b"v" * RECORD_BYTES, ())])
    rows = [{"index": 0, "records": batch}]
    return {"acks": acks, "timeout_ms": 1000, "topic_data": [{"name": "t", "partition_data": rows}]}


_FETCH: Body = {
    "max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1 << 20, "session_id": 0, "session_epoch": -1,
    "topics": [{"topic": "t", "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}]}],
}  # fmt: skip


def _counted(
    leader: Leader, api: Api, version: int, body: Body, rounds: int, times: int = 1
) -> tuple[Counts, Counts, int]:
    """Return bytecodes by package, calls by package, and the number of requests."""
    header = build_request_header(api.request_header_version(version), api.key, version, 1, "client")
    frame = header + api.request.build(version, body)
    for _ in range(WARM_UP):
        leader.request(frame, times)
    bytecodes: Counts = Counter()
    calls: Counts = Counter()

    def trace(frame: Any, event: str, _: Any) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        where = frame.f_code.co_filename
        if event == "call":
            calls[where] += 1
        elif event == "opcode":
            bytecodes[where] += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        for _ in range(rounds):
            leader.request(frame, times)
    finally:
        sys.settrace(before)
    return _by_package(bytecodes), _by_package(calls), rounds * times


def _by_package(counts: Counts) -> Counts:
    packages: Counts = Counter()
    for where, count in counts.items():
        package = package_of(where)
        if package is not None and package not in NOT_COUNTED:
            packages[package] += count
    return packages


def package_of(file_name: str) -> str | None:
    """Return the kreplica package of a source file; None for other code."""
    if file_name.startswith(GENERATED):
        return "wire"
    if not file_name.startswith(HOME):
        return None
    return Path(file_name).relative_to(HOME).parts[0]


def _rows(what: str, bytecodes: Counts, calls: Counts, rounds: int, cost_ns: float) -> list[dict[str, Any]]:
    total = sum(bytecodes.values())
    whole = {"whole": total} | dict(bytecodes.most_common())
    calls = calls + Counter(whole=sum(calls.values()))
    return [
        {
            "request": what if package == "whole" else "",
            "package": package,
            "calls": round(calls[package] / rounds, 1),
            "bytecodes": round(count / rounds),
            "share": f"{count / total:.0%}",
            "about us here": count / rounds * cost_ns / 1000,
        }
        for package, count in whole.items()
        if count / total >= 0.01
    ]
