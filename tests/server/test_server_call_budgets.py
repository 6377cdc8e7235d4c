"""What a request may cost: calls of Python's and of C's functions, counted, so that no clock disturbs them.

A broker of a simulated cluster is given frames as a connection would give them.  What is counted is everything from the
frame to the answer's bytes; the simulated disk's own work is left out.  Who makes a hot path dearer changes a number
here, and says why; who makes it cheaper lowers it.
"""

from __future__ import annotations

import gc
import os
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from server_scene import parse_answer, request_frame
from test_server_dispatch import MemoryTransport

import kreplica
from kreplica.model import TopicPartition
from kreplica.runtime.disk import FileRange
from kreplica.server.fetch.partition import Watch
from kreplica.server.protocol.request import Request
from kreplica.server.transport.outgoing_buffers import Piece, piece_size
from kreplica.testing.cluster.cluster import SimulatedCluster
from kreplica.wire.batch_building import NEXT_OFFSET, build_batch
from kreplica.wire.messages import FETCH, LIST_OFFSETS, METADATA, PRODUCE, Api
from kreplica.wire.records import Record

HOME = os.path.join(os.path.dirname(kreplica.__file__), "")
"""The folder of the package itself: the checkout may be in a folder of any name."""

SIMULATOR = os.path.join(HOME, "testing", "")
PRODUCT = (HOME, "<")
"""Beginnings of the file names of the product's functions; generated ones have names like ``<parser of ...>``."""

PARTITIONS = 10
SETTLED = 20
WARM_UP = 20
ROUNDS = 50


class Cost(NamedTuple):
    """Of one request."""

    python_calls: int
    c_calls: int


class Sink(MemoryTransport):
    """Takes everything, files too, and keeps what is no file."""

    def send(self, pieces: list[Piece]) -> int:
        self.sends += [bytes(piece) for piece in pieces if not isinstance(piece, FileRange)]
        return sum(map(piece_size, pieces))


class Measured:
    """One connection to a broker that has a topic of ten partitions."""

    def __init__(self) -> None:
        self.cluster = SimulatedCluster(seed=1)
        self.cluster.start()
        self.client = self.cluster.client()
        self.cluster.run_until(self.client.create_topic("t", PARTITIONS))
        self.cluster.run_until(self.client.create_topic("empty", PARTITIONS))
        for partition in range(PARTITIONS):
            # So many that the first is searched for, whatever other tests have added.
            for _ in range(SETTLED):
                self.cluster.run_until(self.client.produce("t", partition, batch()))
        server = self.cluster.brokers[1].program.server
        self.resources = server.resources
        self.transport = Sink()
        self.connection = self.resources.connection("PLAINTEXT", "1.2.3.4:5")
        self.connection.attach(self.transport)

    def answer(self, api: Api, version: int, body: dict[str, Any]) -> dict[str, Any]:
        """Of one request, parsed."""
        self._receive(memoryview(request_frame(api, version, 1, body))[4:])
        (frame,) = self.transport.frames()
        self.transport.sends.clear()
        return parse_answer(frame, api.key, version)[1]

    def cost(self, api: Api, version: int, body: Callable[[int], dict[str, Any]]) -> Cost:
        """The median of many."""
        frames = [request_frame(api, version, 1, body(number)) for number in range(WARM_UP + ROUNDS)]
        return self.cost_of(*([frame] for frame in frames))

    def cost_of(self, *reads: list[bytes]) -> Cost:
        """The median of many, each of the frames that one read brings."""
        costs = []
        for number, frames in enumerate(reads if len(reads) > 1 else reads * (WARM_UP + ROUNDS)):
            cost = self._counted([memoryview(bytearray(frame))[4:] for frame in frames])
            assert self.transport.sends, "the request was not answered at once"
            self.transport.sends.clear()
            if number >= WARM_UP:
                costs.append(cost)
        return sorted(costs)[len(costs) // 2]

    def _receive(self, *frames: memoryview) -> None:
        with self.resources.turn:
            for frame in frames:
                self.resources.dispatch.frame_received(self.connection, frame)

    def _counted(self, frames: list[memoryview]) -> Cost:
        counts: Counter[str] = Counter()
        inside = 0  # calls that the simulator's own code is in

        def profile(frame: Any, event: str, _: Any) -> None:
            nonlocal inside
            own = frame.f_code.co_filename.startswith(SIMULATOR)
            if event == "call":
                inside += own
                counts["python"] += not inside
            elif event == "return":
                inside -= own
            elif event == "c_call":
                counts["c"] += not inside

        sys.setprofile(profile)
        try:
            self._receive(*frames)
        finally:
            sys.setprofile(None)
        return Cost(counts["python"], counts["c"])


def batch(size: int = 1000) -> bytes:
    """One record."""
    return build_batch([Record(NEXT_OFFSET, 1_700_000_000_000, None, b"v" * size, ())])


def produce(partitions: int) -> dict[str, Any]:
    data = [{"index": number, "records": batch()} for number in range(partitions)]
    return {"acks": 1, "timeout_ms": 1000, "topic_data": [{"name": "t", "partition_data": data}]}


def fetch(partitions: int, topic: str = "t", *, session_id: int = 0, session_epoch: int = -1) -> dict[str, Any]:
    rows = [{"partition": number, "fetch_offset": 0, "partition_max_bytes": 5000} for number in range(partitions)]
    topics = [{"topic": topic, "partitions": rows}] if partitions else []
    return {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1 << 20, "topics": topics, "session_id": session_id,
            "session_epoch": session_epoch}  # fmt: skip


@pytest.fixture(scope="module")
def measured() -> Measured:
    return Measured()


@pytest.mark.parametrize(("partitions", "budget"), [(1, Cost(67, 51)), (PARTITIONS, Cost(480, 420))])
def test_produce(measured: Measured, partitions: int, budget: Cost) -> None:
    """With acks=1, one batch for each partition."""
    assert_within(measured.cost(PRODUCE, 9, lambda _: produce(partitions)), budget)


def test_produce_in_a_run(measured: Measured) -> None:
    """Eight requests that one read has brought."""
    frame = request_frame(PRODUCE, 9, 1, produce(1))
    assert_within(measured.cost_of([frame] * 8), Cost(166, 247))


@pytest.mark.parametrize(("partitions", "budget"), [(1, Cost(86, 90)), (PARTITIONS, Cost(440, 440))])
def test_fetch(measured: Measured, partitions: int, budget: Cost) -> None:
    """Whose records are there: outside of a session, as a client without sessions asks."""
    assert_within(measured.cost(FETCH, 11, lambda _: fetch(partitions)), budget)


def test_fetch_in_a_session(measured: Measured) -> None:
    """Of ten partitions of which none has anything new: what an idle consumer costs."""
    session_id = measured.answer(FETCH, 11, fetch(PARTITIONS, "empty", session_epoch=0))["session_id"]
    assert session_id
    cost = measured.cost(FETCH, 11, lambda number: fetch(0, session_id=session_id, session_epoch=1 + number))
    assert_within(cost, Cost(48, 52))


def test_a_record_that_all_replicas_have() -> None:
    """With acks=all: its way to two followers and back, by calls of the brokers' own functions."""
    for schema in (FETCH.request, FETCH.response):
        parser: Any = schema.parser(FETCH.versions[1])
        parser._known.clear()  # other tests may have filled it up with what they ask
    cluster = SimulatedCluster(seed=1, brokers=3)
    cluster.start()
    cluster.run_until(cluster.client().create_topic("t", 1, replication_factor=3))
    cluster.wait_in_sync("t", [0])
    resources = cluster.brokers[cluster.leader_of("t", 0)].program.server.resources
    connection, answers = resources.connection("PLAINTEXT", "1.2.3.4:5"), Sink()
    connection.attach(answers)
    frame = memoryview(request_frame(PRODUCE, 9, 1, produce(1) | {"acks": -1}))[4:]
    counts = []

    def profile(frame: Any, event: str, _: Any) -> None:
        where = frame.f_code.co_filename
        if event == "call" and where.startswith(PRODUCT) and not where.startswith(SIMULATOR):
            counts[-1] += 1

    for _ in range(WARM_UP + ROUNDS):
        counts.append(0)
        sys.setprofile(profile)
        try:
            with resources.turn:
                resources.dispatch.frame_received(connection, frame)
            cluster.run_until(lambda: bool(answers.sends))
        finally:
            sys.setprofile(None)
        answers.sends.clear()
    assert_within(Cost(sorted(counts)[len(counts) // 2], 0), Cost(546, 0))


def collected() -> list[Any]:
    """What only the collector could free."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        return list(gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()


@pytest.mark.parametrize("in_session", [False, True])
def test_a_fetch_that_waited_leaves_no_cycles(measured: Measured, in_session: bool) -> None:
    """A collection of what thousands of them have left would hold up everybody for a tenth of a second."""
    consumer = measured.resources.connection("PLAINTEXT", "1.2.3.4:6")
    answers = Sink()
    consumer.attach(answers)
    log = measured.cluster.brokers[1].program.partitions.get(TopicPartition("t", 0)).log

    def ask(session_id: int, session_epoch: int, wait_ms: int) -> None:
        body = fetch(1, session_id=session_id, session_epoch=session_epoch) | {"max_wait_ms": wait_ms, "min_bytes": 1}
        body["topics"][0]["partitions"][0]["fetch_offset"] = log.log_end_offset
        with measured.resources.turn:
            frame = memoryview(request_frame(FETCH, 11, 1, body))[4:]
            measured.resources.dispatch.frame_received(consumer, frame)

    def produce_one() -> None:
        measured._receive(memoryview(request_frame(PRODUCE, 9, 1, produce(1)))[4:])
        measured.transport.sends.clear()

    session_id = 0
    if in_session:
        ask(0, 0, wait_ms=0)
        session_id = parse_answer(answers.frames()[0], FETCH.key, 11)[1]["session_id"]
        answers.sends.clear()
    gc.collect()
    gc.disable()
    try:
        for number in range(ROUNDS):
            ask(session_id, 1 + number if in_session else -1, wait_ms=1000)
            assert not answers.sends, "it is to wait"
            produce_one()
            assert answers.sends
            answers.sends.clear()
        measured.cluster.run(2.0)  # past the times of timers that were cancelled, which hold on to what they were for
        assert sum(isinstance(left, Watch | Request) for left in collected()) < ROUNDS
    finally:
        gc.enable()


def test_list_offsets(measured: Measured) -> None:
    """Of one partition, its end."""
    row = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
    body = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": "t", "partitions": [row]}]}
    assert_within(measured.cost(LIST_OFFSETS, 5, lambda _: body), Cost(46, 64))


def test_metadata(measured: Measured) -> None:
    """Of one topic with ten partitions."""
    body = {"topics": [{"name": "t"}], "allow_auto_topic_creation": False}
    assert_within(measured.cost(METADATA, 8, lambda _: body), Cost(53, 78))


def assert_within(cost: Cost, budget: Cost) -> None:
    """A little may come and go; what is more than a tenth below the budget lowers it."""
    assert cost.python_calls <= budget.python_calls, cost
    assert cost.c_calls <= budget.c_calls, cost
    assert cost.python_calls >= 0.85 * budget.python_calls, f"cheaper than its budget, which is to be lowered: {cost}"
