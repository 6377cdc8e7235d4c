"""The kernel's byte counters for a connection."""

from __future__ import annotations

import socket
import time
from types import SimpleNamespace

from OpenSSL import SSL

from kreplica.server.transport.tcp_counters import transferred
from kreplica.server.transport.tls_socket import TlsSocket


def test_bytes_of_a_connection() -> None:
    """Received and acknowledged bytes are those that the client sent and received, even through several wrappers."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as client:
        served, _ = listener.accept()
        with served:
            client.sendall(b"x" * 1000)
            served.recv(1000, socket.MSG_WAITALL)
            served.sendall(b"y" * 300)
            client.recv(300, socket.MSG_WAITALL)
            transport = SimpleNamespace(transport=SimpleNamespace(socket=served))
            deadline_s = time.monotonic() + 10
            while True:
                received, acknowledged = transferred(transport) or (0, 0)
                if acknowledged >= 300 or time.monotonic() > deadline_s:
                    break
            assert (received, acknowledged) == (1000, 300)
    assert transferred(SimpleNamespace(socket=served)) is None, "a closed socket has no counters"
    assert transferred(SimpleNamespace()) is None


def test_bytes_of_a_tls_connection() -> None:
    """The bytes are the encrypted ones of its socket."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as client:
        served, _ = listener.accept()
        with served:
            client.sendall(b"x" * 1000)
            served.recv(1000, socket.MSG_WAITALL)
            encrypted = TlsSocket(served, SSL.Connection(SSL.Context(SSL.TLS_SERVER_METHOD), None))
            assert transferred(SimpleNamespace(socket=encrypted)) == (1000, 0)
