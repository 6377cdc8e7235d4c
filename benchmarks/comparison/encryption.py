"""Encrypted listeners for the compared systems, with the same certificates, and clients that connect to them."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from kreplica.security.tls.development_ca import create_certificate, open_authority
from tests.support.server_process import free_ports

HOST = "127.0.0.1"
DAYS = 30
USER, PASSWORD = "bench", "bench-password"
PLAIN_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
CONNECTING_THREADS = 8
RESPONSE_TIME_S = 10


class Encryption:
    """Certificates from ``kreplica tls dev-ca`` (P-256), and two ports per broker: TLS, and TLS with SASL.

    Brokers also use TLS for connections to each other.
    """

    def __init__(self, directory: Path, brokers: int) -> None:
        authority = open_authority(directory, DAYS)
        self._certificate = create_certificate(directory, authority, "broker", [HOST], DAYS)
        self._authority = directory / "ca.pem"
        ports = free_ports(2 * brokers)
        self._ports = dict(enumerate(zip(ports[::2], ports[1::2], strict=True), start=1))

    def listeners(self, broker: int) -> str:
        """Return the encrypted part of ``listeners``."""
        tls, sasl = self._ports[broker]
        return f"SSL://{HOST}:{tls},SASL_SSL://{HOST}:{sasl}"

    @property
    def settings(self) -> Mapping[str, object]:
        """Settings of every broker, which are the same for both systems."""
        return {
            "inter.broker.listener.name": "SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self._certificate,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self._authority,
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{PLAIN_LOGIN} required user_{USER}="{PASSWORD}";',
        }

    @property
    def bootstrap(self) -> str:
        """Bootstrap servers for clients that use TLS without SASL."""
        return ",".join(f"{HOST}:{tls}" for tls, _ in self._ports.values())

    @property
    def client_config(self) -> Mapping[str, str]:
        """Settings of librdkafka for ``bootstrap``."""
        return {"security.protocol": "SSL", "ssl.ca.location": str(self._authority)}

    def connect_repeatedly(self, seconds: float) -> tuple[int, float]:
        """Open and close authenticated connections to the first broker, ``CONNECTING_THREADS`` at a time.

        :return: the number of connections, and the seconds until the last one was closed.
        :raise OSError: a connection or an authentication failed.
        """
        context = ssl.create_default_context(cafile=self._authority)
        _, port = self._ports[1]
        counts: list[int] = []
        failures: list[Exception] = []
        started_s = time.monotonic()

        def repeat() -> None:
            count = 0
            try:
                while time.monotonic() - started_s < seconds:
                    _connect(port, context)
                    count += 1
            except Exception as error:
                failures.append(error)
            counts.append(count)

        threads = [threading.Thread(target=repeat) for _ in range(CONNECTING_THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]
        return sum(counts), time.monotonic() - started_s


def _connect(port: int, context: ssl.SSLContext) -> None:
    """Connect, authenticate with SASL PLAIN, and close the connection."""
    mechanism = b"PLAIN"
    token = f"\0{USER}\0{PASSWORD}".encode()
    with (
        socket.create_connection((HOST, port), timeout=RESPONSE_TIME_S) as plain,
        context.wrap_socket(plain, server_hostname=HOST) as connection,
    ):
        for api_key, version, body in (
            (SASL_HANDSHAKE, 1, struct.pack(">h", len(mechanism)) + mechanism),
            (SASL_AUTHENTICATE, 0, struct.pack(">i", len(token)) + token),
        ):
            header = struct.pack(">hhih", api_key, version, 0, -1)
            connection.sendall(struct.pack(">i", len(header) + len(body)) + header + body)
            (size,) = struct.unpack(">i", _read(connection, 4))
            (code,) = struct.unpack_from(">h", _read(connection, size), 4)
            if code:
                raise ConnectionError(f"the response to API {api_key} has error code {code}")


def _read(connection: ssl.SSLSocket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise ConnectionError("the broker closed the connection")
        data += piece
    return data
