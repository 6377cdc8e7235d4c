"""The coordinator process with TLS and users: Java's client, kazoo, and a broker that protects its znodes."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss, NoAuthError, SessionClosedRequireSaslError
from kazoo.security import make_acl, make_digest_acl
from twisted.internet.testing import MemoryReactorClock

from kreplica.errors import SettingsError
from kreplica.service.process.options import CoordinatorOptions
from kreplica.service.process.zookeeper_process import zookeeper_from_options
from kreplica.zookeeper.java_server import class_path, java_path
from tests.support.real_zookeeper import free_ports
from tests.support.secure_zookeeper import make_certificates

TWISTD = [str(Path(sys.executable).with_name("twistd")), "-n", "--pidfile=", "kreplica"]
LOGIN = "org.apache.zookeeper.server.auth.DigestLoginModule"
PASSWORD = "planted-secret-1"
# ZooKeeper 3.9 has no DIGEST-MD5 in FIPS mode, its default.
FIPS_OFF = "-Dzookeeper.fips-mode=false"
JAVA_FLAGS = (FIPS_OFF, "-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
NETTY = "org.apache.zookeeper.ClientCnxnSocketNetty"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


class Coordinator:
    """A coordinator process.

    :ivar address: address of the listener without TLS; ``tls_address`` is that of the listener with TLS.
    """

    def __init__(self, directory: Path, certificates: Path, *lines: str) -> None:
        config = directory / "coordinator.properties"
        given = [
            f'kreplica.coordinator.sasl.jaas.config={LOGIN} required user_kafka="{PASSWORD}";',
            "kreplica.coordinator.ssl.listener=127.0.0.1:0",
            f"kreplica.coordinator.ssl.keystore.location={certificates}/server.pem",
            f"kreplica.coordinator.ssl.truststore.location={certificates}/ca.pem",
            *lines,
        ]
        config.write_text("\n".join(given))
        config.chmod(0o600)
        self._process = subprocess.Popen(
            [*TWISTD, "coordinator", "--port", "0", "--data-dir", "znodes", "--config", str(config)],
            cwd=directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        ports = re.search(r"is ready on 127.0.0.1:(\d+) and 127.0.0.1:(\d+) \(TLS\)", line)
        assert ports is not None, line + self.stop()
        self.address, self.tls_address = (f"127.0.0.1:{port}" for port in ports.groups())

    def stop(self) -> str:
        """Stop the process and return its log."""
        self._process.terminate()
        return self._process.communicate(timeout=30)[1]


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory: pytest.TempPathFactory, certificates: Path) -> Iterator[Coordinator]:
    """A coordinator whose clients must authenticate."""
    directory = tmp_path_factory.mktemp("coordinator")
    process = Coordinator(directory, certificates, "kreplica.coordinator.anonymous.clients=none")
    yield process
    assert PASSWORD not in process.stop()


def zkcli(address: str, lines: str, *flags: str) -> str:
    """Run ZooKeeper's own command line and return its output."""
    main = "org.apache.zookeeper.ZooKeeperMain"
    done = subprocess.run(
        [java_path(), *JAVA_FLAGS, *flags, "-cp", class_path(), main, "-server", address, "-waitforconnection"],
        input=lines + "\nquit\n",
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.stdout + done.stderr


def jaas_flag(directory: Path, password: str) -> str:
    path = directory / "jaas.conf"
    path.write_text(f'Client {{ {LOGIN} required username="kafka" password="{password}"; }};')
    return f"-Djava.security.auth.login.config={path}"


def test_java_client_with_sasl(tmp_path: Path, coordinator: Coordinator) -> None:
    """Java's client authenticates with DIGEST-MD5, owns its znodes, and checks the coordinator's proof."""
    output = zkcli(
        coordinator.address,
        "whoami\ncreate /java-sasl x sasl:kafka:cdrwa\ngetAcl /java-sasl\nget /java-sasl",
        jaas_flag(tmp_path, PASSWORD),
    )
    assert re.search(r"^sasl: kafka$", output, re.MULTILINE), output
    assert "Created /java-sasl" in output
    assert "'sasl,'kafka\n: cdrwa" in output


def test_java_client_with_a_wrong_password(tmp_path: Path, coordinator: Coordinator) -> None:
    output = zkcli(coordinator.address, "ls /", jaas_flag(tmp_path, "wrong"))
    assert "KeeperErrorCode = AuthFailed" in output
    assert "[zookeeper" not in output


def test_java_client_with_a_certificate(coordinator: Coordinator, certificates: Path) -> None:
    output = zkcli(
        coordinator.tls_address,
        "whoami\ncreate /java-tls x auth::cdrwa\ngetAcl /java-tls",
        "-Dzookeeper.client.secure=true",
        f"-Dzookeeper.clientCnxnSocket={NETTY}",
        f"-Dzookeeper.ssl.keyStore.location={certificates}/broker.pem",
        f"-Dzookeeper.ssl.trustStore.location={certificates}/ca.pem",
    )
    assert re.search(r"^x509: CN=broker$", output, re.MULTILINE), output
    assert "'x509,'CN=broker\n: cdrwa" in output


def kazoo(address: str, certificates: Path | None = None, **options: Any) -> KazooClient:
    if certificates is not None:
        options |= {
            "use_ssl": True,
            "certfile": f"{certificates}/broker.pem",
            "keyfile": f"{certificates}/broker.pem",
            "ca": f"{certificates}/ca.pem",
        }
    client = KazooClient(address, timeout=10, **options)
    client.start(10)
    return client


def test_kazoo_with_digests(coordinator: Coordinator, certificates: Path) -> None:
    """Identities added with addauth own their znodes, on a connection that is authenticated by a certificate."""
    owner, other = (
        kazoo(coordinator.tls_address, certificates, auth_data=[("digest", f"{name}:secret")])
        for name in ("owner", "other")
    )
    own = [make_digest_acl("owner", "secret", all=True), make_acl("world", "anyone", read=True)]
    owner.create("/digests", b"1", acl=own)
    assert other.get("/digests")[0] == b"1"
    for change in (
        lambda: other.set("/digests", b"2"),
        lambda: other.create("/digests/x"),
        lambda: other.set_acls("/digests", own),
    ):
        with pytest.raises(NoAuthError):
            change()
    owner.set_acls("/digests", [make_digest_acl("owner", "secret", all=True)])
    with pytest.raises(NoAuthError):
        other.get("/digests")
    owner.delete("/digests")
    for client in (owner, other):
        client.stop()
        client.close()


def test_kazoo_without_authentication(coordinator: Coordinator) -> None:
    """The first request of a client without credentials fails, and the connection is closed."""
    client = kazoo(coordinator.address)
    with pytest.raises((SessionClosedRequireSaslError, ConnectionLoss)):
        client.get_async("/").get(timeout=5)
    client.stop()
    client.close()


def test_broker_that_protects_its_znodes(tmp_path: Path, coordinator: Coordinator, certificates: Path) -> None:
    """A broker process with TLS and SASL starts, and its znodes have Kafka's ACLs."""
    (port,) = free_ports(1)
    path = tmp_path / "broker.properties"
    path.write_text(f"""
broker.id=7
listeners=PLAINTEXT://127.0.0.1:{port}
log.dirs={tmp_path}/logs
zookeeper.connect={coordinator.tls_address}/kafka
zookeeper.set.acl=true
zookeeper.ssl.client.enable=true
zookeeper.ssl.keystore.location={certificates}/broker.pem
zookeeper.ssl.truststore.location={certificates}/ca.pem
kreplica.zookeeper.sasl.jaas.config={LOGIN} required username="kafka" password="{PASSWORD}";
""")
    path.chmod(0o600)
    broker = subprocess.Popen(
        [*TWISTD, "broker", "--config", str(path)], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    lines: list[str] = []
    try:
        assert broker.stderr is not None
        while not lines or "is ready" not in lines[-1]:
            lines.append(broker.stderr.readline())
            assert lines[-1], "".join(lines)
        reader = kazoo(coordinator.tls_address, certificates)
        acl, _ = reader.get_acls("/kafka/brokers/ids/7")
        assert [(entry.perms, entry.id.scheme, entry.id.id) for entry in acl] == [
            (31, "x509", "CN=broker"),
            (31, "sasl", "kafka"),
            (1, "world", "anyone"),
        ]
        reader.stop()
        reader.close()
    finally:
        broker.terminate()
        lines.append(broker.communicate(timeout=30)[1])
    assert PASSWORD not in "".join(lines)


def service_from_options(directory: Path, *arguments: str) -> Any:
    options = CoordinatorOptions()
    options.parseOptions(["--data-dir", str(directory / "data"), *arguments])
    return zookeeper_from_options(MemoryReactorClock(), options, lambda _: None)


KEY = "--override=kreplica.coordinator.ssl.keystore.location=CERTIFICATES/server.pem"
USERS = f"--override=kreplica.coordinator.sasl.jaas.config={LOGIN} required user_a=b;"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--interface=0.0.0.0"], "server would listen on 0.0.0.0 for clients that cannot authenticate: set"),
        (["--override=kreplica.coordinator.anonymous.clients=none"], "would listen on 127.0.0.1 for clients that"),
        (
            [KEY, "--override=kreplica.coordinator.ssl.listener=0.0.0.0:2182",
             "--override=kreplica.coordinator.ssl.client.auth=none"],
            "the embedded ZooKeeper server would listen on 0.0.0.0 for clients",
        ),
        (["--override=kreplica.coordinator.ssl.listener=2182"], "expected host:port"),
        (["--override=kreplica.coordinator.ssl.listener=a:1"], "kreplica.coordinator.ssl.keystore.location is not set"),
        (["--override=kreplica.coordinator.ssl.keystore=x"], "Did you mean kreplica.coordinator.ssl.keystore.type?"),
        (["--override=kreplica.coordinator.anonymous.clients=some"], "expected one of none, local, all"),
        ([USERS.replace("user_a", "username")], "needs an option user_NAME for each user"),
        ([USERS.replace(";", "")], "kreplica.coordinator.sasl.jaas.config: column"),
        ([USERS.replace("zookeeper", "kafka")], "the login module org.apache.kafka"),
        (["--config=/nowhere"], "/nowhere cannot be read"),
    ],
)  # fmt: skip
def test_invalid_settings(tmp_path: Path, certificates: Path, arguments: list[str], message: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(message)):
        service_from_options(tmp_path, *[each.replace("CERTIFICATES", str(certificates)) for each in arguments])


@pytest.mark.parametrize(
    "arguments",
    [
        ["--interface=0.0.0.0", USERS],
        [KEY, "--override=kreplica.coordinator.ssl.listener=0.0.0.0:2182"],
        [KEY, "--override=kreplica.coordinator.ssl.listener=[::1]:2182", USERS,
         "--override=kreplica.coordinator.anonymous.clients=none"],
    ],
)  # fmt: skip
def test_valid_settings(tmp_path: Path, certificates: Path, arguments: list[str]) -> None:
    """With users or certificates, the server may listen for clients on other machines."""
    process = service_from_options(tmp_path, *[each.replace("CERTIFICATES", str(certificates)) for each in arguments])
    process._runtime.offload.stop()
