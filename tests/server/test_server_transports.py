"""kreplica's and Twisted's transports behave in the same way, with real sockets and in the simulation."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from server_scene import ALL_ENVIRONMENTS, Scenario, Scene, fetch_frame, play, produce_frame
from twisted.internet.defer import Deferred
from twisted.logger import globalLogPublisher

from kreplica.runtime.disk import FileRange
from kreplica.runtime.os_disk import OsDisk
from kreplica.server.protocol.limits import Bounds
from kreplica.server.transport import epoll_transport


class Slice(NamedTuple):
    """Records in several files, as a log returns them."""

    ranges: list[FileRange]
    size: int


Play = Callable[[Scenario], None]


@pytest.fixture(params=ALL_ENVIRONMENTS)
def play_scenario(request: pytest.FixtureRequest) -> Play:
    return lambda scenario: play(request.param, scenario)


@pytest.fixture
def logged() -> object:
    events: list[dict[str, object]] = []
    globalLogPublisher.addObserver(events.append)  # type: ignore[arg-type]
    yield events
    globalLogPublisher.removeObserver(events.append)  # type: ignore[arg-type]


def test_requests_are_answered_in_order_for_any_segmentation(play_scenario: Play) -> None:
    """Twenty pipelined requests of all sizes, including one that is sent byte by byte, are answered in order."""

    async def scenario(scene: Scene) -> None:
        scene.start()
        scene.handlers.keep_contents = True
        client = await scene.connect()
        client.transport.setTcpNoDelay(True)
        contents = [bytes([number]) * (number * number * 1500) for number in range(20)]
        frames = [produce_frame(number, content) for number, content in enumerate(contents)]
        client.send(*frames[:10])
        for byte in frames[0]:
            client.send(bytes([byte]))
            await scene.pause()
        client.send(*frames[10:])
        assert await client.next_ids(21) == [*range(10), 0, *range(10, 20)]
        assert scene.handlers.contents == [*contents[:10], contents[0], *contents[10:]]

    play_scenario(scenario)


def test_pending_request_holds_back_responses_but_not_requests(play_scenario: Play) -> None:
    """While a Produce waits for its replicas, later requests are handled, but their responses follow its response."""

    async def scenario(scene: Scene) -> None:
        scene.start()
        client = await scene.connect()
        client.send(produce_frame(1, b"waits", acks=-1), produce_frame(2, b"x"), produce_frame(3, b"waits", acks=-1))
        client.send(produce_frame(4, b"x"), produce_frame(5, b"no response is sent", acks=0), produce_frame(6, b"x"))
        await scene.until(lambda: len(scene.handlers.received) == 6)
        assert not client.frames
        scene.handlers.release()
        assert await client.next_ids(2) == [1, 2]
        await scene.pause(0.01)
        assert not client.frames
        scene.handlers.release()
        assert await client.next_ids(3) == [3, 4, 6]

    play_scenario(scenario)


def test_long_pipeline_is_interleaved_with_other_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client's many expensive requests are answered in order, with other clients' requests in between."""
    # Every request uses up the budget of one read.
    monkeypatch.setattr(epoll_transport, "READ_BUDGET_S", 0.0)

    async def scenario(scene: Scene) -> None:
        scene.start()
        greedy, modest = await scene.connect(), await scene.connect()
        # The small requests arrive in one read, in which the last is still incomplete.
        greedy.send(*(produce_frame(number, b"x") for number in range(100)), produce_frame(100, b"x" * 900_000))
        modest.send(produce_frame(1000, b"x"))
        assert await greedy.next_ids(101) == [*range(101)]
        assert await modest.next_ids(1) == [1000]
        assert scene.handlers.received.index(1000) < 100

    play("epoll", scenario)


@pytest.mark.parametrize("size", [10, 900_000])
def test_slow_request_is_reported(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Whether it arrived in one read or many, the report has its API, version, size, client and address."""
    monkeypatch.setattr(epoll_transport, "READ_BUDGET_S", 0.0)
    monkeypatch.setattr(epoll_transport, "LONG_S", 0.0)
    reports: list[tuple[str, float]] = []

    async def scenario(scene: Scene) -> None:
        scene.start()
        scene.server.resources.flush_scope.slices.on_long = lambda cause, seconds: reports.append((cause, seconds))
        client = await scene.connect()
        frame = produce_frame(1, b"x" * size)
        client.send(frame)
        assert await client.next_ids(1) == [1]
        ((cause, seconds),) = reports
        assert cause.startswith(f"Produce v7 ({len(frame) - 4} bytes) from client 'test' at 127.0.0.1:")
        assert 0 <= seconds < 60

    play("epoll", scenario)


def test_too_many_pending_requests_pause_only_their_own_connection(play_scenario: Play) -> None:
    """A connection at its limit of pending requests is no longer read; others are not affected."""

    async def scenario(scene: Scene) -> None:
        scene.start(dataclasses.replace(Bounds(), requests_outstanding_max=4))
        client, other = await scene.connect(), await scene.connect()
        client.send(*(produce_frame(number, bytes(3000), acks=-1) for number in range(10)))
        await scene.until(lambda: len(scene.handlers.received) == 4)
        other.send(produce_frame(77, b"x"))
        assert await other.next_ids(1) == [77]
        assert scene.handlers.received == [0, 1, 2, 3, 77]
        while scene.handlers.parked:
            scene.handlers.release()
            await scene.pause(0.005)
        assert await client.next_ids(10) == list(range(10))
        assert scene.server.metrics.pauses >= 2

    play_scenario(scenario)


def test_bytes_of_pending_requests_are_bounded(play_scenario: Play) -> None:
    """Large pending requests pause their connection before small ones would; none of them is lost."""

    async def scenario(scene: Scene) -> None:
        scene.start(dataclasses.replace(Bounds(), request_bytes_outstanding_max=1_000_000))
        scene.handlers.keep_contents = True
        client = await scene.connect()
        contents = [bytes([number]) * 400_000 for number in range(9)]
        client.send(*(produce_frame(number, content, acks=-1) for number, content in enumerate(contents)))
        await scene.until(lambda: len(scene.handlers.received) == 3)
        await scene.pause(0.02)
        assert len(scene.handlers.received) == 3
        while len(scene.handlers.received) < 9 or scene.handlers.parked:
            if scene.handlers.parked:
                scene.handlers.release()
            await scene.pause(0.001)
        assert await client.next_ids(9) == list(range(9))
        assert scene.handlers.contents == contents

    play_scenario(scenario)


def test_slow_reader_is_paused(play_scenario: Play) -> None:
    """A client that does not read its responses costs a bounded amount of memory, and later receives all of them."""

    async def scenario(scene: Scene) -> None:
        scene.start(dataclasses.replace(Bounds(), response_bytes_outstanding_max=3_000_000))
        scene.handlers.records = bytes(1_000_000)
        client, other = await scene.connect(), await scene.connect()
        client.transport.pauseProducing()
        client.send(*(fetch_frame(number) for number in range(50)))
        await scene.until(lambda: bool(scene.server.metrics.pauses))
        await scene.pause(0.1)
        # The buffers of the two sockets are used in addition to the limit.
        handled = len(scene.handlers.received)
        assert handled < 30
        other.send(produce_frame(77, b"x"))
        assert await other.next_ids(1) == [77]
        client.transport.resumeProducing()
        for number in range(50):
            assert await client.next_fetch() == (number, scene.handlers.records)

    play_scenario(scenario)


def test_responses_contain_file_ranges(play_scenario: Play, tmp_path: Path) -> None:
    """Ranges, some of many megabytes and some empty, arrive between the correct headers."""

    async def scenario(scene: Scene) -> None:
        scene.start()
        data = bytes(range(256)) * 20_000
        path = str(tmp_path / "segment") if isinstance(scene.runtime.disk, OsDisk) else "/data/segment"
        file = scene.runtime.disk.open(path, create=True)
        file.write_at(0, [data])
        client = await scene.connect()
        for number, (position, size) in enumerate([(0, 100), (7, 5_000_000), (300, 4096), (5, 1)]):
            scene.handlers.records = FileRange(file, position, size)
            client.send(fetch_frame(number), fetch_frame(number + 100))
            expected = data[position : position + size]
            assert await client.next_fetch() == (number, expected)
            assert await client.next_fetch() == (number + 100, expected)
        ranges = [FileRange(file, 10, 70_000), FileRange(file, 3, 0), FileRange(file, 900_000, 5)]
        scene.handlers.records = Slice(ranges, 70_005)
        client.send(fetch_frame(9))
        assert await client.next_fetch() == (9, data[10:70_010] + data[900_000:900_005])

    play_scenario(scenario)


def test_truncated_file_closes_the_connection(play_scenario: Play, tmp_path: Path) -> None:
    """If a file is shorter than the length announced to the client, only this connection is closed."""

    async def scenario(scene: Scene) -> None:
        scene.start()
        path = str(tmp_path / "segment") if isinstance(scene.runtime.disk, OsDisk) else "/data/segment"
        file = scene.runtime.disk.open(path, create=True)
        file.write_at(0, [bytes(1000)])
        scene.handlers.records = FileRange(file, 0, 9_000)
        client, other = await scene.connect(), await scene.connect()
        client.send(fetch_frame(1))
        with pytest.raises(ConnectionError):
            await client.next_fetch()
        other.send(produce_frame(2, b"x"))
        assert await other.next_ids(1) == [2]

    play_scenario(scenario)


def test_requests_of_a_closed_connection_are_abandoned(play_scenario: Play) -> None:
    """Each pending request is notified once that the connection closed; responding afterwards does nothing."""

    async def scenario(scene: Scene) -> None:
        scene.start()
        client = await scene.connect()
        closed: list[str] = []
        client.send(produce_frame(1, b"waits", acks=-1), produce_frame(2, b"x"), produce_frame(3, b"waits", acks=-1))
        await scene.until(lambda: len(scene.handlers.received) == 3)
        scene.handlers.connections[0].on_close(lambda: closed.append("closed"))
        client.close()
        await scene.until(lambda: bool(closed))
        assert scene.handlers.abandoned == [1, 3]
        scene.handlers.release()
        scene.handlers.release()
        late: list[str] = []
        scene.handlers.connections[0].on_close(lambda: late.append("at once"))
        assert (closed, late) == (["closed"], ["at once"])

    play_scenario(scenario)


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (b"\xff\xff\xff\xff", "frame"),
        (b"\x7f\xff\xff\xff", "frame"),
        (b"\0\0\0\3\0\0\0", "RequestHeader"),
        (b"\0\0\0\x0a\0\x63\0\0\0\0\0\1\xff\xff", "API 99 version 0"),
        (b"\0\0\0\x0a\0\0\0\x63\0\0\0\1\xff\xff", "Produce version 99"),
        (b"\0\0\0\x0a\0\0\0\7\0\0\0\1\0\x50", "RequestHeader.client_id"),
        (produce_frame(1, b"x")[:4] + produce_frame(1, b"x")[4:-5] + b"\x70\0\0\0x", "records"),
        (produce_frame(1, b"boom"), "Produce failed"),
    ],
    ids=["negative", "oversized", "short", "unknown key", "unknown version", "client id", "body", "handler"],
)
def test_invalid_input_closes_only_its_own_connection(
    play_scenario: Play, logged: list[dict[str, object]], frame: bytes, reason: str
) -> None:
    """Earlier requests are answered, one line is logged with the reason, and other connections are not affected."""

    async def scenario(scene: Scene) -> None:
        scene.start()
        client, other = await scene.connect(), await scene.connect()
        client.send(produce_frame(1, b"x"), frame, produce_frame(3, b"is not looked at"))
        assert await client.next_ids(1) == [1]
        await client.wait_until_closed()
        other.send(produce_frame(2, b"x"))
        assert await other.next_ids(1) == [2]
        lines = [str(event["reason"]) for event in logged if "peer" in event and "reason" in event]
        assert [reason in line for line in lines] == [True], lines

    play_scenario(scenario)


def test_large_frame_in_many_parts(play_scenario: Play) -> None:
    """A request of several megabytes, with others before and after it, is received completely."""

    async def scenario(scene: Scene) -> None:
        scene.start()
        scene.handlers.keep_contents = True
        client = await scene.connect()
        large = bytes(range(251)) * 30_000
        client.send(produce_frame(1, b"x"), produce_frame(2, large), produce_frame(3, b"y"), produce_frame(4, large))
        assert await client.next_ids(4) == [1, 2, 3, 4]
        assert scene.handlers.contents == [b"x", large, b"y", large]
        assert scene.server.resources.partial_frames.held_bytes == 0

    play_scenario(scenario)


def test_scarce_memory_completes_one_frame_after_the_other(play_scenario: Play) -> None:
    """If incomplete frames exceed the shared limit, they are completed one by one, and none is lost."""

    async def scenario(scene: Scene) -> None:
        scene.start(dataclasses.replace(Bounds(), partial_bytes_max=500_000))
        scene.handlers.keep_contents = True
        clients = [await scene.connect() for _ in range(5)]
        contents = [bytes([number]) * 3_000_000 for number in range(5)]
        for client, content in zip(clients, contents, strict=True):
            client.send(produce_frame(1, content))
        for client in clients:
            assert await client.next_ids(1) == [1]
        assert sorted(scene.handlers.contents) == contents

    play_scenario(scenario)


def test_stalled_frame_is_evicted_while_others_wait_for_memory(play_scenario: Play) -> None:
    async def scenario(scene: Scene) -> None:
        scene.start(dataclasses.replace(Bounds(), partial_bytes_max=100_000, partial_stall_s=0.1))
        stalling, other = await scene.connect(), await scene.connect()
        stalling.send(produce_frame(1, bytes(2_000_000))[:300_000])
        await scene.until(lambda: scene.server.resources.partial_frames.held_bytes > 100_000)
        other.send(produce_frame(2, bytes(2_000_000)))
        assert await other.next_ids(1) == [2]
        await stalling.wait_until_closed()

    play_scenario(scenario)


@pytest.mark.parametrize("honest_bytes", [200_000, 2_000_000], ids=["a small request", "a large request"])
def test_slow_clients_do_not_keep_the_memory(play_scenario: Play, honest_bytes: int) -> None:
    """Six large requests that arrive byte by byte occupy all memory, but another client's request is answered."""

    async def scenario(scene: Scene) -> None:
        scene.start(dataclasses.replace(Bounds(), partial_bytes_max=4_000_000, partial_stall_s=0.1))
        attackers = [await scene.connect() for _ in range(6)]
        for attacker in attackers:
            attacker.send(produce_frame(1, bytes(2_000_000))[:950_000])
        await scene.until(lambda: scene.server.resources.partial_frames.held_bytes > 3_000_000)
        honest = await scene.connect()
        answered = Deferred.fromCoroutine(honest.next_ids(1))
        honest.send(produce_frame(2, bytes(honest_bytes)))
        for _ in range(200):
            if answered.called:
                break
            for attacker in attackers:
                if not attacker.is_closed:
                    attacker.send(b"x")
            await scene.pause(0.01)
        assert answered.called, "the dribbling requests kept the memory"
        assert await answered == [2]
        assert not honest.is_closed
        for attacker in attackers:
            attacker.close()
        await scene.until(lambda: scene.server.resources.partial_frames.held_bytes == 0)

    play_scenario(scenario)


def test_idle_connections_are_closed(play_scenario: Play) -> None:
    """A connection in use stays open."""

    async def scenario(scene: Scene) -> None:
        scene.start(dataclasses.replace(Bounds(), idle_s=0.2))
        idle, used = await scene.connect(), await scene.connect()
        while not idle.is_closed:
            used.send(produce_frame(1, b"x"))
            assert await used.next_ids(1) == [1]
            await scene.pause(0.01)
        assert not used.is_closed
        assert scene.server.metrics.connections_idle_closed == 1

    play_scenario(scenario)


def test_stop_answers_pending_requests(play_scenario: Play) -> None:
    """A stopping server rejects new requests, answers the pending ones, and then closes the connections."""

    async def scenario(scene: Scene) -> None:
        scene.start()
        client, idle = await scene.connect(), await scene.connect()
        client.send(produce_frame(1, b"waits", acks=-1))
        await scene.until(lambda: bool(scene.handlers.parked))
        scene.runtime.reactor.callLater(0.05, scene.handlers.release)
        await scene.server.stop(timeout_s=1000.0)
        assert await client.next_ids(1) == [1]
        await client.wait_until_closed()
        await idle.wait_until_closed()

    play_scenario(scenario)


def test_stop_sends_all_of_a_large_response(play_scenario: Play) -> None:
    """Unsent data of a slow client is sent before the server stops."""

    async def scenario(scene: Scene) -> None:
        scene.start()
        scene.handlers.records = bytes(8_000_000)
        client = await scene.connect()
        client.transport.pauseProducing()
        client.send(fetch_frame(1))
        await scene.until(lambda: bool(scene.handlers.received))
        scene.runtime.reactor.callLater(0.05, client.transport.resumeProducing)
        await scene.server.stop(timeout_s=1000.0)
        assert await client.next_fetch() == (1, scene.handlers.records)
        await client.wait_until_closed()

    play_scenario(scenario)


def test_stop_does_not_wait_forever(play_scenario: Play) -> None:
    """After a timeout, a pending request is abandoned, and its handler is notified."""

    async def scenario(scene: Scene) -> None:
        scene.start()
        client = await scene.connect()
        client.send(produce_frame(1, b"waits", acks=-1))
        await scene.until(lambda: bool(scene.handlers.parked))
        await scene.server.stop(timeout_s=0.05)
        await client.wait_until_closed()
        assert scene.handlers.abandoned == [1]

    play_scenario(scenario)
