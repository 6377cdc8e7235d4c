"""Callers of the admin API with bearer tokens from an authorization server."""

from __future__ import annotations

import time
from pathlib import Path

import jwt
import pytest
from sasl_scene import Brokers, with_brokers
from test_security_admin_api import TOKEN, Client, rule_of
from twisted.internet.threads import deferToThread

from kreplica.admin.security.route_rules import (
    AUTHENTICATED,
    LISTED_GROUPS,
    LISTED_TOKENS,
    LISTED_TOPICS,
    RENEWED_TOKENS,
)
from kreplica.client import Admin
from kreplica.errors import SettingsError
from kreplica.runtime.pause import pause
from kreplica.security.acls.acl import Acl, AclOperation, PatternType, Permission, ResourcePattern, ResourceType
from kreplica.settings import BrokerSettings
from tests.support.coordinator import CoordinatorProcess
from tests.support.token_server import AUDIENCE, ISSUER, rsa_key, token_server


@pytest.fixture
def admin_settings(tmp_path: Path) -> str:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    return f"""authorizer.class.name=kafka.security.authorizer.AclAuthorizer
        super.users=User:admin
        kreplica.admin.listener=127.0.0.1:0
        kreplica.admin.authentication=bearer
        kreplica.admin.token.file={token}
        delegation.token.secret.key=planted-token-key
        sasl.oauthbearer.expected.audience={AUDIENCE}
        sasl.oauthbearer.expected.issuer={ISSUER}
    """


def test_tokens_need_the_same_permissions(
    tmp_path: Path, certificates: Path, coordinator: CoordinatorProcess, admin_settings: str, logged: list[str]
) -> None:
    """A token names a user, whose ACLs apply to each route, even on other brokers; an invalid token is rejected."""
    with token_server() as server:

        async def scenario(scene: Brokers) -> None:
            cluster = scene.cluster("SASL_SSL", "PLAIN", "admin")
            await Admin(cluster).create_topic("orders", 1, 1)
            await cluster.close()
            broker = scene.brokers[0]
            url = broker.admin.url
            bob = Client(url, token=server.token("bob"))

            def without_permissions() -> None:
                session = bob.send("GET", "/v1/session").json()
                assert (session["user"], session["method"], session["is_super"]) == ("User:bob", "bearer", False)
                for name, response in bob.send_all().items():
                    rule = rule_of(name)
                    if rule.public or rule in (AUTHENTICATED, RENEWED_TOKENS):
                        continue
                    if rule in (LISTED_TOPICS, LISTED_GROUPS, LISTED_TOKENS):
                        assert response.status_code == 200, (name, response.text)
                        assert "orders" not in response.text
                        continue
                    assert response.status_code == 403, (name, response.text)
                    assert response.json().get("principal") == "User:bob", (name, response.text)

            await deferToThread(without_permissions)
            topic = ResourcePattern(ResourceType.TOPIC, "orders", PatternType.LITERAL)
            whole = ResourcePattern(ResourceType.CLUSTER, "kafka-cluster", PatternType.LITERAL)
            acl = Acl("User:bob", "*", AclOperation.DESCRIBE, Permission.ALLOW)
            for resource in (topic, whole):
                await broker.watches.acls.add(resource, {acl})
            rules = scene.brokers[1].plugins.acl_authorizer.rules
            while len(list(rules.patterns)) < 2:
                await pause(scene.reactor, 0.05)

            def with_permissions() -> None:
                assert bob.send("GET", "/v1/topics/orders").status_code == 200
                assert bob.send("GET", "/v1/topics/orders/messages").status_code == 403
                metrics = bob.send("GET", "/v1/live-metrics").json()
                assert ([row["live"] for row in metrics["brokers"]], metrics["problems"]) == ([True, True], [])

            await deferToThread(with_permissions)
            now_s = time.time()
            expired = server.token("bob", exp=now_s - 100)
            untrusted = jwt.encode({"sub": "bob", "iat": now_s, "exp": now_s + 60}, rsa_key(3), "RS256")

            def use_invalid_tokens() -> None:
                for token in (expired, untrusted, server.token("bob", aud="x"), "text"):
                    for _ in range(5):
                        response = Client(url, token=token).send("GET", "/v1/topics")
                        assert response.status_code == 401
                        assert 'error="invalid_token"' in response.headers["www-authenticate"]
                        assert token not in response.text
                assert bob.send("GET", "/v1/topics/orders").status_code == 200
                assert Client(url, token=TOKEN).send("GET", "/v1/session").json()["method"] == "token"
                response = Client(url).send("GET", "/v1/topics")
                assert response.json()["accepts"] == ["token", "bearer"]

            await deferToThread(use_invalid_tokens)

            def log_in() -> None:
                browser = Client(url)
                expires_s = int(time.time()) + 100
                token = server.token("bob", exp=expires_s)
                response = browser.send("POST", "/v1/session", {"token": token})
                assert (response.status_code, response.json()["user"]) == (201, "User:bob")
                assert response.json()["ends_at_ms"] <= expires_s * 1000
                assert browser.send("GET", "/v1/session").json()["method"] == "session"
                assert browser.send("GET", "/v1/topics/orders").status_code == 200
                assert browser.send("GET", "/v1/topics/orders/messages").status_code == 403
                rejected = Client(url).send("POST", "/v1/session", {"token": expired})
                assert (rejected.status_code, "set-cookie" in rejected.headers) == (401, False)

            await deferToThread(log_in)
            assert any("invalid: the token expired 10" in text for text in logged)
            assert not [text for text in logged if expired[20:] in text or TOKEN in text]

        more_settings = f"{admin_settings}\nsasl.oauthbearer.jwks.endpoint.url={server.url}/keys"
        with_brokers(2, tmp_path, certificates, coordinator.address, scenario, more_settings)


def test_the_token_file_and_the_keys_are_needed(
    tmp_path: Path, certificates: Path, coordinator: CoordinatorProcess, admin_settings: str
) -> None:
    async def scenario(_: Brokers) -> None:
        pytest.fail("the broker has started")

    with pytest.raises(SettingsError, match=r"bearer needs sasl\.oauthbearer\.jwks\.endpoint\.url"):
        with_brokers(1, tmp_path, certificates, coordinator.address, scenario, admin_settings)
    with pytest.raises(SettingsError, match="set a token file"):
        BrokerSettings.from_text("broker.id=1\nzookeeper.connect=x\nkreplica.admin.authentication=bearer")
