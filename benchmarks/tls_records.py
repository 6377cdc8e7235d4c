"""CPU time to decrypt and encrypt TLS records without sockets: our TLS socket, pyOpenSSL's methods, module ``ssl``.

librdkafka encrypts the fields of each record in a batch separately, so a Produce request arrives in many small TLS
records.  ``KB per call`` is the amount of data in one read from the socket, or in one response.  The version is TLS
1.3, with the default cipher.
"""

from __future__ import annotations

import ssl
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from OpenSSL import SSL

from kreplica.security.tls.contexts import load_server_tls
from kreplica.security.tls.development_ca import create_certificate, open_authority
from kreplica.security.tls.options import TlsOptions
from kreplica.server.transport.tls_socket import RECEIVE_BYTES_MAX, TlsSocket

RECORD_SIZES = (100, 350, 1024, 16 * 1024)
TOTAL_BYTES = {"quick": 4_000_000, "full": 40_000_000}
ROUNDS = 5
BUFFER_BYTES = 256 * 1024
RESPONSE_BYTES = 256 * 1024


class Wire:
    """In-memory socket of a server.

    :ivar incoming: data that the server has not read yet.
    :ivar outgoing: pieces that the server has sent.
    """

    def __init__(self) -> None:
        self.incoming: deque[bytes] = deque()
        self.outgoing: list[bytes] = []
        self.is_recording = True

    def recv_into(self, buffer: memoryview) -> int:
        if not self.incoming:
            raise BlockingIOError
        data = self.incoming.popleft()
        buffer[: len(data)] = data
        return len(data)

    def send(self, data: Any) -> int:
        if self.is_recording:
            self.outgoing.append(bytes(data))
        return len(data)


class Ours:
    """The product's TLS socket."""

    name = "kreplica"

    def __init__(self, context: SSL.Context, _: Path) -> None:
        self._wire = Wire()
        self._socket = TlsSocket(self._wire, SSL.Connection(context, None))  # type: ignore[arg-type]
        self._buffer = memoryview(bytearray(BUFFER_BYTES))

    def receive(self, data: bytes) -> int:
        """Decrypt the data of one read; return the number of decrypted bytes."""
        self._wire.incoming.append(data)
        while self._wire.incoming:
            try:
                return self._socket.recv_into(self._buffer)
            except BlockingIOError:
                pass
        return 0

    def respond(self) -> bytes:
        """Return the server's next message in the handshake."""
        data = b"".join(self._wire.outgoing)
        self._wire.outgoing.clear()
        return data

    def send(self, data: bytes) -> None:
        """Encrypt a response."""
        self._wire.is_recording = False
        position, view = 0, memoryview(data)
        while position < len(data):
            position += self._socket.send(view[position:])


class PyOpenSsl:
    """pyOpenSSL's methods, as Twisted calls them."""

    name = "pyOpenSSL"

    def __init__(self, context: SSL.Context, _: Path) -> None:
        self._connection = SSL.Connection(context, None)
        self._connection.set_accept_state()

    def receive(self, data: bytes) -> int:
        self._connection.bio_write(data)
        received = []
        try:
            while True:
                received.append(self._connection.recv(2**15))
        except SSL.WantReadError:
            return len(b"".join(received))

    def respond(self) -> bytes:
        try:
            return self._connection.bio_read(2**15)
        except SSL.WantReadError:
            return b""

    def send(self, data: bytes) -> None:
        for start in range(0, len(data), 2**14):
            self._connection.send(data[start : start + 2**14])
            self._connection.bio_read(2**15)


class SslModule:
    """Python's module ``ssl``."""

    name = "ssl"

    def __init__(self, _: SSL.Context, certificate: Path) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._buffer = memoryview(bytearray(BUFFER_BYTES))
        self._is_open = False

    def receive(self, data: bytes) -> int:
        self._incoming.write(data)
        size = 0
        try:
            if not self._is_open:
                self._tls.do_handshake()
                self._is_open = True
            while True:
                size += self._tls.read(BUFFER_BYTES - size, self._buffer[size:])  # type: ignore[arg-type]
        except ssl.SSLWantReadError:
            return size

    def respond(self) -> bytes:
        return self._outgoing.read()

    def send(self, data: bytes) -> None:
        view = memoryview(data)
        for start in range(0, len(data), 2**16):
            self._tls.write(view[start : start + 2**16])
            self._outgoing.read()


SERVERS = (Ours, PyOpenSsl, SslModule)


def connect(server: Any) -> SSL.Connection:
    """Perform the handshake, and return the client's end."""
    client = SSL.Connection(SSL.Context(SSL.TLS_CLIENT_METHOD), None)
    client.set_connect_state()
    for _ in range(4):
        try:
            client.do_handshake()
        except SSL.WantReadError:
            pass
        try:
            server.receive(client.bio_read(2**16))
        except SSL.WantReadError:
            break
        if response := server.respond():
            client.bio_write(response)
    return client


def encrypted(client: SSL.Connection, record_size: int, total: int) -> list[bytes]:
    """Return the data of each read by a server that receives records of one size."""
    record, parts = bytes(record_size), []
    for _ in range(total // record_size):
        client.send(record)
        parts.append(client.bio_read(2**15))
    data = b"".join(parts)
    return [data[start : start + RECEIVE_BYTES_MAX] for start in range(0, len(data), RECEIVE_BYTES_MAX)]


def decrypt_us(server: Any, client: SSL.Connection, record_size: int, total: int) -> float:
    """Return the CPU time of one record."""
    reads, count = encrypted(client, record_size, total), total // record_size
    started_s = time.process_time()
    size = sum(map(server.receive, reads))
    took_s = time.process_time() - started_s
    assert size == count * record_size, f"{size} bytes of {count} records of {record_size}"
    return took_s / count * 1e6


def encrypt_us(server: Any, total: int) -> float:
    """Return the CPU time of one response."""
    data, count = bytes(RESPONSE_BYTES), total // RESPONSE_BYTES
    started_s = time.process_time()
    for _ in range(count):
        server.send(data)
    return (time.process_time() - started_s) / count * 1e6


def rounds_us(measure: Callable[[], float]) -> float:
    """Return the lowest time of several rounds."""
    return min(measure() for _ in range(ROUNDS))


def run(scale: str) -> list[dict[str, Any]]:
    total, rows = TOTAL_BYTES[scale], []
    with TemporaryDirectory() as directory:
        certificate = create_certificate(Path(directory), open_authority(Path(directory), 1), "broker", ["a"], 1)
        context = load_server_tls(TlsOptions(keystore_type="PEM", keystore_location=str(certificate))).context
        for kind in SERVERS:
            server = kind(context, certificate)
            client = connect(server)
            for size in RECORD_SIZES:
                us = rounds_us(lambda: decrypt_us(server, client, size, total))  # noqa: B023
                rows.append(_row("decrypt", kind.name, size, us))
            us = rounds_us(lambda: encrypt_us(server, total * 4))  # noqa: B023
            rows.append(_row("encrypt", kind.name, RESPONSE_BYTES, us))
    return rows


def _row(action: str, name: str, size: int, us: float) -> dict[str, Any]:
    return {"action": action, "implementation": name, "bytes": size, "us": us, "us per MB": us / size * 1e6}
