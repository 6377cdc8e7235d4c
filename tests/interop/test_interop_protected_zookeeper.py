"""Apache Kafka with ``zookeeper.set.acl`` on the embedded ZooKeeper server: both programs create the same ACLs."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_kafka
import pytest

from kreplica.client import Admin, Cluster, default_runtime
from kreplica.runtime import real_runtime
from kreplica.service.composition.broker import Broker
from kreplica.settings import BrokerSettings
from kreplica.zookeeper import Acl, SaslCredentials, ZooKeeperClient
from tests.support.real_reactor import run
from tests.support.real_zookeeper import free_ports

pytestmark = pytest.mark.soak

LOGIN = "org.apache.zookeeper.server.auth.DigestLoginModule"
USERS = f'--override=kreplica.coordinator.sasl.jaas.config={LOGIN} required user_kafka="secret";'
AUTHENTICATED = "--override=kreplica.coordinator.anonymous.clients=none"
JAAS = f'{LOGIN} required username="kafka" password="secret";'
PARTITION = "/brokers/topics/orders/partitions/0/state"


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """Address of a coordinator that requires authentication."""
    (port,) = free_ports(1)
    twistd = Path(sys.executable).with_name("twistd")
    command = [twistd, "-n", "--pidfile=", "kreplica", "coordinator", "--port", str(port), USERS, AUTHENTICATED]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert "is ready" in process.stdout.readline()
    yield f"127.0.0.1:{port}"
    process.terminate()
    process.communicate(timeout=30)


async def all_acls(address: str) -> dict[str, tuple[Acl, ...]]:
    """Return the ACL of each znode."""
    from twisted.internet import reactor

    client = ZooKeeperClient(
        reactor,  # type: ignore[arg-type]
        address,
        random=random.Random(1),
        sasl=SaslCredentials("kafka", "secret"),
    )
    await client.start()
    acls, left = {}, ["/"]
    while left:
        path = left.pop()
        acls[path] = (await client.get_acl(path))[0]
        left += [f"{path.rstrip('/')}/{name}" for name in await client.get_children(path)]
    await client.close()
    return acls


async def with_kreplica(directory: Path, address: str, *, protects: bool) -> dict[str, tuple[Acl, ...]]:
    """Return the ACLs while a broker of kreplica serves a topic."""
    from twisted.internet import reactor

    runtime = real_runtime(reactor)
    broker = Broker(runtime, BrokerSettings.from_text(f"""
        broker.id=1
        listeners=PLAINTEXT://127.0.0.1:0
        log.dirs={directory}/kreplica
        zookeeper.connect={address}
        zookeeper.set.acl={str(protects).lower()}
        kreplica.zookeeper.sasl.jaas.config={JAAS}
    """))
    await broker.start()
    try:
        await _create_topic(f"127.0.0.1:{broker.port}")
        return await all_acls(address)
    finally:
        await broker.stop()
        runtime.offload.stop()


async def _create_topic(bootstrap: str) -> None:
    from twisted.internet import reactor

    cluster = Cluster(bootstrap, runtime=default_runtime(reactor))
    await Admin(cluster).create_topic("orders", partitions=1, replication_factor=1)
    await cluster.close()


def set_java_credentials(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the ZooKeeper credentials of Java programs."""
    (directory / "jaas.conf").write_text(f"Client {{ {JAAS} }};")
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Djava.security.auth.login.config={directory}/jaas.conf")


def with_kafka(directory: Path, address: str) -> dict[str, tuple[Acl, ...]]:
    """Return the ACLs while a broker of Apache Kafka serves a topic."""
    settings: dict[str, Any] = {"zookeeper_set_acl": "true"}
    with apache_kafka.broker(directory, address, directory / "kafka", **settings) as broker:
        run(_create_topic(broker.bootstrap_servers))
        return run(all_acls(address))


def test_acls_are_those_of_kafka(tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka's broker authenticates to the coordinator; all znodes that both programs create have equal ACLs."""
    try:
        apache_kafka.class_path()
    except apache_kafka.NoKafka as missing:
        pytest.skip(str(missing))
    set_java_credentials(tmp_path, monkeypatch)
    theirs = with_kafka(tmp_path, f"{address}/kafka")
    own = run(with_kreplica(tmp_path, f"{address}/kreplica", protects=True))
    assert theirs[PARTITION] == own[PARTITION]
    both = set(own) & set(theirs)
    assert {path: own[path] for path in both} == {path: theirs[path] for path in both}
    assert {"/", "/brokers/ids/1", "/controller", "/config/users", "/config/topics", "/consumers"} <= both


def test_protection_of_existing_znodes(tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka's tool and ``kreplica znodes protect`` give the same ACLs."""
    try:
        jars = apache_kafka.class_path()
    except apache_kafka.NoKafka as missing:
        pytest.skip(str(missing))
    set_java_credentials(tmp_path, monkeypatch)
    places = [f"{address}/first", f"{address}/second"]
    for place in places:
        run(with_kreplica(tmp_path / place.rpartition("/")[2], place, protects=False))
    tool = ["java", "-cp", jars, "kafka.admin.ZkSecurityMigrator", "--zookeeper.acl", "secure"]
    subprocess.run([*tool, "--zookeeper.connect", places[0]], check=True, timeout=60)
    config = tmp_path / "server.properties"
    config.write_text(f"broker.id=1\nzookeeper.connect={places[1]}\nkreplica.zookeeper.sasl.jaas.config={JAAS}\n")
    own_tool = [sys.executable, "-m", "kreplica.cli", "znodes", "protect", "--config", str(config)]
    subprocess.run(own_tool, check=True, timeout=60)
    theirs, own = (run(all_acls(place)) for place in places)
    both = {path for path in own if path in theirs and not path.startswith("/kreplica")}  # unknown to Kafka's tool
    assert {path: own[path] for path in both} == {path: theirs[path] for path in both}
    assert len(both) > 20
