"""SASL, TLS and required authentication of the embedded coordinator, with the same exchange as a real ZooKeeper."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from blocking_client import BlockingClient

from kreplica.runtime import real_runtime
from kreplica.security.tls.contexts import ClientTls
from kreplica.security.tls.listener import ListenerTls
from kreplica.security.tls.options import TlsOptions
from kreplica.zookeeper import (
    CREATOR_ALL_ACL,
    OPEN_ACL,
    READ_ACL,
    Acl,
    AuthFailed,
    NoAuth,
    OperationTimeout,
    SaslCredentials,
    ZooKeeperClient,
    ZooKeeperError,
)
from kreplica.zookeeper.digest_md5 import REALM, DigestExchange, DigestServer, parse_fields
from kreplica.zookeeper.embedded.server import EmbeddedZooKeeper, TlsListener
from kreplica.zookeeper.embedded.settings import AnonymousClients, ZooKeeperServerSettings
from kreplica.zookeeper.errors import SessionClosedRequireSaslAuth
from kreplica.zookeeper.requests import Sasl
from kreplica.zookeeper.responses import decode_token
from tests.support.real_reactor import run
from tests.support.secure_zookeeper import PASSWORDS, SecureZooKeeper, make_certificates

ALICE, BOB, UMLAUT = (SaslCredentials(name, password) for name, password in PASSWORDS.items())
CYRILLIC = SaslCredentials("ведущий", "пароль")
USERS = {**PASSWORDS, CYRILLIC.username: CYRILLIC.password}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def real_server(tmp_path_factory: pytest.TempPathFactory, certificates: Path) -> Iterator[SecureZooKeeper]:
    secure = SecureZooKeeper(tmp_path_factory.mktemp("real"), certificates)
    with secure.zookeeper:
        yield secure


class Server:
    """A running coordinator, and its clients."""

    def __init__(self, reactor: Any, coordinator: EmbeddedZooKeeper) -> None:
        self.reactor = reactor
        self.coordinator = coordinator
        self._clients: list[ZooKeeperClient] = []

    async def client(self, **options: Any) -> ZooKeeperClient:
        """Return a started client; if it has TLS options, it connects to the TLS listener."""
        port = self.coordinator.tls_port if "tls_context_factory" in options else self.coordinator.port
        client = ZooKeeperClient(
            self.reactor, f"127.0.0.1:{port}", random=random.Random(1), connection_timeout_ms=2000, **options
        )
        self._clients.append(client)
        await client.start()
        return client

    async def finish(self) -> None:
        for client in self._clients:
            await client.close()
        await self.coordinator.stop()


Scenario = Callable[[Server], Coroutine[Any, Any, None]]


def play(
    scenario: Scenario,
    directory: Path | None = None,
    *,
    anonymous: AnonymousClients = AnonymousClients.ALL,
    users: dict[str, str] = USERS,
    tls: TlsOptions | None = None,
) -> None:
    """Run a scenario on a coordinator."""

    async def with_server() -> None:
        from twisted.internet import reactor

        runtime = real_runtime(reactor)
        creator = None if tls is None else ListenerTls(tls, runtime.reactor.seconds, runtime.offload.run)
        coordinator = EmbeddedZooKeeper(
            runtime,
            None if directory is None else str(directory),
            port=0,
            settings=ZooKeeperServerSettings(users=users, anonymous=anonymous),
            tls=None if creator is None else TlsListener("127.0.0.1", 0, creator),
        )
        await coordinator.start()
        server = Server(reactor, coordinator)
        try:
            await scenario(server)
        finally:
            await server.finish()
            runtime.offload.stop()

    run(with_server())


def server_tls(certificates: Path, client_auth: str = "required") -> TlsOptions:
    return TlsOptions(
        keystore_type="PEM",
        keystore_location=str(certificates / "server.pem"),
        truststore_type="PEM",
        truststore_location=str(certificates / "ca.pem"),
        client_auth=client_auth,
    )


def client_tls(certificates: Path, key: str | None = "broker.pem") -> Any:
    return ClientTls(
        TlsOptions(
            truststore_type="PEM",
            truststore_location=str(certificates / "ca.pem"),
            keystore_type="PEM",
            keystore_location=None if key is None else str(certificates / key),
        )
    ).creator


# --- SASL -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("credentials", [ALICE, BOB, UMLAUT, CYRILLIC], ids=["plain", "quoted", "latin-1", "utf-8"])
def test_sasl_user_owns_its_znodes(credentials: SaslCredentials) -> None:
    async def scenario(server: Server) -> None:
        owner, other = await server.client(sasl=credentials), await server.client()
        await owner.create("/mine", b"1", acl=CREATOR_ALL_ACL)
        await owner.create("/readable", b"2", acl=CREATOR_ALL_ACL + READ_ACL)
        assert (await owner.get_acl("/mine"))[0] == (Acl(31, "sasl", credentials.username),)
        assert (await other.get_data("/readable"))[0] == b"2"
        for attempt in (
            other.get_data("/mine"),
            other.get_children("/mine"),
            other.get_acl("/mine"),
            other.set_data("/readable", b"3"),
            other.create("/readable/child"),
            other.set_acl("/readable", OPEN_ACL),
        ):
            with pytest.raises(NoAuth):
                await attempt
        await owner.delete("/readable")

    play(scenario)


def test_exchange_matches_a_real_server(real_server: SecureZooKeeper) -> None:
    """Both servers send the same challenge, accept the same response, and prove that they know the password."""

    def challenge(port: int) -> dict[str, str]:
        client = BlockingClient(port)
        (reply,) = client.exchange(Sasl(b""))
        fields = parse_fields(decode_token(reply.body, 0, len(reply.body)))
        exchange = DigestExchange(ALICE, fields["realm"], fields["nonce"], "0123456789")
        (reply,) = client.exchange(Sasl(exchange.response()))
        assert reply.error == 0
        proof = decode_token(reply.body, 0, len(reply.body)).decode()
        assert proof == f"rspauth={exchange.digest(from_client=False)}"
        client.close()
        return fields

    async def scenario(server: Server) -> None:
        from twisted.internet.threads import deferToThread

        ours = await deferToThread(challenge, server.coordinator.port)
        theirs = await deferToThread(challenge, int(real_server.address.rpartition(":")[2]))
        ours.pop("nonce")
        theirs.pop("nonce")
        assert ours == theirs == {"realm": REALM, "charset": "utf-8", "algorithm": "md5-sess"}

    play(scenario)


@pytest.mark.parametrize("credentials", [SaslCredentials("alice", "wrong"), SaslCredentials("nobody", "open sesame")])
def test_wrong_credentials(credentials: SaslCredentials) -> None:
    """The client gets AUTH_FAILED, as with a real server."""

    async def scenario(server: Server) -> None:
        with pytest.raises(AuthFailed, match=f"SASL authentication of '{credentials.username}': the server rejected"):
            await server.client(sasl=credentials)

    play(scenario)


def test_server_without_users() -> None:
    """The server responds without a challenge, like a ZooKeeper without a JAAS file."""

    async def scenario(server: Server) -> None:
        with pytest.raises(AuthFailed, match="the server has no SASL users"):
            await server.client(sasl=ALICE)
        await server.client()

    play(scenario, users={})


def respond(change: Callable[[str], str] = str, authorization_id: str | None = None, nonce: str = "n") -> str | None:
    """Return the authenticated user after an exchange with a modified response of the client."""
    server = DigestServer(USERS, nonce)
    server.step(b"")
    exchange = DigestExchange(ALICE, REALM, "n", "c", authorization_id=authorization_id)
    text = exchange.response().decode()
    if authorization_id is not None:
        text += f',authzid="{authorization_id}"'
    server.step(change(text).encode())
    return server.user


def test_response_with_an_authorization_id() -> None:
    """A user may name itself, as the Java client does, but no other user."""
    assert respond() == "alice"
    assert respond(authorization_id="alice") == "alice"
    with pytest.raises(AuthFailed, match="to act as another user"):
        respond(authorization_id="bob")
    with pytest.raises(AuthFailed, match="to act as another user"):
        respond(authorization_id="")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text.replace("alice", "bob"), "unknown user or wrong password: 'bob'"),
        (lambda text: re.sub("response=.*", "response=", text), "unknown user or wrong password: 'alice'"),
        (lambda text: text.replace("nc=00000001", "nc=00000002"), "nc differs from the challenge"),
        (lambda text: text.replace("qop=auth", "qop=auth-int"), "qop differs from the challenge"),
        (lambda text: text.replace(REALM, "other"), "realm differs from the challenge"),
        (lambda text: text.replace("zookeeper/", "kafka/"), "not for the service"),
        (lambda text: "", "realm differs from the challenge"),
        (lambda text: '"' * 100, "realm differs from the challenge"),
    ],
)
def test_malformed_response(change: Callable[[str], str], message: str) -> None:
    with pytest.raises(AuthFailed, match=message):
        respond(change)


def test_response_to_another_challenge() -> None:
    """A recorded response is refused, because the nonce differs."""
    with pytest.raises(AuthFailed, match="nonce differs from the challenge"):
        respond(nonce="m")
    with pytest.raises(AuthFailed, match="the first token is not empty"):
        DigestServer(USERS, "n").step(b"x")


def test_acls_survive_a_restart(tmp_path: Path) -> None:
    async def first(server: Server) -> None:
        owner = await server.client(sasl=ALICE)
        for name in ("/a", "/b", "/c"):
            await owner.create(name, b"1", acl=CREATOR_ALL_ACL)
        await owner.set_acl("/c", CREATOR_ALL_ACL + READ_ACL)

    async def second(server: Server) -> None:
        other, owner = await server.client(), await server.client(sasl=ALICE)
        assert (await owner.get_acl("/a"))[0] == (Acl(31, "sasl", "alice"),)
        assert (await other.get_data("/c"))[0] == b"1"
        with pytest.raises(NoAuth):
            await other.get_data("/a")
        assert server.coordinator.serving is not None
        nodes = server.coordinator.serving.tree.nodes
        assert nodes["/a"].acl is nodes["/b"].acl  # shared, so that many znodes with ACLs occupy little memory

    play(first, tmp_path)
    play(second, tmp_path)


# --- TLS --------------------------------------------------------------------------------------------------------------


def test_subject_of_a_certificate_owns_its_znodes(certificates: Path) -> None:
    """The plaintext listener remains open; its clients have no certificate, and so no access to the znode."""

    async def scenario(server: Server) -> None:
        owner = await server.client(tls_context_factory=client_tls(certificates))
        data = b"x" * 900_000
        await owner.create("/mine", data, acl=CREATOR_ALL_ACL)
        assert (await owner.get_data("/mine"))[0] == data
        assert (await owner.get_acl("/mine"))[0] == (Acl(31, "x509", "CN=broker"),)
        other = await server.client()
        with pytest.raises(NoAuth):
            await other.get_data("/mine")

    play(scenario, tls=server_tls(certificates))


def test_client_without_a_required_certificate(certificates: Path) -> None:
    async def scenario(server: Server) -> None:
        with pytest.raises(OperationTimeout, match="certificate"):
            await server.client(tls_context_factory=client_tls(certificates, None))

    play(scenario, tls=server_tls(certificates))


def test_sasl_with_tls(certificates: Path) -> None:
    async def scenario(server: Server) -> None:
        owner = await server.client(tls_context_factory=client_tls(certificates, None), sasl=ALICE)
        await owner.create("/mine", acl=CREATOR_ALL_ACL)
        assert (await owner.get_acl("/mine"))[0] == (Acl(31, "sasl", "alice"),)

    play(scenario, tls=server_tls(certificates, "none"), anonymous=AnonymousClients.NONE)


# --- required authentication ------------------------------------------------------------------------------------------


def test_clients_must_authenticate(certificates: Path) -> None:
    """Requests of clients without SASL or a certificate are rejected; the schemes digest and ip are not enough."""

    async def scenario(server: Server) -> None:
        for options in ({}, {"auth": [("digest", b"any:one")]}, {"auth": [("ip", b"")]}):
            client = await server.client(**options)
            with pytest.raises(SessionClosedRequireSaslAuth):
                await client.get_data("/")
        for options in ({"sasl": ALICE}, {"tls_context_factory": client_tls(certificates)}):
            client = await server.client(**options)
            assert await client.get_children("/") == ["zookeeper"]

    play(scenario, anonymous=AnonymousClients.NONE, tls=server_tls(certificates))


def test_local_clients_may_be_anonymous() -> None:
    async def scenario(server: Server) -> None:
        assert server.coordinator.serving is not None
        factory = server.coordinator.serving
        local, ipv6 = (factory.buildProtocol(Address(host)) for host in ("127.0.0.9", "::1"))
        remote, unknown = (factory.buildProtocol(Address(host)) for host in ("192.0.2.1", "example.org"))
        assert local._dispatch is ipv6._dispatch is local._dispatch.authenticated
        assert remote._dispatch is unknown._dispatch is not local._dispatch
        assert await (await server.client()).get_children("/") == ["zookeeper"]

    play(scenario, anonymous=AnonymousClients.LOCAL)


class Address:
    """Address of a client."""

    def __init__(self, host: str) -> None:
        self.host = host


def test_four_letter_words_without_authentication() -> None:
    """Health checks get a response; words that reveal clients and znodes do not."""

    async def scenario(server: Server) -> None:
        from twisted.internet.threads import deferToThread

        for word, expected in ((b"ruok", b"imok"), (b"srvr", b"Zookeeper version"), (b"dump", b""), (b"cons", b"")):
            reply = await deferToThread(send_four_letters, server.coordinator.port, word)
            assert reply.startswith(expected)
            assert bool(reply) == bool(expected)

    play(scenario, anonymous=AnonymousClients.NONE)


def send_four_letters(port: int, word: bytes) -> bytes:
    import socket

    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.sendall(word)
        try:
            return b"".join(iter(lambda: connection.recv(65536), b""))
        except ConnectionResetError:
            return b""


def test_passwords_of_sessions_are_unpredictable() -> None:
    """A client cannot compute the passwords of other sessions from those of its own sessions."""

    async def scenario(server: Server) -> None:
        serving = server.coordinator.serving
        assert serving is not None
        assert isinstance(serving.sessions._random, random.SystemRandom)

    play(scenario)


def test_requests_sent_together_with_the_authentication() -> None:
    """Requests that arrive together with the last step of the authentication are served after it."""

    async def scenario(server: Server) -> None:
        client = await server.client(sasl=ALICE)
        results = [client.get_data("/") for _ in range(3)]
        for result in results:
            await result
        with pytest.raises(ZooKeeperError):
            await client.get_data("/nothing")

    play(scenario, anonymous=AnonymousClients.NONE)
