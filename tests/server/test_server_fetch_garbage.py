"""Fetch requests that have waited in purgatory leave no reference cycles."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from server_scene import parse_answer, request_frame
from sink import Sink

from kreplica.model import TopicPartition
from kreplica.server.fetch.partition import Watch
from kreplica.server.protocol.connection import Connection
from kreplica.server.protocol.request import Request
from kreplica.testing.cluster.cluster import SimulatedCluster
from kreplica.wire.batch_building import NEXT_OFFSET, build_batch
from kreplica.wire.messages import FETCH, PRODUCE
from kreplica.wire.records import Record

ROUNDS = 50


def unreachable() -> list[Any]:
    """Return the number of objects that only the cycle collector could free."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        return list(gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()


@pytest.mark.parametrize("in_session", [False, True])
def test_pending_fetch_leaves_no_reference_cycles(in_session: bool) -> None:
    """Otherwise, garbage collection after thousands of fetches would block the broker for 100 ms."""
    cluster = SimulatedCluster(seed=1)
    cluster.start()
    cluster.run_until(cluster.client().create_topic("t", 1))
    program = cluster.brokers[1].program
    resources, log = program.server.resources, program.partitions.get(TopicPartition("t", 0)).log

    def connect() -> tuple[Connection, Sink]:
        connection, sink = resources.connection("PLAINTEXT", "1.2.3.4:5"), Sink()
        connection.attach(sink)
        return connection, sink

    def send(connection: Connection, frame: bytes) -> None:
        with resources.flush_scope:
            resources.dispatch.frame_received(connection, memoryview(frame)[4:])

    consumer, responses = connect()
    producer, _ = connect()
    records = build_batch([Record(NEXT_OFFSET, 1_700_000_000_000, None, b"v", ())])
    batch = {"name": "t", "partition_data": [{"index": 0, "records": records}]}
    produce = request_frame(PRODUCE, 9, 1, {"acks": 1, "timeout_ms": 1000, "topic_data": [batch]})

    def fetch(session_id: int, session_epoch: int, wait_ms: int) -> None:
        row = {"partition": 0, "fetch_offset": log.log_end_offset, "partition_max_bytes": 5000}
        body = {"max_wait_ms": wait_ms, "min_bytes": 1, "max_bytes": 1 << 20, "session_id": session_id,
                "session_epoch": session_epoch, "topics": [{"topic": "t", "partitions": [row]}]}  # fmt: skip
        send(consumer, request_frame(FETCH, 11, 1, body))

    session_id = 0
    if in_session:
        fetch(0, 0, wait_ms=0)
        session_id = parse_answer(responses.frames()[0], FETCH.key, 11)[1]["session_id"]
        responses.sends.clear()
    gc.collect()
    gc.disable()
    try:
        for number in range(ROUNDS):
            fetch(session_id, 1 + number if in_session else -1, wait_ms=1000)
            assert not responses.sends, "the fetch must wait"
            send(producer, produce)
            assert responses.sends
            responses.sends.clear()
        cluster.run(2.0)  # cancelled timers keep references until they are due
        assert sum(isinstance(left, Watch | Request) for left in unreachable()) < ROUNDS
    finally:
        gc.enable()
