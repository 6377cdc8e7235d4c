"""The REST API's latency while a producer writes, and the time to list 10,000 partitions.

Method: one broker runs in a separate process, with as many partitions as are listed.  Requests are due at constant
intervals regardless of earlier responses (an open loop), on persistent connections; latency is measured from the time
at which a request is due.  The requests are the most frequent ones of the dashboard and the command line, in turn.
"""

from __future__ import annotations

import itertools
import json
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from tests.support.standalone import StandaloneProcess

PARTITIONS = 10_000
TOPIC_PARTITIONS = 1000
WRITTEN = "written"
RECORD = b"x" * 1000
RECORDS_PER_SECOND = 2000

REQUESTS_PER_SECOND = 200
CONNECTIONS = 8
P99_MS_MAX = 20.0
LIST_MS_MAX = 300.0

PATHS = (
    "/v1/cluster",
    "/v1/brokers",
    "/v1/topics?limit=20",
    f"/v1/topics/{WRITTEN}",
    f"/v1/topics/{WRITTEN}/partitions?limit=50",
    f"/v1/topics/{WRITTEN}/partitions/0",
    f"/v1/configs/topics/{WRITTEN}",
    "/v1/partitions?state=under_replicated&limit=100",
)


@dataclass(frozen=True)
class Scale:
    seconds: float
    lists: int


SCALES = {"quick": Scale(10.0, 9), "full": Scale(60.0, 31)}


class Api:
    """A persistent connection to a broker's admin API."""

    def __init__(self, port: int) -> None:
        self._connection = HTTPConnection("127.0.0.1", port, timeout=60)

    def request(self, method: str, path: str, body: Any = None) -> bytes:
        """Send a request and return the body of a successful response."""
        headers = {"Content-Type": "application/json"} if body is not None else {}
        self._connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = self._connection.getresponse()
        content = response.read()
        assert response.status in (200, 201), content
        return content


def run(scale: str = "quick") -> list[dict[str, Any]]:
    """Start a broker, and measure the list and the latencies."""
    measured = SCALES[scale]
    with tempfile.TemporaryDirectory() as directory, StandaloneProcess(Path(directory)) as process:
        api = Api(process.admin_port)
        api.request("POST", "/v1/topics", {"name": WRITTEN, "partitions": 4})
        few = _loaded(process, measured.seconds)
        for number in range(PARTITIONS // TOPIC_PARTITIONS):
            api.request("POST", "/v1/topics", {"name": f"t{number}", "partitions": TOPIC_PARTITIONS})
        _wait_until_led(api)
        return [
            _list_row(api, measured.lists),
            _latency_row("4 partitions, producing", few),
            _latency_row(f"{PARTITIONS:,} partitions, producing", _loaded(process, measured.seconds)),
        ]


def _wait_until_led(api: Api) -> None:
    while json.loads(api.request("GET", "/v1/cluster"))["offline_partitions"]:
        time.sleep(0.2)


def _list_row(api: Api, times: int) -> dict[str, Any]:
    path = f"/v1/partitions?limit={PARTITIONS}"
    assert len(json.loads(api.request("GET", path))["partitions"]) == PARTITIONS
    taken_ms = [_timed_ms(lambda: api.request("GET", path)) for _ in range(times)]
    return {
        "case": f"list {PARTITIONS:,} partitions",
        "requests": times,
        "p50 ms": statistics.median(taken_ms),
        "p99 ms": max(taken_ms),
        "target": f"p50 <= {LIST_MS_MAX:g} ms",
        "met": statistics.median(taken_ms) <= LIST_MS_MAX,
    }


def _latency_row(case: str, taken_ms: list[float]) -> dict[str, Any]:
    percentiles = statistics.quantiles(taken_ms, n=100)
    return {
        "case": f"{REQUESTS_PER_SECOND} requests/s, {case}",
        "requests": len(taken_ms),
        "p50 ms": percentiles[49],
        "p99 ms": percentiles[98],
        "target": f"p99 <= {P99_MS_MAX:g} ms",
        "met": percentiles[98] <= P99_MS_MAX,
    }


def _timed_ms(call: Any) -> float:
    started_s = time.perf_counter()
    call()
    return (time.perf_counter() - started_s) * 1000


def _loaded(process: StandaloneProcess, seconds: float) -> list[float]:
    """Return the latencies of requests in milliseconds while records are written."""
    with _producing(process.bootstrap_servers), ThreadPoolExecutor(CONNECTIONS) as threads:
        begin_s = time.perf_counter() + 1.0
        count = int(seconds * REQUESTS_PER_SECOND)
        futures = [
            threads.submit(_ask_in_turn, process.admin_port, begin_s, range(first, count, CONNECTIONS))
            for first in range(CONNECTIONS)
        ]
        return list(itertools.chain.from_iterable(each.result() for each in futures))


def _ask_in_turn(port: int, begin_s: float, numbers: range) -> list[float]:
    api = Api(port)
    taken_ms = []
    for number in numbers:
        due_s = begin_s + number / REQUESTS_PER_SECOND
        time.sleep(max(due_s - time.perf_counter(), 0.0))
        api.request("GET", PATHS[number % len(PATHS)])
        taken_ms.append((time.perf_counter() - due_s) * 1000)
    return taken_ms


@contextmanager
def _producing(bootstrap_servers: str) -> Iterator[None]:
    stopped = threading.Event()
    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 5})

    def produce() -> None:
        while not stopped.wait(0.01):
            for _ in range(RECORDS_PER_SECOND // 100):
                producer.produce(WRITTEN, RECORD)
            producer.poll(0)

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()
        assert producer.flush(30) == 0
