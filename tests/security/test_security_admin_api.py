"""The admin API of real brokers with authentication and ACLs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import requests
from sasl_scene import PASSWORDS, Brokers, with_brokers
from twisted.internet.threads import deferToThread

from kreplica.admin.security.route_rules import AUTHENTICATED, LISTED_GROUPS, LISTED_TOPICS, RULES
from kreplica.client import Admin
from kreplica.runtime.pause import pause
from kreplica.security.acls.acl import Acl, AclOperation, PatternType, Permission, ResourcePattern, ResourceType
from tests.support.coordinator import CoordinatorProcess

TOKEN = "0123456789abcdef0123456789abcdef"

IN_PATH = {
    "topic": "orders",
    "partition": "0",
    "broker_id": "1",
    "broker": "1",
    "group": "readers",
    "plan": "20240101-000000",
    "file": "app.js",
}
BODIES: dict[str, Any] = {
    "POST /v1/topics": {"name": "new"},
    "PATCH /v1/topics/{topic}": {"partitions": 3},
    "PATCH /v1/configs/topics/{topic}": {"set": {"retention.ms": 1000}},
    "PATCH /v1/configs/brokers/{broker}": {"set": {"log.cleaner.threads": 1}},
    "POST /v1/elections": {"type": "preferred"},
    "POST /v1/plans": {"kind": "rebalance"},
    "PATCH /v1/plans/{plan}": {"comment": "x"},
    "POST /v1/topics/{topic}/messages": {"value": "x"},
    "POST /v1/groups/{group}/offsets": {"to": {"kind": "earliest"}, "topics": {"orders": None}},
}
QUERIES = {"DELETE /v1/groups/{group}/offsets": {"topic": "orders"}}


class Client:
    """An HTTP client of the first broker's admin API; blocking."""

    def __init__(self, url: str, user: str | None = None, password: str | None = None, token: str | None = None):
        self._url = url
        self._session = requests.Session()
        self._session.trust_env = False
        if user is not None:
            self._session.auth = (user, password or PASSWORDS[user])
        if token is not None:
            self._session.headers["authorization"] = f"Bearer {token}"

    def send(self, method: str, path: str, body: Any = None, **query: Any) -> requests.Response:
        return self._session.request(method, self._url + path, json=body, params=query, timeout=20)

    def walk(self) -> dict[str, requests.Response]:
        """Send a dry run of each request in the OpenAPI document; return the responses by method and path."""
        document = Client(self._url, token=TOKEN).send("GET", "/openapi.json").json()
        responses = {}
        for path, operations in document["paths"].items():
            for method in operations:
                name = f"{method.upper()} {path}"
                query = {**QUERIES.get(name, {}), **({} if method == "get" else {"dry_run": "true"})}
                body = BODIES.get(name)
                responses[name] = self.send(method.upper(), path.format(**IN_PATH), body, **query)
        return responses


def rule_of(name: str) -> Any:
    return {key.replace(":path}", "}"): rule for key, rule in RULES.items()}[name]


@pytest.fixture
def more(tmp_path: Path) -> str:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    return f"""authorizer.class.name=kafka.security.authorizer.AclAuthorizer
        super.users=User:admin
        kreplica.admin.listener=127.0.0.1:0
        kreplica.admin.authentication=basic
        kreplica.admin.token.file={token}
    """


def test_each_route_needs_authentication_and_permission(
    tmp_path: Path, certificates: Path, coordinator: CoordinatorProcess, more: str, logged: list[str]
) -> None:
    """Without credentials only public routes respond; a user without ACLs sees nothing, with ACLs the own topics."""

    async def story(scene: Brokers) -> None:
        cluster = scene.cluster("SASL_SSL", "PLAIN", "admin")
        for name in ("orders", "secrets"):
            await Admin(cluster).create_topic(name, 1, 1)
        await cluster.close()
        await scene.create_user("bob")
        broker = scene.brokers[0]
        url = broker.admin.url
        anybody, bob = Client(url), Client(url, "bob")

        def without_credentials() -> None:
            for name, response in anybody.walk().items():
                rule = rule_of(name)
                assert response.status_code == 401 or rule.public, (name, response.text)
                assert not (rule.public and response.status_code in (401, 403)), name

        def without_permissions() -> None:
            for name, response in bob.walk().items():
                rule = rule_of(name)
                if rule.public or rule is AUTHENTICATED:
                    continue
                if rule in (LISTED_TOPICS, LISTED_GROUPS):
                    assert response.status_code == 200, (name, response.text)
                    assert "orders" not in response.text
                    continue
                assert response.status_code == 403, (name, response.text)
                assert response.json()["principal"] == "User:bob"

        await deferToThread(without_credentials)
        await deferToThread(without_permissions)

        def allow(operation: AclOperation) -> set[Acl]:
            return {Acl("User:bob", "*", operation, Permission.ALLOW)}

        orders = ResourcePattern(ResourceType.TOPIC, "ord", PatternType.PREFIXED)
        await broker.watches.acls.add(orders, allow(AclOperation.READ))

        def with_permissions() -> None:
            rows = bob.send("GET", "/v1/topics").json()["topics"]
            assert [row["name"] for row in rows] == ["orders"]
            rows = bob.send("GET", "/v1/partitions").json()["partitions"]
            assert {row["topic"] for row in rows} == {"orders"}
            assert bob.send("GET", "/v1/topics/orders").json()["configs"] == []
            assert bob.send("GET", "/v1/topics/orders/messages").status_code == 200
            assert bob.send("GET", "/v1/topics/secrets/messages").status_code == 403
            denied = bob.send("POST", "/v1/topics/orders/messages", {"value": "x"}).json()
            assert (denied["title"], denied["operation"]) == ("TOPIC_AUTHORIZATION_FAILED", "write")

        await deferToThread(with_permissions)
        assert not [text for text in logged if TOKEN in text]

    with_brokers(1, tmp_path, certificates, coordinator.address, story, more)


def test_brokers_forward_requests_with_the_permissions_of_the_caller(
    tmp_path: Path, certificates: Path, coordinator: CoordinatorProcess, more: str
) -> None:
    """Requests that need all brokers work for users with passwords, and do not give them more rights."""

    async def story(scene: Brokers) -> None:
        await scene.create_user("bob")
        broker = scene.brokers[0]
        bob = Client(broker.admin.url, "bob")
        refused = await deferToThread(bob.send, "GET", "/v1/figures")
        assert refused.status_code == 403
        cluster = ResourcePattern(ResourceType.CLUSTER, "kafka-cluster", PatternType.LITERAL)
        acl = Acl("User:bob", "127.0.0.1", AclOperation.DESCRIBE, Permission.ALLOW)
        await broker.watches.acls.add(cluster, {acl})
        rules = scene.brokers[1].plugins.acl_authorizer.rules
        while not list(rules.patterns):
            await pause(scene.reactor, 0.05)
        figures = (await deferToThread(bob.send, "GET", "/v1/figures")).json()
        assert [row["live"] for row in figures["brokers"]] == [True, True]
        assert figures["problems"] == []
        await broker.watches.acls.remove(cluster, {acl})
        assert (await deferToThread(bob.send, "GET", "/v1/figures")).status_code == 403

    with_brokers(2, tmp_path, certificates, coordinator.address, story, more)
