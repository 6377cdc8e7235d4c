"""A connection to a broker, step by step, without a network."""

from __future__ import annotations

from typing import Any

import pytest
from client_peer import HEARTBEAT_BODY, Peer, heartbeat, heartbeat_response, result_of
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ConnectionRefusedError
from twisted.internet.protocol import Factory, Protocol
from twisted.python.failure import Failure

from kreplica.client.connection import CLOSE_TIMEOUT_S, Connection, connect
from kreplica.client.errors import (
    ConnectionFailed,
    ConnectionLost,
    MalformedResponse,
    RequestTimedOut,
    TooManyRequests,
)
from kreplica.errors import ProtocolError
from kreplica.wire.framing import FrameReader, frame
from kreplica.wire.headers import build_response_header, parse_request_header
from kreplica.wire.messages import HEARTBEAT, PRODUCE
from tests.support.real_reactor import run


def test_pipelined_requests_get_their_own_responses(peer: Peer, connection: Connection) -> None:
    responses = [heartbeat(connection) for _ in range(3)]
    assert peer.requests() == [(12, 4, index, {**HEARTBEAT_BODY, "group_instance_id": None}) for index in range(3)]
    peer.protocol.dataReceived(b"".join(heartbeat_response(index, error_code=index) for index in range(2)))
    assert [result_of(response)["error_code"] for response in responses[:2]] == [0, 1]
    assert not responses[2].called
    peer.protocol.dataReceived(heartbeat_response(2, 27))
    assert result_of(responses[2]) == {"throttle_time_ms": 0, "error_code": 27}
    assert peer.reactor.getDelayedCalls() == []


@pytest.mark.parametrize("version", [0, 4])
def test_responses_that_arrive_byte_by_byte(peer: Peer, connection: Connection, version: int) -> None:
    responses = [heartbeat(connection, version) for _ in range(2)]
    for byte in heartbeat_response(0, 25, version) + heartbeat_response(1, 27, version):
        peer.protocol.dataReceived(bytes((byte,)))
    assert [result_of(response)["error_code"] for response in responses] == [25, 27]


def test_callback_may_send_the_next_request(peer: Peer, connection: Connection) -> None:
    """A callback sends a request while another received response is still unprocessed."""
    first, second = heartbeat(connection), heartbeat(connection)
    third = first.addCallback(lambda _: heartbeat(connection))
    peer.protocol.dataReceived(heartbeat_response(0) + heartbeat_response(1, 25))
    assert result_of(second)["error_code"] == 25
    peer.protocol.dataReceived(heartbeat_response(2, 27))
    assert result_of(third)["error_code"] == 27


@pytest.mark.parametrize(
    "bad",
    [
        heartbeat_response(1),  # out of order
        heartbeat_response(-1),
        frame(b"\x00\x00"),  # no header
        frame(build_response_header(1, 0) + b"\x00\x00\x00"),  # no body
        b"\xff\xff\xff\xff",  # a negative length
        b"\x7f\xff\xff\xff",  # too large
    ],
)
def test_malformed_response_closes_the_connection(peer: Peer, connection: Connection, bad: bytes) -> None:
    """Its request fails permanently, other requests fail with a retriable error, and later data is ignored."""
    first, second = heartbeat(connection), heartbeat(connection)
    peer.protocol.dataReceived(bad + heartbeat_response(0) + heartbeat_response(1))
    for response, error, retriable in ((first, MalformedResponse, False), (second, ConnectionLost, True)):
        with pytest.raises(error) as raised:
            result_of(response)
        assert raised.value.retriable is retriable
        assert str(raised.value).startswith("127.0.0.1:9092: ")
    assert (connection.closed, peer.transport.disconnected) == (True, True)
    peer.protocol.dataReceived(heartbeat_response(0))
    peer.lose()
    assert peer.reactor.getDelayedCalls() == []


def test_unsolicited_response_closes_the_connection(peer: Peer, connection: Connection) -> None:
    peer.protocol.dataReceived(heartbeat_response(0))
    assert (connection.closed, peer.transport.disconnected) == (True, True)


def test_overdue_response_closes_the_connection(peer: Peer, connection: Connection) -> None:
    """The overdue request fails with a timeout, others with a lost connection; no timer remains."""
    slow, overdue = heartbeat(connection, timeout_s=10.0), heartbeat(connection, timeout_s=2.5)
    peer.reactor.advance(2.4)
    assert not connection.closed
    peer.reactor.advance(0.2)
    with pytest.raises(RequestTimedOut, match=r"no response to Heartbeat within 2.5 s") as raised:
        result_of(overdue)
    assert raised.value.retriable
    with pytest.raises(ConnectionLost, match=r"no response to Heartbeat within 2.5 s"):
        result_of(slow)
    assert (connection.closed, peer.transport.disconnected) == (True, True)
    assert peer.reactor.getDelayedCalls() == []


def test_lost_connection_fails_requests_in_flight(peer: Peer, connection: Connection) -> None:
    """Each caller gets an error with the reason, and later requests fail without being written."""
    responses = [heartbeat(connection) for _ in range(2)]
    peer.transport.clear()
    peer.lose()
    for response in [*responses, heartbeat(connection)]:
        with pytest.raises(ConnectionLost) as raised:
            result_of(response)
        assert raised.value.retriable
    assert connection.closed
    assert peer.requests() == []
    assert peer.reactor.getDelayedCalls() == []
    assert result_of(connection.close()) is None


def test_errback_may_cancel_another_request(peer: Peer, connection: Connection) -> None:
    """When the connection is lost, an errback cancels another request; each request fails once."""
    first, second, third = (heartbeat(connection) for _ in range(3))
    lost: list[Failure] = []
    first.addErrback(lambda failure: lost.append(failure) or second.cancel())
    peer.lose()
    assert [failure.type for failure in lost] == [ConnectionLost]
    for response, error in ((second, CancelledError), (third, ConnectionLost)):
        with pytest.raises(error):
            result_of(response)
    assert peer.reactor.getDelayedCalls() == []


def test_errback_may_send_another_request(peer: Peer, connection: Connection) -> None:
    """A request that an errback sends on the lost connection fails too, and so do the remaining requests."""
    retried = heartbeat(connection).addErrback(lambda _: heartbeat(connection))
    other = heartbeat(connection)
    peer.lose()
    for response in (retried, other):
        with pytest.raises(ConnectionLost):
            result_of(response)


def test_cancelled_request_does_not_affect_others(peer: Peer, connection: Connection) -> None:
    """The response to the cancelled request is skipped."""
    responses = [heartbeat(connection, timeout_s=5.0) for _ in range(3)]
    responses[1].cancel()
    with pytest.raises(CancelledError):
        result_of(responses[1])
    nonsense = frame(build_response_header(1, 1))
    peer.protocol.dataReceived(heartbeat_response(0, 25) + nonsense + heartbeat_response(2, 27))
    assert [result_of(responses[index])["error_code"] for index in (0, 2)] == [25, 27]
    assert not connection.closed
    assert peer.reactor.getDelayedCalls() == []


def test_requests_without_response_complete_when_written(peer: Peer, connection: Connection) -> None:
    """Produce with acks=0 completes at once; responses to other requests still match."""
    body = {"acks": 0, "timeout_ms": 1, "topic_data": []}
    assert result_of(connection.request(PRODUCE, 8, body, expects_response=False)) == {}
    response = heartbeat(connection)
    assert [request[2] for request in peer.requests()] == [0, 1]
    peer.protocol.dataReceived(heartbeat_response(1, 27))
    assert result_of(response)["error_code"] == 27


def test_requests_without_response_wait_for_a_full_transport() -> None:
    """While the transport is full, requests with acks=0 wait; requests beyond the limit are refused."""
    peer = Peer(outstanding_max=2)
    connection = peer.accept()

    def send() -> Deferred[dict[str, Any]]:
        return connection.request(PRODUCE, 8, {"acks": 0, "timeout_ms": 1, "topic_data": []}, expects_response=False)

    peer.transport.producer.pauseProducing()
    waiting = [send(), send()]
    with pytest.raises(TooManyRequests):
        result_of(send())
    assert [written.called for written in waiting] == [False, False]
    peer.transport.producer.resumeProducing()
    assert [result_of(written) for written in waiting] == [{}, {}]
    peer.transport.producer.pauseProducing()
    lost = send()
    peer.lose()
    with pytest.raises(ConnectionLost):
        result_of(lost)


def test_large_records_are_written_without_a_copy(peer: Peer, connection: Connection) -> None:
    """Large records in a memoryview are written in one frame with their request."""
    records = memoryview(bytearray(b"r" * 9_000))
    topic = {"name": "t", "partition_data": [{"index": 0, "records": records}]}
    connection.request(PRODUCE, 8, {"acks": 1, "timeout_ms": 1, "topic_data": [topic]})
    ((_, _, _, body),) = peer.requests()
    assert bytes(body["topic_data"][0]["partition_data"][0]["records"]) == bytes(records)


def test_too_many_requests_are_refused() -> None:
    """A request beyond the limit fails at once; a response frees a slot."""
    peer = Peer(outstanding_max=2)
    connection = peer.accept()
    first, _ = heartbeat(connection), heartbeat(connection)
    with pytest.raises(TooManyRequests) as raised:
        result_of(heartbeat(connection))
    assert raised.value.retriable
    assert len(peer.requests()) == 2
    peer.protocol.dataReceived(heartbeat_response(0))
    result_of(first)
    heartbeat(connection)
    assert [request[2] for request in peer.requests()] == [2]


def test_correlation_ids_wrap_around(peer: Peer, connection: Connection) -> None:
    """A connection remains usable after 2**31 requests."""
    connection._next_correlation_id = 2**31 - 1
    responses = [heartbeat(connection) for _ in range(2)]
    assert [request[2] for request in peer.requests()] == [2**31 - 1, 0]
    peer.protocol.dataReceived(heartbeat_response(2**31 - 1, 25) + heartbeat_response(0, 27))
    assert [result_of(response)["error_code"] for response in responses] == [25, 27]


def test_invalid_body_is_not_sent(peer: Peer, connection: Connection) -> None:
    """The caller gets the error, and the connection remains usable."""
    with pytest.raises(ProtocolError, match="generation_id"):
        connection.request(HEARTBEAT, 4, {**HEARTBEAT_BODY, "generation_id": "three"})
    with pytest.raises(ProtocolError):
        connection.request(HEARTBEAT, 99, HEARTBEAT_BODY)
    response = heartbeat(connection)
    assert [request[2] for request in peer.requests()] == [0]
    peer.protocol.dataReceived(heartbeat_response(0, 27))
    assert result_of(response)["error_code"] == 27


def test_close_waits_for_the_transport(peer: Peer, connection: Connection) -> None:
    """Pending data is written first; each caller of ``close`` is notified."""
    response = heartbeat(connection)
    closed = [connection.close(), connection.close()]
    assert (peer.transport.disconnecting, peer.transport.disconnected, peer.transport.producer) == (True, False, None)
    with pytest.raises(ConnectionLost, match="closed by the client"):
        result_of(response)
    assert [deferred.called for deferred in closed] == [False, False]
    peer.lose()
    assert [result_of(deferred) for deferred in closed] == [None, None]
    assert result_of(connection.close()) is None
    assert peer.reactor.getDelayedCalls() == []


def test_close_within_a_callback(peer: Peer, connection: Connection) -> None:
    """Responses received together with the one whose callback closes are dropped; pending data is written."""
    first, second = heartbeat(connection), heartbeat(connection)
    first.addCallback(lambda _: connection.close())
    peer.protocol.dataReceived(heartbeat_response(0) + heartbeat_response(1))
    assert (peer.transport.disconnecting, peer.transport.disconnected) == (True, False)
    with pytest.raises(ConnectionLost, match="closed by the client"):
        result_of(second)
    peer.lose()
    assert result_of(first) is None


def test_close_does_not_wait_forever(peer: Peer, connection: Connection) -> None:
    """A broker that reads nothing cannot keep the connection open."""
    closed = connection.close()
    peer.reactor.advance(CLOSE_TIMEOUT_S + 0.1)
    assert peer.transport.disconnected
    peer.lose()
    assert result_of(closed) is None
    assert peer.reactor.getDelayedCalls() == []


def test_refused_connection(peer: Peer) -> None:
    """The error names the broker and is retriable."""
    peer.factory.clientConnectionFailed(None, Failure(ConnectionRefusedError()))
    with pytest.raises(ConnectionFailed, match=r"127\.0\.0\.1:9092") as raised:
        result_of(peer.connecting)
    assert raised.value.retriable


def test_cancelled_connection_attempt() -> None:
    """A caller can cancel a connection attempt, which also has a timeout."""
    peer = Peer(connect_timeout_s=3.0)
    assert peer.connect_timeout == 3.0
    peer.connecting.cancel()
    assert peer.reactor.connectors[0].stoppedConnecting
    with pytest.raises(CancelledError):
        result_of(peer.connecting)


def test_connection_over_the_loopback_interface() -> None:
    """A real broker responds to many requests, and the connection closes cleanly."""

    async def talk() -> list[int]:
        from twisted.internet import reactor

        loopback: Any = reactor
        port = loopback.listenTCP(0, Factory.forProtocol(RespondingBroker), interface="127.0.0.1")
        number = port.getHost().port
        try:
            connection = await connect(loopback, "127.0.0.1", number, client_id="me")
            responses = [heartbeat(connection) for _ in range(500)]
            codes = [(await response)["error_code"] for response in responses]
            await connection.close()
            with pytest.raises(ConnectionLost):
                await heartbeat(connection)
        finally:
            await port.stopListening()
        with pytest.raises(ConnectionFailed):
            await connect(loopback, "127.0.0.1", number, client_id="me")
        return codes

    assert run(talk()) == [correlation_id % 100 for correlation_id in range(500)]


class RespondingBroker(Protocol):
    """Responds to every heartbeat with the last two digits of its correlation ID as the error code."""

    def connectionMade(self) -> None:
        self.frames = FrameReader()

    def dataReceived(self, data: bytes) -> None:
        for request in self.frames.feed(data):
            correlation_id = parse_request_header(request).correlation_id
            self.transport.write(heartbeat_response(correlation_id, correlation_id % 100))
