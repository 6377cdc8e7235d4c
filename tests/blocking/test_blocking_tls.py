"""The blocking client over TLS, with Python's own sockets as the server."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from scripted_brokers import versions

from kreplica.blocking import default_runtime
from kreplica.blocking.blocking_runtime import tls_sockets
from kreplica.blocking.connection import Connection
from kreplica.client_core.addresses import Address
from kreplica.client_core.errors import ConnectionFailed
from kreplica.client_core.options import ClientOptions
from kreplica.wire.framing import FrameReader, frame
from kreplica.wire.headers import build_response_header, parse_request_header
from kreplica.wire.messages import API_VERSIONS, APIS, METADATA

ANSWERS = {
    API_VERSIONS.key: versions(),
    METADATA.key: {"throttle_time_ms": 0, "brokers": [], "cluster_id": "x" * 40_000, "controller_id": 1, "topics": []},
}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a key and a self-signed certificate for 127.0.0.1 to one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "broker")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "broker.pem"
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path.write_bytes(secret + made.public_bytes(pem))
    return path


@pytest.fixture
def address(certificate: Path) -> Iterator[Address]:
    """Run a TLS broker that responds to each request at once."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener, context))
        thread.start()
        yield Address("127.0.0.1", listener.getsockname()[1])
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(10)
        assert not thread.is_alive()


def serve(listener: socket.socket, context: ssl.SSLContext) -> None:
    while True:
        try:
            plain, _ = listener.accept()
        except OSError:
            return
        try:
            with context.wrap_socket(plain, server_side=True) as connection:
                respond_to_all(connection)
        except OSError:
            plain.close()


def respond_to_all(connection: ssl.SSLSocket) -> None:
    frames = FrameReader()
    while data := connection.recv(1 << 16):
        for content in list(frames.feed(data)):
            header = parse_request_header(content)
            api, version = APIS[header.api_key], header.api_version
            start = build_response_header(api.response_header_version(version), header.correlation_id)
            connection.sendall(frame(start + api.response.build(version, ANSWERS[api.key])))


def test_requests_over_tls(certificate: Path, address: Address) -> None:
    """Responses in several TLS records are complete, even if OpenSSL has already decrypted a part of them."""
    context = ssl.create_default_context(cafile=str(certificate))
    with Connection.open(address, ClientOptions(), default_runtime(connect=tls_sockets(context))) as connection:
        body = {"topics": [], "allow_auto_topic_creation": False}
        version = connection.version(METADATA)
        for _ in range(3):
            connection.send(METADATA, body, version=version, timeout_s=10)
        answered = []
        while len(answered) < 3:
            answered += connection.receive(10)
        assert [len(each.response["cluster_id"]) for each in answered if each.response] == [40_000] * 3
        assert len(connection.request(METADATA, body)["cluster_id"]) == 40_000


def test_untrusted_certificate(address: Address) -> None:
    """A failed handshake is reported as a failed connection."""
    strangers = default_runtime(connect=tls_sockets(ssl.create_default_context()))
    with pytest.raises(ConnectionFailed, match="certificate"):
        Connection.open(address, ClientOptions(), strangers)
