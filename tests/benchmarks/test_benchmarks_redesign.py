"""The benchmark of the controller redesign runs at its smallest scale, and its proxy delays every round trip."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from socket import create_connection, create_server
from threading import Thread
from time import perf_counter
from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet.task import Clock

from benchmarks import redesign
from benchmarks.delay_proxy import DelayProxy
from benchmarks.redesign_broker import HANDLER_COUNT, POLL_S, QUEUE_SIZE_MAX, RequestQueue


@pytest.fixture
def echo_port() -> Iterator[int]:
    """Port of a server that echoes the bytes of one connection."""
    with create_server(("127.0.0.1", 0)) as server:

        def echo() -> None:
            connection, _ = server.accept()
            with connection:
                while data := connection.recv(1 << 16):
                    connection.sendall(data)

        thread = Thread(target=echo)
        thread.start()
        yield server.getsockname()[1]
        thread.join()


def test_the_proxy_delays_a_round_trip_and_forwards_the_end(echo_port: int) -> None:
    with DelayProxy(40, [echo_port]) as proxy, create_connection(("127.0.0.1", proxy.ports[0]), 10) as client:
        started_s = perf_counter()
        client.sendall(b"abc")
        assert client.recv(3) == b"abc"
        assert perf_counter() - started_s >= 0.04


def test_without_a_delay_there_is_no_proxy(echo_port: int) -> None:
    with DelayProxy(0, [echo_port]) as proxy:
        assert proxy.ports == [echo_port]
        create_connection(("127.0.0.1", echo_port), 10).close()


@pytest.mark.soak
def test_every_proposal_is_measured() -> None:
    """Synchronous writes take at least a round trip each; batches take less."""
    rows = redesign.run("smallest")
    scale = redesign.SCALES["smallest"]
    amounts = rows[: len(scale.sizes)]
    assert [row["partitions"] for row in amounts] == list(scale.sizes)
    for row in amounts:
        assert row["one by one, ms"] >= row["partitions"] * scale.round_trips_ms[0]
        assert row["one per request, ms"] >= row["partitions"] * scale.round_trips_ms[0]
    assert amounts[-1]["guarded batches, ms"] < amounts[-1]["one by one, ms"]
    events = [row["event"] for row in rows if "event" in row]
    assert events == ["controller failover", "controlled shutdown", "broker death"]
    idle, saturated = rows[-2:]
    assert (idle["producers"], idle["records (largest)"]) == (0, 0)
    assert saturated["requests/s"] > 0
    assert saturated["ms (largest)"] > 0


OPEN: Any = SimpleNamespace(closed=False)
"""Connection that is not closed."""


def _queue(order: str) -> tuple[Clock, RequestQueue, list[tuple[float, int]]]:
    """Return the clock, a queue, and its handled requests: (time, API key)."""
    clock = Clock()
    handled: list[tuple[float, int]] = []

    def handle(_: Any, frame: memoryview) -> None:
        handled.append((clock.seconds(), int.from_bytes(frame[:2], "big")))

    return clock, RequestQueue(order, clock, handle, nullcontext()), handled


@pytest.mark.parametrize(
    ("order", "position"), [("one queue", 2 * HANDLER_COUNT), ("two queues", 0), ("priority queue", 0)]
)
def test_a_command_overtakes_the_requests_of_another_queue(order: str, position: int) -> None:
    clock, queue, handled = _queue(order)
    for _ in range(2 * HANDLER_COUNT):
        queue.put(OPEN, memoryview(b"\0\0"))
    queue.put(OPEN, memoryview(b"\0\4"))
    clock.pump([0, 0, 0])
    assert [key for _, key in handled].index(4) == position
    assert len(handled) == 2 * HANDLER_COUNT + 1


@pytest.mark.parametrize(("order", "time_s"), [("one queue", 0.1), ("two queues", POLL_S), ("priority queue", 0.1)])
def test_a_handler_that_waits_for_a_regular_request_does_not_notice_a_command(order: str, time_s: float) -> None:
    clock, queue, handled = _queue(order)
    clock.advance(0.1)
    queue.put(OPEN, memoryview(b"\0\4"))
    clock.pump([0, 0.1, 0.1, 0.1])
    assert [key for _, key in handled] == [4]
    assert handled[0][0] == pytest.approx(time_s)


def test_a_full_queue_stops_the_network() -> None:
    _, queue, _ = _queue("priority queue")
    for _ in range(QUEUE_SIZE_MAX):
        assert not queue.is_full
        queue.put(OPEN, memoryview(b"\0\0"))
    assert queue.is_full
