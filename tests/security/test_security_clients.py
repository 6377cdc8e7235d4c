"""Other projects' clients over SASL_SSL, with each mechanism that they support."""

from __future__ import annotations

from pathlib import Path

import pytest
from sasl_scene import PASSWORDS, Brokers, with_brokers
from secured_clients import CLIENTS, MECHANISMS, PLAIN, Login
from twisted.internet.threads import deferToThread

from kreplica.client import Admin
from kreplica.security.acls.acl import Acl, AclOperation, PatternType, Permission, ResourcePattern, ResourceType
from tests.support.coordinator import CoordinatorProcess

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "security.md"
ACLS = "authorizer.class.name=kafka.security.authorizer.AclAuthorizer\nsuper.users=User:admin"


@pytest.mark.needs_program("kcat")
@pytest.mark.parametrize("name", CLIENTS)
def test_client(
    tmp_path: Path, certificates: Path, coordinator: CoordinatorProcess, logged: list[str], name: str
) -> None:
    """The client writes and reads with exactly the ACLs that it needs."""

    async def scenario(scene: Brokers) -> None:
        await scene.create_user("bob")
        watches = scene.brokers[0].watches
        topic = ResourcePattern(ResourceType.TOPIC, "t-", PatternType.PREFIXED)
        group = ResourcePattern(ResourceType.GROUP, "g-", PatternType.PREFIXED)
        for user in ("alice", "bob"):
            allowed = {Acl(f"User:{user}", "*", each, Permission.ALLOW) for each in (WRITE, READ)}
            await watches.acls.add(topic, allowed)
            await watches.acls.add(group, {Acl(f"User:{user}", "*", READ, Permission.ALLOW)})
        async with scene.cluster("SASL_SSL", "PLAIN", "admin") as cluster:
            for mechanism in MECHANISMS:
                await Admin(cluster).create_topic(f"t-{mechanism}", partitions=1, replication_factor=1)
        for mechanism in MECHANISMS:
            user = "alice" if mechanism == PLAIN else "bob"
            login = Login(
                scene.port("SASL_SSL"),
                mechanism,
                user,
                PASSWORDS[user],
                certificates / "ca.pem",
                f"t-{mechanism}",
                f"g-{mechanism}",
            )
            value = f"{name} {mechanism}".encode()
            assert await deferToThread(CLIENTS[name], login, value) == value

    with_brokers(1, tmp_path, certificates, coordinator.address, scenario, ACLS)


WRITE, READ = AclOperation.WRITE, AclOperation.READ


def test_documented_clients() -> None:
    """The table in the documentation has a row for each client, with its mechanisms."""
    rows = [f"| {name} | {' | '.join('yes' for _ in MECHANISMS)} | " for name in CLIENTS]
    page = PAGE.read_text()
    assert [row for row in rows if row not in page] == []
