"""Limits on pending requests and unread responses, per client address and for the whole broker."""

from __future__ import annotations

from typing import Any

from server_scene import request_frame
from test_server_dispatch import MemoryTransport
from twisted.internet.task import Clock

from kreplica.server.protocol.client_load import ClientLoads
from kreplica.server.protocol.connection import Connection
from kreplica.server.protocol.dispatch import Dispatch
from kreplica.server.protocol.handler_table import HandlerEntry
from kreplica.server.protocol.limits import Bounds
from kreplica.server.protocol.metrics import ServerMetrics
from kreplica.server.protocol.request import Request
from kreplica.server.transport.flush_scope import FlushScope
from kreplica.wire.messages import API_VERSIONS, LIST_GROUPS

SOFTWARE = {"client_software_name": "test", "client_software_version": "1"}
STALL_S = 5.0


class Broker:
    """Responds to ListGroups when the test requests it, with 1,000 bytes, and to ApiVersions at once."""

    def __init__(self, **bounds: int) -> None:
        self.clock = Clock()
        self.flush_scope = FlushScope(self.clock)  # type: ignore[arg-type]
        self.metrics = ServerMetrics()
        self.bounds = Bounds(partial_stall_s=STALL_S, **bounds)  # type: ignore[arg-type]
        self.loads = ClientLoads(self.bounds, self.metrics, self.clock.seconds)
        self.waiting: list[Request] = []
        table = {LIST_GROUPS.key: HandlerEntry.of(LIST_GROUPS, self.waiting.append)}
        self.dispatch = Dispatch(table, self.metrics, self.clock.seconds, self.flush_scope, self.bounds)

    def connect(self, address: str = "10.0.0.1") -> Client:
        return Client(self, address)

    def answer(self, count: int | None = None) -> None:
        """Respond to this number of requests, or to all."""
        answered = self.waiting[:count]
        del self.waiting[:count]
        group = {"group_id": "g" * 982, "protocol_type": "", "group_state": ""}
        for request in answered:
            request.respond({"throttle_time_ms": 0, "error_code": 0, "groups": [group]})


class Client:
    """One connection from a client address."""

    def __init__(self, broker: Broker, address: str) -> None:
        self.broker = broker
        self.transport = MemoryTransport()
        self.connection = Connection(
            "PLAINTEXT",
            f"{address}:5",
            broker.bounds,
            broker.flush_scope,
            broker.metrics,
            broker.clock.seconds,
            broker.loads.opened(address),
        )
        self.connection.attach(self.transport)

    def send(self, count: int = 1) -> Client:
        """Send requests while the connection is read."""
        for number in range(count):
            if self.transport.is_reading:
                self._send(request_frame(LIST_GROUPS, 0, number, {}))
        return self

    def is_served(self) -> bool:
        """Send a request that can be answered at once; return True if it was."""
        before = len(self.transport.sends)
        self._send(request_frame(API_VERSIONS, 3, 9, SOFTWARE))
        return len(self.transport.sends) > before

    def _send(self, frame: bytes) -> None:
        with self.broker.flush_scope:
            self.broker.dispatch.frame_received(self.connection, memoryview(bytearray(frame))[4:])

    @property
    def is_reading(self) -> bool:
        return bool(self.transport.is_reading)


def test_requests_of_one_address_are_bounded() -> None:
    """Beyond the limit, each connection of the address has one request at a time; other addresses are not affected."""
    broker = Broker(address_requests_outstanding_max=10)
    first, second, third = (broker.connect() for _ in range(3))
    first.send(6)
    second.send(6)
    assert (first.is_reading, second.is_reading, len(broker.waiting)) == (True, False, 10)
    third.send(3)
    assert (third.is_reading, len(broker.waiting)) == (False, 11)
    other = broker.connect("10.0.0.2").send(8)
    assert (other.is_reading, len(broker.waiting)) == (True, 19)
    assert other.connection.outstanding == 8
    broker.answer(6)
    assert broker.loads.requests == 13
    assert not second.is_reading
    broker.answer()
    assert all(client.is_reading for client in (first, second, third))
    assert broker.loads.requests == 0
    third.send(3)
    assert len(broker.waiting) == 3


def test_an_address_resumes_when_half_of_its_requests_are_answered() -> None:
    """Once half of an address's requests are answered, its connections may again have several requests at a time."""
    broker = Broker(address_requests_outstanding_max=4)
    clients = [broker.connect() for _ in range(4)]
    for client in clients:
        client.send(2)
    assert [client.connection.outstanding for client in clients] == [2, 2, 1, 1]
    broker.answer(4)
    clients[0].send(2)
    assert clients[0].connection.outstanding == 2


def test_requests_of_all_addresses_are_bounded() -> None:
    """An address above its share has one request per connection; one below its share is not affected."""
    broker = Broker(address_requests_outstanding_max=1000, broker_requests_outstanding_max=300)
    greedy = [broker.connect() for _ in range(10)]
    for client in greedy:
        client.send(100)
    modest = broker.connect("10.0.0.2")
    modest.send(5)
    assert (modest.is_reading, modest.connection.outstanding) == (True, 5)
    assert len(broker.waiting) < 300 + 256 + 10
    assert [client.connection.outstanding for client in greedy[-4:]] == [1, 1, 1, 1]


def test_control_connections_are_not_paused() -> None:
    """Control connections are always read, because pending requests may wait for the fetches of followers."""
    broker = Broker(address_requests_outstanding_max=5)
    broker.connect().send(10)
    follower = broker.connect()
    follower.connection.mark_control()
    follower.send(10)
    assert (follower.is_reading, follower.connection.outstanding) == (True, 10)


def test_requests_of_a_closed_connection_are_no_longer_counted() -> None:
    """After a connection closes, its address can send as many requests as before."""
    broker = Broker(address_requests_outstanding_max=5)
    lost = broker.connect().send(10)
    assert lost.connection.outstanding == 5
    lost.connection.lost()
    assert broker.loads.requests == 0
    assert broker.connect().send(4).is_reading


def slow_reader(broker: Broker, count: int, address: str = "10.0.0.1") -> Client:
    """Return a client that does not read the responses to its requests."""
    client = broker.connect(address)
    client.transport.full = True
    client.send(count)
    broker.answer()
    return client


def is_closed(*clients: Client) -> list[bool]:
    return [client.connection.closed for client in clients]


def test_unread_responses_of_one_address_are_bounded() -> None:
    """Connections whose clients stopped reading are closed, largest first; other addresses are not affected."""
    broker = Broker(address_response_bytes_max=10_000)
    large, small = slow_reader(broker, 6), slow_reader(broker, 3)
    other = slow_reader(broker, 6, "10.0.0.2")
    last = slow_reader(broker, 3)
    assert is_closed(large, small, last, other) == [False] * 4
    assert broker.loads.held_bytes == 18_000
    broker.clock.advance(STALL_S)
    broker.loads.sweep()
    assert is_closed(large, small, last, other) == [True, False, False, False]
    assert broker.metrics.unread_evictions == 1
    assert broker.connect().is_served()
    assert broker.loads.held_bytes == 12_000


def test_a_client_that_reads_slowly_is_not_closed() -> None:
    """Only a client that reads nothing for the whole time is considered stalled."""
    broker = Broker(address_response_bytes_max=5_000)
    slow = slow_reader(broker, 6)
    for _ in range(10):
        broker.clock.advance(STALL_S / 2)
        slow.connection.sent(10)
        broker.loads.sweep()
    assert is_closed(slow) == [False]


def test_unread_responses_never_exceed_twice_the_limit() -> None:
    """If unread responses would exceed twice the limit, the connection with the most is closed at once."""
    broker = Broker(address_response_bytes_max=5_000)
    clients = [slow_reader(broker, number) for number in (2, 3, 6)]
    assert is_closed(*clients) == [False, False, True]
    assert broker.loads.held_bytes <= 10_000


def test_unread_responses_of_all_addresses_are_bounded() -> None:
    """The address with the most unread bytes is closed first."""
    broker = Broker(broker_response_bytes_max=10_000)
    greedy = [slow_reader(broker, 4), slow_reader(broker, 4)]
    modest = slow_reader(broker, 5, "10.0.0.2")
    broker.clock.advance(STALL_S)
    broker.loads.sweep()
    assert is_closed(*greedy, modest) == [True, False, False]


def test_responses_behind_a_pending_request_are_counted() -> None:
    """Responses that wait for an earlier one count as unread, even if the client reads."""
    broker = Broker(address_response_bytes_max=5_000)
    client = broker.connect().send(10)
    first = broker.waiting.pop(0)
    broker.answer(4)
    assert broker.loads.held_bytes == 4_000
    broker.waiting.insert(0, first)
    broker.answer()
    assert broker.loads.held_bytes == 0
    assert len(client.transport.frames()) == 10


def test_closed_connections_release_their_memory() -> None:
    """Neither a lost connection with unread responses nor one that has read them later is charged for memory."""
    broker = Broker()
    lost, late = slow_reader(broker, 3), slow_reader(broker, 3)
    lost.connection.lost()
    size = broker.loads.held_bytes
    assert size == 3_000
    late.transport.full = False
    late.connection.sent(size)
    assert broker.loads.held_bytes == 0
    counts: dict[str, Any] = broker.loads._by_address
    late.connection.lost()
    assert counts == {}
