"""CPU time per request of the server without a log; requests are parsed and answered, and fetches read from a file.

The load comes from a child process with prebuilt messages; the server runs in this process, and its own CPU time is
measured, which other load on the machine affects less than the rate.  ``twisted`` is the same with Twisted's own
transport.
"""

from __future__ import annotations

import random
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kreplica.model import Endpoint
from kreplica.runtime import Runtime
from kreplica.runtime.disk import FileRange
from kreplica.runtime.offload import ThreadOffload
from kreplica.runtime.os_disk import OsDisk
from kreplica.server.protocol.handler_table import HandlerEntry
from kreplica.server.protocol.request import Request
from kreplica.server.transport.listeners import Server
from kreplica.wire.headers import build_request_header
from kreplica.wire.messages import FETCH, PRODUCE, Api

KIB = 1024
TIME_LIMIT_S = 60
FILE_BYTES = 64 * KIB * KIB


@dataclass(frozen=True, slots=True)
class Case:
    """One load.

    :param size: size in bytes of the records in each request or response.
    :param window: number of requests in flight on each connection.
    :param megabytes: amount of data; tiny messages are counted as 4 KiB each.
    """

    name: str
    size: int
    connections: int
    window: int
    megabytes: int

    @property
    def count(self) -> int:
        """Number of requests per connection."""
        return self.megabytes * KIB * KIB // max(self.size, 4 * KIB) // self.connections


CASES = [
    Case("produce", 200, 1, 32, 400),
    Case("produce", 200, 1, 1, 80),
    Case("produce", 16 * KIB, 8, 5, 1000),
    Case("produce", 128 * KIB, 8, 5, 2000),
    Case("produce", 1024 * KIB, 8, 3, 3000),
    Case("fetch", 64 * KIB, 1, 3, 1000),
    Case("fetch", 1024 * KIB, 1, 3, 3000),
]


class Handlers:
    """Handlers that respond at once; the first tenth of the requests is a warm-up, and the rest is measured."""

    def __init__(self, case: Case, total: int, stop: Any, ranges: list[FileRange]) -> None:
        self._size = case.size
        self._warm = total // 10
        self._total = total
        self._stop = stop
        self._ranges = ranges
        self._count = 0
        self.began = self.ended = (0.0, 0.0)

    def table(self) -> Mapping[int, HandlerEntry]:
        return {0: HandlerEntry.of(PRODUCE, self.produce), 1: HandlerEntry.of(FETCH, self.fetch)}

    def _count_request(self) -> None:
        self._count += 1
        if self._count == self._warm:
            self.began = time.perf_counter(), time.process_time()
        elif self._count == self._total:
            self.ended = time.perf_counter(), time.process_time()
            self._stop()

    def produce(self, request: Request) -> None:
        topic = request.body["topic_data"][0]
        if len(topic["partition_data"][0]["records"]) != self._size:
            raise ValueError("unexpected load")
        row = {"index": 0, "error_code": 0, "base_offset": 7, "log_append_time_ms": -1, "log_start_offset": 0}
        request.respond({"responses": [{"name": topic["name"], "partition_responses": [row]}], "throttle_time_ms": 0})
        self._count_request()

    def fetch(self, request: Request) -> None:
        row = {"partition_index": 0, "error_code": 0, "high_watermark": 7, "last_stable_offset": 7,
               "log_start_offset": 0, "aborted_transactions": None, "preferred_read_replica": -1,
               "records": self._ranges[self._count % len(self._ranges)]}  # fmt: skip
        request.respond({"throttle_time_ms": 0, "error_code": 0, "session_id": 0,
                        "responses": [{"topic": "benchmark", "partitions": [row]}]})  # fmt: skip
        self._count_request()


def request_frame(case: Case) -> bytes:
    """Return the request that is sent repeatedly."""
    body: dict[str, Any]
    api: Api
    if case.name == "produce":
        api, version = PRODUCE, 7
        data = [{"name": "benchmark", "partition_data": [{"index": 0, "records": bytes(case.size)}]}]
        body = {"acks": 1, "timeout_ms": 30_000, "topic_data": data}
    else:
        api, version = FETCH, 11
        rows = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": case.size}]
        body = {"max_wait_ms": 500, "min_bytes": 1, "topics": [{"topic": "benchmark", "partitions": rows}]}
    frame = build_request_header(1, api.key, version, 1, "load") + api.request.build(version, body)
    return struct.pack(">i", len(frame)) + frame


def measure(case: Case, *, use_twisted_transport: bool) -> dict[str, Any]:
    """Run one case on this process's reactor, which is stopped afterwards."""
    from twisted.internet import epollreactor

    reactor: Any = epollreactor.EPollReactor()
    disk = OsDisk()
    offload = ThreadOffload(reactor, threads_max=1)
    with tempfile.TemporaryDirectory() as directory:
        file = disk.open(f"{directory}/segment", create=True)
        file.write_at(0, [bytes(FILE_BYTES)])
        ranges = [
            FileRange(file, at, case.size) for at in range(0, FILE_BYTES - case.size + 1, max(case.size, 64 * KIB))
        ]
        total = case.count * case.connections
        handlers = Handlers(case, total, reactor.stop, ranges)
        runtime = Runtime(reactor, disk, offload, random.Random(1), lambda: 0)
        server = Server(runtime, handlers.table(), use_twisted_transport=use_twisted_transport)
        port = server.listen(Endpoint("PLAINTEXT", "127.0.0.1", 0))
        arguments = [port, case.connections, case.window, case.count]
        command = [sys.executable, "-m", "benchmarks.frame_load", *map(str, arguments)]
        load = subprocess.Popen(command, stdin=subprocess.PIPE)
        try:
            assert load.stdin is not None
            load.stdin.write(request_frame(case))
            load.stdin.close()
            reactor.callLater(TIME_LIMIT_S, reactor.stop)
            reactor.run(installSignalHandlers=False)
        finally:
            load.terminate()
            load.wait()
            offload.stop()
    if not handlers.ended[0]:
        raise TimeoutError(f"the load had not ended after {TIME_LIMIT_S} s")
    requests = total - total // 10
    wall_s = handlers.ended[0] - handlers.began[0]
    cpu_s = handlers.ended[1] - handlers.began[1]
    return {
        "request": case.name,
        "transport": "twisted" if use_twisted_transport else "epoll",
        "bytes": case.size,
        "connections": case.connections,
        "window": case.window,
        "server us per request": cpu_s / requests * 1e6,
        "server us per MB": cpu_s / requests * 1e6 / case.size * 1e6,
        "requests per s": int(requests / wall_s),
        "MB per s": requests / wall_s * case.size / 1e6,
    }


def run(scale: str = "quick") -> list[dict[str, Any]]:
    """Run each case with our transport; at full scale also with Twisted's own, for comparison."""
    kinds = (False, True) if scale == "full" else (False,)
    return [measure(case, use_twisted_transport=kind) for case in CASES for kind in kinds]
