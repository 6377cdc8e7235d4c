"""The admin API of real brokers with authentication and ACLs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import requests
from sasl_scene import PASSWORDS, Brokers, with_brokers
from twisted.internet.threads import deferToThread

from kreplica.admin.security.route_rules import (
    AUTHENTICATED,
    LISTED_GROUPS,
    LISTED_TOKENS,
    LISTED_TOPICS,
    RENEWED_TOKENS,
    RULES,
)
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
    "user": "carol",
    "token": "an-id",
    "subscription": "all-clients",
    "client_instance_id": "AAAAAAAAAAAAAAAAAAAAAQ",
}
BODIES: dict[str, Any] = {
    "POST /v1/topics": {"name": "new"},
    "PATCH /v1/topics/{topic}": {"partitions": 3},
    "PATCH /v1/configs/topics/{topic}": {"set": {"retention.ms": 1000}},
    "PATCH /v1/configs/brokers/{broker}": {"set": {"log.cleaner.threads": 1}},
    "PATCH /v1/configs/client-metrics/{subscription}": {"set": {"interval.ms": 1000}},
    "POST /v1/elections": {"type": "preferred"},
    "POST /v1/plans": {"kind": "rebalance"},
    "PATCH /v1/plans/{plan}": {"comment": "x"},
    "POST /v1/topics/{topic}/messages": {"value": "x"},
    "POST /v1/groups/{group}/offsets": {"to": {"kind": "earliest"}, "topics": {"orders": None}},
}
ACL = {"resource_type": "topic", "resource_name": "orders", "principal": "User:carol", "operation": "read"}
BODIES |= {
    "POST /v1/session": {"token": TOKEN},
    "PUT /v1/users/{user}": {"password": "planted-secret-9"},
    "POST /v1/acls": {"acls": [ACL]},
    "POST /v1/tokens": {"owner": "User:carol"},
    "POST /v1/tokens/{token}/renew": {},
    "POST /v1/tokens/{token}/expire": {},
    "PATCH /v1/quotas": {"user": "carol", "quotas": {"producer_byte_rate": 1000}},
}
QUERIES = {
    "DELETE /v1/groups/{group}/offsets": {"topic": "orders"},
    "DELETE /v1/acls": {"principal": "User:carol"},
    "GET /v1/why/access": {"principal": "User:carol", "operation": "read", "resource_name": "orders"},
}


class Client:
    """An HTTP client of the first broker's admin API; blocking."""

    def __init__(self, url: str, user: str | None = None, password: str | None = None, token: str | None = None):
        self._url = url
        self._is_super = token is not None
        self.verify: str | bool = True
        self.cert: str | None = None
        self._session = requests.Session()
        self._session.trust_env = False
        if user is not None:
            self._session.auth = (user, password or PASSWORDS[user])
        if token is not None:
            self._session.headers["authorization"] = f"Bearer {token}"

    def send(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None, **query: Any
    ) -> requests.Response:
        options: dict[str, Any] = {"headers": headers, "verify": self.verify, "cert": self.cert, "timeout": 20}
        return self._session.request(method, self._url + path, json=body, params=query, **options)

    def send_all(self, *, with_reads: bool = True) -> dict[str, requests.Response]:
        """Send a dry run of each request in the OpenAPI document; return the responses by method and path.

        Streams are left out if the client has the token, because they do not end.
        """
        document = Client(self._url, token=TOKEN).send("GET", "/openapi.json").json()
        responses = {}
        for path, operations in document["paths"].items():
            for method in operations:
                name = f"{method.upper()} {path}"
                is_stream = "text/event-stream" in str(operations[method]["responses"])
                if (method == "get" and not with_reads) or (is_stream and self._is_super):
                    continue
                query = {**QUERIES.get(name, {}), **({} if method == "get" else {"dry_run": "true"})}
                body = BODIES.get(name)
                responses[name] = self.send(method.upper(), path.format(**IN_PATH), body, **query)
        return responses


def rule_of(name: str) -> Any:
    return {key.replace(":path}", "}"): rule for key, rule in RULES.items()}[name]


@pytest.fixture
def admin_settings(tmp_path: Path) -> str:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    return f"""authorizer.class.name=kafka.security.authorizer.AclAuthorizer
        super.users=User:admin
        delegation.token.secret.key=planted-token-key
        kreplica.admin.listener=127.0.0.1:0
        kreplica.admin.authentication=basic
        kreplica.admin.token.file={token}
    """


def test_each_route_needs_authentication_and_permission(
    tmp_path: Path, certificates: Path, coordinator: CoordinatorProcess, admin_settings: str, logged: list[str]
) -> None:
    """Without credentials, only public routes respond; without ACLs, a user sees nothing; with ACLs, its own topics."""

    async def scenario(scene: Brokers) -> None:
        cluster = scene.cluster("SASL_SSL", "PLAIN", "admin")
        for name in ("orders", "secrets"):
            await Admin(cluster).create_topic(name, 1, 1)
        await cluster.close()
        await scene.create_user("bob")
        broker = scene.brokers[0]
        url = broker.admin.url
        anonymous, bob = Client(url), Client(url, "bob")

        def without_credentials() -> None:
            for name, response in anonymous.send_all().items():
                rule = rule_of(name)
                assert response.status_code == 401 or rule.public, (name, response.text)
                assert not (rule.public and response.status_code in (401, 403)), name

        def without_permissions() -> None:
            for name, response in bob.send_all().items():
                rule = rule_of(name)
                if rule.public or rule is AUTHENTICATED:
                    continue
                if rule is RENEWED_TOKENS:
                    assert response.status_code == 404, (name, response.text)
                    continue
                if rule in (LISTED_TOPICS, LISTED_GROUPS, LISTED_TOKENS):
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

    with_brokers(1, tmp_path, certificates, coordinator.address, scenario, admin_settings)


def test_brokers_forward_requests_with_the_permissions_of_the_caller(
    tmp_path: Path, certificates: Path, coordinator: CoordinatorProcess, admin_settings: str
) -> None:
    """Requests that involve all brokers work for users with passwords, and do not give them more permissions."""

    async def scenario(scene: Brokers) -> None:
        await scene.create_user("bob")
        broker = scene.brokers[0]
        bob = Client(broker.admin.url, "bob")
        refused = await deferToThread(bob.send, "GET", "/v1/live-metrics")
        assert refused.status_code == 403
        cluster = ResourcePattern(ResourceType.CLUSTER, "kafka-cluster", PatternType.LITERAL)
        acl = Acl("User:bob", "127.0.0.1", AclOperation.DESCRIBE, Permission.ALLOW)
        await broker.watches.acls.add(cluster, {acl})
        rules = scene.brokers[1].plugins.acl_authorizer.rules
        while not list(rules.patterns):
            await pause(scene.reactor, 0.05)
        metrics = (await deferToThread(bob.send, "GET", "/v1/live-metrics")).json()
        assert [row["live"] for row in metrics["brokers"]] == [True, True]
        assert metrics["problems"] == []
        await broker.watches.acls.remove(cluster, {acl})
        assert (await deferToThread(bob.send, "GET", "/v1/live-metrics")).status_code == 403

    with_brokers(2, tmp_path, certificates, coordinator.address, scenario, admin_settings)


def test_users_and_acls_by_rest(
    tmp_path: Path, certificates: Path, coordinator: CoordinatorProcess, admin_settings: str, logged: list[str]
) -> None:
    """An administrator creates a user and ACLs, sees why access is allowed, and deletes them; no secret is shown."""

    async def scenario(scene: Brokers) -> None:
        url = scene.brokers[0].admin.url
        texts: list[str] = []

        def send_requests() -> None:
            admin, password = Client(url, token=TOKEN), PASSWORDS["bob"]

            def send(*words: Any, **query: Any) -> Any:
                response = admin.send(*words, **query)
                texts.append(response.text)
                assert response.ok, response.text
                return response.json()

            preview = send("PUT", "/v1/users/bob", {"password": password}, dry_run="true")
            assert send("GET", "/v1/users")["users"] == []
            changed = send("PUT", "/v1/users/bob", {"password": password})
            row = {"user": "bob", "mechanisms": [{"mechanism": "SCRAM-SHA-512", "iterations": 8192}]}
            assert send("GET", "/v1/users")["users"] == [row]
            assert {name: changed[name] for name in row} == row == {name: preview[name] for name in row}
            assert changed["znodes"][0]["data"]["config"] == {"SCRAM-SHA-512": "(hidden)"}
            bob = Client(url, "bob")
            denied = bob.send("GET", "/v1/topics/orders/messages")
            assert denied.status_code == 403
            question = {"principal": "User:bob", "operation": "read", "resource_name": "orders"}
            why = bob.send("GET", "/v1/why/access", **question).json()
            assert (why["allowed"], why["reason"], why["acl"]) == (False, "no_acl", None)
            assert bob.send("GET", "/v1/why/access", **{**question, "principal": "User:x"}).status_code == 403

            row = {"resource_type": "topic", "resource_name": "ord", "pattern_type": "prefixed"}
            row |= {"principal": "User:bob", "operation": "read"}
            preview = send("POST", "/v1/acls", {"acls": [row]}, dry_run="true")
            assert preview["znodes"][0]["path"] == "/kafka-acl-extended/prefixed/topic/ord".replace("topic", "Topic")
            assert send("GET", "/v1/acls")["acls"] == []
            (created,) = send("POST", "/v1/acls", {"acls": [row]})["acls"]
            assert created == {**row, "host": "*", "permission": "allow"}
            assert send("GET", "/v1/acls", resource_name="orders", pattern_type="match")["acls"] == [created]
            why = bob.send("GET", "/v1/why/access", **question).json()
            assert (why["allowed"], why["reason"], why["acl"]) == (True, "allowed_by_acl", created)
            assert why["summary"] == "User:bob may Read topic 'orders': an ACL allows it."
            cluster = {"operation": "describe_configs", "resource_type": "cluster"}
            why = bob.send("GET", "/v1/why/access", **{**question, **cluster}).json()
            text = "User:bob may not perform DescribeConfigs on the cluster: the resource has no ACLs."
            assert why["summary"] == text
            send("POST", "/v1/acls", {"acls": [{**row, "permission": "deny", "host": "127.0.0.1"}]})
            assert send("GET", "/v1/why/access", **question)["allowed"]
            why = send("GET", "/v1/why/access", host="127.0.0.1", **question)
            assert (why["allowed"], why["reason"], len(why["applying"])) == (False, "denied_by_acl", 2)
            assert send("GET", "/v1/why/access", **{**question, "principal": "User:admin"})["reason"] == "super_user"
            assert admin.send("DELETE", "/v1/acls").status_code == 400
            assert len(send("DELETE", "/v1/acls", principal="User:bob")["acls"]) == 2
            assert send("GET", "/v1/acls")["acls"] == []
            wrong = admin.send("POST", "/v1/acls", {"acls": [{**row, "principal": "bob"}]})
            assert (wrong.status_code, "body.acls[0]" in wrong.text) == (400, True)
            wrong = admin.send("PUT", "/v1/users/bob", {"password": [password]})
            texts.append(wrong.text)
            assert wrong.status_code == 400

            send("DELETE", "/v1/users/bob")
            assert admin.send("DELETE", "/v1/users/bob").status_code == 404
            assert bob.send("GET", "/v1/topics").status_code == 401

        await deferToThread(send_requests)
        for secret in (PASSWORDS["bob"], "stored_key", TOKEN):
            assert not [text for text in (*texts, *logged) if secret in text]

    with_brokers(1, tmp_path, certificates, coordinator.address, scenario, admin_settings)


def test_session_of_the_dashboard(
    tmp_path: Path, certificates: Path, coordinator: CoordinatorProcess, admin_settings: str
) -> None:
    """A user logs in with a password, uses the cookie, and logs out."""

    async def scenario(scene: Brokers) -> None:
        await scene.create_user("bob")
        url = scene.brokers[0].admin.url

        def send_requests() -> None:
            browser = Client(url)
            for body in ({"user": "bob", "password": "x"}, {"token": "x"}, {"user": "nobody", "password": "x"}):
                refused = browser.send("POST", "/v1/session", body)
                assert (refused.status_code, "www-authenticate" in refused.headers) == (401, True)
            assert browser.send("POST", "/v1/session", {"user": "bob", "token": TOKEN}).status_code == 400
            assert browser.send("GET", "/v1/session").status_code == 401
            opened = browser.send("POST", "/v1/session", {"user": "bob", "password": PASSWORDS["bob"]})
            assert (opened.status_code, opened.json()["user"]) == (201, "User:bob")
            cookie = opened.headers["set-cookie"]
            assert cookie.startswith("kreplica-session-1=")
            assert "HttpOnly; SameSite=Strict" in cookie
            assert browser.send("GET", "/v1/session").json()["method"] == "session"
            assert browser.send("GET", "/v1/topics").json()["topics"] == []
            assert browser.send("DELETE", "/v1/session").status_code == 403
            header = {"X-Kreplica-Dashboard": "1"}
            stolen = requests.cookies.cookiejar_from_dict(browser._session.cookies.get_dict())
            assert browser.send("DELETE", "/v1/session", headers=header).status_code == 204
            assert browser.send("GET", "/v1/topics").status_code == 401
            browser._session.cookies.update(stolen)
            assert browser.send("GET", "/v1/topics").status_code == 401

        await deferToThread(send_requests)

    with_brokers(1, tmp_path, certificates, coordinator.address, scenario, admin_settings)


def test_client_certificates(
    tmp_path: Path, certificates: Path, coordinator: CoordinatorProcess, admin_settings: str
) -> None:
    """A client with a certificate is the user named by its subject; others use passwords on the same port."""
    text = (certificates / "broker.pem").read_text()
    begin = text.index("-----BEGIN CERTIFICATE")
    key, chain = tmp_path / "admin-key.pem", tmp_path / "admin.pem"
    key.write_text(text[:begin])
    chain.write_text(text[begin:])
    tls = f"""
        kreplica.admin.authentication=basic,certificate
        kreplica.admin.tls.certificate.file={chain}
        kreplica.admin.tls.key.file={key}
        kreplica.admin.tls.client.ca.file={certificates}/ca.pem
        ssl.principal.mapping.rules=RULE:^CN=(.*)$/$1/,DEFAULT
    """

    async def scenario(scene: Brokers) -> None:
        await scene.create_user("bob")
        url = scene.brokers[0].admin.url

        def send_requests() -> None:
            for options, expected in (
                ({"token": TOKEN}, "User:admin-token"),
                ({"user": "bob"}, "User:bob"),
                ({}, None),
            ):
                client = Client(url, **options)
                client.verify = str(certificates / "ca.pem")
                response = client.send("GET", "/v1/session")
                assert response.json().get("user") == expected
            opened = Client(url)
            opened.verify = str(certificates / "ca.pem")
            cookie = opened.send("POST", "/v1/session", {"token": TOKEN}).headers["set-cookie"]
            assert cookie.startswith("__Host-kreplica-session-1=")
            assert cookie.endswith("; Secure")
            for _ in range(2):  # the second connection may resume the TLS session of the first
                alice = Client(url)
                alice.verify, alice.cert = str(certificates / "ca.pem"), str(certificates / "alice.pem")
                session = alice.send("GET", "/v1/session").json()
                assert (session["user"], session["method"]) == ("User:alice", "certificate")
                assert alice.send("GET", "/v1/cluster").status_code == 403
            shown = command(url, "--certificate-file", str(certificates / "alice.pem"))
            assert "User:alice may not Read topic 'orders': the resource has no ACLs." in shown
            (tmp_path / "password").write_text(PASSWORDS["bob"])
            shown = command(url, "--user", "bob", "--password-file", str(tmp_path / "password"))
            assert "User:bob from 127.0.0.1 is not authorized for describe on the cluster" in shown

        def command(url: str, *words: str) -> str:
            arguments = ["why", "access", "User:alice", "Read", "orders", "--admin", url]
            done = subprocess.run(
                [sys.executable, "-m", "kreplica.cli", *arguments, "--ca-file", str(certificates / "ca.pem"), *words],
                capture_output=True,
                text=True,
                timeout=60,
            )
            return done.stdout + done.stderr

        await deferToThread(send_requests)

    plain = admin_settings.replace("kreplica.admin.authentication=basic\n", "")
    with_brokers(1, tmp_path, certificates, coordinator.address, scenario, plain + tls)
