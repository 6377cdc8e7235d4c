"""A broker's end of a connection that tests drive step by step."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionLost as TransportLost
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.python.failure import Failure

from kreplica.client.connection import Connection, connect
from kreplica.wire.framing import frame
from kreplica.wire.headers import build_response_header, parse_request_header
from kreplica.wire.messages import APIS, HEARTBEAT

HEARTBEAT_BODY = {"group_id": "g", "generation_id": 3, "member_id": "m"}


class Peer:
    """The broker's end: records requests, and sends the responses that a test chooses."""

    def __init__(self, **options: Any) -> None:
        self.reactor = MemoryReactorClock()
        self.connecting = connect(self.reactor, "127.0.0.1", 9092, client_id="me", **options)  # type: ignore[arg-type]
        *_, factory, self.connect_timeout, _ = self.reactor.tcpClients[0]
        self.factory = factory
        self.transport = StringTransport()

    def accept(self) -> Connection:
        """Accept the connection attempt."""
        self.protocol = self.factory.buildProtocol(None)
        self.protocol.makeConnection(self.transport)
        return result_of(self.connecting)

    def requests(self) -> list[tuple[int, int, int, dict[str, Any]]]:
        """Return (API key, version, correlation ID, body) of each request received since the last call."""
        data, seen = self.transport.value(), []
        self.transport.clear()
        while data:
            size = int.from_bytes(data[:4], "big")
            request, data = data[4 : 4 + size], data[4 + size :]
            header = parse_request_header(request)
            assert header.client_id == "me"
            assert header.body_offset is not None
            body = APIS[header.api_key].request.parse(header.api_version, request, header.body_offset)
            seen.append((header.api_key, header.api_version, header.correlation_id, body))
        return seen

    def respond(self, api: Any, version: int, correlation_id: int, body: dict[str, Any]) -> None:
        """Send a response."""
        self.protocol.dataReceived(response_frame(api, version, correlation_id, body))

    def lose(self, reason: Exception | None = None) -> None:
        """Close the connection."""
        self.protocol.connectionLost(Failure(reason or TransportLost()))


def response_frame(api: Any, version: int, correlation_id: int, body: dict[str, Any]) -> bytes:
    """Return a framed response."""
    header = build_response_header(api.response_header_version(version), correlation_id)
    return frame(header + api.response.build(version, body))


def result_of(deferred: Deferred[Any]) -> Any:
    """Return the result of a Deferred, or raise its error."""
    results: list[Any] = []
    deferred.addBoth(results.append)
    assert results, "the Deferred has no result"
    if isinstance(results[0], Failure):
        results[0].raiseException()
    return results[0]


def heartbeat(connection: Connection, version: int = 4, **options: Any) -> Deferred[dict[str, Any]]:
    """Send a heartbeat, as an example of a small request."""
    return connection.request(HEARTBEAT, version, HEARTBEAT_BODY, **options)


def heartbeat_response(correlation_id: int, error_code: int = 0, version: int = 4) -> bytes:
    """Return a framed response to a heartbeat."""
    return response_frame(HEARTBEAT, version, correlation_id, {"throttle_time_ms": 0, "error_code": error_code})
