"""Long responses over real connections are received directly into their own buffers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from client_peer import heartbeat, heartbeat_response, response_frame
from twisted.internet.defer import Deferred
from twisted.internet.protocol import Factory, Protocol

from kreplica.client.connection import Connection, connect
from kreplica.client.errors import ConnectionLost
from kreplica.client_core.fetch_requests import FetchLimits, fetch_body
from kreplica.client_core.fetched_batches import Isolation
from kreplica.wire.framing import FrameReader
from kreplica.wire.headers import parse_request_header
from kreplica.wire.messages import FETCH, HEARTBEAT
from tests.support.real_reactor import run

VERSION = 12
LIMITS = FetchLimits(isolation=Isolation.READ_UNCOMMITTED, wait_ms=0, size_min=1, size_max=1, partition_size_max=1)
LONG = bytes(range(256)) * 12_000
CUT_OFF_BYTES = 1_000_000


def fetch_response(correlation_id: int, records: bytes) -> bytes:
    partition = {
        "partition_index": 0,
        "error_code": 0,
        "high_watermark": 1,
        "last_stable_offset": 1,
        "log_start_offset": 0,
        "aborted_transactions": None,
        "preferred_read_replica": -1,
        "records": records,
    }
    body = {"throttle_time_ms": 0, "error_code": 0, "session_id": 0}
    return response_frame(
        FETCH, VERSION, correlation_id, {**body, "responses": [{"topic": "t", "partitions": [partition]}]}
    )


class Broker(Protocol):
    """Responds to fetches with long records of increasing length, and to heartbeats.

    :ivar ends_early: True if it closes the connection in the middle of a long response.
    """

    ends_early = False

    def connectionMade(self) -> None:
        self.frames = FrameReader()

    def dataReceived(self, data: bytes) -> None:
        """Respond to complete requests."""
        for request in self.frames.feed(data):
            header = parse_request_header(request)
            if header.api_key == HEARTBEAT.key:
                self.transport.write(heartbeat_response(header.correlation_id))
                continue
            response = fetch_response(header.correlation_id, LONG + bytes(header.correlation_id))
            if self.ends_early:
                self.transport.write(response[:-CUT_OFF_BYTES])
                self.transport.loseConnection()
            else:
                self.transport.write(response)


def talk(use: Callable[[Connection], Awaitable[Any]], *, ends_early: bool = False) -> Any:
    """Call ``use`` with a connection to a ``Broker``, and return the result."""

    async def scene() -> Any:
        from twisted.internet import reactor

        loopback: Any = reactor
        factory = Factory.forProtocol(Broker)
        factory.protocol = type("Made", (Broker,), {"ends_early": ends_early})
        port = loopback.listenTCP(0, factory, interface="127.0.0.1")
        try:
            connection = await connect(loopback, "127.0.0.1", port.getHost().port, client_id="me")
            try:
                return await use(connection)
            finally:
                await connection.close()
        finally:
            await port.stopListening()

    return run(scene())


def fetch(connection: Connection) -> Deferred[dict[str, Any]]:
    return connection.request(FETCH, VERSION, fetch_body({}, LIMITS))


def test_long_and_short_responses_in_turn() -> None:
    """Each response is complete and in order, and is not overwritten by later ones."""

    async def use(connection: Connection) -> list[bytes]:
        fetches = []
        for _ in range(4):
            fetches.append(fetch(connection))
            heartbeat(connection)
        responses = [await response for response in fetches]
        return [bytes(response["responses"][0]["partitions"][0]["records"]) for response in responses]

    assert talk(use) == [LONG + bytes(number) for number in (0, 2, 4, 6)]


def test_connection_lost_within_a_response() -> None:
    """If the broker closes the connection within a response, the request fails."""

    async def use(connection: Connection) -> None:
        with pytest.raises(ConnectionLost):
            await fetch(connection)

    talk(use, ends_early=True)


def test_connection_closed_within_a_response() -> None:
    """If the client closes the connection within a response, the rest of the data is ignored."""

    async def use(connection: Connection) -> None:
        first_fetch = fetch(connection)
        ping = heartbeat(connection)
        second_fetch = fetch(connection)
        ping.addCallback(lambda _: connection.close())
        await first_fetch
        with pytest.raises(ConnectionLost):
            await second_fetch

    talk(use)
