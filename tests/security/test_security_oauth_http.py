"""Clients' HTTP requests to authorization servers that fail or misbehave, with and without a reactor."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from twisted.internet.threads import deferToThread

from kreplica.blocking.blocking_runtime import default_runtime
from kreplica.blocking.coroutines import run as run_blocking
from kreplica.blocking.secured_runtime import secured_runtime
from kreplica.client.security import secured_endpoints
from kreplica.security.oauth.login import TokenLogin
from kreplica.security.oauth.token_requests import RESPONSE_BYTES_MAX
from kreplica.security.sasl.credentials import CredentialsUnavailable
from tests.support.real_reactor import run
from tests.support.token_server import SECRET, token_server

LOGIN = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


def config(url: str, tls: str = "") -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": f'{LOGIN} required clientId="alice" clientSecret="{SECRET}" {tls};',
        "sasl.oauthbearer.token.endpoint.url": url,
        "sasl.login.retry.backoff.ms": "0",
        "sasl.login.connect.timeout.ms": "500",
        "sasl.login.read.timeout.ms": "500",
    }


def login_with_reactor(client_config: dict[str, str]) -> bytes:
    from twisted.internet import reactor

    async def log_in() -> bytes:
        endpoint = secured_endpoints(client_config)(reactor, "127.0.0.1", 1, 1.0)  # type: ignore[arg-type]
        return (await endpoint.sasl.new_exchange()).step(b"")  # type: ignore[attr-defined]

    return run(log_in(), 20, check_left_behind=False)


def login_blocking(client_config: dict[str, str]) -> bytes:
    runtime = secured_runtime(client_config)
    assert isinstance(runtime.sasl, TokenLogin)
    return run_blocking(runtime.sasl.new_exchange()).step(b"")


Login = Callable[[dict[str, str]], bytes]
with_and_without_reactor = pytest.mark.parametrize("log_in", [login_with_reactor, login_blocking])


@contextmanager
def raw_server(response: bytes) -> Iterator[str]:
    """Run a server that sends this response to each connection, and closes it only after the client did."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:

        def serve() -> None:
            while True:
                try:
                    connected, _ = listener.accept()
                except OSError:
                    return
                with connected:
                    try:
                        connected.sendall(response)
                        while connected.recv(65536):
                            pass
                    except OSError:
                        pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/token"
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(10)


def error_of(log_in: Login, client_config: dict[str, str]) -> str:
    with pytest.raises(CredentialsUnavailable) as caught:
        log_in(client_config)
    text = f"{caught.value} {caught.value.__cause__}"
    assert SECRET not in text
    return text


@with_and_without_reactor
def test_tls(log_in: Login, certificates: Path) -> None:
    """The server's certificate is verified with the options of the login module."""
    with token_server(certificates) as server:
        trusted = f'ssl.truststore.type="PEM" ssl.truststore.location="{certificates}/ca.pem"'
        other = trusted.replace("/ca.pem", "/other/ca.pem")
        url = f"{server.url}/token"
        assert log_in(config(url, trusted)).startswith(b"n,,\x01auth=Bearer ey")
        for options in (other, ""):
            assert "certificate" in error_of(log_in, config(url, options))
        assert len(server.tokens) == 1


@with_and_without_reactor
def test_redirects_are_not_followed(log_in: Login) -> None:
    with token_server() as server:
        assert "/moved rejected the token request with status 302" in error_of(log_in, config(f"{server.url}/moved"))
        assert server.tokens == []


@with_and_without_reactor
def test_large_responses(log_in: Login) -> None:
    size = RESPONSE_BYTES_MAX + 100_000
    head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size
    with raw_server(head + b"x" * size) as url:
        assert f"the response is larger than {RESPONSE_BYTES_MAX} bytes" in error_of(log_in, config(url))


@with_and_without_reactor
@pytest.mark.parametrize(
    "response", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nabc"]
)
def test_a_server_that_does_not_respond(log_in: Login, response: bytes) -> None:
    with raw_server(response) as url:
        assert "no token could be obtained" in error_of(log_in, config(url))


@with_and_without_reactor
def test_a_response_that_is_not_http(log_in: Login) -> None:
    with raw_server(b"SSH-2.0-OpenSSH\r\n\r\n") as url:
        assert "no token could be obtained" in error_of(log_in, config(url))


@with_and_without_reactor
def test_connection_refused(log_in: Login) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port = listener.getsockname()[1]
    assert "refused" in error_of(log_in, config(f"http://127.0.0.1:{port}/token"))


def test_token_files(tmp_path: Path) -> None:
    """Both clients read the same file."""
    with token_server() as server:
        path = tmp_path / "token"
        path.write_text(server.token() + "\n")
        client_config = config(f"file://{path}")
        assert login_with_reactor(client_config) == login_blocking(client_config)
        path.unlink()
        assert "cannot be read: No such file" in error_of(login_with_reactor, client_config)
        assert "cannot be read: No such file" in error_of(login_blocking, client_config)


def test_connections_share_a_request() -> None:
    """Connections that need a token at the same time cause only one request."""
    from twisted.internet import reactor
    from twisted.internet.defer import Deferred, gatherResults

    with token_server() as server:

        async def log_in() -> None:
            make = secured_endpoints(config(f"{server.url}/token"))
            endpoints = [make(reactor, "127.0.0.1", 1, 1.0) for _ in range(5)]  # type: ignore[arg-type]
            first, *others = [Deferred.fromCoroutine(each.sasl.new_exchange()) for each in endpoints]  # type: ignore
            first.addErrback(lambda _: None)
            first.cancel()  # an abandoned connection does not stop the request of the others
            exchanges = await gatherResults(others)
            assert len({each.step(b"") for each in exchanges}) == 1
            assert await deferToThread(lambda: len(server.tokens)) == 1

        run(log_in(), 20, check_left_behind=False)
        assert default_runtime().sasl is None
