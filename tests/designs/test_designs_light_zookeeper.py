"""The lightweight ZooKeeper server and its clients: order, watches, sessions and time."""

from __future__ import annotations

from typing import Any

import pytest

from kreplica.testing.designs.clients import ONE_BY_ONE, PIPELINED, AgentClient, DeferredClient
from kreplica.testing.designs.counts import Counts
from kreplica.testing.designs.light_zookeeper import LightZooKeeper, Rates
from kreplica.testing.simulator.scheduler import Process, Scheduler
from kreplica.zookeeper import Check, Create, MultiFailed, NoNode, SetData

RATES = Rates(reads=1000.0, writes=1000.0, writes_in_multi=10_000.0)
RTT_S = 0.01


class Bench:
    """A server with two clients."""

    def __init__(self, in_flight_max: int = PIPELINED) -> None:
        self.scheduler = Scheduler()
        self.counts = Counts()
        self.server = LightZooKeeper(self.scheduler, RTT_S, self.counts, RATES)
        self.first = AgentClient(self.server, Process("first"), in_flight_max)
        self.second = AgentClient(self.server, Process("second"), in_flight_max)
        self.events: list[tuple[float, Any]] = []

    def note(self, value: Any) -> None:
        self.events.append((round(self.scheduler.now_s, 6), value))


def test_pipelined_requests_share_a_round_trip() -> None:
    """Requests that are sent together take one round trip, and are served one after another at the server's rate."""
    bench = Bench()
    bench.server.put("/a", b"x")
    for _ in range(3):
        bench.first.get("/a", None, bench.note)
    bench.scheduler.run(1.0)
    assert [at_s for at_s, _ in bench.events] == [0.011, 0.012, 0.013]


def test_a_synchronous_client_waits_for_each_response() -> None:
    """With one request in flight, each takes a round trip."""
    bench = Bench(ONE_BY_ONE)
    bench.server.put("/a", b"x")
    for _ in range(3):
        bench.first.get("/a", None, bench.note)
    bench.scheduler.run(1.0)
    assert [at_s for at_s, _ in bench.events] == [0.011, 0.022, 0.033]


def test_a_watch_fires_once_per_session() -> None:
    """Both watchers are notified of the first change, and neither of the second."""
    bench = Bench()
    bench.first.exists("/a", bench.note, lambda _: None)
    bench.second.exists("/a", bench.note, lambda _: None)
    bench.first.create("/a", b"")
    bench.first.set("/a", b"1")
    bench.scheduler.run(1.0)
    assert len(bench.events) == 2
    assert (bench.counts.watches_set, bench.counts.watches_fired, bench.server.watch_count) == (2, 2, 0)


def test_the_end_of_a_session_deletes_its_ephemeral_znodes() -> None:
    """When a session ends, watchers of its ephemeral znodes are notified, and its own watches are removed."""
    bench = Bench()
    bench.first.create("/a", b"", ephemeral=True)
    bench.first.exists("/b", bench.note, lambda _: None)
    bench.second.exists("/a", bench.note, lambda _: None)
    bench.scheduler.run(1.0)
    bench.first.close()
    bench.scheduler.run(1.0)
    ((_, event),) = bench.events
    assert event.path == "/a"
    assert bench.server.watch_count == 0


def test_a_failed_multi_changes_nothing() -> None:
    """All operations of a multi are rolled back, and no watch is notified."""
    bench = Bench()
    client = DeferredClient(bench.server, Process("third"))
    bench.first.exists("/a", bench.note, lambda _: None)
    deferred = client.multi([Create("/a", b""), Check("/none", 0)])
    deferred.addBoth(bench.note)
    bench.scheduler.run(1.0)
    ((_, failure),) = bench.events
    assert isinstance(failure.value, MultiFailed)
    assert isinstance(failure.value.error, NoNode)
    assert "/a" not in bench.server.tree.nodes


@pytest.mark.parametrize(("one_by_one", "expected_s"), [(False, 0.0103), (True, 0.033)])
def test_multis_one_by_one(one_by_one: bool, expected_s: float) -> None:
    """If multis are charged one by one, every write in them takes a round trip and the time of a single write."""
    bench = Bench()
    bench.server.put("/a", b"x")
    client = DeferredClient(bench.server, Process("third"), one_by_one=one_by_one)
    client.multi([SetData("/a", b"y")] * 3).addCallback(bench.note)
    bench.scheduler.run(1.0)
    assert bench.events[0][0] == pytest.approx(expected_s)
