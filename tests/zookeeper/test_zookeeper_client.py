"""The ZooKeeper client with a scripted server and virtual time."""

from __future__ import annotations

import itertools
import random
import socket
from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet import tcp
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone, ConnectionRefusedError
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.python.failure import Failure

from kreplica.zookeeper import (
    AuthFailed,
    ClientClosed,
    ConnectionLoss,
    NoNode,
    NotSent,
    OperationTimeout,
    PipelineFull,
    SessionExpired,
    SessionState,
    Stat,
    ZooKeeperClient,
    ZooKeeperError,
)
from kreplica.zookeeper.errors import MarshallingError
from kreplica.zookeeper.jute import Reader
from kreplica.zookeeper.persistent_watch import Watch
from kreplica.zookeeper.records import (
    XID_AUTH,
    XID_PING,
    XID_SET_WATCHES,
    XID_WATCH_EVENT,
    AddWatchMode,
    ConnectRequest,
    ConnectResponse,
    EventType,
    KeeperState,
    Opcode,
    WatchEvent,
    encode_watch_event,
    frame,
    reply_frame,
    request_frame,
)
from kreplica.zookeeper.requests import Auth, GetData, Request, SetData, SetWatches, decode_request
from kreplica.zookeeper.responses import encode_data, encode_stat
from kreplica.zookeeper.watches import Watches

STAT = Stat(1, 2, 3, 4, 5, 6, 7, 0, 8, 9, 10)
PASSWORD = b"0123456789abcdef"
TIMEOUT_MS = 9000


class Transport(StringTransport):
    """Counts writes, and records an abort."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0
        self.aborted = False

    def write(self, data: bytes) -> None:
        self.writes += 1
        super().write(data)

    def abortConnection(self) -> None:
        self.aborted = True


class Peer:
    """The server's side of one connection."""

    def __init__(self, factory: Any) -> None:
        self.protocol = factory.buildProtocol(IPv4Address("TCP", "server", 1))
        self.transport = Transport()
        self.protocol.makeConnection(self.transport)

    def frames(self) -> list[bytes]:
        """Return the frames received since the last call, without the lengths."""
        data = self.transport.value()
        self.transport.clear()
        frames = []
        while data:
            size = int.from_bytes(data[:4], "big")
            frames.append(data[4 : 4 + size])
            data = data[4 + size :]
        return frames

    def requests(self) -> list[tuple[int, Request]]:
        """Return (transaction ID, request) for each frame received since the last call."""
        return [
            (
                int.from_bytes(body[:4], "big", signed=True),
                decode_request(int.from_bytes(body[4:8], "big", signed=True), Reader(body, 8)),
            )
            for body in self.frames()
        ]

    def send(self, data: bytes) -> None:
        self.protocol.dataReceived(data)

    def accept(self, timeout_ms: int = TIMEOUT_MS, session_id: int = 77) -> ConnectRequest:
        """Respond to the handshake, and return its request."""
        (handshake,) = self.frames()
        self.send(frame(ConnectResponse(timeout_ms, session_id, PASSWORD).encode()))
        return ConnectRequest.decode(Reader(handshake))

    def lose(self) -> None:
        self.protocol.connectionLost(Failure(ConnectionDone()))


class ClientScene:
    """A client on an in-memory reactor, and the connections that it opens."""

    def __init__(self, servers: str = "10.0.0.1:1", **options: Any) -> None:
        self.reactor = MemoryReactorClock()
        self.client = ZooKeeperClient(
            self.reactor, servers, random=random.Random(3), session_timeout_ms=TIMEOUT_MS, **options
        )
        self.states: list[SessionState] = []
        self.client.on_session_event(self.states.append)
        self._attempts_taken = 0

    def next_attempt(self, within_s: float = 5.0) -> Any:
        """Return the next connection attempt: (host, port, factory)."""
        waited = 0.0
        while len(self.reactor.tcpClients) == self._attempts_taken and waited < within_s:
            self.reactor.advance(0.01)
            waited += 0.01
        host, port, factory, *_ = self.reactor.tcpClients[self._attempts_taken]
        self._attempts_taken += 1
        return host, port, factory

    def peer(self) -> Peer:
        """Accept the next connection attempt."""
        return Peer(self.next_attempt()[2])

    def start_session(self) -> Peer:
        """Start the client, and accept its first session."""
        outcome(self.client.start())
        peer = self.peer()
        peer.accept()
        return peer

    def run_due_calls(self) -> None:
        """Run the delayed calls that are due now."""
        self.reactor.advance(0)

    def timers(self) -> list[float]:
        return sorted(call.getTime() - self.reactor.seconds() for call in self.reactor.getDelayedCalls())


def outcome(deferred: Deferred[Any]) -> list[Any]:
    """Return a list to which the result or the exception is added."""
    results: list[Any] = []
    deferred.addCallbacks(results.append, lambda failure: results.append(failure.value))
    return results


def test_handshake_requests_a_new_session() -> None:
    """It contains session ID 0, a password of zeros, and the configured timeout; ``start`` fires with the response."""
    scene = ClientScene()
    started = outcome(scene.client.start())
    early = outcome(scene.client.exists("/early"))
    peer = scene.peer()
    assert started == []
    assert peer.accept() == ConnectRequest(0, TIMEOUT_MS, 0, b"\x00" * 16)
    assert started == [None]
    assert scene.states == [SessionState.CONNECTED]
    assert (scene.client.session_id, scene.client.session_password) == (77, PASSWORD)
    scene.run_due_calls()
    ((xid, _request),) = peer.requests()
    peer.send(reply_frame(xid, 5, 0, encode_stat(STAT)))
    assert early == [STAT]
    assert scene.client.last_zxid == 5


def test_requests_of_one_iteration_share_a_write() -> None:
    """A thousand requests share one write, and so do the requests sent by the callbacks of their responses."""
    scene = ClientScene()
    peer = scene.start_session()
    before = peer.transport.writes
    outcomes = [outcome(scene.client.get_data(f"/{number}").addCallback(send_another(scene))) for number in range(1000)]
    assert peer.transport.writes == before
    scene.run_due_calls()
    assert peer.transport.writes == before + 1
    requests = peer.requests()
    assert [xid for xid, _ in requests] == list(range(1, 1001))
    peer.send(b"".join(reply_frame(xid, xid, 0, encode_data(b"%d" % xid, STAT)) for xid, _ in requests))
    assert peer.transport.writes == before + 2
    assert len(peer.requests()) == 1000
    assert outcomes[999] == [(b"1000", STAT)]


def send_another(scene: ClientScene) -> Any:
    """Return a callback that sends another request."""

    def send(response: object) -> object:
        outcome(scene.client.get_data("/again"))
        return response

    return send


def test_responses_that_arrive_byte_by_byte() -> None:
    """The handshake, events, errors and data are decoded even if each byte arrives alone."""
    scene = ClientScene()
    outcome(scene.client.start())
    peer = scene.peer()
    for byte in frame(ConnectResponse(TIMEOUT_MS, 77, PASSWORD).encode()):
        peer.send(bytes([byte]))
    peer.frames()
    events: list[WatchEvent] = []
    first, second = outcome(scene.client.get_data("/a", events.append)), outcome(scene.client.get_data("/b"))
    scene.run_due_calls()
    event = WatchEvent(EventType.NODE_DATA_CHANGED, KeeperState.SYNC_CONNECTED, "/a")
    for byte in (
        reply_frame(1, 1, 0, encode_data(b"data", STAT))
        + reply_frame(XID_WATCH_EVENT, 2, 0, encode_watch_event(event))
        + reply_frame(2, 2, NoNode.code)
    ):
        peer.send(bytes([byte]))
    assert first == [(b"data", STAT)]
    assert events == [event]
    assert isinstance(second[0], NoNode)
    assert second[0].path == "/b"


def test_ping_is_sent_every_third_of_the_session_timeout() -> None:
    """While pings get responses, the session has not expired."""
    scene = ClientScene()
    peer = scene.start_session()
    pings = []
    for second in range(1, 10):
        scene.reactor.advance(1)
        scene.run_due_calls()
        for xid, _request in peer.requests():
            pings.append((second, xid))
            peer.send(reply_frame(XID_PING, 0, 0))
    assert pings == [(3, XID_PING), (6, XID_PING), (9, XID_PING)]
    assert not scene.client.session_may_have_expired
    assert scene.timers() == [3]


def test_ping_delayed_by_a_backlog_is_sent_soon_after() -> None:
    """It does not wait for another third of the session timeout, because a broker's lease depends on it."""
    scene = ClientScene()
    peer = scene.start_session()
    connection = scene.client._session._connection
    assert connection is not None
    connection._buffered = True  # as after a partial write to the socket
    scene.reactor.advance(3)
    scene.run_due_calls()
    assert peer.requests() == []
    connection._buffered = False
    scene.reactor.advance(0.4)
    scene.run_due_calls()
    assert [xid for xid, _request in peer.requests()] == [XID_PING]


def test_silent_server_is_abandoned_after_two_thirds_of_the_session_timeout() -> None:
    """The connection is aborted, and the pending request fails."""
    scene = ClientScene()
    peer = scene.start_session()
    request = outcome(scene.client.exists("/a"))
    for _ in range(5):
        scene.reactor.advance(1)
    assert not peer.transport.aborted
    scene.reactor.advance(1)
    assert peer.transport.aborted
    assert request == []
    peer.lose()
    assert scene.states[-1] is SessionState.SUSPENDED
    assert isinstance(request[0], ConnectionLoss)
    assert "silent for 6.0 s" in str(request[0])


def test_session_may_have_expired_after_its_timeout_without_a_confirmation() -> None:
    """The timeout starts when the last ping that got a response was sent, not when the response arrived."""
    scene = ClientScene()
    peer = scene.start_session()
    scene.reactor.advance(3)
    scene.run_due_calls()
    scene.reactor.advance(1)
    peer.send(reply_frame(XID_PING, 0, 0))
    peer.lose()
    scene.reactor.advance(7.9)
    assert not scene.client.session_may_have_expired
    scene.reactor.advance(0.2)
    assert scene.client.session_may_have_expired
    assert scene.client.state is SessionState.SUSPENDED


def test_next_connection_resumes_session_and_watches() -> None:
    """Credentials are sent first, then watches, then the pending requests in order."""
    scene = ClientScene(auth=[("digest", b"me:secret")])
    outcome(scene.client.start())
    peer = scene.peer()
    peer.accept()
    scene.run_due_calls()
    assert peer.requests() == [(XID_AUTH, Auth("digest", b"me:secret"))]
    assert scene.states == []
    peer.send(reply_frame(XID_AUTH, 0, 0))
    assert scene.states == [SessionState.CONNECTED]
    outcome(scene.client.get_data("/a", print))
    outcome(scene.client.exists("/b", print))
    scene.run_due_calls()
    peer.frames()
    peer.send(reply_frame(1, 40, 0, encode_data(b"", STAT)) + reply_frame(2, 41, NoNode.code))
    peer.lose()
    outcome(scene.client.get_data("/c"))

    peer = scene.peer()
    assert peer.accept() == ConnectRequest(41, TIMEOUT_MS, 77, PASSWORD)
    scene.run_due_calls()
    assert [xid for xid, _ in peer.requests()] == [XID_AUTH]
    peer.send(reply_frame(XID_AUTH, 0, 0))
    scene.run_due_calls()
    assert peer.requests() == [
        (XID_SET_WATCHES, SetWatches(41, ["/a"], ["/b"], [])),
        (1, GetData("/c")),
    ]
    assert scene.states == [SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.CONNECTED]


def test_many_watches_are_restored_in_several_requests() -> None:
    """Each request is well below the server's size limit."""
    scene = ClientScene()
    peer = scene.start_session()
    paths = [f"/{number:0500}" for number in range(1000)]
    for path in paths:
        outcome(scene.client.get_data(path, print))
    scene.run_due_calls()
    peer.frames()
    peer.send(b"".join(reply_frame(xid, 9, 0, encode_data(b"", STAT)) for xid in range(1, 1001)))
    peer.lose()
    peer = scene.peer()
    peer.accept()
    scene.run_due_calls()
    sets = [request for xid, request in peer.requests() if isinstance(request, SetWatches) and xid == XID_SET_WATCHES]
    assert [path for request in sets for path in request.data] == paths
    assert len(sets) == 4


def test_expiry_is_reported_before_requests_fail() -> None:
    """Listeners are called first; nothing is retried, and no timer is left."""
    scene = ClientScene()
    peer = scene.start_session()
    peer.lose()
    calls: list[Any] = []
    scene.client.on_session_event(calls.append)
    scene.client.exists("/a").addErrback(lambda failure: calls.append(type(failure.value)))
    peer = scene.peer()
    peer.accept(timeout_ms=0, session_id=0)
    assert calls == [SessionState.EXPIRED, SessionExpired]
    assert peer.transport.aborted
    peer.lose()
    assert scene.timers() == []
    (late,) = outcome(scene.client.exists("/a"))
    assert isinstance(late, SessionExpired)


def test_other_session_id_means_expiry() -> None:
    """A server that responds with another session has not resumed this one."""
    scene = ClientScene()
    scene.start_session().lose()
    waiting = outcome(scene.client.exists("/a"))
    peer = scene.peer()
    peer.accept(session_id=78)
    assert scene.states[-1] is SessionState.EXPIRED
    assert isinstance(waiting[0], SessionExpired)
    assert scene.client.session_id == 77
    assert peer.transport.aborted


def test_backoff_grows_if_the_session_is_lost_at_once() -> None:
    """The backoff grows although each connection succeeds, and is reset by one that lasts."""
    scene = ClientScene()
    peer = scene.start_session()
    for _ in range(8):
        peer.lose()
        peer = scene.peer()
        peer.accept()
    peer.lose()
    lost_at = scene.reactor.seconds()
    peer = scene.peer()
    assert scene.reactor.seconds() - lost_at >= 1
    peer.accept()
    scene.reactor.advance(2.5)
    peer.lose()
    lost_at = scene.reactor.seconds()
    scene.next_attempt()
    assert scene.reactor.seconds() - lost_at < 0.1


def test_server_that_refuses_watches_is_abandoned() -> None:
    """A session without its watches would have an outdated view."""
    scene = ClientScene()
    peer = scene.start_session()
    outcome(scene.client.get_data("/a", print))
    scene.run_due_calls()
    peer.send(reply_frame(1, 9, 0, encode_data(b"", STAT)))
    peer.lose()
    peer = scene.peer()
    peer.accept()
    peer.send(reply_frame(XID_SET_WATCHES, 9, -6))
    assert peer.transport.aborted


def test_close_leaves_no_timer() -> None:
    """The client may be connected, connecting, or waiting for its next attempt."""
    scene = ClientScene()
    peer = scene.start_session()
    closed = outcome(scene.client.close())
    scene.run_due_calls()
    ((xid, _request),) = peer.requests()
    peer.send(reply_frame(xid, 3, 0))
    assert peer.transport.disconnecting
    peer.lose()
    assert closed == [None]
    assert scene.timers() == []
    assert scene.states == [SessionState.CONNECTED, SessionState.CLOSED]

    scene = ClientScene()
    started = outcome(scene.client.start())
    scene.next_attempt()
    assert outcome(scene.client.close()) == [None]
    assert isinstance(started[0], ClientClosed)
    assert scene.timers() == []

    scene = ClientScene()
    scene.start_session().lose()
    assert outcome(scene.client.close()) == [None]
    assert scene.timers() == []


def test_close_without_a_response() -> None:
    """The connection is closed after a timeout."""
    scene = ClientScene()
    peer = scene.start_session()
    closed = outcome(scene.client.close())
    scene.reactor.advance(5)
    assert peer.transport.aborted
    peer.lose()
    assert closed == [None]
    assert scene.timers() == []


def test_listener_may_close_the_client_at_any_event() -> None:
    """After a listener has closed the client, the event is not processed further."""
    for state in (SessionState.CONNECTED, SessionState.SUSPENDED):
        scene = ClientScene()
        scene.client.on_session_event(
            lambda new, state=state, scene=scene: outcome(scene.client.close()) if new is state else None
        )
        peer = scene.start_session()
        scene.run_due_calls()
        if state is SessionState.CONNECTED:
            scene.reactor.advance(5)
        peer.lose()
        assert scene.states[-1] is SessionState.CLOSED
        assert scene.timers() == []
        assert len(scene.reactor.tcpClients) == 1


@pytest.mark.parametrize(
    "malformed",
    [
        reply_frame(1, 1, 0, b"\x00"),  # body that is not a stat
        reply_frame(1, 1, 0, encode_stat(STAT) + b"\x00"),
        frame(b"\x00\x00"),  # no header
        reply_frame(9, 1, 0, encode_stat(STAT)),  # not the next request
        reply_frame(-77, 1, 0),  # unknown transaction ID
        reply_frame(XID_WATCH_EVENT, 1, 0, b"\x00"),
        b"\xff\xff\xff\xff",  # negative length
        b"\x7f\xff\xff\xff",  # excessive length
    ],
)
def test_malformed_bytes_close_the_connection_only(malformed: bytes) -> None:
    """The requests fail with typed errors, and the session resumes on another connection."""
    scene = ClientScene()
    peer = scene.start_session()
    first, second = outcome(scene.client.exists("/a")), outcome(scene.client.exists("/b"))
    scene.run_due_calls()
    peer.send(malformed + reply_frame(2, 2, 0, encode_stat(STAT)))
    assert peer.transport.aborted
    assert second == []
    peer.lose()
    assert isinstance(first[0], (ConnectionLoss, MarshallingError))
    assert isinstance(second[0], ConnectionLoss)
    assert "malformed" in str(first[0])
    assert "malformed" in str(second[0])
    assert scene.peer().accept().session_id == 77


def test_damaged_responses_raise_no_error_from_the_connection() -> None:
    """At worst, the client closes the connection and the request fails."""
    choose = random.Random(4)
    good = reply_frame(1, 1, 0, encode_data(b"data", STAT)) + reply_frame(XID_WATCH_EVENT, 1, 0, b"\x00" * 12)
    for _ in range(300):
        scene = ClientScene()
        peer = scene.start_session()
        request = outcome(scene.client.get_data("/a"))
        scene.run_due_calls()
        damaged = bytearray(good)
        for _ in range(choose.randint(1, 4)):
            damaged[choose.randrange(len(damaged))] = choose.randrange(256)
        peer.send(bytes(damaged))
        peer.lose()
        assert len(request) == 1
        assert isinstance(request[0], (tuple, ZooKeeperError))


def test_unanswered_requests_are_bounded() -> None:
    """Their number and total size are limited, connected or not; each response makes room."""
    for options, full_after in (({"requests_max": 3}, 3), ({"request_bytes_max": 1000}, 2)):
        scene = ClientScene(**options)
        peer = scene.start_session()
        accepted = [outcome(scene.client.set_data("/a", b"x" * 600)) for _ in range(full_after)]
        (refused,) = outcome(scene.client.set_data("/a", b"x" * 600))
        assert isinstance(refused, PipelineFull)
        scene.run_due_calls()
        assert len(peer.requests()) == full_after
        peer.send(reply_frame(1, 1, 0, encode_stat(STAT)))
        assert accepted[0] == [STAT]
        assert outcome(scene.client.set_data("/a", b"x" * 600)) == []
        peer.lose()
        waiting = [outcome(scene.client.set_data("/a", b"x" * 600)) for _ in range(full_after + 1)]
        assert [len(each) for each in waiting] == [0] * full_after + [1]
        assert isinstance(waiting[-1][0], PipelineFull)


def test_servers_are_tried_in_turn_with_growing_backoff() -> None:
    """The first round is fast; then the backoff doubles up to a limit, with jitter."""
    scene = ClientScene("10.0.0.1:1,10.0.0.2:2,[::1]:3", connection_timeout_ms=60_000)
    outcome(scene.client.start())
    hosts, times = [], []
    for _ in range(30):
        host, _port, factory = scene.next_attempt()
        hosts.append(host)
        times.append(scene.reactor.seconds())
        factory.clientConnectionFailed(None, Failure(ConnectionRefusedError()))
    assert set(hosts[:3]) == {"10.0.0.1", "10.0.0.2", "::1"}
    assert hosts == hosts[:3] * 10
    pauses = [after - before for before, after in itertools.pairwise(times)]
    assert max(pauses[:2]) < 0.07
    assert min(pauses[2:5]) > 0.04
    assert min(pauses[-6:]) > 0.9
    assert max(pauses) < 2.1
    assert len({round(pause, 2) for pause in pauses[-9:]}) > 1


def test_unresponsive_server_is_skipped() -> None:
    """The server may accept no connection or never answer the handshake."""
    scene = ClientScene("10.0.0.1:1,10.0.0.2:1")
    outcome(scene.client.start())
    first, _, _ = scene.next_attempt()
    second, _, factory = scene.next_attempt()
    assert {first, second} == {"10.0.0.1", "10.0.0.2"}
    assert scene.reactor.seconds() == pytest.approx(4.5, abs=0.1)
    peer = Peer(factory)
    scene.reactor.advance(4.6)
    assert peer.transport.aborted
    peer.lose()
    scene.peer().accept()
    assert scene.states == [SessionState.CONNECTED]


def test_failed_start_can_be_repeated() -> None:
    """``renew`` repeats it, because ``start`` can be called only once."""
    scene = ClientScene(connection_timeout_ms=1000)
    started = outcome(scene.client.start())
    scene.next_attempt()
    scene.reactor.advance(1)
    assert isinstance(started[0], OperationTimeout)
    assert scene.timers() == []
    renewed = outcome(scene.client.renew())
    scene.peer().accept()
    assert renewed == [None]


def test_refused_credentials_are_fatal() -> None:
    """The client never reports that it is connected."""
    scene = ClientScene(auth=[("digest", b"x")])
    started = outcome(scene.client.start())
    peer = scene.peer()
    peer.accept()
    peer.send(reply_frame(XID_AUTH, 0, AuthFailed.code))
    assert isinstance(started[0], AuthFailed)
    assert scene.states == [SessionState.AUTH_FAILED]
    peer.lose()
    assert scene.timers() == []


def test_cancelled_request_is_dropped() -> None:
    """A cancelled request is not sent; if it was already sent, its response is ignored."""
    scene = ClientScene()
    outcome(scene.client.start())
    waiting = scene.client.exists("/waiting")
    outcome(waiting)
    waiting.cancel()
    peer = scene.peer()
    peer.accept()
    sent = scene.client.exists("/sent")
    outcome(sent)
    other = outcome(scene.client.exists("/other"))
    scene.run_due_calls()
    sent.cancel()
    assert len(peer.requests()) == 2
    peer.send(reply_frame(1, 1, 0, encode_stat(STAT)) + reply_frame(2, 1, 0, encode_stat(STAT)))
    assert other == [STAT]


def test_pending_requests_time_out() -> None:
    """The timeout of each request starts with the request."""
    scene = ClientScene(waiting_ms_max=1000)
    scene.start_session().lose()
    first = outcome(scene.client.exists("/a"))
    scene.reactor.advance(0.6)
    second = outcome(scene.client.exists("/b"))
    scene.reactor.advance(0.5)
    assert isinstance(first[0], NotSent)
    assert second == []
    scene.reactor.advance(0.5)
    assert isinstance(second[0], NotSent)


def test_transaction_ids_wrap_around() -> None:
    """Negative transaction IDs are reserved for other purposes."""
    scene = ClientScene()
    peer = scene.start_session()
    peer.protocol._wrappedProtocol._xid = 0x7FFFFFFE
    outcomes = [outcome(scene.client.exists("/a")) for _ in range(2)]
    scene.run_due_calls()
    assert [xid for xid, _ in peer.requests()] == [0x7FFFFFFF, 1]
    peer.send(reply_frame(0x7FFFFFFF, 1, 0, encode_stat(STAT)) + reply_frame(1, 1, 0, encode_stat(STAT)))
    assert outcomes == [[STAT], [STAT]]


def test_event_without_a_watch_is_ignored() -> None:
    """An event may arrive without a watch, for example after the watch was removed."""
    scene = ClientScene()
    peer = scene.start_session()
    for kind in EventType:
        event = WatchEvent(kind, KeeperState.SYNC_CONNECTED, "/a")
        peer.send(reply_frame(XID_WATCH_EVENT, 1, 0, encode_watch_event(event)))
    assert not peer.transport.aborted


def test_opcodes_are_those_of_the_protocol() -> None:
    """A request without a body consists only of its transaction ID and code."""
    scene = ClientScene()
    peer = scene.start_session()
    outcome(scene.client.close())
    scene.run_due_calls()
    (body,) = peer.frames()
    assert body[4:] == int(Opcode.CLOSE_SESSION).to_bytes(4, "big", signed=True)


class Socket(tcp.Connection):
    """A TCP transport whose socket accepts only some bytes at a time and buffers the rest."""

    def __init__(self, reactor: Any) -> None:
        with socket.socket() as unused:
            super().__init__(unused, None, reactor)  # type: ignore[arg-type]
        self.capacity = 1 << 30
        self.sent = b""
        self.buffered = b""

    def writeSomeData(self, data: bytes) -> int:
        size = min(self.capacity, len(data))
        self.sent += data[:size]
        self.capacity -= size
        return size

    def write(self, data: bytes) -> None:
        self.buffered += data

    def setTcpNoDelay(self, enabled: bool) -> None:
        pass


def test_partially_written_bytes_keep_their_order() -> None:
    """Bytes after a partial write are buffered until responses show that all earlier bytes were sent."""
    scene = ClientScene()
    outcome(scene.client.start())
    connection = scene.next_attempt()[2].buildProtocol(IPv4Address("TCP", "server", 1))
    transport = Socket(scene.reactor)
    connection.makeConnection(transport)
    connection.dataReceived(frame(ConnectResponse(TIMEOUT_MS, 77, PASSWORD).encode()))
    transport.buffered = b""
    transport.capacity = 30
    first = outcome(scene.client.set_data("/a", b"x" * 100))
    scene.run_due_calls()
    outcome(scene.client.set_data("/b", b"y"))
    scene.run_due_calls()
    assert len(transport.sent) == 30
    sent = transport.sent + transport.buffered
    expected = [SetData("/a", b"x" * 100), SetData("/b", b"y")]
    assert sent == b"".join(request_frame(xid, 5, each.encode()) for xid, each in enumerate(expected, 1))

    transport.capacity, transport.sent, transport.buffered = 1 << 30, b"", b""
    scene.reactor.advance(3)
    scene.run_due_calls()
    assert transport.sent + transport.buffered == b""
    connection.dataReceived(reply_frame(1, 1, 0, encode_stat(STAT)))
    assert first == [STAT]
    outcome(scene.client.exists("/c"))
    scene.run_due_calls()
    assert transport.sent == b""
    assert transport.buffered != b""
    connection.dataReceived(b"".join(reply_frame(xid, 1, 0, encode_stat(STAT)) for xid in (2, 3)))
    outcome(scene.client.exists("/d"))
    scene.run_due_calls()
    assert transport.sent != b""
    scene.reactor.advance(3)
    scene.run_due_calls()
    assert transport.sent.endswith(request_frame(XID_PING, 11, b""))


def test_removing_a_watch_twice_leaves_other_watches_of_its_listener() -> None:
    """Each watch removes only its own registration of the listener."""
    watches = Watches()
    session: Any = SimpleNamespace(watches=watches, state=SimpleNamespace(ended=True))
    events: list[WatchEvent] = []
    first, second = (Watch(session, "/a", "/a", AddWatchMode.PERSISTENT, events.append) for _ in range(2))
    first.on_response(0)
    second.on_response(0)
    for _ in range(2):
        assert Deferred.fromCoroutine(first.remove()).called
    event = WatchEvent(EventType.NODE_CREATED, KeeperState.SYNC_CONNECTED, "/a")
    assert len(watches.listeners_of(event)) == 1
