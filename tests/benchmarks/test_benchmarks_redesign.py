"""The benchmark of the controller redesign runs with little work, and its proxy delays every round trip."""

from __future__ import annotations

from collections.abc import Iterator
from socket import create_connection, create_server
from threading import Thread
from time import perf_counter

import pytest

from benchmarks import redesign
from benchmarks.delay_proxy import DelayProxy


@pytest.fixture
def echo_port() -> Iterator[int]:
    """Port of a server that returns the bytes of one connection."""
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


def test_the_proxy_delays_a_round_trip_and_passes_the_end_on(echo_port: int) -> None:
    with DelayProxy(40, [echo_port]) as proxy, create_connection(("127.0.0.1", proxy.ports[0]), 10) as client:
        began_s = perf_counter()
        client.sendall(b"abc")
        assert client.recv(3) == b"abc"
        assert perf_counter() - began_s >= 0.04


def test_without_a_round_trip_there_is_no_proxy(echo_port: int) -> None:
    with DelayProxy(0, [echo_port]) as proxy:
        assert proxy.ports == [echo_port]
        create_connection(("127.0.0.1", echo_port), 10).close()


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
