"""Decisions based on ACLs, their data in ZooKeeper, and brokers that enforce them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from sasl_scene import PASSWORDS, Brokers, with_brokers
from twisted.internet.threads import deferToThread

from kreplica.client import Admin, Producer, errors
from kreplica.errors import ErrorCode
from kreplica.interfaces import CLUSTER, Operation, Principal, Resource
from kreplica.interfaces import ResourceType as PluginResourceType
from kreplica.runtime.pause import pause
from kreplica.security.acls.acl import (
    DENY_ALL,
    Acl,
    AclFilter,
    AclOperation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from kreplica.security.acls.authorizer import AclAuthorizer, parse_super_users
from kreplica.security.acls.rules import AclRules
from kreplica.security.acls.znodes import decode_acls, encode_acls, encode_change, path_of
from kreplica.wire.messages import (
    CREATE_ACLS,
    CREATE_TOPICS,
    DELETE_ACLS,
    DESCRIBE_ACLS,
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    LEADER_AND_ISR,
    LIST_GROUPS,
    LIST_TRANSACTIONS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    OFFSET_FOR_LEADER_EPOCH,
    STOP_REPLICA,
)
from tests.support.coordinator import CoordinatorProcess

ALLOW, DENY = Permission.ALLOW, Permission.DENY
READ, WRITE, DESCRIBE, ALL = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.ALL
TOPIC = ResourceType.TOPIC
INVALID_REQUEST = 42


def rules(*acls: tuple[str, PatternType, Acl]) -> AclRules:
    """Return rules with these ACLs for topics."""
    found: dict[ResourcePattern, frozenset[Acl]] = {}
    for name, pattern, acl in acls:
        resource = ResourcePattern(TOPIC, name, pattern)
        found[resource] = found.get(resource, frozenset()) | {acl}
    made = AclRules()
    made.replace(found)
    return made


def acl(operation: AclOperation, permission: Permission = ALLOW, user: str = "User:a", host: str = "*") -> Acl:
    return Acl(user, host, operation, permission)


LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED


@pytest.mark.parametrize(
    ("acls", "operation", "expected"),
    [
        ([], READ, None),
        ([("t", LITERAL, acl(READ))], READ, True),
        ([("t", LITERAL, acl(READ))], WRITE, False),
        ([("t", LITERAL, acl(READ))], DESCRIBE, True),
        ([("t", LITERAL, acl(DESCRIBE))], READ, False),
        ([("*", LITERAL, acl(ALL))], WRITE, True),
        ([("t", PREFIXED, acl(READ))], READ, True),
        ([("", PREFIXED, acl(READ))], READ, True),
        ([("tt", PREFIXED, acl(READ))], READ, None),
        ([("x", LITERAL, acl(READ))], READ, None),
        ([("t", LITERAL, acl(READ)), ("*", LITERAL, acl(READ, DENY))], READ, False),
        ([("t", LITERAL, acl(ALL)), ("t", PREFIXED, acl(READ, DENY, "User:*"))], READ, False),
        ([("t", LITERAL, acl(ALL)), ("t", LITERAL, acl(READ, DENY))], DESCRIBE, True),
        ([("t", LITERAL, acl(ALL)), ("t", LITERAL, acl(ALL, DENY))], DESCRIBE, False),
        ([("t", LITERAL, acl(READ, user="User:*"))], READ, True),
        ([("t", LITERAL, acl(READ, user="User:b"))], READ, False),
        ([("t", LITERAL, acl(READ, host="10.0.0.1"))], READ, True),
        ([("t", LITERAL, acl(READ, host="10.0.0.2"))], READ, False),
        ([("t", LITERAL, acl(AclOperation.ALTER_CONFIGS))], AclOperation.DESCRIBE_CONFIGS, True),
        ([("t", LITERAL, DENY_ALL)], READ, False),
    ],
)
def test_decisions(acls: list[tuple[str, PatternType, Acl]], operation: AclOperation, expected: bool | None) -> None:
    assert rules(*acls).decide("User:a", "10.0.0.1", operation, TOPIC, "t") is expected


def test_any_resource() -> None:
    """An idempotent producer needs permission to write to at least one topic (KIP-679)."""
    assert rules(("t", LITERAL, acl(WRITE))).allows_on_any("User:a", "h", WRITE, TOPIC)
    assert not rules(("t", LITERAL, acl(READ))).allows_on_any("User:a", "h", WRITE, TOPIC)
    denied = rules(("t", PREFIXED, acl(WRITE)), ("*", LITERAL, acl(WRITE, DENY)))
    assert not denied.allows_on_any("User:a", "h", WRITE, TOPIC)
    other = rules(("t", LITERAL, acl(WRITE)), ("t", LITERAL, acl(WRITE, DENY)), ("u", LITERAL, acl(WRITE)))
    assert other.allows_on_any("User:a", "h", WRITE, TOPIC)


def test_filters() -> None:
    resource, entry = ResourcePattern(TOPIC, "orders", PREFIXED), acl(READ)
    every = AclFilter(ResourceType.ANY, None, PatternType.ANY, None, None, AclOperation.ANY, Permission.ANY)
    assert every.selects(resource, entry)
    for change, expected in (
        ({"name": "orders-1", "pattern": PatternType.MATCH}, True),
        ({"name": "order", "pattern": PatternType.MATCH}, False),
        ({"name": "orders"}, True),
        ({"name": "orders", "pattern": LITERAL}, False),
        ({"name": "orders", "pattern": PREFIXED}, True),
        ({"type": ResourceType.GROUP}, False),
        ({"principal": "User:b"}, False),
        ({"host": "*"}, True),
        ({"operation": WRITE}, False),
        ({"permission": DENY}, False),
    ):
        assert every._replace(**change).selects(resource, entry) is expected, change  # type: ignore[arg-type]


def test_data_in_zookeeper() -> None:
    """The layout is that of Kafka's ``AclEntry`` and ``ZkAclStore``."""
    data = encode_acls([acl(AclOperation.CLUSTER_ACTION), acl(READ, DENY)])
    assert decode_acls(data) == {acl(AclOperation.CLUSTER_ACTION), acl(READ, DENY)}
    assert b'"operation":"ClusterAction"' in data
    assert b'"permissionType":"Deny"' in data
    assert path_of(ResourcePattern(ResourceType.TRANSACTIONAL_ID, "x")) == "/kafka-acl/TransactionalId/x"
    assert path_of(ResourcePattern(TOPIC, "x", PREFIXED)) == "/kafka-acl-extended/prefixed/Topic/x"
    assert encode_change(ResourcePattern(TOPIC, "x")) == b"Topic:x"
    with pytest.raises(ValueError, match="malformed ACLs"):
        decode_acls(b'{"version":1,"acls":[{"principal":"User:a"}]}')


def test_cached_decisions() -> None:
    """A cached decision takes less than 1 microsecond on average; changes invalidate the cache."""
    made = rules(("t", LITERAL, acl(READ)))
    authorizer = AclAuthorizer(made, ["User:root"], lambda: 0.0, allow_without_acls=False)
    principal, resource = Principal("User:a", "h", "L", None), Resource(PluginResourceType.TOPIC, "t")
    assert authorizer.is_allowed(principal, Operation.READ, resource)
    fastest = min(_seconds_per_call(authorizer, principal) for _ in range(200))
    assert fastest < 1e-6, "the limit is seven times the usual time, since other tests run in parallel"
    made.replace({})
    authorizer.forget()
    assert not authorizer.is_allowed(principal, Operation.READ, resource)
    assert authorizer.is_allowed(principal._replace(user="User:root"), Operation.CLUSTER_ACTION, CLUSTER)
    assert parse_super_users("User:a; User:CN=b,O=c") == ("User:a", "User:CN=b,O=c")
    with pytest.raises(ValueError, match="'a' is not a principal"):
        parse_super_users("a")


def _seconds_per_call(authorizer: AclAuthorizer, principal: Principal) -> float:
    """Return the duration of a decision about a resource whose name was received in a request."""
    resources = [Resource(PluginResourceType.TOPIC, "t") for _ in range(500)]
    started_s = time.perf_counter()
    for resource in resources:
        authorizer.is_allowed(principal, Operation.READ, resource)
    return (time.perf_counter() - started_s) / len(resources)


def row(kind: int, name: str, user: str, operation: int, permission: int = 3, pattern: int = 3) -> dict[str, Any]:
    return {
        "resource_type": kind,
        "resource_name": name,
        "resource_pattern_type": pattern,
        "principal": user,
        "host": "*",
        "operation": operation,
        "permission_type": permission,
    }


def row_filter(**more: Any) -> dict[str, Any]:
    return {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
        **more,
    }


def test_brokers_enforce_acls(
    tmp_path: Path, certificates: Path, coordinator: CoordinatorProcess, logged: list[str]
) -> None:
    """A user's ACLs allow only their operations; removing them ends the permission."""

    async def scenario(scene: Brokers) -> None:
        admin = await scene.connection("LOCAL", "PLAIN", "admin")
        alice = await scene.connection("LOCAL", "PLAIN", "alice")
        async with scene.cluster("SASL_SSL", "PLAIN", "admin") as cluster:
            await Admin(cluster).create_topic("orders", partitions=1, replication_factor=2)

        async def produce_one() -> None:
            async with scene.cluster("SASL_SSL", "PLAIN", "alice") as cluster:
                producer = Producer(cluster)
                try:
                    await producer.send("orders", b"x")
                finally:
                    await producer.close()

        with pytest.raises(errors.ClientError, match="AUTHORIZATION_FAILED"):
            await produce_one()
        assert any("denied: User:alice from 127.0.0.1 may not" in text for text in logged)
        for api, version in ((LEADER_AND_ISR, 4), (STOP_REPLICA, 3)):
            body = {"controller_id": 1, "controller_epoch": 1, "broker_epoch": 1, "type": 0}
            more = {"partition_states": [], "live_leaders": [], "topic_states": [], "topics": []}
            response = await alice.request(api, version, {**body, **more})
            assert response["error_code"] == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        for api, body in (
            (CREATE_ACLS, {"creations": [row(2, "orders", "User:alice", 4)]}),
            (DESCRIBE_ACLS, row_filter()),
        ):
            response = await alice.request(api, 2, body)
            code = response["results"][0]["error_code"] if "results" in response else response["error_code"]
            assert code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED

        creations = [row(2, "ord", "User:alice", 4, pattern=4), row(4, "wrong", "User:alice", 8), row(2, "t", "a", 3)]
        response = await admin.request(CREATE_ACLS, 2, {"creations": creations})
        assert [each["error_code"] for each in response["results"]] == [0, INVALID_REQUEST, INVALID_REQUEST]
        for broker in scene.brokers:
            rules_of = broker.plugins.acl_authorizer.rules
            while not list(rules_of.patterns):
                await pause(scene.reactor, 0.05)
        await produce_one()
        response = await alice.request(INIT_PRODUCER_ID, 1, {"transactional_id": None, "transaction_timeout_ms": 1})
        assert response["error_code"] == 0
        topics = (await alice.request(METADATA, 1, {"topics": None}))["topics"]
        assert [topic["name"] for topic in topics if not topic["error_code"]] == ["orders"]
        assert not (await alice.request(LIST_GROUPS, 1, {}))["groups"]
        fetched = await deferToThread(read_with_librdkafka, scene.port("LOCAL"))
        assert "AUTHORIZATION_FAILED" in fetched

        await admin.request(
            CREATE_ACLS, 2, {"creations": [row(2, "orders", "User:alice", 3), row(3, "readers", "User:alice", 3)]}
        )
        response = await admin.request(DESCRIBE_ACLS, 2, row_filter(principal_filter="User:alice"))
        assert len(response["resources"]) == 3
        await pause(scene.reactor, 0.5)
        assert await deferToThread(read_with_librdkafka, scene.port("LOCAL")) == "x"

        deleted = await admin.request(DELETE_ACLS, 2, {"filters": [row_filter(principal_filter="User:alice")]})
        assert len(deleted["filter_results"][0]["matching_acls"]) == 3
        await pause(scene.reactor, 0.5)
        with pytest.raises(errors.ClientError, match="AUTHORIZATION_FAILED"):
            await produce_one()
        assert await scene.brokers[0].client.get_children("/kafka-acl/Topic") == []
        await admin.close()
        await alice.close()

    more = "authorizer.class.name=kafka.security.authorizer.AclAuthorizer\nsuper.users=User:admin"
    with_brokers(2, tmp_path, certificates, coordinator.address, scenario, more)


def test_checks_of_each_row(
    tmp_path: Path, certificates: Path, coordinator: CoordinatorProcess, logged: list[str]
) -> None:
    """In responses about offsets, epochs, producers and transactions, denied rows have an error; lists omit them."""
    group_refused, topic_refused, id_refused = (
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    )

    async def scenario(scene: Brokers) -> None:
        admin, alice = [await scene.connection("LOCAL", "PLAIN", user) for user in ("admin", "alice")]
        await prepare(scene, admin)

        wanted = [{"name": name, "partition_indexes": [0]} for name in ("seen", "hidden")]
        groups = [{"group_id": "g", "topics": wanted}, {"group_id": "h", "topics": None}]
        response = await alice.request(OFFSET_FETCH, 8, {"groups": groups, "require_stable": False})
        rows = {row["group_id"]: row for row in response["groups"]}
        assert rows["h"]["error_code"] == group_refused
        found = {row["name"]: row["partitions"][0] for row in rows["g"]["topics"]}
        assert (found["seen"]["committed_offset"], found["seen"]["error_code"]) == (5, 0)
        assert (found["hidden"]["committed_offset"], found["hidden"]["error_code"]) == (-1, topic_refused)
        response = await alice.request(OFFSET_FETCH, 7, {"group_id": "g", "topics": None, "require_stable": False})
        assert [row["name"] for row in response["topics"]] == ["seen"]
        for version, top, rows_of in ((1, None, [group_refused] * 2), (7, group_refused, [])):
            body = {"group_id": "h", "topics": wanted, "require_stable": False}
            response = await alice.request(OFFSET_FETCH, version, body)
            assert response.get("error_code") == top
            assert [row["partitions"][0]["error_code"] for row in response["topics"]] == rows_of

        partitions = [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}]
        topics = [{"topic": name, "partitions": partitions} for name in ("seen", "hidden")]
        response = await alice.request(OFFSET_FOR_LEADER_EPOCH, 3, {"replica_id": -2, "topics": topics})
        codes = {row["topic"]: row["partitions"][0]["error_code"] for row in response["topics"]}
        assert codes == {"seen": 0, "hidden": topic_refused}
        response = await alice.request(DESCRIBE_PRODUCERS, 0, {"topics": wanted})
        codes = {row["name"]: row["partitions"][0]["error_code"] for row in response["topics"]}
        assert codes == {"seen": 0, "hidden": topic_refused}
        response = await alice.request(LIST_TRANSACTIONS, 0, {"state_filters": [], "producer_id_filters": []})
        assert [row["transactional_id"] for row in response["transaction_states"]] == ["own"]
        response = await alice.request(DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": ["own", "other"]})
        codes = {row["transactional_id"]: row["error_code"] for row in response["transaction_states"]}
        assert codes == {"own": 0, "other": id_refused}
        await admin.close()
        await alice.close()

    more = "authorizer.class.name=kafka.security.authorizer.AclAuthorizer\nsuper.users=User:admin"
    more += "\ntransaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1"
    with_brokers(1, tmp_path, certificates, coordinator.address, scenario, more)


async def prepare(scene: Brokers, admin: Any) -> None:
    """Create two topics, a committed offset for each, two transactional IDs, and alice's ACLs."""
    topics = [
        {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
        for name in ("seen", "hidden")
    ]
    await admin.request(CREATE_TOPICS, 4, {"topics": topics, "timeout_ms": 10_000, "validate_only": False})
    partitions = [{"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}]
    body = {
        "group_id": "g",
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "topics": [{"name": name, "partitions": partitions} for name in ("seen", "hidden")],
    }
    for kind, key in ((0, "g"), (1, "own")):
        while (await admin.request(FIND_COORDINATOR, 2, {"key": key, "key_type": kind}))["error_code"]:
            await pause(scene.reactor, 0.1)
    while True:
        response = await admin.request(OFFSET_COMMIT, 7, body)
        if not any(row["partitions"][0]["error_code"] for row in response["topics"]):
            break
        await pause(scene.reactor, 0.1)
    for name in ("own", "other"):
        body = {"transactional_id": name, "transaction_timeout_ms": 1000}
        while (await admin.request(INIT_PRODUCER_ID, 1, body))["error_code"]:
            await pause(scene.reactor, 0.1)
    creations = [row(2, "seen", "User:alice", 3), row(3, "g", "User:alice", 8), row(5, "own", "User:alice", 8)]
    response = await admin.request(CREATE_ACLS, 2, {"creations": creations})
    assert [each["error_code"] for each in response["results"]] == [0, 0, 0]


def read_with_librdkafka(port: int) -> str:
    """Return the first record or the error."""
    from confluent_kafka import Consumer

    consumer = Consumer(
        {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": PASSWORDS["alice"],
            "group.id": "readers",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(["orders"])
    message = consumer.poll(15)
    consumer.close()
    if message is None:
        return "nothing"
    error = message.error()
    return error.name() if error is not None else (message.value() or b"").decode()
