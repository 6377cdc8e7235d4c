"""The transport of TLS connections, with an OpenSSL client and an in-memory socket."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from OpenSSL import SSL
from tls_peer import TlsPeer
from twisted.internet.testing import MemoryReactorClock

from kreplica.model import Endpoint
from kreplica.runtime import real_runtime
from kreplica.security.tls.listener import ListenerTls
from kreplica.security.tls.options import TlsOptions
from kreplica.server.protocol.handler_table import HandlerEntry
from kreplica.server.protocol.request import Request
from kreplica.server.transport.listeners import Server
from kreplica.server.transport.tls_transport import GATHER_S, HANDSHAKE_TIMEOUT_S
from kreplica.wire.messages import METADATA

REQUEST = struct.pack(">ihhihi", 14, METADATA.key, 1, 7, -1, 0)
"""Metadata of version 1 without topics, with correlation ID 7."""

TOPICS = 5_000


class Scene:
    """A listener, one client, and the client's OpenSSL."""

    def __init__(self, certificates: Path, **options: Any) -> None:
        self.reactor = MemoryReactorClock()
        runtime = replace(real_runtime(MemoryReactorClock()), reactor=self.reactor)
        self.server = Server(runtime, {METADATA.key: HandlerEntry.of(METADATA, self._metadata)})
        chosen = TlsOptions(
            keystore_type="PEM",
            keystore_location=f"{certificates}/broker.pem",
            truststore_type="PEM",
            truststore_location=f"{certificates}/ca.pem",
            **options,
        )
        tls = ListenerTls(chosen, lambda: 0.0, lambda *_: pytest.fail("no file has changed"))
        self.server.listen(Endpoint("TLS", "0.0.0.0", 9093, "SSL"), tls)
        self.users: list[str] = []
        self.topics = 0
        self.peer = TlsPeer(self.server, self.reactor.tcpServers[-1][1], self.reactor)
        context = SSL.Context(SSL.TLS_CLIENT_METHOD)
        context.use_certificate_chain_file(f"{certificates}/alice.pem")
        context.use_privatekey_file(f"{certificates}/alice.pem")
        self.client = SSL.Connection(context, None)
        self.client.set_connect_state()
        self._passed = 0

    def _metadata(self, request: Request) -> None:
        self.users.append(request.connection.user)
        topics = [{"error_code": 0, "name": f"topic-{number}", "partitions": []} for number in range(self.topics)]
        request.respond({"brokers": [], "controller_id": 1, "topics": topics})

    def step(self) -> None:
        """Continue the handshake, without sending the client's last flight."""
        try:
            self.client.do_handshake()
        except SSL.WantReadError:
            pass

    def send(self) -> None:
        """Send the data that the client's OpenSSL has written, and receive the data that the server sends."""
        self.peer.send(self.client.bio_read(2**16))
        self.receive()

    def receive(self) -> None:
        data = self.peer.value()[self._passed :]
        self._passed += len(data)
        if data:
            self.client.bio_write(data)

    def connect(self) -> None:
        """Perform the handshake."""
        self.step()
        self.send()
        self.step()
        self.send()

    def read(self) -> bytes:
        """Return the decrypted bytes that have arrived."""
        data = b""
        try:
            while True:
                data += self.client.recv(2**16)
        except SSL.WantReadError:
            return data


@pytest.fixture
def scene(certificates: Path) -> Iterator[Scene]:
    scene = Scene(certificates)
    yield scene
    scene.peer.disconnect()
    assert not len(scene.server.resources.connections)
    assert not [each for each in scene.reactor.getDelayedCalls() if each.getTime() > scene.reactor.seconds()]


def test_silent_client(scene: Scene, logged: list[str]) -> None:
    """A connection without a handshake is closed after the timeout."""
    scene.step()
    scene.send()
    scene.reactor.advance(HANDSHAKE_TIMEOUT_S - 1)
    assert not scene.peer.lost
    scene.reactor.advance(1)
    scene.peer.run()
    assert scene.peer.lost
    assert any("no TLS handshake within 30 s" in text for text in logged)


def test_request_in_the_last_flight(scene: Scene) -> None:
    """A request that arrives together with the end of the handshake is handled; the handshake timeout is cancelled."""
    scene.step()
    scene.send()
    scene.step()
    scene.client.send(REQUEST)
    scene.send()
    assert scene.read()[4:8] == struct.pack(">i", 7)
    assert scene.users == ["User:ANONYMOUS"]
    scene.reactor.advance(HANDSHAKE_TIMEOUT_S)
    assert not scene.peer.lost


def test_close_notify_after_a_request(scene: Scene) -> None:
    """A client that sends a request and close_notify receives the response and the server's close_notify."""
    scene.connect()
    scene.client.send(REQUEST)
    scene.client.shutdown()
    scene.send()
    assert scene.client.recv(100)[4:8] == struct.pack(">i", 7)
    assert scene.peer.lost
    with pytest.raises(SSL.ZeroReturnError):
        scene.client.recv(1)


def test_close_notify_without_a_request(scene: Scene) -> None:
    scene.connect()
    scene.client.shutdown()
    scene.send()
    assert scene.peer.lost
    with pytest.raises(SSL.ZeroReturnError):
        scene.client.recv(1)


def test_stop_after_a_large_response(scene: Scene) -> None:
    """The whole response and close_notify are sent, even if the socket buffer is full in between."""
    scene.connect()
    scene.topics = TOPICS
    scene.client.send(REQUEST)
    scene.peer.socket.send_limit = 1000
    scene.send()
    scene.peer.connection.stop()
    data = b""
    while not scene.peer.lost:
        assert len(data) < 2**20
        scene.peer.socket.send_limit = 10_000
        scene.peer.run()
        scene.receive()
        try:
            while True:
                data += scene.client.recv(2**16)
        except (SSL.WantReadError, SSL.ZeroReturnError) as error:
            ended = isinstance(error, SSL.ZeroReturnError)
    assert ended
    assert len(data) == 4 + struct.unpack_from(">i", data)[0]
    assert len(data) > 10 * TOPICS


def test_large_request_in_small_pieces(scene: Scene) -> None:
    """While a large request arrives, reads are delayed, so that each reads more; its end is read at once."""
    scene.connect()
    names = b"".join(struct.pack(">h", 30_000) + b"x" * 30_000 for _ in range(8))
    request = struct.pack(">hhihi", METADATA.key, 1, 7, -1, 8) + names
    request = struct.pack(">i", len(request)) + request
    delays = 0
    for start in range(0, len(request), 5000):
        scene.client.send(request[start : start + 5000])
        scene.send()
        if scene.peer.socket.incoming:
            delays += 1
            if delays % 3 == 0:
                scene.reactor.advance(GATHER_S)
                scene.peer.send(b"")
                assert not scene.peer.socket.incoming
    assert 20 < delays < 40
    assert scene.read()[4:8] == struct.pack(">i", 7)
    assert len(scene.users) == 1


def test_close_while_a_read_is_delayed(scene: Scene) -> None:
    """A connection that closes while its next read is delayed leaves nothing behind."""
    scene.connect()
    for data in (struct.pack(">i", 200_000) + bytes(10_000), bytes(10_000)):
        scene.client.send(data)
        scene.send()
    scene.client.send(bytes(1000))
    scene.send()
    assert scene.peer.socket.incoming


def test_failed_handshake(scene: Scene, logged: list[str]) -> None:
    """The client receives an alert; the log contains the reason."""
    scene.peer.send(b"GET / HTTP/1.1\r\n\r\n")
    assert scene.peer.lost
    assert any("the TLS handshake with 127.0.0.1:1000 failed" in text and "http request" in text for text in logged)


@pytest.mark.parametrize(
    ("rules", "user"), [("DEFAULT", "User:CN=alice"), ("RULE:^CN=(.*)$/$1/", "User:alice"), ("RULE:^X$/x/", None)]
)
def test_user_of_the_certificate(certificates: Path, rules: str, user: str | None) -> None:
    """The first request has the user; if no rule matches the certificate, the connection is closed."""
    scene = Scene(certificates, client_auth="required", principal_mapping_rules=rules)
    scene.step()
    scene.send()
    scene.step()
    scene.client.send(REQUEST)
    scene.send()
    assert scene.users == ([] if user is None else [user])
    assert scene.peer.lost == (user is None)
    scene.peer.disconnect()
