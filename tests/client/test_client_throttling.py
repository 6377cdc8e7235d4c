"""A throttled client sends nothing on that connection for the throttle time (KIP-219)."""

from __future__ import annotations

from typing import Any

import pytest
from client_peer import Peer, heartbeat, heartbeat_response, response_frame, result_of
from twisted.internet.defer import CancelledError, Deferred

from kreplica.client.connection import THROTTLE_S_MAX, Connection
from kreplica.client.errors import ConnectionLost, RequestTimedOut
from kreplica.wire.messages import HEARTBEAT, PRODUCE


def throttling_response(correlation_id: int, throttle_time_ms: int) -> bytes:
    """Return a response with a throttle time."""
    return response_frame(HEARTBEAT, 4, correlation_id, {"throttle_time_ms": throttle_time_ms, "error_code": 0})


def send_without_response(connection: Connection) -> Deferred[dict[str, Any]]:
    """Send a request that gets no response."""
    return connection.request(PRODUCE, 8, {"acks": 0, "timeout_ms": 1, "topic_data": []}, expects_response=False)


def test_requests_wait_for_the_throttle_time(peer: Peer, connection: Connection) -> None:
    """Responses to requests in flight still arrive; only a longer throttle time extends the delay."""
    responses = [heartbeat(connection), heartbeat(connection)]
    peer.requests()
    peer.protocol.dataReceived(throttling_response(0, 2000))
    assert result_of(responses[0])["throttle_time_ms"] == 2000
    delayed, unacknowledged = heartbeat(connection, timeout_s=5.0), send_without_response(connection)
    peer.protocol.dataReceived(throttling_response(1, 500))
    peer.reactor.advance(1.9)
    assert peer.requests() == []
    assert not unacknowledged.called
    peer.reactor.advance(0.2)
    assert [request[2] for request in peer.requests()] == [2, 3]
    assert result_of(unacknowledged) == {}
    peer.protocol.dataReceived(heartbeat_response(2, 27))
    assert result_of(delayed)["error_code"] == 27
    heartbeat(connection)
    assert len(peer.requests()) == 1
    assert len(peer.reactor.getDelayedCalls()) == 1


def test_throttle_time_is_bounded(peer: Peer, connection: Connection) -> None:
    """The delay is limited, and the timeout of a delayed request starts when the request is sent."""
    heartbeat(connection)
    peer.protocol.dataReceived(throttling_response(0, 3_600_000))
    delayed = heartbeat(connection, timeout_s=5.0)
    peer.requests()
    peer.reactor.advance(THROTTLE_S_MAX - 0.1)
    assert peer.requests() == []
    peer.reactor.advance(0.2)
    assert len(peer.requests()) == 1
    peer.reactor.advance(4.8)
    assert not delayed.called
    peer.reactor.advance(0.2)
    with pytest.raises(RequestTimedOut):
        result_of(delayed)
    assert peer.reactor.getDelayedCalls() == []


def test_cancelled_requests_are_not_sent(peer: Peer, connection: Connection) -> None:
    """A request cancelled during the delay is not sent; later ones get their own responses."""
    heartbeat(connection)
    peer.protocol.dataReceived(throttling_response(0, 1000))
    cancelled, kept = heartbeat(connection), heartbeat(connection)
    cancelled.cancel()
    with pytest.raises(CancelledError):
        result_of(cancelled)
    peer.requests()
    peer.reactor.advance(1.0)
    assert [request[2] for request in peer.requests()] == [2]
    peer.protocol.dataReceived(heartbeat_response(2, 25))
    assert result_of(kept)["error_code"] == 25


def test_connection_lost_during_the_throttle_time(peer: Peer, connection: Connection) -> None:
    """Delayed requests fail, and no timer remains."""
    heartbeat(connection)
    peer.protocol.dataReceived(throttling_response(0, 1000))
    delayed = [heartbeat(connection), send_without_response(connection)]
    peer.lose()
    for each in delayed:
        with pytest.raises(ConnectionLost):
            result_of(each)
    assert peer.reactor.getDelayedCalls() == []
