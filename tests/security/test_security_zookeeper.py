"""Brokers that authenticate to a real ZooKeeper, encrypt the connection and protect their znodes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates
from twisted.internet.defer import Deferred

from kreplica.client import Admin, Cluster, default_runtime
from kreplica.errors import SettingsError
from kreplica.runtime import Runtime, real_runtime
from kreplica.security.tokens.znodes import CHANGES, TOKENS, path_of
from kreplica.service.broker.zookeeper_clients import ZooKeeperClients
from kreplica.service.composition.broker import Broker
from kreplica.settings import BrokerSettings
from kreplica.zookeeper import (
    OPEN_ACL,
    READ_ACL,
    Acl,
    AuthFailed,
    NoAuth,
    OperationTimeout,
    SaslCredentials,
    SessionState,
    ZooKeeperClient,
)
from tests.support.real_reactor import run
from tests.support.secure_zookeeper import PASSWORDS, SecureZooKeeper, make_certificates

LOGIN = "org.apache.zookeeper.server.auth.DigestLoginModule"
SASL = f'kreplica.zookeeper.sasl.jaas.config={LOGIN} required username="alice" password="{PASSWORDS["alice"]}";'
SET_ACL = "zookeeper.set.acl=true"
TIMEOUT_S = 60


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory, certificates: Path) -> Iterator[SecureZooKeeper]:
    secure = SecureZooKeeper(tmp_path_factory.mktemp("zookeeper"), certificates, client_auth="need")
    with secure.zookeeper:
        yield secure


def tls(certificates: Path, authority: str = "ca.pem", key: str | None = "broker.pem") -> str:
    """Return Kafka's settings for TLS connections to ZooKeeper."""
    return f"""
        zookeeper.ssl.client.enable=true
        zookeeper.clientCnxnSocket=org.apache.zookeeper.ClientCnxnSocketNetty
        zookeeper.ssl.protocol=TLSv1.3
        zookeeper.ssl.truststore.location={certificates}/{authority}
        {f"zookeeper.ssl.keystore.location={certificates}/{key}" if key else ""}
    """


def settings(directory: Path, connect_string: str, *more: str) -> BrokerSettings:
    lines = "\n".join(line.strip() for part in more for line in part.splitlines())
    return BrokerSettings.from_text(f"""
        broker.id=1
        listeners=PLAINTEXT://127.0.0.1:0
        log.dirs={directory}/data
        offsets.topic.replication.factor=1
        zookeeper.connect={connect_string}
        zookeeper.connection.timeout.ms=2000
""" + lines)


def runtime() -> Runtime:
    from twisted.internet import reactor

    return real_runtime(reactor)


async def start_and_stop(broker_settings: BrokerSettings, use: Any = None) -> None:
    """Start a broker, use it, and stop it."""
    parts = runtime()
    broker = Broker(parts, broker_settings)
    try:
        await broker.start()
        if use is not None:
            await use(broker)
    finally:
        await broker.stop()
        parts.offload.stop()


async def create_topic(broker: Broker) -> None:
    from twisted.internet import reactor

    cluster = Cluster(f"127.0.0.1:{broker.port}", runtime=default_runtime(reactor))
    await Admin(cluster).create_topic("orders", partitions=1, replication_factor=1)
    await cluster.close()


async def acls(client: ZooKeeperClient, *paths: str) -> list[tuple[Acl, ...]]:
    return [(await client.get_acl(path))[0] for path in paths]


PATHS = ("/brokers/ids/1", "/brokers/topics/orders", "/brokers/topics/orders/partitions/0/state", "/controller")
"""Znodes that every client may read: written at the start, by a multi, by the controller, and by its election."""


@pytest.mark.parametrize("identity", ["sasl", "x509"])
def test_znodes_belong_to_the_broker(
    tmp_path: Path, zookeeper: SecureZooKeeper, certificates: Path, identity: str
) -> None:
    """All clients may read the broker's znodes except those with secrets; only the broker may change them."""
    with_sasl = identity == "sasl"
    chroot = f"/{identity}/cluster"
    address = (zookeeper.address if with_sasl else zookeeper.tls_address) + chroot
    owner = Acl(31, identity, "alice" if with_sasl else "CN=broker")
    tokens_enabled = "delegation.token.secret.key=secret"
    broker_settings = settings(tmp_path, address, SET_ACL, SASL if with_sasl else tls(certificates), tokens_enabled)

    async def use(broker: Broker) -> None:
        from twisted.internet import reactor

        await create_topic(broker)
        tokens = broker.watches.tokens
        assert tokens is not None
        token, _ = await tokens.create("User:alice", "User:alice", (), -1)
        assert await acls(broker.client, *PATHS, "/") == [(owner, *READ_ACL)] * 5
        secret_paths = ("/config/users", "/config/brokers", TOKENS, path_of(token.token_id))
        assert await acls(broker.client, *secret_paths) == [(owner,)] * 4
        assert await acls(broker.client, CHANGES, f"{CHANGES}/token_change_0000000000") == [(owner, *READ_ACL)] * 2
        assert await acls(broker.client, "/consumers") == [OPEN_ACL]
        other = ZooKeeperClient(reactor, zookeeper.address + chroot, random=random.Random(1))  # type: ignore[arg-type]
        await other.start()
        assert b"PLAINTEXT" in (await other.get_data("/brokers/ids/1"))[0]
        attempts: list[Deferred[Any]] = [
            other.set_data("/controller", b"{}"),
            other.create("/brokers/ids/2"),
            other.delete("/brokers/topics/orders"),
            other.get_data("/config/users"),
            other.get_data(path_of(token.token_id)),
            other.set_acl("/brokers", OPEN_ACL),
        ]
        for attempt in attempts:
            with pytest.raises(NoAuth):
                await attempt
        await other.close()

    run(start_and_stop(broker_settings, use), TIMEOUT_S)
    run(start_and_stop(broker_settings), TIMEOUT_S)


@pytest.mark.parametrize("extension", [".p12", ".pem"])
def test_stores_with_a_password(
    tmp_path: Path, zookeeper: SecureZooKeeper, certificates: Path, extension: str
) -> None:
    """PKCS12 or PEM with an encrypted key: the file extension determines the type; store and key share a password."""
    data = (certificates / "broker.pem").read_bytes()
    key = load_pem_private_key(data, None)
    assert isinstance(key, EllipticCurvePrivateKey)
    own, *others = x509.load_pem_x509_certificates(data)
    encryption = BestAvailableEncryption(b"store password")
    if extension == ".p12":
        content = serialize_key_and_certificates(b"broker", key, own, others, encryption)
    else:
        content = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)
        content += own.public_bytes(Encoding.PEM)
    (tmp_path / f"store{extension}").write_bytes(content)
    lines = tls(certificates, key=None) + f"""
        zookeeper.ssl.keystore.location={tmp_path}/store{extension}
        zookeeper.ssl.keystore.password=store password
    """
    broker_settings = settings(tmp_path, f"{zookeeper.tls_address}/stores", SET_ACL, lines)

    async def use(broker: Broker) -> None:
        assert await acls(broker.client, "/brokers/ids/1") == [(Acl(31, "x509", "CN=broker"), *READ_ACL)]

    run(start_and_stop(broker_settings, use), TIMEOUT_S)


def test_wrong_password(tmp_path: Path, zookeeper: SecureZooKeeper) -> None:
    """The broker does not start; the error contains the server and the user, but not the password."""
    broker_settings = settings(tmp_path, zookeeper.address, SASL.replace(PASSWORDS["alice"], "wrong password"))
    with pytest.raises(AuthFailed, match=f"{zookeeper.address}: SASL authentication of 'alice'") as caught:
        run(start_and_stop(broker_settings), TIMEOUT_S)
    assert "wrong password" not in str(caught.value)


@pytest.mark.parametrize(("authority", "key"), [("other/ca.pem", "broker.pem"), ("ca.pem", None)])
def test_unsuitable_certificate(
    tmp_path: Path, zookeeper: SecureZooKeeper, certificates: Path, authority: str, key: str | None
) -> None:
    """The start fails after zookeeper.connection.timeout.ms; the error names the server."""
    broker_settings = settings(tmp_path, zookeeper.tls_address, tls(certificates, authority, key))
    with pytest.raises(OperationTimeout, match=f"last attempt: {zookeeper.tls_address}: "):
        run(start_and_stop(broker_settings), TIMEOUT_S)


def test_user_that_is_rejected_later(tmp_path: Path, zookeeper: SecureZooKeeper) -> None:
    """The broker gives up its session, and registers again when ZooKeeper accepts its user again."""
    broker_settings = settings(tmp_path, f"{zookeeper.address}/later", SASL, "zookeeper.session.timeout.ms=1000")

    async def use(broker: Broker) -> None:
        states: list[SessionState] = []
        again: Deferred[None] = Deferred()

        def changed(state: SessionState) -> None:
            states.append(state)
            if state is SessionState.CONNECTED:
                again.callback(None)

        broker.client.on_session_event(changed)
        first, session = broker.fence.broker_epoch, broker.client._session
        # Only this session has the wrong password, as if the server had a different one for a moment.
        session._options = replace(session._options, sasl=SaslCredentials("alice", "changed"))
        assert session._connection is not None
        session._connection.abort("to authenticate again")
        await again
        assert states == [SessionState.SUSPENDED, SessionState.AUTH_FAILED, SessionState.CONNECTED]
        while broker.fence.broker_epoch == first:
            await broker.client.sync()

    run(start_and_stop(broker_settings, use), TIMEOUT_S)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (SET_ACL, "zookeeper.set.acl=true needs a user of ZooKeeper: set kreplica.zookeeper.sasl.jaas.config"),
        (f"{SET_ACL}\nzookeeper.ssl.keystore.location=/key.pem", "zookeeper.set.acl=true needs a user"),
        ("zookeeper.clientCnxnSocket=Other", "expected one of org.apache.zookeeper.ClientCnxnSocketNetty"),
        ("zookeeper.ssl.crl.enable=true", "certificates are not checked for revocation"),
        ("zookeeper.ssl.protocol=TLSv1.1", "expected one of TLSv1.2, TLSv1.3"),
    ],
)
def test_invalid_settings(tmp_path: Path, lines: str, message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        settings(tmp_path, "127.0.0.1:1", lines)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (SASL.replace("zookeeper.server", "other"), "the login module org.apache.other.auth.DigestLoginModule is not"),
        (SASL.replace("password=", "passcode="), "the login module has no password"),
        (SASL.replace(";", ""), "kreplica.zookeeper.sasl.jaas.config: column "),
        ("zookeeper.ssl.keystore.location=/key.jks", "zookeeper.ssl.keystore.location=/key.jks cannot be read"),
        ("zookeeper.ssl.keystore.location=/key", "set zookeeper.ssl.keystore.type"),
        ("zookeeper.ssl.truststore.location=KEY\nzookeeper.ssl.truststore.type=PKCS12", "set the store's type to PEM"),
        (
            "zookeeper.ssl.keystore.location=KEY\nzookeeper.ssl.keystore.password=open sesame",
            "the private key is not encrypted: remove zookeeper.ssl.keystore.password",
        ),
        ("zookeeper.ssl.truststore.location=JKS", "keytool -importkeystore"),
    ],
)
def test_invalid_login_and_files(tmp_path: Path, certificates: Path, lines: str, message: str) -> None:
    """The error names the setting, but contains no secret."""
    (tmp_path / "old.jks").write_bytes(b"\xfe\xed\xfe\xed")
    lines = lines.replace("KEY", f"{certificates}/broker.pem").replace("JKS", f"{tmp_path}/old.jks")
    broker_settings = settings(tmp_path, "127.0.0.1:1", "zookeeper.ssl.client.enable=true", lines)
    parts = runtime()
    with pytest.raises(SettingsError) as caught:
        ZooKeeperClients(parts, broker_settings)
    parts.offload.stop()
    assert message in str(caught.value)
    assert "sesame" not in str(caught.value)
