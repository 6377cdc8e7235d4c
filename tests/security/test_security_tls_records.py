"""Requests that are spread over many TLS records, as librdkafka sends them."""

from __future__ import annotations

import socket
import ssl
import struct
from pathlib import Path

import pytest
from tls_scene import Brokers, with_brokers
from twisted.internet.threads import deferToThread

from kreplica.server.transport.tls_socket import TlsSocket
from tests.support.coordinator import CoordinatorProcess

API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 7, -1)
"""An ApiVersions request of version 0 with correlation ID 7, including its length prefix."""


@pytest.fixture
def handled(monkeypatch: pytest.MonkeyPatch) -> dict[TlsSocket, list[bytes]]:
    """The data that each connection decrypted, by read."""
    reads: dict[TlsSocket, list[bytes]] = {}
    receive = TlsSocket.recv_into

    def record(encrypted: TlsSocket, buffer: memoryview) -> int:
        size = receive(encrypted, buffer)
        reads.setdefault(encrypted, []).append(bytes(buffer[:size]))
        return size

    monkeypatch.setattr(TlsSocket, "recv_into", record)
    return reads


def test_records_of_one_read_are_handled_together(
    tmp_path: Path,
    certificates: Path,
    coordinator: CoordinatorProcess,
    handled: dict[TlsSocket, list[bytes]],
) -> None:
    """Two requests in 28 TLS records of one read are handled together, even if the client then closes at once."""

    async def scenario(scene: Brokers) -> None:
        await deferToThread(send_and_receive, scene.address("SSL"), scene.trusted)

    with_brokers(1, tmp_path, certificates, coordinator.address, scenario)
    (reads,) = (each for each in handled.values() if b"".join(each) == 4 * API_VERSIONS)
    assert len(reads) < len(API_VERSIONS), "each TLS record was handled separately"


def send_and_receive(address: str, trusted: Path) -> None:
    """Send two requests, read the responses, send two more, and close the connection with them."""
    host, port = address.rsplit(":", 1)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context(cafile=trusted)
    tls = context.wrap_bio(incoming, outgoing, server_hostname=host)
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                connection.sendall(outgoing.read())
                incoming.write(connection.recv(65536))
        encrypt_bytes(tls, 2 * API_VERSIONS)
        connection.sendall(outgoing.read())
        received = b""
        while responses_in(received) < 2:
            incoming.write(connection.recv(65536))
            try:
                while True:
                    received += tls.read(65536)
            except ssl.SSLWantReadError:
                continue
        encrypt_bytes(tls, 2 * API_VERSIONS)
        with pytest.raises(ssl.SSLWantReadError):
            tls.unwrap()
        connection.sendall(outgoing.read())


def encrypt_bytes(tls: ssl.SSLObject, data: bytes) -> None:
    """Encrypt each byte as a separate TLS record."""
    for position in range(len(data)):
        tls.write(data[position : position + 1])


def responses_in(data: bytes) -> int:
    """Return the number of complete responses."""
    count = position = 0
    while position + 4 <= len(data):
        position += 4 + struct.unpack_from(">i", data, position)[0]
        count += position <= len(data)
    return count
