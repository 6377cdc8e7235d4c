"""Listeners' certificates that are changed by dynamic settings, with real sockets (KIP-226)."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from cryptography.x509 import load_der_x509_certificate, load_pem_x509_certificate
from tls_scene import Brokers, config, with_brokers
from twisted.internet.threads import deferToThread

from kreplica.client import Admin, Producer, secured_endpoints
from kreplica.client.connection import connect
from kreplica.errors import ErrorCode
from kreplica.runtime.pause import pause
from kreplica.security.tls.development_ca import create_certificate, open_authority
from kreplica.settings import OperationType
from kreplica.wire.messages import DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS
from tests.support.coordinator import CoordinatorProcess

PREFIX = "listener.name.ssl."
KEYSTORE, TRUSTSTORE = f"{PREFIX}ssl.keystore.location", f"{PREFIX}ssl.truststore.location"
BROKER = 4
SECRET = "planted-secret-9"


@pytest.fixture
def renewed(tmp_path: Path, certificates: Path) -> Path:
    """A certificate from the same authority with the same name."""
    directory = tmp_path / "renewed"
    directory.mkdir()
    authority = open_authority(certificates, 10)
    create_certificate(directory, authority, "alice", ["127.0.0.1"], 10)
    return create_certificate(directory, authority, "broker", ["127.0.0.1"], 10)


def serial_number(path: Path) -> int:
    return load_pem_x509_certificate(path.read_bytes()).serial_number


async def alter(scene: Brokers, values: Mapping[str, str | None], broker: int = 1, **options: Any) -> str | None:
    """Change settings of a broker; return the error message of INVALID_REQUEST, or None if there is no error."""
    connection = await connection_of(scene, broker)
    configs = [
        {
            "name": name,
            "config_operation": int(OperationType.DELETE if value is None else OperationType.SET),
            "value": value,
        }
        for name, value in values.items()
    ]
    resource = {"resource_type": BROKER, "resource_name": str(broker), "configs": configs}
    body = {"resources": [resource], "validate_only": options.get("validate_only", False)}
    (row,) = (await connection.request(INCREMENTAL_ALTER_CONFIGS, 1, body))["responses"]
    await connection.close()
    assert row["error_code"] in (0, ErrorCode.INVALID_REQUEST)
    assert (row["error_code"] == 0) == (row["error_message"] is None)
    message: str | None = row["error_message"]
    return message


async def connection_of(scene: Brokers, broker: int = 1) -> Any:
    endpoint = secured_endpoints({**config(scene.certificates), "ssl.truststore.location": str(scene.trusted)})
    port = scene.brokers[broker - 1]._ports["SSL"]
    return await connect(scene.reactor, "127.0.0.1", port, client_id="test", endpoint=endpoint)


async def presented_serial_number(scene: Brokers, broker: int = 1) -> int:
    """Return the serial number of the certificate that a broker presents to new connections."""

    def read() -> int:
        context = ssl._create_unverified_context()
        address = ("127.0.0.1", scene.brokers[broker - 1]._ports["SSL"])
        with socket.create_connection(address) as connection, context.wrap_socket(connection) as secured:
            data = secured.getpeercert(binary_form=True)
            assert data is not None
            return load_der_x509_certificate(data).serial_number

    number: int = await deferToThread(read)
    return number


async def until_presented(scene: Brokers, path: Path, broker: int = 1) -> None:
    for _ in range(200):
        if await presented_serial_number(scene, broker) == serial_number(path):
            return
        await pause(scene.reactor, 0.05)
    pytest.fail(f"broker {broker} does not present {path}")


def test_changed_keystore(
    tmp_path: Path, certificates: Path, coordinator: CoordinatorProcess, renewed: Path, logged: list[str]
) -> None:
    """New connections use a valid key store; rejected ones change nothing, and the error names the setting."""
    junk = tmp_path / "junk.pem"
    junk.write_text("junk")
    fewer_hosts = tmp_path / "fewer"
    fewer_hosts.mkdir()
    create_certificate(fewer_hosts, open_authority(certificates, 10), "broker", ["localhost"], 10)
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    create_certificate(foreign, open_authority(certificates / "other", 10), "broker", ["127.0.0.1"], 10)

    async def scenario(scene: Brokers) -> None:
        refused = {
            f"{KEYSTORE}={junk}: there is no PEM private key": {KEYSTORE: junk},
            f"{KEYSTORE}={tmp_path}/absent.pem cannot be read": {KEYSTORE: tmp_path / "absent.pem"},
            f"{KEYSTORE}: the distinguished name of the certificate would change from CN=broker to CN=alice": {
                KEYSTORE: renewed.with_name("alice.pem")
            },
            f"{KEYSTORE}: the certificate is no longer valid for 127.0.0.1": {KEYSTORE: fewer_hosts / "broker.pem"},
            f"{KEYSTORE}: the brokers' current trust store does not trust the new certificate: CN=kreplica dev": {
                KEYSTORE: foreign / "broker.pem"
            },
            f"{TRUSTSTORE}: the new trust store does not trust the brokers' current certificate: CN=kreplica dev": {
                TRUSTSTORE: certificates / "other" / "ca.pem"
            },
            f"{PREFIX}ssl.keystore.type=PKCS": {f"{PREFIX}ssl.keystore.type": "PKCS"},
            "ssl.keystore.location can change at run time only for one listener": {"ssl.keystore.location": renewed},
            f"{PREFIX}ssl.client.auth cannot change at run time": {f"{PREFIX}ssl.client.auth": "required"},
            f"{PREFIX}ssl.key.password would be stored in ZooKeeper: set password.encoder.secret": {
                f"{PREFIX}ssl.key.password": SECRET,
                KEYSTORE: encrypted_key(tmp_path, renewed),
            },
        }
        for message, values in refused.items():
            error = await alter(scene, {name: str(value) for name, value in values.items()})
            assert error is not None
            assert error.startswith(message), error
            assert SECRET not in error
        assert await alter(scene, {KEYSTORE: str(renewed)}, validate_only=True) is None
        assert await presented_serial_number(scene) == serial_number(certificates / "broker.pem")
        assert await alter(scene, {KEYSTORE: str(renewed)}) is None
        await until_presented(scene, renewed)
        assert await alter(scene, {KEYSTORE: None}) is None
        await until_presented(scene, certificates / "broker.pem")

    with_brokers(1, tmp_path, certificates, coordinator.address, scenario)
    assert not [text for text in logged if SECRET in text]


def encrypted_key(directory: Path, certificate: Path) -> Path:
    """Return a copy of a PEM file with an encrypted private key."""
    from cryptography.hazmat.primitives import serialization

    data = certificate.read_bytes()
    key = serialization.load_pem_private_key(data, None)
    encryption = serialization.BestAvailableEncryption(SECRET.encode())
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    path = directory / "encrypted.pem"
    path.write_bytes(key.private_bytes(encoding, form, encryption) + data[data.index(b"-----BEGIN CERT") :])
    return path


def test_other_authority(tmp_path: Path, certificates: Path, coordinator: CoordinatorProcess) -> None:
    """The brokers change to another authority's certificates in two steps, and replicate all the time."""
    both = tmp_path / "both.pem"
    both.write_bytes((certificates / "ca.pem").read_bytes() + (certificates / "other" / "ca.pem").read_bytes())
    changed = tmp_path / "changed"
    changed.mkdir()
    new = create_certificate(changed, open_authority(certificates / "other", 10), "broker", ["127.0.0.1"], 10)

    async def scenario(scene: Brokers) -> None:
        scene.trusted = both

        async def write() -> None:
            """Write a record to all replicas, over a new connection."""
            async with scene.cluster("SSL", {**config(certificates), "ssl.truststore.location": str(both)}) as cluster:
                if not scene.brokers[0].metadata.topics:
                    await Admin(cluster).create_topic(
                        "orders", partitions=4, replication_factor=2, configs={"min.insync.replicas": "2"}
                    )
                async with Producer(cluster) as producer:
                    for partition in range(4):
                        await producer.send("orders", b"x", partition=partition)

        await write()
        for number in (1, 2):
            assert await alter(scene, {TRUSTSTORE: str(both)}, number) is None
        for number in (1, 2):
            assert await alter(scene, {KEYSTORE: str(new)}, number) is None
            await until_presented(scene, new, number)
            for broker in scene.brokers:  # the brokers reconnect to each other
                for connection in list(broker.server.resources.connections if broker.server else ()):
                    connection.drop("test")
            await write()
        other = str(certificates / "other" / "ca.pem")
        assert await alter(scene, {TRUSTSTORE: other}) is None
        await write()

    with_brokers(2, tmp_path, certificates, coordinator.address, scenario)


def test_pem_text(
    tmp_path: Path, certificates: Path, coordinator: CoordinatorProcess, renewed: Path, logged: list[str]
) -> None:
    """Keys and passwords are encrypted in ZooKeeper, even after the secret was replaced, and are never shown."""
    data = encrypted_key(tmp_path, renewed).read_text()
    key, chain = data[: data.index("-----BEGIN CERT")], data[data.index("-----BEGIN CERT") :]
    values = {
        f"{PREFIX}ssl.keystore.key": key,
        f"{PREFIX}ssl.keystore.certificate.chain": chain,
        f"{PREFIX}ssl.key.password": SECRET,
        # Replaces the location in the file, which would contradict the text.
        f"{PREFIX}ssl.keystore.location": "",
    }
    znodes: list[str] = []

    async def read(scene: Brokers) -> None:
        data, _ = await scene.brokers[0].client.get_data("/config/brokers/1")
        znodes.append(data.decode())
        connection = await connection_of(scene)
        resource = {"resource_type": BROKER, "resource_name": "1", "configuration_keys": None}
        body = {"resources": [resource], "include_synonyms": True, "include_documentation": False}
        (result,) = (await connection.request(DESCRIBE_CONFIGS, 4, body))["results"]
        await connection.close()
        rows = {row["name"]: row for row in result["configs"]}
        assert rows[f"{PREFIX}ssl.key.password"]["value"] is None
        assert rows[f"{PREFIX}ssl.key.password"]["is_sensitive"]
        assert SECRET not in str(result)
        assert key[60:100] not in str(result)

    async def change(scene: Brokers) -> None:
        wrong = await alter(scene, {**values, f"{PREFIX}ssl.key.password": "wrong"})
        assert wrong is not None
        assert f"check {PREFIX}ssl.key.password" in wrong
        assert await alter(scene, values) is None
        await until_presented(scene, renewed)
        await read(scene)

    async def check_certificate(scene: Brokers) -> None:
        await until_presented(scene, renewed)
        await read(scene)

    async def check_fallback(scene: Brokers) -> None:
        assert await presented_serial_number(scene) == serial_number(certificates / "broker.pem")

    arguments = (1, tmp_path, certificates, coordinator.address)
    with_brokers(*arguments, change, "password.encoder.secret=first")
    with_brokers(*arguments, check_certificate, "password.encoder.secret=second\npassword.encoder.old.secret=first")
    with_brokers(*arguments, check_certificate, "password.encoder.secret=second")
    assert znodes[0] != znodes[1] == znodes[2]
    for text in (*znodes, *logged):
        assert SECRET not in text
        assert key[60:100] not in text
    with_brokers(*arguments, check_fallback, "password.encoder.secret=third")
    assert any("ssl.key.password in ZooKeeper is ignored" in text for text in logged)
