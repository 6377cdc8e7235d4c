"""``send_at_once``: each request is written to the socket immediately, in the order of the requests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from client_peer import heartbeat, heartbeat_response
from twisted.internet.protocol import Factory, Protocol

from kreplica.client.connection import Connection, connect
from kreplica.client.errors import ConnectionLost
from kreplica.wire.framing import FrameReader
from kreplica.wire.headers import parse_request_header
from kreplica.wire.messages import HEARTBEAT, METADATA
from tests.support.real_reactor import run

LONG = b"\0" * 30_000_000
"""A request body larger than the socket's buffers."""


class Broker(Protocol):
    """Responds to heartbeats, and records the API keys of all requests."""

    def connectionMade(self) -> None:
        self.factory.peers.append(self)  # type: ignore[union-attr]
        self.frames = FrameReader()
        self.apis: list[int] = []

    def dataReceived(self, data: bytes) -> None:
        """Record complete requests, and respond to heartbeats."""
        for request in self.frames.feed(data):
            header = parse_request_header(request)
            self.apis.append(header.api_key)
            if header.api_key == HEARTBEAT.key:
                self.transport.write(heartbeat_response(header.correlation_id))


def talk(use: Callable[[Connection, list[Broker]], Awaitable[Any]]) -> Any:
    """Call ``use`` with a connection that sends at once and its broker-side protocols, and return the result."""

    async def scene() -> Any:
        from twisted.internet import reactor

        loopback: Any = reactor
        factory: Any = Factory.forProtocol(Broker)
        factory.peers = []
        port = loopback.listenTCP(0, factory, interface="127.0.0.1")
        try:
            connection = await connect(loopback, "127.0.0.1", port.getHost().port, client_id="me")
            connection.send_at_once()
            try:
                return await use(connection, factory.peers)
            finally:
                await connection.close()
        finally:
            await port.stopListening()

    return run(scene())


def test_request_is_sent_before_the_call_returns() -> None:
    """When the call returns, the transport has nothing left to send."""

    async def use(connection: Connection, _: list[Broker]) -> None:
        response = heartbeat(connection)
        assert connection.transport not in connection.transport.reactor.getWriters()
        await response

    talk(use)


def test_requests_keep_their_order_when_the_socket_is_full() -> None:
    """A request that does not fit into the socket is completed before later ones."""

    async def use(connection: Connection, peers: list[Broker]) -> list[int]:
        connection.request(METADATA, 0, LONG, expects_response=False)
        assert connection.transport in connection.transport.reactor.getWriters()
        connection.request(METADATA, 0, b"\0\0\0\0", expects_response=False)
        await heartbeat(connection)
        return peers[0].apis

    assert talk(use) == [METADATA.key, METADATA.key, HEARTBEAT.key]


def test_send_error_closes_the_connection() -> None:
    """If the socket refuses data, the connection is closed and the request fails."""

    async def use(connection: Connection, peers: list[Broker]) -> None:
        await heartbeat(connection)
        connection.transport.socket.shutdown(1)
        with pytest.raises(ConnectionLost):
            await heartbeat(connection)

    talk(use)
