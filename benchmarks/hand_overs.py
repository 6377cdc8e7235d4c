"""Hand-overs of one record on its way from a producer to a consumer, timed with the kernel's arrival time stamps.

One client sends single records at a low rate, and another waits for them with a long-polling Fetch; both use plain
sockets, so that no library thread adds to the time.  The module ``hand_over_stamps`` starts the brokers and records the
times.  A hand-over ends when the kernel or a process has done its part: ``kernel`` is the time from ``send`` to the
arrival at the other socket, and ``wake-up`` is the time until the other process has the data.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import statistics
import struct
import sys
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks import hand_over_stamps
from benchmarks.broker_process import SCRATCH, cpu_s
from benchmarks.hand_over_stamps import APPENDED, CONTROL_BYTES, READ, SENT, SO_TIMESTAMPNS, Event, arrival_ns
from kreplica.wire.batch_building import NEXT_OFFSET, build_batch
from kreplica.wire.headers import build_request_header, parse_response_header
from kreplica.wire.messages import FETCH, PRODUCE, Api
from kreplica.wire.records import Record
from tests.support.coordinator import CoordinatorProcess
from tests.support.process_cluster import ProcessCluster, direct_places

TOPIC = "hand-overs"
PRODUCE_VERSION, FETCH_VERSION = 9, 11
RECORD_BYTES = 100
WAIT_MS = 10_000
WARM_UP = 200
"""Number of records sent as a warm-up."""


@dataclass(frozen=True)
class Scale:
    """Amount of work."""

    records: int
    rounds: int


SCALES = {"quick": Scale(1_000, 1), "full": Scale(5_000, 5)}


@dataclass(frozen=True)
class Case:
    """A cluster and a load.

    :param per_second: records per second.
    :param settings: settings of the brokers.
    :param is_pinned: True if brokers run on core 0 and clients on core 1.
    """

    name: str
    brokers: int
    per_second: int
    settings: Mapping[str, object]
    is_pinned: bool = False


CASES = (
    Case("RF 1, acks=1", 1, 500, {}),
    Case("RF 3, acks=all", 3, 200, {}),
    Case("RF 1 on its own core", 1, 500, {}, is_pinned=True),
    Case("RF 1 on its own core, busy polling", 1, 500, {"kreplica.busy.poll.max.us": 5_000}, is_pinned=True),
)


@dataclass(frozen=True)
class Measured:
    """Times of one round in µs, by hand-over, and the CPU time of all brokers per record."""

    times_us: Mapping[str, Sequence[float]]
    cpu_us: float


def run(scale: str = "quick", rounds: int | None = None) -> list[dict[str, Any]]:
    """Measure all cases in turn.

    :return: one row for each hand-over of each case.
    """
    amount = SCALES[scale]
    if rounds is not None:
        amount = replace(amount, rounds=rounds)
    results: list[list[Measured]] = [[] for _ in CASES]
    for _ in range(amount.rounds):
        for case, measured in zip(CASES, results, strict=True):
            measured.append(measure(case, amount.records))
    return [row for case, measured in zip(CASES, results, strict=True) for row in _rows(case, measured)]


def _rows(case: Case, measured: Sequence[Measured]) -> Iterator[dict[str, Any]]:
    for hand_over in measured[0].times_us:
        quantiles = [statistics.quantiles(each.times_us[hand_over], n=100) for each in measured]
        p50, p90, p99 = (statistics.median(each[index] for each in quantiles) for index in (49, 89, 98))
        yield {"case": case.name, "hand-over": hand_over, "p50 us": p50, "p90 us": p90, "p99 us": p99}
    cpu_us = statistics.median(each.cpu_us for each in measured)
    yield {"case": case.name, "hand-over": "CPU time of the brokers", "p50 us": cpu_us, "p90 us": None, "p99 us": None}


# --- load ------------------------------------------------------------------------------------------------------------


def measure(case: Case, records: int) -> Measured:
    """Start a cluster, send records through it, and return the times of each hand-over."""
    with _cluster(case) as (cluster, paths):
        cluster.create_topic(TOPIC, 1, case.brokers)
        leader = cluster.leader(TOPIC)
        port = cluster.brokers[leader].place.port
        ours, theirs = multiprocessing.Pipe()
        consumer = multiprocessing.Process(target=_consume, args=(port, records + WARM_UP, theirs, case.is_pinned))
        consumer.start()
        theirs.close()
        try:
            consumer_port = ours.recv()
            pids = [broker.pid for broker in cluster.brokers.values()]
            before_s = sum(map(cpu_s, pids))
            producer_port, sent = _produce(port, case, records + WARM_UP)
            received = ours.recv()
            cpu_us = (sum(map(cpu_s, pids)) - before_s) * 1e6 / (records + WARM_UP)
        finally:
            consumer.terminate()
            consumer.join()
        cluster.kill()
        events = {broker: hand_over_stamps.read_events(path) for broker, path in paths.items()}
    timelines = Timelines(events, leader, producer_port, consumer_port, received)
    return Measured(timelines.times_us(sent[WARM_UP:]), cpu_us)


@contextmanager
def _cluster(case: Case) -> Iterator[tuple[ProcessCluster, dict[int, Path]]]:
    SCRATCH.mkdir(parents=True, exist_ok=True)
    settings = {
        "replica.lag.time.max.ms": 30_000,
        "zookeeper.session.timeout.ms": 18_000,
        "default.replication.factor": case.brokers,
        "min.insync.replicas": case.brokers,
        **case.settings,
    }
    with (
        TemporaryDirectory(prefix="hand-overs-", dir=SCRATCH, ignore_cleanup_errors=True) as directory,
        CoordinatorProcess(Path(directory, "coordinator")) as coordinator,
    ):
        paths: dict[int, Path] = {}
        places = {}
        for broker, place in direct_places(coordinator.address, case.brokers).items():
            paths[broker] = Path(directory, f"events-{broker}")
            program = (sys.executable, "-P", hand_over_stamps.__file__, str(paths[broker]))
            pin = ("taskset", "--cpu-list", "0") if case.is_pinned else ()
            places[broker] = replace(place, command_prefix=(*pin, *program))
        with ProcessCluster(Path(directory), places, settings=settings) as cluster:
            yield cluster, paths


def _produce(port: int, case: Case, count: int) -> tuple[int, list[int]]:
    """Send records with pauses, and wait for each acknowledgement.

    :return: the client's port, and the time at which each record was sent.
    """
    if case.is_pinned:
        os.sched_setaffinity(0, {1})
    client = _connect(port)
    batch = build_batch([Record(NEXT_OFFSET, 1_700_000_000_000, None, b"v" * RECORD_BYTES, ())])
    topic = {"name": TOPIC, "partition_data": [{"index": 0, "records": batch}]}
    body = {"acks": 1 if case.brokers == 1 else -1, "timeout_ms": WAIT_MS, "topic_data": [topic]}
    request = _request(PRODUCE, PRODUCE_VERSION, body)
    sent: list[int] = []
    begin_s = time.monotonic()
    for number in range(count):
        pause_s = begin_s + number / case.per_second - time.monotonic()
        if pause_s > 0:
            time.sleep(pause_s)
        sent.append(time.time_ns())
        client.sendall(request)
        _read_frame(client)
    client_port: int = client.getsockname()[1]
    client.close()
    return client_port, sent


def _consume(port: int, count: int, pipe: Pipe, is_pinned: bool) -> None:
    """Fetch records until all have arrived; send the client's port, and then the arrival times, through the pipe."""
    if is_pinned:
        os.sched_setaffinity(0, {1})
    client = _connect(port)
    pipe.send(client.getsockname()[1])
    partition = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": 0,
        "log_start_offset": -1,
        "partition_max_bytes": 1 << 20,
    }
    body = {
        "replica_id": -1,
        "max_wait_ms": WAIT_MS,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": TOPIC, "partitions": [partition]}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }
    arrivals: list[Event] = []
    while partition["fetch_offset"] < count:
        client.sendall(_request(FETCH, FETCH_VERSION, body))
        frame, kernel_ns, read_ns = _read_frame(client)
        _, position = parse_response_header(FETCH.response_header_version(FETCH_VERSION), frame)
        ((row,),) = (t["partitions"] for t in FETCH.response.parse(FETCH_VERSION, frame, position)["responses"])
        size = len(row["records"] or b"")
        if size:
            arrivals.append(Event(READ, 0, size, kernel_ns, read_ns))
            partition["fetch_offset"] = row["high_watermark"]
    pipe.send(arrivals)


def _connect(port: int) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), timeout=30.0)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    client.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    return client


def _request(api: Api, version: int, body: dict[str, Any]) -> bytes:
    header = build_request_header(api.request_header_version(version), api.key, version, 1, "hand-overs")
    content = bytes(header) + api.request.build(version, body)
    return struct.pack(">i", len(content)) + content


def _read_frame(client: socket.socket) -> tuple[memoryview, int, int]:
    """Return a response, the time at which its last bytes reached the kernel, and the time at which they were read."""
    data = b""
    size = 4
    while len(data) < size:
        piece, control, _, _ = client.recvmsg(1 << 20, CONTROL_BYTES)
        now_ns = time.time_ns()
        if not piece:
            raise ConnectionError("the broker closed the connection")
        data += piece
        if len(data) >= 4:
            size = 4 + int.from_bytes(data[:4], "big")
    return memoryview(data)[4:], arrival_ns(control, now_ns), now_ns


# --- evaluation ------------------------------------------------------------------------------------------------------


class Timelines:
    """Finds the hand-overs of each record in the events of all processes.

    :param events: events by broker.
    :param received: arrivals of records at the consumer.
    """

    def __init__(
        self,
        events: Mapping[int, Sequence[Event]],
        leader: int,
        producer_port: int,
        consumer_port: int,
        received: Sequence[Event],
    ) -> None:
        self._leader = _Lane(events[leader])
        self._followers = {broker: _Lane(lane) for broker, lane in events.items() if broker != leader}
        self._received = _Lane(received)
        self._producer_port = producer_port
        self._consumer_port = consumer_port
        # The controller also has connections between the same brokers, which are used less.
        uses = Counter(event.port for event in events[leader] if event.kind == READ)
        self._ports = {
            broker: max({event.port for event in events[broker] if event.kind == SENT}, key=uses.__getitem__)
            for broker in self._followers
        }

    def times_us(self, sent: Sequence[int]) -> dict[str, list[float]]:
        """Return the durations of each hand-over for all records that reached the consumer before the next was sent."""
        times: dict[str, list[float]] = {}
        for at_ns, next_ns in zip(sent, [*sent[1:], 1 << 62], strict=True):
            try:
                points = self._points(at_ns)
            except _Incomplete:
                continue
            if points[-1][1] >= next_ns:
                continue
            before_ns = at_ns
            for name, point_ns in points:
                times.setdefault(name, []).append((point_ns - before_ns) / 1000)
                before_ns = point_ns
            times.setdefault("all", []).append((before_ns - at_ns) / 1000)
        return times

    def _points(self, at_ns: int) -> list[tuple[str, int]]:
        """Return the end of each hand-over of one record."""
        read = self._leader.first(READ, self._producer_port, at_ns)
        appended = self._leader.first(APPENDED, 0, read.to_ns)
        points = [
            ("producer -> leader: kernel", read.from_ns),
            ("leader: wake-up, read", read.to_ns),
            ("leader: handle, append", appended.to_ns),
        ]
        committed_ns = appended.to_ns
        if self._followers:
            replicated = max(
                (self._replication(broker, appended.to_ns) for broker in self._followers),
                key=lambda each: each[-1][1],
            )
            points += replicated
            committed_ns = replicated[-1][1]
        answer = self._leader.first(SENT, self._consumer_port, committed_ns)
        arrival = self._received.first(READ, 0, answer.from_ns)
        return [
            *points,
            ("leader: answer the waiting fetch", answer.from_ns),
            ("leader -> consumer: kernel", arrival.from_ns),
            ("consumer: wake-up, read", arrival.to_ns),
        ]

    def _replication(self, broker: int, appended_ns: int) -> list[tuple[str, int]]:
        port = self._ports[broker]
        lane = self._followers[broker]
        answer = self._leader.first(SENT, port, appended_ns)
        read = lane.first(READ, port, answer.from_ns)
        appended = lane.first(APPENDED, 0, read.to_ns)
        fetch = lane.first(SENT, port, appended.to_ns)
        acknowledged = self._leader.first(READ, port, fetch.from_ns)
        return [
            ("leader: answer the follower's fetch", answer.from_ns),
            ("leader -> follower: kernel", read.from_ns),
            ("follower: wake-up, read", read.to_ns),
            ("follower: append", appended.to_ns),
            ("follower: send the next fetch", fetch.from_ns),
            ("follower -> leader: kernel", acknowledged.from_ns),
            ("leader: wake-up, read the fetch", acknowledged.to_ns),
        ]


class _Incomplete(Exception):
    """An event of the record is missing."""


class _Lane:
    """Events of one process by kind and port, in the order in which they ended."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._events: dict[tuple[int, int], list[Event]] = {}
        for event in events:
            self._events.setdefault((event.kind, event.port), []).append(event)
        self._ends = {key: [event.to_ns for event in lane] for key, lane in self._events.items()}

    def first(self, kind: int, port: int, after_ns: int) -> Event:
        """Return the first event that ended after a time."""
        key = (kind, port)
        index = bisect_left(self._ends.get(key, ()), after_ns)
        if index >= len(self._events.get(key, ())):
            raise _Incomplete
        return self._events[key][index]
