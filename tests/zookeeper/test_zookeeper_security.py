"""SASL, TLS and default ACLs with a real ZooKeeper."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import DeferredQueue

from kreplica.security.tls.contexts import ClientTls
from kreplica.security.tls.options import TlsOptions
from kreplica.zookeeper import (
    CREATOR_ALL_ACL,
    OPEN_ACL,
    READ_ACL,
    Acl,
    AuthFailed,
    Create,
    InvalidAcl,
    NoAuth,
    OperationTimeout,
    SaslCredentials,
    SessionState,
    SetData,
    ZooKeeperClient,
)
from kreplica.zookeeper.digest_md5 import DigestExchange
from tests.support.real_reactor import run
from tests.support.secure_zookeeper import PASSWORDS, SecureZooKeeper, make_certificates
from tests.support.zookeeper_scene import Scene

ALICE, BOB, UMLAUT = (SaslCredentials(name, password) for name, password in PASSWORDS.items())


class SecureServer(SecureZooKeeper):
    """A real server, and a factory of its clients."""

    def client(self, connect_string: str | None = None, **options: Any) -> ZooKeeperClient:
        from twisted.internet import reactor

        address = connect_string or self.address
        return ZooKeeperClient(reactor, address, random=random.Random(6), **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, certificates: Path) -> Iterator[SecureServer]:
    secure = SecureServer(tmp_path_factory.mktemp("secure"), certificates)
    with secure.zookeeper:
        yield secure


@pytest.fixture(scope="module")
def certified_server(tmp_path_factory: pytest.TempPathFactory, certificates: Path) -> Iterator[SecureServer]:
    """A server whose TLS port accepts only clients with a certificate."""
    secure = SecureServer(tmp_path_factory.mktemp("certified"), certificates, client_auth="need")
    with secure.zookeeper:
        yield secure


def test_digest_equals_the_rfc_example() -> None:
    """The example is in RFC 2831, section 4."""
    exchange = DigestExchange(
        SaslCredentials("chris", "secret"),
        "elwood.innosoft.com",
        "OA6MG9tEQGm2hh",
        "OA6MHXh6VqTrRk",
        "imap/elwood.innosoft.com",
    )
    assert exchange.digest(from_client=True) == "d388dad90d4bbd760a152321f2143af7"
    assert exchange.digest(from_client=False) == "ea40f60335c427b5527b84dbabcdfffd"


def test_sasl_user_owns_its_znodes(server: SecureServer) -> None:
    """The user authenticates with a password; another user cannot read the znode."""

    async def scenario() -> None:
        alice, bob = server.client(sasl=ALICE), server.client(sasl=BOB)
        await alice.start()
        await bob.start()
        await alice.create("/hers", b"secret", acl=CREATOR_ALL_ACL)
        (entry,), _ = await alice.get_acl("/hers")
        assert (entry.scheme, entry.id) == ("sasl", "alice")
        with pytest.raises(NoAuth):
            await bob.get_data("/hers")
        await alice.close()
        await bob.close()

    run(scenario())


def test_wrong_sasl_password_is_refused(server: SecureServer) -> None:
    """The error is ``AuthFailed``, without a retry."""

    async def scenario() -> None:
        client = server.client(sasl=SaslCredentials("alice", "wrong"))
        with pytest.raises(AuthFailed, match=f"^{server.address}: SASL authentication of 'alice': the server rejected"):
            await client.start()
        assert client.state is SessionState.AUTH_FAILED

    run(scenario())


def test_sasl_user_with_umlauts(server: SecureServer) -> None:
    """Text is hashed in ISO 8859-1 if that encoding can represent it, as in Java."""

    async def scenario() -> None:
        client = server.client(sasl=UMLAUT)
        await client.start()
        await client.close()

    run(scenario())


def test_credentials_hide_their_password() -> None:
    """The password appears neither in logs nor in tracebacks."""
    assert "sesame" not in repr(SaslCredentials("alice", "open sesame"))


def test_each_connection_is_authenticated(server: SecureServer) -> None:
    """After a lost connection, waiting requests are sent only when the user is authenticated again."""

    async def scenario() -> None:
        from twisted.internet import reactor

        scene = Scene(reactor, server.address, "/again")  # type: ignore[arg-type]
        link = scene.link()
        client = await scene.client(connect_string=link.connect_string, sasl=ALICE)
        states: DeferredQueue[SessionState] = DeferredQueue()
        client.on_session_event(states.put)
        await client.create("/hers", b"1", acl=CREATOR_ALL_ACL)
        for _ in range(3):
            link.cut()
            assert await states.get() is SessionState.SUSPENDED
            assert (await client.get_data("/hers"))[0] == b"1"
            assert await states.get() is SessionState.CONNECTED
        await scene.finish()

    run(scenario())


def test_new_znodes_have_the_default_acl(server: SecureServer) -> None:
    """The default depends on the path without the chroot, and applies in multis too; an explicit ACL overrides it."""
    paths: list[str] = []

    def acl_of(path: str) -> tuple[Acl, ...]:
        paths.append(path)
        return CREATOR_ALL_ACL if "secret" in path else CREATOR_ALL_ACL + READ_ACL

    async def scenario() -> None:
        alice = server.client(f"{server.address}/default/acls", sasl=ALICE, acl_of=acl_of)
        await alice.start()
        await alice.create_chroot()
        await alice.create("/plain", b"1")
        await alice.multi([Create("/secret", b"2"), SetData("/plain", b"3"), Create("/mine", acl=READ_ACL)])
        assert paths == ["/default", "/default/acls", "/plain", "/secret"]
        hers = Acl(31, "sasl", "alice")
        found = [(await alice.get_acl(path))[0] for path in ("/", "/plain", "/secret", "/mine")]
        assert found == [(hers, *READ_ACL), (hers, *READ_ACL), (hers,), READ_ACL]
        anyone = server.client(f"{server.address}/default/acls")
        await anyone.start()
        assert (await anyone.get_data("/plain"))[0] == b"3"
        with pytest.raises(NoAuth):
            await anyone.set_data("/plain", b"4")
        with pytest.raises(NoAuth):
            await anyone.create("/another")
        with pytest.raises(NoAuth):
            await anyone.get_data("/secret")
        await alice.close()
        await anyone.close()

    run(scenario())


def test_default_acl_needs_an_identity(server: SecureServer) -> None:
    async def scenario() -> None:
        client = server.client(acl_of=lambda _: CREATOR_ALL_ACL)
        await client.start()
        with pytest.raises(InvalidAcl):
            await client.create("/nobody")
        await client.create("/nobody", acl=READ_ACL + OPEN_ACL)
        await client.close()

    run(scenario())


def tls(certificates: Path, *, authority: str = "ca.pem", key: str | None = None) -> Any:
    """Return a TLS context factory for a client that trusts only one certificate authority."""
    return ClientTls(
        TlsOptions(
            truststore_type="PEM",
            truststore_location=str(certificates / authority),
            keystore_type="PEM",
            keystore_location=None if key is None else str(certificates / key),
        )
    ).creator


def test_tls_with_a_trusted_certificate(server: SecureServer, certificates: Path) -> None:
    """The host name is verified, and SASL works over the encrypted connection."""

    async def scenario() -> None:
        address = server.tls_address.replace("127.0.0.1", "localhost")
        client = server.client(address, tls_context_factory=tls(certificates), sasl=ALICE)
        await client.start()
        assert client.server_accepted
        data = b"x" * 500_000
        await client.create("/tls", data, acl=CREATOR_ALL_ACL)
        assert (await client.get_data("/tls"))[0] == data
        await client.close()

    run(scenario())


def test_tls_with_an_untrusted_certificate(server: SecureServer, certificates: Path) -> None:
    """The client gets no session, and its error names the server and the reason."""

    async def scenario() -> None:
        other = tls(certificates, authority="other/ca.pem")
        client = server.client(server.tls_address, tls_context_factory=other, connection_timeout_ms=1000)
        expected = f"{server.tls_address}: TLS: CN=.*: the certificate authority is not in the trust store"
        with pytest.raises(OperationTimeout, match=expected):
            await client.start()
        assert not client.server_accepted

    run(scenario())


def test_port_without_tls(server: SecureServer, certificates: Path) -> None:
    """A TLS client of a plaintext port gets no session, and its error names the server."""

    async def scenario() -> None:
        client = server.client(tls_context_factory=tls(certificates), connection_timeout_ms=1000)
        with pytest.raises(OperationTimeout, match=f"last attempt: {server.address}: "):
            await client.start()
        assert not client.server_accepted

    run(scenario())


def test_certificate_authenticates_the_client(certified_server: SecureServer, certificates: Path) -> None:
    """The owner of a znode is the certificate's subject, in Java's notation."""

    async def scenario() -> None:
        client = certified_server.client(
            certified_server.tls_address, tls_context_factory=tls(certificates, key="broker.pem")
        )
        await client.start()
        await client.create("/certified", b"", acl=CREATOR_ALL_ACL)
        assert (await client.get_acl("/certified"))[0] == (Acl(31, "x509", "CN=broker"),)
        await client.close()

    run(scenario())


def test_missing_client_certificate(certified_server: SecureServer, certificates: Path) -> None:
    async def scenario() -> None:
        client = certified_server.client(
            certified_server.tls_address, tls_context_factory=tls(certificates), connection_timeout_ms=1000
        )
        with pytest.raises(OperationTimeout, match=f"last attempt: {certified_server.tls_address}: "):
            await client.start()

    run(scenario())
