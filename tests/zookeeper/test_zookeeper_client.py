"""The client with a scripted server, in virtual time."""

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
        """Return the same, decoded: (transaction ID, request)."""
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
        """Answer the handshake; return its request."""
        (handshake,) = self.frames()
        self.send(frame(ConnectResponse(timeout_ms, session_id, PASSWORD).encode()))
        return ConnectRequest.decode(Reader(handshake))

    def lose(self) -> None:
        self.protocol.connectionLost(Failure(ConnectionDone()))


class Stage:
    """A client on the test's own reactor, and the connections it opens."""

    def __init__(self, servers: str = "10.0.0.1:1", **options: Any) -> None:
        self.reactor = MemoryReactorClock()
        self.client = ZooKeeperClient(
            self.reactor, servers, random=random.Random(3), session_timeout_ms=TIMEOUT_MS, **options
        )
        self.states: list[SessionState] = []
        self.client.on_session_event(self.states.append)
        self._taken = 0

    def connecting(self, within_s: float = 5.0) -> Any:
        """Return the next connection attempt: (host, port, factory)."""
        waited = 0.0
        while len(self.reactor.tcpClients) == self._taken and waited < within_s:
            self.reactor.advance(0.01)
            waited += 0.01
        host, port, factory, *_ = self.reactor.tcpClients[self._taken]
        self._taken += 1
        return host, port, factory

    def peer(self) -> Peer:
        """Accept the next connection."""
        return Peer(self.connecting()[2])

    def connected(self) -> Peer:
        """Start, and accept the first session."""
        outcome(self.client.start())
        peer = self.peer()
        peer.accept()
        return peer

    def turn(self) -> None:
        """Run the calls of the reactor that are due now."""
        self.reactor.advance(0)

    def timers(self) -> list[float]:
        return sorted(call.getTime() - self.reactor.seconds() for call in self.reactor.getDelayedCalls())


def outcome(deferred: Deferred[Any]) -> list[Any]:
    """Return a list that gets the result or the exception."""
    results: list[Any] = []
    deferred.addCallbacks(results.append, lambda failure: results.append(failure.value))
    return results


def test_handshake_requests_a_new_session() -> None:
    """The request has no ID, a password of zeros, and the configured timeout; ``start`` fires with the response."""
    stage = Stage()
    started = outcome(stage.client.start())
    early = outcome(stage.client.exists("/early"))
    peer = stage.peer()
    assert started == []
    assert peer.accept() == ConnectRequest(0, TIMEOUT_MS, 0, b"\x00" * 16)
    assert started == [None]
    assert stage.states == [SessionState.CONNECTED]
    assert (stage.client.session_id, stage.client.session_password) == (77, PASSWORD)
    stage.turn()
    ((xid, _request),) = peer.requests()
    peer.send(reply_frame(xid, 5, 0, encode_stat(STAT)))
    assert early == [STAT]
    assert stage.client.last_zxid == 5


def test_requests_of_one_iteration_are_one_write() -> None:
    """A thousand requests are one write; requests from callbacks of responses are sent together after them."""
    stage = Stage()
    peer = stage.connected()
    before = peer.transport.writes
    answers = [outcome(stage.client.get_data(f"/{number}").addCallback(again(stage))) for number in range(1000)]
    assert peer.transport.writes == before
    stage.turn()
    assert peer.transport.writes == before + 1
    requests = peer.requests()
    assert [xid for xid, _ in requests] == list(range(1, 1001))
    peer.send(b"".join(reply_frame(xid, xid, 0, encode_data(b"%d" % xid, STAT)) for xid, _ in requests))
    assert peer.transport.writes == before + 2
    assert len(peer.requests()) == 1000
    assert answers[999] == [(b"1000", STAT)]


def again(stage: Stage) -> Any:
    """Send more requests from a callback."""

    def ask(answer: object) -> object:
        outcome(stage.client.get_data("/again"))
        return answer

    return ask


def test_responses_are_read_byte_by_byte() -> None:
    """Handshake, events, errors and data are decoded for any segmentation."""
    stage = Stage()
    outcome(stage.client.start())
    peer = stage.peer()
    for byte in frame(ConnectResponse(TIMEOUT_MS, 77, PASSWORD).encode()):
        peer.send(bytes([byte]))
    peer.frames()
    events: list[WatchEvent] = []
    first, second = outcome(stage.client.get_data("/a", events.append)), outcome(stage.client.get_data("/b"))
    stage.turn()
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


def test_ping_is_sent_every_third_of_the_session() -> None:
    """Other requests do not replace it; the session is confirmed from the time a ping was sent."""
    stage = Stage()
    peer = stage.connected()
    pings = []
    for second in range(1, 10):
        stage.reactor.advance(1)
        stage.turn()
        for xid, _request in peer.requests():
            pings.append((second, xid))
            peer.send(reply_frame(XID_PING, 0, 0))
    assert pings == [(3, XID_PING), (6, XID_PING), (9, XID_PING)]
    assert not stage.client.session_may_have_expired
    assert stage.timers() == [3]


def test_ping_delayed_by_a_backlog_is_sent_soon_after() -> None:
    """The ping is not delayed by another third of the session, because the lease of a broker depends on it."""
    stage = Stage()
    peer = stage.connected()
    connection = stage.client._session._connection
    assert connection is not None
    connection._buffered = True  # as after a partial write to the socket
    stage.reactor.advance(3)
    stage.turn()
    assert peer.requests() == []
    connection._buffered = False
    stage.reactor.advance(0.4)
    stage.turn()
    assert [xid for xid, _request in peer.requests()] == [XID_PING]


def test_silent_server_is_abandoned_after_two_thirds_of_the_session() -> None:
    """Any response restarts the time."""
    stage = Stage()
    peer = stage.connected()
    request = outcome(stage.client.exists("/a"))
    for _ in range(5):
        stage.reactor.advance(1)
    assert not peer.transport.aborted
    stage.reactor.advance(1)
    assert peer.transport.aborted
    assert request == []
    peer.lose()
    assert stage.states[-1] is SessionState.SUSPENDED
    assert isinstance(request[0], ConnectionLoss)
    assert "silent for 6.0 s" in str(request[0])


def test_session_may_have_expired_after_its_timeout_without_a_confirmation() -> None:
    """The time counts from when the last answered ping was sent, not from its response."""
    stage = Stage()
    peer = stage.connected()
    stage.reactor.advance(3)
    stage.turn()
    stage.reactor.advance(1)
    peer.send(reply_frame(XID_PING, 0, 0))
    peer.lose()
    stage.reactor.advance(7.9)
    assert not stage.client.session_may_have_expired
    stage.reactor.advance(0.2)
    assert stage.client.session_may_have_expired
    assert stage.client.state is SessionState.SUSPENDED


def test_next_connection_resumes_session_and_watches() -> None:
    """Credentials are sent first, then watches, then the pending requests in order."""
    stage = Stage(auth=[("digest", b"me:secret")])
    outcome(stage.client.start())
    peer = stage.peer()
    peer.accept()
    stage.turn()
    assert peer.requests() == [(XID_AUTH, Auth("digest", b"me:secret"))]
    assert stage.states == []
    peer.send(reply_frame(XID_AUTH, 0, 0))
    assert stage.states == [SessionState.CONNECTED]
    outcome(stage.client.get_data("/a", print))
    outcome(stage.client.exists("/b", print))
    stage.turn()
    peer.frames()
    peer.send(reply_frame(1, 40, 0, encode_data(b"", STAT)) + reply_frame(2, 41, NoNode.code))
    peer.lose()
    outcome(stage.client.get_data("/c"))

    peer = stage.peer()
    assert peer.accept() == ConnectRequest(41, TIMEOUT_MS, 77, PASSWORD)
    stage.turn()
    assert [xid for xid, _ in peer.requests()] == [XID_AUTH]
    peer.send(reply_frame(XID_AUTH, 0, 0))
    stage.turn()
    assert peer.requests() == [
        (XID_SET_WATCHES, SetWatches(41, ["/a"], ["/b"], [])),
        (1, GetData("/c")),
    ]
    assert stage.states == [SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.CONNECTED]


def test_many_watches_are_restored_in_several_requests() -> None:
    """Each is well below the server's limit on a request."""
    stage = Stage()
    peer = stage.connected()
    paths = [f"/{number:0500}" for number in range(1000)]
    for path in paths:
        outcome(stage.client.get_data(path, print))
    stage.turn()
    peer.frames()
    peer.send(b"".join(reply_frame(xid, 9, 0, encode_data(b"", STAT)) for xid in range(1, 1001)))
    peer.lose()
    peer = stage.peer()
    peer.accept()
    stage.turn()
    sets = [request for xid, request in peer.requests() if isinstance(request, SetWatches) and xid == XID_SET_WATCHES]
    assert [path for request in sets for path in request.data] == paths
    assert len(sets) == 4


def test_expiry_is_reported_before_requests_fail() -> None:
    """Listeners are called first; nothing is retried and no timer is left."""
    stage = Stage()
    peer = stage.connected()
    peer.lose()
    story: list[Any] = []
    stage.client.on_session_event(story.append)
    stage.client.exists("/a").addErrback(lambda failure: story.append(type(failure.value)))
    peer = stage.peer()
    peer.accept(timeout_ms=0, session_id=0)
    assert story == [SessionState.EXPIRED, SessionExpired]
    assert peer.transport.aborted
    peer.lose()
    assert stage.timers() == []
    (late,) = outcome(stage.client.exists("/a"))
    assert isinstance(late, SessionExpired)


def test_other_session_id_means_expiry() -> None:
    """A server that responds with another session has not resumed this one."""
    stage = Stage()
    stage.connected().lose()
    waiting = outcome(stage.client.exists("/a"))
    peer = stage.peer()
    peer.accept(session_id=78)
    assert stage.states[-1] is SessionState.EXPIRED
    assert isinstance(waiting[0], SessionExpired)
    assert stage.client.session_id == 77
    assert peer.transport.aborted


def test_backoff_grows_if_the_session_is_lost_at_once() -> None:
    """The backoff grows although each connection succeeds, and is reset by one that lasts."""
    stage = Stage()
    peer = stage.connected()
    for _ in range(8):
        peer.lose()
        peer = stage.peer()
        peer.accept()
    peer.lose()
    lost_at = stage.reactor.seconds()
    peer = stage.peer()
    assert stage.reactor.seconds() - lost_at >= 1
    peer.accept()
    stage.reactor.advance(2.5)
    peer.lose()
    lost_at = stage.reactor.seconds()
    stage.connecting()
    assert stage.reactor.seconds() - lost_at < 0.1


def test_server_that_refuses_watches_is_abandoned() -> None:
    """A session without its watches would have an outdated view."""
    stage = Stage()
    peer = stage.connected()
    outcome(stage.client.get_data("/a", print))
    stage.turn()
    peer.send(reply_frame(1, 9, 0, encode_data(b"", STAT)))
    peer.lose()
    peer = stage.peer()
    peer.accept()
    peer.send(reply_frame(XID_SET_WATCHES, 9, -6))
    assert peer.transport.aborted


def test_close_leaves_no_timer() -> None:
    """The client may be connected, connecting, or between two attempts."""
    stage = Stage()
    peer = stage.connected()
    closed = outcome(stage.client.close())
    stage.turn()
    ((xid, _request),) = peer.requests()
    peer.send(reply_frame(xid, 3, 0))
    assert peer.transport.disconnecting
    peer.lose()
    assert closed == [None]
    assert stage.timers() == []
    assert stage.states == [SessionState.CONNECTED, SessionState.CLOSED]

    stage = Stage()
    started = outcome(stage.client.start())
    stage.connecting()
    assert outcome(stage.client.close()) == [None]
    assert isinstance(started[0], ClientClosed)
    assert stage.timers() == []

    stage = Stage()
    stage.connected().lose()
    assert outcome(stage.client.close()) == [None]
    assert stage.timers() == []


def test_close_without_a_response() -> None:
    """The connection is closed after a timeout."""
    stage = Stage()
    peer = stage.connected()
    closed = outcome(stage.client.close())
    stage.reactor.advance(5)
    assert peer.transport.aborted
    peer.lose()
    assert closed == [None]
    assert stage.timers() == []


def test_listener_may_close_the_client_at_any_event() -> None:
    """Processing of that event ends there."""
    for state in (SessionState.CONNECTED, SessionState.SUSPENDED):
        stage = Stage()
        stage.client.on_session_event(
            lambda new, state=state, stage=stage: outcome(stage.client.close()) if new is state else None
        )
        peer = stage.connected()
        stage.turn()
        if state is SessionState.CONNECTED:
            stage.reactor.advance(5)
        peer.lose()
        assert stage.states[-1] is SessionState.CLOSED
        assert stage.timers() == []
        assert len(stage.reactor.tcpClients) == 1


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
    stage = Stage()
    peer = stage.connected()
    first, second = outcome(stage.client.exists("/a")), outcome(stage.client.exists("/b"))
    stage.turn()
    peer.send(malformed + reply_frame(2, 2, 0, encode_stat(STAT)))
    assert peer.transport.aborted
    assert second == []
    peer.lose()
    assert isinstance(first[0], (ConnectionLoss, MarshallingError))
    assert isinstance(second[0], ConnectionLoss)
    assert "malformed" in str(first[0])
    assert "malformed" in str(second[0])
    assert stage.peer().accept().session_id == 77


def test_random_bytes_never_raise_out_of_the_connection() -> None:
    """At worst the client closes the connection."""
    choose = random.Random(4)
    good = reply_frame(1, 1, 0, encode_data(b"data", STAT)) + reply_frame(XID_WATCH_EVENT, 1, 0, b"\x00" * 12)
    for _ in range(300):
        stage = Stage()
        peer = stage.connected()
        request = outcome(stage.client.get_data("/a"))
        stage.turn()
        damaged = bytearray(good)
        for _ in range(choose.randint(1, 4)):
            damaged[choose.randrange(len(damaged))] = choose.randrange(256)
        peer.send(bytes(damaged))
        peer.lose()
        assert len(request) == 1
        assert isinstance(request[0], (tuple, ZooKeeperError))


def test_unanswered_requests_are_bounded() -> None:
    """The limits are a count and a number of bytes, connected or not; responses free their share."""
    for options, full_after in (({"requests_max": 3}, 3), ({"request_bytes_max": 1000}, 2)):
        stage = Stage(**options)
        peer = stage.connected()
        accepted = [outcome(stage.client.set_data("/a", b"x" * 600)) for _ in range(full_after)]
        (refused,) = outcome(stage.client.set_data("/a", b"x" * 600))
        assert isinstance(refused, PipelineFull)
        stage.turn()
        assert len(peer.requests()) == full_after
        peer.send(reply_frame(1, 1, 0, encode_stat(STAT)))
        assert accepted[0] == [STAT]
        assert outcome(stage.client.set_data("/a", b"x" * 600)) == []
        peer.lose()
        waiting = [outcome(stage.client.set_data("/a", b"x" * 600)) for _ in range(full_after + 1)]
        assert [len(each) for each in waiting] == [0] * full_after + [1]
        assert isinstance(waiting[-1][0], PipelineFull)


def test_servers_are_tried_in_turn_with_growing_backoff() -> None:
    """The first round is fast; then the backoff doubles up to a limit, with jitter."""
    stage = Stage("10.0.0.1:1,10.0.0.2:2,[::1]:3", connection_timeout_ms=60_000)
    outcome(stage.client.start())
    hosts, times = [], []
    for _ in range(30):
        host, _port, factory = stage.connecting()
        hosts.append(host)
        times.append(stage.reactor.seconds())
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
    stage = Stage("10.0.0.1:1,10.0.0.2:1")
    outcome(stage.client.start())
    first, _, _ = stage.connecting()
    second, _, factory = stage.connecting()
    assert {first, second} == {"10.0.0.1", "10.0.0.2"}
    assert stage.reactor.seconds() == pytest.approx(4.5, abs=0.1)
    peer = Peer(factory)
    stage.reactor.advance(4.6)
    assert peer.transport.aborted
    peer.lose()
    stage.peer().accept()
    assert stage.states == [SessionState.CONNECTED]


def test_failed_start_can_be_repeated() -> None:
    """This requires ``renew``, because ``start`` is final."""
    stage = Stage(connection_timeout_ms=1000)
    started = outcome(stage.client.start())
    stage.connecting()
    stage.reactor.advance(1)
    assert isinstance(started[0], OperationTimeout)
    assert stage.timers() == []
    renewed = outcome(stage.client.renew())
    stage.peer().accept()
    assert renewed == [None]


def test_refused_credentials_are_fatal() -> None:
    """The client is never considered connected."""
    stage = Stage(auth=[("digest", b"x")])
    started = outcome(stage.client.start())
    peer = stage.peer()
    peer.accept()
    peer.send(reply_frame(XID_AUTH, 0, AuthFailed.code))
    assert isinstance(started[0], AuthFailed)
    assert stage.states == [SessionState.AUTH_FAILED]
    peer.lose()
    assert stage.timers() == []


def test_cancelled_request_is_dropped() -> None:
    """A pending one is not sent; the response to a sent one is ignored."""
    stage = Stage()
    outcome(stage.client.start())
    waiting = stage.client.exists("/waiting")
    outcome(waiting)
    waiting.cancel()
    peer = stage.peer()
    peer.accept()
    sent = stage.client.exists("/sent")
    outcome(sent)
    other = outcome(stage.client.exists("/other"))
    stage.turn()
    sent.cancel()
    assert len(peer.requests()) == 2
    peer.send(reply_frame(1, 1, 0, encode_stat(STAT)) + reply_frame(2, 1, 0, encode_stat(STAT)))
    assert other == [STAT]


def test_pending_requests_time_out() -> None:
    """Each timeout counts from its request."""
    stage = Stage(waiting_ms_max=1000)
    stage.connected().lose()
    first = outcome(stage.client.exists("/a"))
    stage.reactor.advance(0.6)
    second = outcome(stage.client.exists("/b"))
    stage.reactor.advance(0.5)
    assert isinstance(first[0], NotSent)
    assert second == []
    stage.reactor.advance(0.5)
    assert isinstance(second[0], NotSent)


def test_transaction_ids_wrap_around() -> None:
    """Negative ones have other meanings."""
    stage = Stage()
    peer = stage.connected()
    peer.protocol._wrappedProtocol._xid = 0x7FFFFFFE
    answers = [outcome(stage.client.exists("/a")) for _ in range(2)]
    stage.turn()
    assert [xid for xid, _ in peer.requests()] == [0x7FFFFFFF, 1]
    peer.send(reply_frame(0x7FFFFFFF, 1, 0, encode_stat(STAT)) + reply_frame(1, 1, 0, encode_stat(STAT)))
    assert answers == [[STAT], [STAT]]


def test_event_without_a_watch_is_ignored() -> None:
    """The same holds for a removed watch."""
    stage = Stage()
    peer = stage.connected()
    for kind in EventType:
        event = WatchEvent(kind, KeeperState.SYNC_CONNECTED, "/a")
        peer.send(reply_frame(XID_WATCH_EVENT, 1, 0, encode_watch_event(event)))
    assert not peer.transport.aborted


def test_opcodes_are_those_of_the_protocol() -> None:
    """A request without a body is identified by its code only."""
    stage = Stage()
    peer = stage.connected()
    outcome(stage.client.close())
    stage.turn()
    (body,) = peer.frames()
    assert body[4:] == int(Opcode.CLOSE_SESSION).to_bytes(4, "big", signed=True)


class Socket(tcp.Connection):
    """A TCP transport whose socket accepts only some bytes at a time and buffers the rest."""

    def __init__(self, reactor: Any) -> None:
        with socket.socket() as unused:
            super().__init__(unused, None, reactor)  # type: ignore[arg-type]
        self.room = 1 << 30
        self.taken = b""
        self.behind = b""

    def writeSomeData(self, data: bytes) -> int:
        size = min(self.room, len(data))
        self.taken += data[:size]
        self.room -= size
        return size

    def write(self, data: bytes) -> None:
        self.behind += data

    def setTcpNoDelay(self, enabled: bool) -> None:
        pass


def test_partially_written_bytes_keep_their_order() -> None:
    """Later bytes are buffered behind them until the responses show that all were sent."""
    stage = Stage()
    outcome(stage.client.start())
    connection = stage.connecting()[2].buildProtocol(IPv4Address("TCP", "server", 1))
    narrow = Socket(stage.reactor)
    connection.makeConnection(narrow)
    connection.dataReceived(frame(ConnectResponse(TIMEOUT_MS, 77, PASSWORD).encode()))
    narrow.behind = b""
    narrow.room = 30
    first = outcome(stage.client.set_data("/a", b"x" * 100))
    stage.turn()
    outcome(stage.client.set_data("/b", b"y"))
    stage.turn()
    assert len(narrow.taken) == 30
    sent = narrow.taken + narrow.behind
    expected = [SetData("/a", b"x" * 100), SetData("/b", b"y")]
    assert sent == b"".join(request_frame(xid, 5, each.encode()) for xid, each in enumerate(expected, 1))

    narrow.room, narrow.taken, narrow.behind = 1 << 30, b"", b""
    stage.reactor.advance(3)
    stage.turn()
    assert narrow.taken + narrow.behind == b""
    connection.dataReceived(reply_frame(1, 1, 0, encode_stat(STAT)))
    assert first == [STAT]
    outcome(stage.client.exists("/c"))
    stage.turn()
    assert narrow.taken == b""
    assert narrow.behind != b""
    connection.dataReceived(b"".join(reply_frame(xid, 1, 0, encode_stat(STAT)) for xid in (2, 3)))
    outcome(stage.client.exists("/d"))
    stage.turn()
    assert narrow.taken != b""
    stage.reactor.advance(3)
    stage.turn()
    assert narrow.taken.endswith(request_frame(XID_PING, 11, b""))


def test_a_watch_that_is_removed_twice_leaves_another_with_the_same_listener() -> None:
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
