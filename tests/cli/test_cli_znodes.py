"""``kreplica znodes`` on a coordinator process."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kreplica.cluster import znodes
from kreplica.membership.registration import create_persistent_paths
from kreplica.zookeeper import OPEN_ACL, READ_ACL, Acl, SaslCredentials, ZooKeeperClient
from tests.support.real_reactor import run
from tests.support.real_zookeeper import free_ports

LOGIN = "org.apache.zookeeper.server.auth.DigestLoginModule"
TWISTD = [str(Path(sys.executable).with_name("twistd")), "-n", "--pidfile=", "kreplica"]
USERS = f"--override=kreplica.coordinator.sasl.jaas.config={LOGIN} required user_kafka=secret user_other=secret;"
OWNER = Acl(31, "sasl", "kafka")


@pytest.fixture
def address(tmp_path: Path) -> Any:
    """Start a coordinator with the znodes of a cluster but without brokers, and return its address."""
    (port,) = free_ports(1)
    process = subprocess.Popen(
        [*TWISTD, "coordinator", "--port", str(port), USERS], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert "is ready" in process.stdout.readline()

    async def fill(client: ZooKeeperClient) -> None:
        await create_persistent_paths(client)
        await client.create("/brokers/topics/orders", b"{}")
        for number in range(600):
            await client.create(f"/config/topics/topic-{number}", b"{}")

    run_with_client(f"127.0.0.1:{port}/kafka", fill, None)
    yield f"127.0.0.1:{port}/kafka"
    process.terminate()
    process.communicate(timeout=30)


def run_with_client(address: str, work: Any, user: str | None = "kafka") -> Any:
    """Run a coroutine function with a ZooKeeper client, and return its result."""

    async def with_client() -> Any:
        from twisted.internet import reactor

        sasl = None if user is None else SaslCredentials(user, "secret")
        client = ZooKeeperClient(reactor, address, random=random.Random(1), sasl=sasl)  # type: ignore[arg-type]
        await client.start()
        try:
            return await work(client)
        finally:
            await client.close()

    return run(with_client())


Done = subprocess.CompletedProcess[str]


def kreplica(directory: Path, address: str, action: str, user: str | None = "kafka") -> Done:
    config = directory / "server.properties"
    jaas = f'kreplica.zookeeper.sasl.jaas.config={LOGIN} required username={user} password="secret";'
    config.write_text(f"broker.id=1\nzookeeper.connect={address}\n{jaas if user else ''}\n")
    command = [sys.executable, "-m", "kreplica.cli", "znodes", action, "--config", str(config)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


async def acls(client: ZooKeeperClient) -> list[tuple[Acl, ...]]:
    paths = ("/", "/brokers", "/brokers/topics/orders", "/config/topics/topic-599", "/config/users", "/consumers")
    return [(await client.get_acl(path))[0] for path in paths]


def test_znodes_are_protected_and_opened(tmp_path: Path, address: str) -> None:
    """The ACLs are the same as with zookeeper.set.acl; the command prints the number of znodes."""
    readable = (OWNER, *READ_ACL)
    done = kreplica(tmp_path, address, "protect")
    paths = {part for path in znodes.PERSISTENT_PATHS for part in _prefixes(path)} - {"/consumers"}
    assert (done.returncode, done.stdout) == (0, f"{len(paths) + 602} znodes are protected.\n"), done.stderr
    assert run_with_client(address, acls) == [*[readable] * 4, (OWNER,), OPEN_ACL]
    refused = kreplica(tmp_path, address, "unprotect", "other")
    assert refused.returncode == 1
    assert "not allowed by the znode's ACL" in refused.stderr
    done = kreplica(tmp_path, address, "unprotect")
    assert (done.returncode, done.stdout) == (0, f"{len(paths) + 602} znodes are open to everyone.\n"), done.stderr
    assert run_with_client(address, acls, None) == [OPEN_ACL] * 6


def _prefixes(path: str) -> list[str]:
    parts = path.strip("/").split("/")
    return ["/" + "/".join(parts[: end + 1]) for end in range(len(parts))]


def test_protection_needs_a_user(tmp_path: Path, address: str) -> None:
    """Protection requires a ZooKeeper user, because the znodes would otherwise be accessible to every client."""
    done = kreplica(tmp_path, address, "protect", None)
    assert done.returncode == 1
    assert "needs a user of ZooKeeper: set kreplica.zookeeper.sasl.jaas.config" in done.stderr


def test_wrong_user(tmp_path: Path, address: str) -> None:
    done = kreplica(tmp_path, address, "protect", "stranger")
    assert done.returncode == 1
    assert "SASL authentication of 'stranger': the server rejected the credentials" in done.stderr
    assert "Traceback" not in done.stderr
