"""Clients and brokers that authenticate with bearer tokens on real listeners."""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from oauth_scene import LOGIN, VALIDATOR, OAuthClients, oauth_settings
from sasl_scene import RECORDS, TIMEOUT_S, Brokers, settings, with_brokers
from twisted.internet.threads import deferToThread

from kreplica.cli import main
from kreplica.client import Admin, Producer, errors
from kreplica.errors import SettingsError
from kreplica.runtime import real_runtime
from kreplica.runtime.pause import pause
from kreplica.security.sasl.oauthbearer import build_first_message
from kreplica.service.broker.bearer_tokens import BearerTokens
from kreplica.service.metrics.key_metrics import key_families
from kreplica.wire.messages import METADATA, SASL_AUTHENTICATE, SASL_HANDSHAKE
from tests.support.coordinator import CoordinatorProcess
from tests.support.token_server import SECRET, TokenServer, token_server

INVALID = {"status": "invalid_token"}
REFUSED = 'Authentication failed: {"status": "invalid_token"}'


@pytest.fixture
def server(logged: list[str]) -> Iterator[TokenServer]:
    """A token server; no log may contain its tokens or a secret."""
    with token_server() as running:
        yield running
    assert not [text for text in logged for token in running.tokens if token[20:] in text or SECRET in text]


async def write_records(clients: OAuthClients, replication_factor: int) -> None:
    async with clients.cluster("SASL_SSL", "alice") as cluster:
        await Admin(cluster).create_topic("orders", partitions=1, replication_factor=replication_factor)
        producer = Producer(cluster)
        deliveries = [producer.send("orders", b"%d" % number) for number in range(RECORDS)]
        await producer.flush()
        assert [(await each).offset for each in deliveries] == list(range(RECORDS))
        await producer.close()


def test_clients_of_every_kind(
    tmp_path: Path, certificates: Path, coordinator: CoordinatorProcess, logged: list[str]
) -> None:
    """Brokers connect to each other with tokens, and every client reads with and without TLS."""
    with token_server(certificates) as server:

        async def scenario(scene: Brokers) -> None:
            clients = OAuthClients(scene, server, certificates)
            await write_records(clients, 2)
            assert "User:broker" in scene.users
            for listener in ("SASL_SSL", "LOCAL"):
                for read in (clients.read_blocking, clients.read_with_kafka_python, clients.read_with_aiokafka):
                    assert await deferToThread(read, listener, "bob") == RECORDS
                for method in ("callback", "oidc"):
                    assert await deferToThread(clients.read_with_librdkafka, listener, "carol", method) == RECORDS
            path = tmp_path / "client.properties"
            path.write_text("".join(f"{name}={value}\n" for name, value in clients.config("SASL_SSL", "dave").items()))
            command = ["consume", "orders", "--from", "earliest", "--count", str(RECORDS), "--format", "{value}\\n"]
            address = f"127.0.0.1:{scene.port('SASL_SSL')}"
            options = ["--bootstrap", address, "--client-config", str(path)]
            result = await deferToThread(CliRunner().invoke, main, [*command, *options])
            assert result.output.split() == [str(number) for number in range(RECORDS)], result.output
            assert server.forms[-1] == {"grant_type": ["client_credentials"], "scope": ["kafka"]}
            assert server.key_requests == 2  # one for each broker

        with_brokers(2, tmp_path, certificates, coordinator.address, scenario, oauth_settings(server, certificates))
        assert not [text for text in logged for token in server.tokens if token[20:] in text or SECRET in text]


async def authenticate(scene: Brokers, token: str) -> tuple[Any, dict[str, Any]]:
    """Return a connection to the local listener, and the response to a token."""
    connection = await scene.unauthenticated("LOCAL")
    response = await connection.request(SASL_HANDSHAKE, 1, {"mechanism": "OAUTHBEARER"})
    assert response["error_code"] == 0
    message = build_first_message(token, {})
    return connection, await connection.request(SASL_AUTHENTICATE, 1, {"auth_bytes": message})


def test_rejected_tokens(
    tmp_path: Path, certificates: Path, coordinator: CoordinatorProcess, server: TokenServer, logged: list[str]
) -> None:
    """The client receives the error of RFC 7628, and the log contains the reason."""

    async def scenario(scene: Brokers) -> None:
        from tests.support.token_server import rsa_key

        clients = OAuthClients(scene, server, None)
        now_s = int(time.time())
        cases = [
            (server.token(exp=now_s - 100), "the token expired 10"),
            (server.token(aud="others"), "not issued for kafka (expected.audience)"),
            (server.token(iss="https://evil.example"), "not issued by https://issuer.example (expected.issuer)"),
        ]
        key, server.key = server.key, rsa_key(3)
        cases.append((server.token(), "the signature of the token is wrong"))
        server.key = key
        for token, reason in cases:
            connection, response = await authenticate(scene, token)
            assert (response["error_code"], json.loads(response["auth_bytes"])) == (0, INVALID)
            response = await connection.request(SASL_AUTHENTICATE, 1, {"auth_bytes": b"\x01"})
            assert (response["error_code"], response["error_message"]) == (58, REFUSED)
            assert any(reason in text for text in logged), reason
            assert not any(token[20:] in text for text in logged)
        server_token = server.token
        server.token = lambda user, **more: server_token(user, aud="others")  # type: ignore[method-assign]
        async with clients.cluster("LOCAL", "alice") as cluster:
            with pytest.raises(errors.ClientError) as caught:
                await cluster.refresh()
        assert f"user 'alice' is rejected: {REFUSED}" in f"{caught.value} {caught.value.__cause__}"
        with pytest.raises(errors.ClientError, match="invalid_token"):
            await deferToThread(clients.read_blocking, "LOCAL", "alice")
        for secret, reason in (("wrong", "rejected the token request with status 401 (invalid_client)"),):
            async with clients.cluster("LOCAL", "alice", secret) as cluster:
                with pytest.raises(errors.ClientError) as caught:
                    await cluster.refresh()
            assert reason in f"{caught.value} {caught.value.__cause__}"

    with_brokers(1, tmp_path, certificates, coordinator.address, scenario, oauth_settings(server, certificates))


def test_keys_change_and_the_server_fails(
    tmp_path: Path, certificates: Path, coordinator: CoordinatorProcess, server: TokenServer, logged: list[str]
) -> None:
    """A token with a new key waits for the keys; without the server, known keys and valid tokens still work."""

    async def scenario(scene: Brokers) -> None:
        clients = OAuthClients(scene, server, None)
        _, response = await authenticate(scene, server.token())
        assert (response["error_code"], response["auth_bytes"]) == (0, b"")
        old = server.token()
        server.rotate()
        _, response = await authenticate(scene, server.token("bob"))
        assert (response["error_code"], response["auth_bytes"]) == (0, b"")
        assert "User:bob" in scene.users
        requests = server.key_requests
        _, response = await authenticate(scene, old)
        assert json.loads(response["auth_bytes"]) == INVALID
        for _ in range(20):  # invented key IDs do not cause requests
            _, response = await authenticate(scene, old)
            assert json.loads(response["auth_bytes"]) == INVALID
        assert server.key_requests == requests

        held = clients.cluster("LOCAL", "carol", sasl_login_retry_backoff_max_ms="200")
        async with held:
            await held.refresh()
            server.is_down = True
            await held.refresh()
            _, response = await authenticate(scene, server.token("dave"))
            assert response["auth_bytes"] == b""
            async with clients.cluster("LOCAL", "erin", sasl_login_retry_backoff_max_ms="200") as cluster:
                with pytest.raises(errors.ClientError) as caught:
                    await cluster.refresh()
            assert "rejected the token request with status 503" in f"{caught.value} {caught.value.__cause__}"
        server.is_down = False
        async with clients.cluster("LOCAL", "erin") as cluster:
            await cluster.refresh()

    with_brokers(1, tmp_path, certificates, coordinator.address, scenario, oauth_settings(server, certificates))


def test_start_without_the_server(
    tmp_path: Path, certificates: Path, coordinator: CoordinatorProcess, server: TokenServer, logged: list[str]
) -> None:
    """The broker starts, rejects tokens until the server is back, and then reads the keys."""

    async def scenario(scene: Brokers) -> None:
        _, response = await authenticate(scene, server.token())
        assert json.loads(response["auth_bytes"]) == INVALID
        assert any("cannot read the signing keys" in text and "status 503" in text for text in logged)
        keys, failures = key_families(scene.brokers[0].bearer_tokens.sources)
        assert [(sample.labels, sample.value) for sample in keys.samples] == [((f"{server.url}/keys",), 0.0)]
        assert failures.samples[0].value > 0
        server.is_down = False
        while json.loads((await authenticate(scene, server.token()))[1]["auth_bytes"] or b"{}") == INVALID:
            await pause(scene.reactor, 0.05)
        keys, failures = key_families(scene.brokers[0].bearer_tokens.sources)
        assert (keys.samples[0].value, failures.samples[0].value) == (1.0, 0.0)

    server.is_down = True
    # A start waits for the controller for up to the session timeout.
    more = """
        zookeeper.session.timeout.ms=4000
        sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms=200
    """
    with_brokers(1, tmp_path, certificates, coordinator.address, scenario, oauth_settings(server, certificates, more))


def test_sessions_end_with_the_token(
    tmp_path: Path, certificates: Path, coordinator: CoordinatorProcess, server: TokenServer, logged: list[str]
) -> None:
    """kreplica's clients keep their connections with new tokens; other connections end with their token (KIP-368)."""

    async def scenario(scene: Brokers) -> None:
        clients = OAuthClients(scene, server, None)
        await write_records(clients, 1)
        server.lifetime_s = 1.5
        connection, response = await authenticate(scene, server.token())
        assert 0 < response["session_lifetime_ms"] <= 1500
        held = await clients.connection("LOCAL", "bob")
        reading = deferToThread(read_slowly, clients)
        for _ in range(35):
            await held.request(METADATA, 1, {"topics": []})
            await pause(scene.reactor, 0.1)
        await held.close()
        assert len(server.tokens) > 3
        assert await reading == 1
        with pytest.raises(errors.ConnectionLost):
            await connection.request(METADATA, 1, {"topics": []})
        assert any("the session expired" in text for text in logged)

    def read_slowly(clients: OAuthClients) -> int:
        """Return the number of connections that a blocking client needs for 3.5 seconds of requests."""
        from kreplica.blocking.connection import Connection
        from kreplica.blocking.secured_runtime import secured_runtime
        from kreplica.client_core.addresses import Address
        from kreplica.client_core.options import ClientOptions

        runtime = secured_runtime(clients.config("LOCAL", "carol"))
        address = Address("127.0.0.1", clients.scene.port("LOCAL"))
        with Connection.open(address, ClientOptions(), runtime) as connection:
            end_s = time.monotonic() + 3.5
            while time.monotonic() < end_s:
                connection.request(METADATA, {"topics": []}, at_most=1)
                runtime.sleep(0.1)
        return 1

    with_brokers(1, tmp_path, certificates, coordinator.address, scenario, oauth_settings(server, certificates))


def test_a_token_within_the_clock_skew(
    tmp_path: Path, certificates: Path, coordinator: CoordinatorProcess, server: TokenServer, logged: list[str]
) -> None:
    """An expired token is accepted within the clock skew, and its session ends at once, as in Kafka."""

    async def scenario(scene: Brokers) -> None:
        now_s = int(time.time())
        connection, response = await authenticate(scene, server.token(iat=now_s - 100, exp=now_s - 5))
        assert (response["error_code"], response["auth_bytes"], response["session_lifetime_ms"]) == (0, b"", 0)
        await pause(scene.reactor, 0.05)
        with pytest.raises(errors.ConnectionLost):
            await connection.request(METADATA, 1, {"topics": []})
        assert any("the session expired" in text for text in logged)

    with_brokers(1, tmp_path, certificates, coordinator.address, scenario, oauth_settings(server, certificates))


def test_tokens_without_headers(
    tmp_path: Path, certificates: Path, coordinator: CoordinatorProcess, server: TokenServer
) -> None:
    """Version 0 of SaslHandshake is followed by plain frames; a token with a new key waits there too."""

    def talk(port: int, *messages: bytes) -> list[bytes]:
        with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as connected:
            handshake = struct.pack(">hhih", SASL_HANDSHAKE.key, 0, 1, -1) + struct.pack(">h", 11) + b"OAUTHBEARER"
            responses = []
            for frame in (handshake, *messages):
                connected.sendall(struct.pack(">i", len(frame)) + frame)
                head = connected.recv(4)
                if not head:
                    return responses
                (size,) = struct.unpack(">i", head)
                responses.append(connected.recv(size) if size else b"")
            return responses

    async def scenario(scene: Brokers) -> None:
        port = scene.port("LOCAL")
        metadata = struct.pack(">hhih", METADATA.key, 1, 2, -1) + struct.pack(">i", 0)
        valid = build_first_message(server.token(), {})
        server.rotate()
        rotated = build_first_message(server.token(), {})
        for message in (valid, rotated):
            responses = await deferToThread(talk, port, message, metadata)
            assert (responses[1], responses[2][:4]) == (b"", struct.pack(">i", 2))
        invalid = build_first_message(server.token(aud="x"), {})
        responses = await deferToThread(talk, port, invalid, b"\x01", metadata)
        assert (len(responses), json.loads(responses[1])) == (2, INVALID)

    with_brokers(1, tmp_path, certificates, coordinator.address, scenario, oauth_settings(server, certificates))


def test_unsecured_tokens_need_a_setting(
    tmp_path: Path, certificates: Path, coordinator: CoordinatorProcess, server: TokenServer, logged: list[str]
) -> None:
    """With the setting, Kafka's unsigned tokens work, and signed tokens are rejected."""
    unsecured = f"""
        listener.name.short.oauthbearer.sasl.oauthbearer.jwks.endpoint.url=
        listener.name.short.oauthbearer.sasl.server.callback.handler.class=
        listener.name.short.oauthbearer.sasl.jaas.config={LOGIN} required unsecuredLoginStringClaim_sub="broker";
        kreplica.sasl.oauthbearer.allow.unsecured=true
    """

    async def scenario(scene: Brokers) -> None:
        clients = OAuthClients(scene, server, None)
        jaas = f'{LOGIN} required unsecuredLoginStringClaim_sub="mallory";'
        more = {"sasl.jaas.config": jaas, "sasl.oauthbearer.token.endpoint.url": ""}
        async with clients.cluster("SHORT", "x", **more) as cluster:
            await cluster.refresh()
            assert "User:mallory" in scene.users
        async with clients.cluster("LOCAL", "x", **more) as cluster:
            with pytest.raises(errors.ClientError, match="invalid_token"):
                await cluster.refresh()
        async with clients.cluster("SHORT", "alice") as cluster:
            with pytest.raises(errors.ClientError, match="invalid_token"):
                await cluster.refresh()
        assert any("the algorithm of the token is not allowed" in text for text in logged)
        assert any("the listener SHORT accepts tokens without a signature" in text for text in logged)
        assert not any("the listener LOCAL accepts" in text for text in logged)

    more = oauth_settings(server, certificates, unsecured)
    with_brokers(1, tmp_path, certificates, coordinator.address, scenario, more)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("sasl.oauthbearer.jwks.endpoint.url=", "allow.unsecured=true accepts tokens without a signature"),
        ("sasl.oauthbearer.jwks.endpoint.url=http://issuer.example/", "use https://"),
        ("sasl.oauthbearer.jwks.endpoint.url=file:///nowhere/keys.json", "/nowhere/keys.json cannot be read"),
        ("sasl.oauthbearer.jwks.endpoint.url=file:///etc/hostname", "it is not a JSON Web Key Set"),
        ("listener.name.local.oauthbearer.sasl.jaas.config=x", "local.oauthbearer.sasl.jaas.config: column"),
        ("sasl.server.callback.handler.class=com.example.Mine", f"expected one of {VALIDATOR}"),
        ("sasl.oauthbearer.clock.skew.seconds=-1", "expected a whole number, 0 to 86400"),
        (
            "kreplica.admin.authentication=bearer\nkreplica.admin.token.file=/x\n"
            "listener.name.local.sasl.oauthbearer.expected.audience=others",
            "the listeners have different settings sasl.oauthbearer.*",
        ),
    ],
)
def test_invalid_settings(tmp_path: Path, certificates: Path, change: str, message: str) -> None:
    """The broker does not start; the error names the setting."""
    from twisted.internet import reactor

    more = oauth_settings(TokenServer(), certificates, "sasl.oauthbearer.jwks.endpoint.url=https://issuer.example/\n")
    with pytest.raises(SettingsError) as caught:
        BearerTokens(real_runtime(reactor), settings(1, tmp_path, certificates, "127.0.0.1:1", f"{more}\n{change}"))
    assert message in str(caught.value)
    assert SECRET not in str(caught.value)


def test_failed_key_reads_are_retried_with_a_delay(tmp_path: Path, certificates: Path) -> None:
    """There is a delay even if the settings have none, because reads would otherwise occupy the event loop."""
    from twisted.internet import reactor

    for name in ("retry.backoff.ms", "retry.backoff.max.ms"):
        more = oauth_settings(TokenServer(), certificates, f"sasl.oauthbearer.jwks.endpoint.{name}=0")
        more += "\nsasl.oauthbearer.jwks.endpoint.url=https://issuer.example/"
        found = BearerTokens(real_runtime(reactor), settings(1, tmp_path, certificates, "127.0.0.1:1", more))
        (source,) = found.sources
        assert min(source.schedule.backoff_s(failures) for failures in (1, 2, 50)) > 0
