"""SASL and TLS with a real ZooKeeper."""

from __future__ import annotations

import datetime
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from OpenSSL import crypto
from twisted.internet import ssl

from kreplica.zookeeper import (
    CREATOR_ALL_ACL,
    AuthFailed,
    NoAuth,
    OperationTimeout,
    SaslCredentials,
    ZooKeeperClient,
)
from kreplica.zookeeper.sasl import DigestExchange
from tests.support.real_reactor import run
from tests.support.real_zookeeper import RealZooKeeper, free_ports

_JAAS = """\
Server {
    org.apache.zookeeper.server.auth.DigestLoginModule required
    user_alice="open sesame" user_bob="\\"quoted\\"";
};
"""


def certificate(path: Path) -> None:
    """Write a key and a self-signed certificate for ``localhost`` to one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime(2020, 1, 1)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + datetime.timedelta(days=36500))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(private + signed.public_bytes(serialization.Encoding.PEM))


class SecureServer:
    """A ZooKeeper with SASL, and a second port with TLS."""

    def __init__(self, directory: Path) -> None:
        (directory / "jaas.conf").write_text(_JAAS)
        self.certificate_path = directory / "server.pem"
        certificate(self.certificate_path)
        (self.tls_port,) = free_ports(1)
        self.zookeeper = RealZooKeeper(
            directory,
            sync_to_disk=False,
            settings={
                "authProvider.sasl": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
                "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
                "secureClientPort": self.tls_port,
                "secureClientPortAddress": "127.0.0.1",
                "ssl.keyStore.location": self.certificate_path,
                "ssl.trustStore.location": self.certificate_path,
                "ssl.clientAuth": "none",
            },
            jvm_flags=[f"-Djava.security.auth.login.config={directory / 'jaas.conf'}"],
        )

    def client(self, connect_string: str | None = None, **options: Any) -> ZooKeeperClient:
        from twisted.internet import reactor

        place = connect_string or self.zookeeper.connect_string
        return ZooKeeperClient(reactor, place, random=random.Random(6), **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureServer]:
    secure = SecureServer(tmp_path_factory.mktemp("secure"))
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
        alice = server.client(sasl=SaslCredentials("alice", "open sesame"))
        bob = server.client(sasl=SaslCredentials("bob", '"quoted"'))
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
        with pytest.raises(AuthFailed):
            await client.start()

    run(scenario())


def test_credentials_hide_their_password() -> None:
    """The password appears neither in logs nor in tracebacks."""
    assert "sesame" not in repr(SaslCredentials("alice", "open sesame"))


def trusting(path: Path) -> Any:
    """Return a client's TLS settings that trust only this certificate."""
    authority = ssl.Certificate(crypto.load_certificate(crypto.FILETYPE_PEM, path.read_bytes()))
    return lambda host: ssl.optionsForClientTLS(host, ssl.trustRootFromCertificates([authority]))


def test_tls_with_a_trusted_certificate(server: SecureServer) -> None:
    async def scenario() -> None:
        client = server.client(f"localhost:{server.tls_port}", tls_context_factory=trusting(server.certificate_path))
        await client.start()
        data = b"x" * 500_000
        await client.create("/tls", data)
        assert (await client.get_data("/tls"))[0] == data
        await client.close()

    run(scenario())


def test_tls_with_an_untrusted_certificate(server: SecureServer) -> None:
    """The client gets no session, and reports the reason."""

    async def scenario() -> None:
        client = server.client(
            f"localhost:{server.tls_port}", tls_context_factory=ssl.optionsForClientTLS, connection_timeout_ms=1000
        )
        with pytest.raises(OperationTimeout, match="certificate"):
            await client.start()

    run(scenario())
