"""The event loop's time is shared between client addresses, and between the connections of each address."""

from __future__ import annotations

import socket
from collections.abc import Callable
from functools import partial
from time import perf_counter

import pytest
from server_scene import Scene, play, produce_frame, produced

from kreplica.server.protocol.request import Request
from kreplica.server.transport.read_turns import QUEUE_S, SHARE_S, AddressShare, ReadTurns
from tests.support.iterated_clock import IteratedClock

GREEDY, FRAMES = 40, 10
MODEST_ID = 10_000
REQUEST_S = 0.001


class Reader:
    """A connection whose turns take a given time, and that requests turns until it has had a given number."""

    def __init__(self, time_slice: ReadTurns, clock: IteratedClock, address: str, *, is_bulk: bool = True) -> None:
        self.share: AddressShare = time_slice.opened(address)
        self.is_bulk = is_bulk
        self.fails = self.is_aborted = False
        self.left = 5
        self._time_slice, self._clock, self._address = time_slice, clock, address
        self.log: Callable[[str], object] = lambda address: None

    def take_turn(self) -> None:
        self.log(self._address)
        self._clock.rightNow += QUEUE_S / 3.5
        if self.fails:
            raise LookupError("a connection that fails")
        self.left -= 1
        if self.left:
            self._time_slice.wait(self)

    def abort(self) -> None:
        self.is_aborted = True


def _append_kind(log: list[str], kind: str, address: str) -> None:
    log.append(kind)


def test_addresses_share_turns_equally() -> None:
    """An address with one connection gets as many turns as an address with ten."""
    clock = IteratedClock()
    time_slice = ReadTurns(clock)
    log: list[str] = []
    for address in ["many"] * 10 + ["one"]:
        reader = Reader(time_slice, clock, address)
        reader.log = log.append
        time_slice.wait(reader)
    assert time_slice.is_contended
    clock.iterate()
    assert log == ["many", "one", "many", "one"]
    while clock.iterate():
        pass
    assert (log.count("many"), log.count("one")) == (50, 5)
    assert log[:10].count("one") == 5
    assert not time_slice.is_contended
    assert clock.getDelayedCalls() == []


def test_few_requests_overtake_many_of_the_same_address() -> None:
    """A connection with few requests does not wait for the busy connections of its address."""
    clock = IteratedClock()
    time_slice = ReadTurns(clock)
    log: list[str] = []
    for kind in ["bulk"] * 9 + ["small"]:
        reader = Reader(time_slice, clock, "a", is_bulk=kind == "bulk")
        reader.log = partial(_append_kind, log, kind)
        time_slice.wait(reader)
    clock.iterate()
    assert log[:2] == ["small", "bulk"]


def test_failing_connection_does_not_stop_others() -> None:
    """The failing connection is aborted, and the others get their turns."""
    clock = IteratedClock()
    time_slice = ReadTurns(clock)
    failing, other = Reader(time_slice, clock, "a"), Reader(time_slice, clock, "a")
    failing.fails = True
    time_slice.wait(failing)
    time_slice.wait(other)
    while clock.iterate():
        pass
    assert failing.is_aborted
    assert other.left == 0


def test_used_time_is_reset_in_the_next_iteration() -> None:
    """An address that has used its share is read at once in the next iteration; closed addresses leave no state."""
    clock = IteratedClock()
    time_slice = ReadTurns(clock)
    share = time_slice.opened("a")
    time_slice.spend(share, SHARE_S)
    assert share.used_s >= SHARE_S
    clock.iterate()
    assert share.used_s == 0
    assert time_slice.opened("a") is share
    time_slice.closed(share)
    assert len(time_slice) == 1
    time_slice.closed(share)
    assert len(time_slice) == 0


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.2"])
def test_many_connections_with_many_requests_do_not_delay_another(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that arrives after those of 40 connections with 10 requests each is handled after a few of them."""
    handled: list[int] = []
    sockets: list[socket.socket] = []

    def produce(request: Request) -> None:
        end_s = perf_counter() + REQUEST_S
        while perf_counter() < end_s:
            pass
        handled.append(request.correlation_id)
        if len(handled) == GREEDY:
            sockets[0].send(produce_frame(MODEST_ID, b"x"))
        request.respond(produced(1))

    async def scenario(scene: Scene) -> None:
        monkeypatch.setattr(scene.handlers, "produce", produce)
        scene.start()
        sockets.append(socket.create_connection(("127.0.0.1", scene.port), source_address=(address, 0)))
        for _ in range(GREEDY):
            sockets.append(socket.create_connection(("127.0.0.1", scene.port)))
            sockets[-1].send(b"".join(produce_frame(number, b"x") for number in range(FRAMES)))
        await scene.until(lambda: len(handled) == GREEDY * FRAMES + 1)
        for one in sockets:
            one.close()
        await scene.until(lambda: len(scene.server.resources.read_turns) == 0)

    play("epoll", scenario)
    assert handled.index(MODEST_ID) < 1.5 * GREEDY
