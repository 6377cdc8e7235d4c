"""The TLS socket, with an OpenSSL client and an in-memory socket."""

from __future__ import annotations

from pathlib import Path
from random import Random
from socket import MSG_MORE

import pytest
from OpenSSL import SSL

from kreplica.security.tls.contexts import load_server_tls
from kreplica.security.tls.development_ca import create_certificate, open_authority
from kreplica.security.tls.options import TlsOptions
from kreplica.server.transport import tls_socket
from kreplica.server.transport.tls_socket import CHUNK_BYTES, RECEIVE_BYTES_MAX, SEND_BYTES_MAX, TlsSocket
from tests.support.memory_socket import MemorySocket

BUFFER_BYTES = 256 * 1024
DATA = Random(1).randbytes(300_000)


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> SSL.Context:
    directory: Path = tmp_path_factory.mktemp("certificates")
    certificate = create_certificate(directory, open_authority(directory, 10), "broker", ["127.0.0.1"], 10)
    return load_server_tls(TlsOptions(keystore_type="PEM", keystore_location=str(certificate))).context


class Ends:
    """Both ends of a connection after the handshake.

    :ivar wire: the server's socket.
    """

    def __init__(self, context: SSL.Context, version: int = SSL.TLS1_3_VERSION) -> None:
        self.wire = MemorySocket()
        self.server = TlsSocket(self.wire, SSL.Connection(context, None))  # type: ignore[arg-type]
        client_context = SSL.Context(SSL.TLS_CLIENT_METHOD)
        client_context.set_max_proto_version(version)
        self.client = SSL.Connection(client_context, None)
        self.client.set_connect_state()
        self._buffer = memoryview(bytearray(BUFFER_BYTES))
        self._passed = 0
        while True:
            try:
                self.client.do_handshake()
            except SSL.WantReadError:
                self.to_server()
                assert self.receive() == b""
                self.to_client()
            else:
                break
        self.to_server()
        assert self.receive() == b""
        assert self.server.is_open
        assert self.receive() == b""
        self.to_client()

    def to_server(self) -> None:
        """Pass the data that the client has written to the server's socket."""
        try:
            while True:
                self.wire.incoming += self.client.bio_read(2**16)
        except SSL.WantReadError:
            pass

    def to_client(self) -> None:
        """Pass the data that the server has sent to the client."""
        data = self.wire.sent[self._passed :]
        self._passed += len(data)
        if data:
            self.client.bio_write(bytes(data))

    def receive(self) -> bytes | None:
        """Return the data that the server receives with one read; None at the end."""
        try:
            size = self.server.recv_into(self._buffer)
        except BlockingIOError:
            return b""
        return bytes(self._buffer[:size]) if size else None

    def read(self) -> bytes:
        """Return the data that the client receives."""
        self.to_client()
        data = b""
        try:
            while True:
                data += self.client.recv(2**16)
        except SSL.WantReadError:
            return data


@pytest.fixture(params=[SSL.TLS1_2_VERSION, SSL.TLS1_3_VERSION], ids=["TLS 1.2", "TLS 1.3"])
def ends(context: SSL.Context, request: pytest.FixtureRequest) -> Ends:
    return Ends(context, request.param)


def test_receives_records_of_all_sizes(ends: Ends) -> None:
    """One read returns the content of all records in it; an incomplete record waits for the next read."""
    sizes = [1, 2, 100, 1000, 16_384, 50_000, *[7] * 3000]
    position = reads = 0
    for size in sizes:
        ends.client.sendall(DATA[position : position + size])
        position += size
    ends.to_server()
    received = b""
    while len(received) < position:
        received += ends.receive() or b""
        reads += 1
    assert received == DATA[:position]
    assert reads <= 1 + (position + 40 * (len(sizes) + 10)) // RECEIVE_BYTES_MAX
    assert ends.receive() == b""


def test_receives_into_several_buffers(ends: Ends) -> None:
    """A record may be split between two buffers."""
    ends.client.send(DATA[:1000])
    ends.client.send(DATA[1000:1500])
    ends.to_server()
    first, second = memoryview(bytearray(600)), memoryview(bytearray(BUFFER_BYTES))
    assert ends.server.recvmsg_into((first, second)) == (1500,)
    assert bytes(first) + bytes(second[:900]) == DATA[:1500]
    with pytest.raises(BlockingIOError):
        ends.server.recvmsg_into((first, second))


def test_sends_what_the_socket_accepts(ends: Ends) -> None:
    """A full socket delays the data, and the memory for it is bounded; nothing is lost or sent twice."""
    random, view, position, received = Random(2), memoryview(DATA), 0, b""
    while position < len(DATA):
        ends.wire.send_limit = random.choice((0, 10, 1000, 100_000))
        try:
            position += ends.server.send(view[position:])
        except BlockingIOError:
            assert ends.server.unsent > 0
        assert ends.server.unsent < CHUNK_BYTES + 1000
        received += ends.read()
    ends.wire.send_limit = None
    assert ends.server.flush()
    assert ends.server.unsent == 0
    assert received + ends.read() == DATA


def test_sends_a_part_of_large_data(ends: Ends) -> None:
    """The duration of one call is bounded, because other connections wait."""
    assert ends.server.send(bytes(3 * SEND_BYTES_MAX)) == SEND_BYTES_MAX
    assert ends.read() == bytes(SEND_BYTES_MAX)


def test_more_data_is_sent_together(ends: Ends) -> None:
    """With MSG_MORE, data waits for the next call."""
    before = len(ends.wire.sent)
    assert ends.server.send(DATA[:10], MSG_MORE) == 10
    assert len(ends.wire.sent) == before
    assert ends.server.unsent > 0
    assert ends.server.sendmsg([DATA[10:20], memoryview(DATA)[20:30]], ()) == 20
    assert ends.server.unsent == 0
    assert ends.read() == DATA[:30]


def test_the_client_ends_the_connection(ends: Ends) -> None:
    """Data before the client's close_notify is received, and the server responds with close_notify."""
    ends.client.send(b"last")
    ends.client.shutdown()
    ends.to_server()
    assert ends.receive() == b"last"
    assert ends.server.has_ended
    assert ends.receive() is None
    assert ends.server.close_notify()
    ends.to_client()
    with pytest.raises(SSL.ZeroReturnError):
        ends.client.recv(1)


def test_the_server_ends_the_connection(ends: Ends) -> None:
    """close_notify is sent once, after all data."""
    ends.wire.send_limit = 1000
    ends.server.send(DATA[:20_000])
    assert not ends.server.close_notify()
    assert not ends.server.close_notify()
    ends.wire.send_limit = None
    assert ends.server.close_notify()
    sent = len(ends.wire.sent)
    assert ends.server.close_notify()
    assert len(ends.wire.sent) == sent
    ends.to_client()
    assert ends.client.recv(2**14) + ends.client.recv(2**14) == DATA[:20_000]
    with pytest.raises(SSL.ZeroReturnError):
        ends.client.recv(1)


def test_connection_closed_without_close_notify(ends: Ends) -> None:
    ends.wire.is_ended = True
    assert ends.receive() is None


def test_tampered_record(ends: Ends) -> None:
    """A tampered record ends the connection, and the client receives an alert."""
    ends.client.send(DATA[:100])
    ends.to_server()
    ends.wire.incoming[50] ^= 1
    with pytest.raises(ConnectionAbortedError, match="bad record mac"):
        ends.receive()
    assert ends.server.error is not None
    ends.server.close_notify()
    ends.to_client()
    with pytest.raises(SSL.Error, match="bad record mac"):
        ends.client.recv(1)


def test_client_without_tls(context: SSL.Context) -> None:
    """The handshake fails with an alert, which the socket sends."""
    wire = MemorySocket()
    server = TlsSocket(wire, SSL.Connection(context, None))  # type: ignore[arg-type]
    wire.incoming += b"GET / HTTP/1.1\r\n\r\n"
    with pytest.raises(ConnectionAbortedError, match="http request"):
        server.recv_into(memoryview(bytearray(BUFFER_BYTES)))
    assert not server.is_open
    assert server.close_notify()


def test_renegotiation_is_refused(context: SSL.Context, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server sends an alert, which counts towards the limit of unsent bytes while the client does not read."""
    ends = Ends(context, SSL.TLS1_2_VERSION)
    ends.client.renegotiate()
    with pytest.raises(SSL.WantReadError):
        ends.client.do_handshake()
    ends.to_server()
    ends.wire.send_limit = 0
    monkeypatch.setattr(tls_socket, "UNSENT_BYTES_MAX", 10)
    with pytest.raises(ConnectionAbortedError, match="the peer has not read"):
        ends.receive()
    ends.wire.send_limit = None
    assert ends.server.flush()
    ends.to_client()
    with pytest.raises(SSL.Error, match="no renegotiation"):
        ends.client.do_handshake()
