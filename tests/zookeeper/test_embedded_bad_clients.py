"""Malformed, excessive and silent clients affect only themselves."""

from __future__ import annotations

import struct

import pytest
from embedded_peer import TICK_TIME_MS, Scene
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kreplica.zookeeper.embedded.settings import ZooKeeperServerSettings
from kreplica.zookeeper.errors import (
    NoNode,
)
from kreplica.zookeeper.jute import pack_buffer, pack_text
from kreplica.zookeeper.records import (
    AddWatchMode,
    Opcode,
    frame,
    request_frame,
)
from kreplica.zookeeper.requests import (
    AddWatch,
    Create,
    Delete,
    Exists,
    GetData,
    Multi,
    Ping,
    SetData,
)

BAD_BYTES = [
    pytest.param(b"\xff\xff\xff\xff", id="negative length"),
    pytest.param(b"\x7f\xff\xff\xff", id="huge length"),
    pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="http"),
    pytest.param(frame(b""), id="empty frame"),
    pytest.param(frame(b"\0\0\0"), id="short frame"),
    pytest.param(request_frame(1, Opcode.GET_DATA, b"\xff\xff\xff\xff\0"), id="negative path length"),
    pytest.param(request_frame(1, Opcode.GET_DATA, b"\0\0\0\x05/a\0"), id="path beyond the frame"),
    pytest.param(request_frame(1, Opcode.GET_DATA, b"\0\0\0\x02\xff\xff\0"), id="path not UTF-8"),
    pytest.param(request_frame(1, Opcode.SET_DATA, pack_text("/a") + b"\xff\xff\xff\xf0" + bytes(4)), id="data"),
    pytest.param(request_frame(1, Opcode.CREATE, pack_text("/a") + pack_buffer(b"") + b"\x7f\xff\xff\xff"), id="acl"),
    pytest.param(request_frame(1, Opcode.DELETE, Delete("/a").encode() + b"x"), id="an extra byte"),
    pytest.param(request_frame(1, Opcode.MULTI, bytes(8)), id="truncated multi"),
    pytest.param(request_frame(1, Opcode.MULTI, struct.pack(">i?i", 4, False, -1)), id="read in multi"),
    pytest.param(
        request_frame(1, Opcode.MULTI, struct.pack(">i?ii", 2, False, -1, -17) + bytes(40)), id="negative size in multi"
    ),
    pytest.param(request_frame(1, Opcode.SET_WATCHES, bytes(8) + b"\x7f\xff\xff\xff"), id="endless vector"),
]


@pytest.mark.parametrize("junk", BAD_BYTES)
@pytest.mark.parametrize("in_session", [False, True])
def test_malformed_request_closes_its_connection_only(scene: Scene, junk: bytes, in_session: bool) -> None:
    """Other clients are not affected, and no znode is created."""
    other, _ = scene.session()
    peer = scene.session()[0] if in_session else scene.peer()
    peer.send_raw(junk)
    scene.run(peer.closed)
    assert scene.request(other, Ping()).error == 0
    assert scene.request(other, Exists("/a")).error == NoNode.code
    assert scene.simulation.failures == []


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    body=st.one_of(
        st.binary(max_size=60),
        st.tuples(
            st.sampled_from([Create("/f", b"x").encode(), Multi([Create("/f"), Delete("/f")]).encode()]),
            st.integers(0, 200),
            st.integers(0, 255),
        ).map(lambda case: case[0][: case[1]] + bytes([case[2]]) + case[0][case[1] + 1 :]),
    ),
    opcode=st.sampled_from([*Opcode, 0, 99]),
)
def test_any_body_of_any_operation(body: bytes, opcode: int) -> None:
    """The request gets a response, or its connection is closed; other clients are not affected."""
    scene = _FUZZED_SCENE.setdefault("scene", Scene())
    peer, _ = scene.session()
    peer.send_code(opcode, body)
    scene.run(lambda: bool(peer.is_closed or peer.frames.pending))
    peer.transport.abortConnection()
    other, _ = scene.session()
    assert scene.request(other, Exists("/")).error == 0
    assert scene.simulation.failures == []


# One coordinator for all examples, as in production.
_FUZZED_SCENE: dict[str, Scene] = {}


def test_requests_byte_by_byte(scene: Scene) -> None:
    peer, _ = scene.session()
    requests = [Create("/a", b"data"), GetData("/a"), Exists("/none"), Multi([SetData("/a", b"new")])]
    stream = b"".join(
        request_frame(number, opcode, request.encode())
        for number, (opcode, request) in enumerate(
            zip((Opcode.CREATE2, Opcode.GET_DATA, Opcode.EXISTS, Opcode.MULTI), requests, strict=True)
        )
    )
    for position in range(len(stream)):
        peer.send_raw(stream[position : position + 1])
        scene.pass_time(0.01)
    assert [scene.run(peer.next())[::2] for _ in requests] == [(0, 0), (1, 0), (2, NoNode.code), (3, 0)]


def test_connections_above_the_limit_are_closed() -> None:
    """Open connections are not affected, and closing one makes room for another."""
    scene = Scene(ZooKeeperServerSettings(tick_time_ms=TICK_TIME_MS, connections_max=2))
    first, _ = scene.session()
    second = scene.peer()
    third = scene.peer()
    scene.run(third.closed)
    assert scene.request(first, Ping()).error == 0
    second.transport.loseConnection()
    scene.pass_time(1)
    assert scene.request(scene.session()[0], Ping()).error == 0


def test_connection_without_a_handshake_times_out() -> None:
    """Such connections could otherwise exhaust the limit on connections."""
    scene = Scene(ZooKeeperServerSettings(tick_time_ms=100))
    silent = scene.peer()
    scene.pass_time(5)
    assert silent.is_closed


def test_client_that_does_not_read_is_paused(scene: Scene) -> None:
    """While a client does not read, its requests are not read either; when it reads again, every response arrives."""
    peer, _ = scene.session()
    other, _ = scene.session(host="other")
    scene.request(peer, Create("/a", bytes(900_000)))
    peer.transport.pauseProducing()
    count = 100
    for _ in range(count):
        peer.send(GetData("/a"))
    scene.pass_time(5)
    assert scene.request(other, Ping()).error == 0
    (connection,) = (each for each in scene.coordinator.connections if each.received > 2)
    assert connection.received < 40
    peer.transport.resumeProducing()
    for _ in range(count):
        reply = scene.run(peer.next())
        assert (reply.error, len(reply.body)) == (0, 900_000 + 4 + 68)


def test_events_for_a_client_that_does_not_read_close_its_connection(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unlike responses, events cannot be limited by reading fewer requests."""
    monkeypatch.setattr("kreplica.zookeeper.embedded.connection.UNSENT_BYTES_MAX", 100_000)
    watcher, _ = scene.session()
    writer, _ = scene.session(host="other")
    path = "/" + "p" * 2000
    scene.request(writer, Create(path))
    scene.request(watcher, AddWatch(path, AddWatchMode.PERSISTENT))
    watcher.transport.pauseProducing()
    for _ in range(40):
        for _ in range(20):
            writer.send(SetData(path, b""))
        for _ in range(20):
            assert scene.run(writer.next()).error == 0
    watcher.transport.resumeProducing()
    scene.run(watcher.closed)


def test_client_with_many_requests_does_not_block_others(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests that arrive together are served in several reactor iterations; all responses arrive in order."""
    greedy, _ = scene.session()
    (connection,) = scene.coordinator.connections
    # Virtual time does not advance during a request, so a negative time slice ends after each one.
    monkeypatch.setattr("kreplica.zookeeper.embedded.connection.SERVE_S_MAX", -1.0)
    count = 200
    greedy.send_raw(b"".join(request_frame(number, Opcode.PING, b"") for number in range(count)))
    served = connection.received
    while len(greedy.frames.pending) < count:
        assert scene.simulation.step()
        assert connection.received - served <= 1, "more than one request in one iteration of the reactor"
        served = connection.received
    assert [scene.run(greedy.next()).xid for _ in range(count)] == list(range(count))
