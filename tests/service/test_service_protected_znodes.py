"""A simulated cluster with ``zookeeper.set.acl``, and a coordinator that requires authentication."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from twisted.logger import LogLevel, capturedLogs, formatEvent

from kreplica.errors import KreplicaError
from kreplica.runtime import Runtime
from kreplica.testing.cluster.cluster import Machine, SimulatedCluster
from kreplica.testing.simulator.simulation import DATA_DIRECTORY
from kreplica.wire.messages import ALTER_USER_SCRAM_CREDENTIALS
from kreplica.zookeeper import OPEN_ACL, READ_ACL, Acl, AuthFailed
from kreplica.zookeeper.embedded.disk_store import DiskStore
from kreplica.zookeeper.embedded.server import EmbeddedZooKeeper
from kreplica.zookeeper.embedded.settings import AnonymousClients, ZooKeeperServerSettings

PORT = 2181
LOGIN = "org.apache.zookeeper.server.auth.DigestLoginModule"
OWNER = Acl(31, "sasl", "kafka")
UNPROTECTED = ("/", "/zookeeper", "/zookeeper/config", "/zookeeper/quota", "/consumers")
"""Znodes that every client may change; all others belong to the brokers."""


def jaas(password: str) -> str:
    return f'kreplica.zookeeper.sasl.jaas.config={LOGIN} required username="kafka" password="{password}";'


def protected_cluster(users: Mapping[str, str], *overrides: str) -> SimulatedCluster:
    """Return a cluster of three brokers whose coordinator requires authentication."""

    def coordinator(runtime: Runtime) -> EmbeddedZooKeeper:
        return EmbeddedZooKeeper(
            runtime,
            DATA_DIRECTORY,
            port=PORT,
            interface="coordinator",
            store=DiskStore(DATA_DIRECTORY, runtime.disk, runtime.offload),
            settings=ZooKeeperServerSettings(users=users, anonymous=AnonymousClients.NONE),
        )

    cluster = SimulatedCluster(3, brokers=3, overrides=[jaas("secret"), "zookeeper.set.acl=true", *overrides])
    cluster.zookeeper = Machine(cluster.simulation.host("coordinator"), coordinator)
    return cluster


def acls(cluster: SimulatedCluster) -> dict[str, tuple[Acl, ...]]:
    serving = cluster.zookeeper.program.serving
    assert serving is not None
    return {path: node.acl for path, node in serving.tree.nodes.items()}


def check_acls(cluster: SimulatedCluster) -> None:
    """Check the ACL of every znode of the cluster."""
    for path, acl in acls(cluster).items():
        if path in UNPROTECTED:
            assert acl == OPEN_ACL, path
        else:
            is_secret = path.startswith(("/config/users", "/config/brokers"))
            assert acl == ((OWNER,) if is_secret else (OWNER, *READ_ACL)), path


def test_every_znode_is_protected() -> None:
    """ACLs are correct after elections, changes of topics, settings and users, reassignments, and restarts."""
    cluster = protected_cluster({"kafka": "secret"})
    with capturedLogs() as logged:
        cluster.start()
        client = cluster.client()
        cluster.run_until(client.create_topic("orders", 3, {"retention.ms": "1000"}, replication_factor=3))
        cluster.run_until(client.create_topic("old", 1, replication_factor=2))
        cluster.wait_in_sync("orders", range(3))
        upsertion = {"name": "alice", "mechanism": 1, "iterations": 4096, "salt": b"s", "salted_password": b"p" * 32}
        request = {"deletions": [], "upsertions": [upsertion]}
        response = cluster.run_until(client.request(ALTER_USER_SCRAM_CREDENTIALS, request))
        assert [each["error_code"] for each in response["results"]] == [0]
        cluster.run_until(client.reassign("old", 0, (3, 1)))
        cluster.run_until(client.change_settings("orders", {"retention.ms": "2000"}))
        cluster.run(5)
        first = cluster.controller()
        assert first is not None
        cluster.brokers[first].kill()
        cluster.run_until(lambda: cluster.controller() not in (None, first), 60)
        cluster.run_until(cluster.brokers[first].start())
        cluster.run_until(cluster.zookeeper.stop())
        cluster.run(1)
        cluster.run_until(cluster.zookeeper.start())
        cluster.wait_in_sync("orders", range(3))
        cluster.run_until(lambda: cluster.controller() is not None)
        controller = cluster.client(broker=cluster.controller() or 0)
        cluster.run_until(controller.create_topic("new", 1, replication_factor=3))
        cluster.wait_in_sync("new", range(1))
        check_acls(cluster)
        assert {"/config/users/alice", "/config/topics/orders", "/brokers/ids/1", "/controller"} <= set(acls(cluster))
        cluster.stop()
    texts = [formatEvent(event) or "" for event in logged if event["log_level"] >= LogLevel.warn]
    assert not [text for text in texts if "not allowed by" in text or "ACL" in text]


@pytest.mark.parametrize(
    ("users", "message"), [({"kafka": "other"}, "the server rejected"), ({}, "the server has no SASL users")]
)
def test_brokers_without_access_do_not_start(users: Mapping[str, str], message: str) -> None:
    cluster = protected_cluster(users)
    cluster.run_until(cluster.zookeeper.start())
    with pytest.raises(AuthFailed, match=f"coordinator:{PORT}: SASL authentication of 'kafka': {message}"):
        cluster.run_until(cluster.brokers[1].start())


def test_broker_without_credentials() -> None:
    cluster = protected_cluster({"kafka": "secret"}, "zookeeper.set.acl=false", "kreplica.zookeeper.sasl.jaas.config=")
    cluster.run_until(cluster.zookeeper.start())
    with pytest.raises(KreplicaError, match="the server requires SASL authentication"):
        cluster.run_until(cluster.brokers[1].start())
