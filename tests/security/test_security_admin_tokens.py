"""Delegation tokens in the admin API of real brokers."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from base64 import b64decode
from pathlib import Path
from typing import Any

from sasl_scene import PASSWORDS, Brokers, with_brokers
from test_security_admin_api import TOKEN, Client
from token_scene import DAY_MS, ENABLED, WITH_ACLS, token_connection
from twisted.internet.threads import deferToThread

from kreplica.client import secured_endpoints
from kreplica.client.connection import connect
from kreplica.security.acls.acl import Acl, AclOperation, PatternType, Permission, ResourcePattern, ResourceType
from kreplica.security.tokens.znodes import TOKENS
from tests.support.coordinator import CoordinatorProcess


def settings(directory: Path, *lines: str) -> str:
    token = directory / "token"
    token.write_text(TOKEN)
    admin = ("kreplica.admin.listener=127.0.0.1:0", f"kreplica.admin.token.file={token}", *lines)
    return "\n".join([WITH_ACLS, "kreplica.admin.authentication=basic", *admin])


def test_tokens_by_rest(
    tmp_path: Path, certificates: Path, coordinator: CoordinatorProcess, logged: list[str]
) -> None:
    """Users manage their own tokens, and other tokens only with ACLs; the secret is returned only at creation."""

    async def scenario(scene: Brokers) -> None:
        for user in ("alice", "bob"):
            await scene.create_user(user)
        broker = scene.brokers[0]
        url, acls = broker.admin.url, broker.watches.acls
        found: dict[str, Any] = {}
        texts: list[str] = []

        def send(client: Client, method: str, path: str, body: Any = None, status: int = 200, **query: Any) -> Any:
            response = client.send(method, path, body, **query)
            assert response.status_code == status, response.text
            if method != "POST" or path != "/v1/tokens":
                texts.append(response.text)
            return response.json()

        alice, bob, admin = Client(url, "alice"), Client(url, "bob"), Client(url, token=TOKEN)

        def manage_own_tokens() -> None:
            preview = send(alice, "POST", "/v1/tokens", {}, 201, dry_run="true")
            assert (preview["hmac"], preview["dry_run"]) == (None, True)
            assert send(alice, "GET", "/v1/tokens")["tokens"] == []
            new = send(alice, "POST", "/v1/tokens", {"renewers": ["User:bob"], "max_lifetime_ms": DAY_MS}, 201)
            assert (new["owner"], new["requester"], new["renewers"]) == ("User:alice", "User:alice", ["User:bob"])
            assert new["max_ms"] == new["expires_ms"] == new["issued_ms"] + DAY_MS
            assert new["znodes"][0]["path"] == f"{TOKENS}/{new['token_id']}"
            assert new["hmac"] not in str(new["znodes"])
            found.update(new)
            path = f"/v1/tokens/{new['token_id']}"
            row = {name: new[name] for name in new if name not in ("hmac", "dry_run", "znodes")}
            for client in (alice, bob, admin):
                assert send(client, "GET", "/v1/tokens")["tokens"] == [row]
            assert send(admin, "GET", "/v1/tokens", owner="User:bob")["tokens"] == [row]
            assert send(admin, "GET", "/v1/tokens", owner="User:admin")["tokens"] == []
            assert send(bob, "POST", f"{path}/expire", {"period_ms": 60_000})["expires_ms"] < new["expires_ms"]
            assert send(bob, "POST", f"{path}/renew", {})["expires_ms"] == new["max_ms"]
            assert send(bob, "POST", f"{path}/expire", {}, dry_run="true")["dry_run"]

        def try_without_acls() -> None:
            other = send(admin, "POST", "/v1/tokens", {"owner": "User:carol"}, 201)
            path = f"/v1/tokens/{other['token_id']}"
            assert (other["owner"], other["requester"]) == ("User:carol", "User:admin-token")
            assert send(alice, "POST", f"{path}/renew", {}, 403)["title"] == "DELEGATION_TOKEN_OWNER_MISMATCH"
            denied = send(alice, "POST", "/v1/tokens", {"owner": "User:carol"}, 403)
            assert (denied["title"], denied["operation"]) == ("USER_AUTHORIZATION_FAILED", "create_tokens")
            assert "belongs to no user" in send(admin, "POST", "/v1/tokens", {}, 400)["detail"]
            assert send(alice, "POST", "/v1/tokens", {"owner": "alice"}, 400)["title"] == "INVALID_REQUEST"
            assert len(send(alice, "GET", "/v1/tokens")["tokens"]) == 1
            missing = send(alice, "POST", "/v1/tokens/missing/expire", {}, 404)
            assert missing["title"] == "DELEGATION_TOKEN_NOT_FOUND"
            assert send(admin, "POST", f"{path}/renew", {"period_ms": 7 * DAY_MS})["expires_ms"] == other["max_ms"]
            found["other"] = other["token_id"]

        await deferToThread(manage_own_tokens)
        connection = await token_connection(scene, {**found, "hmac": b64decode(found["hmac"])})
        assert "User:alice" in scene.users
        await connection.close()
        await deferToThread(try_without_acls)
        carol = ResourcePattern(ResourceType.USER, "User:carol", PatternType.LITERAL)
        allowed = [
            Acl("User:alice", "*", operation, Permission.ALLOW)
            for operation in (AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS)
        ]
        await acls.add(carol, allowed)

        def manage_tokens_with_acls() -> None:
            deadline_s = time.monotonic() + 20
            while len(send(alice, "GET", "/v1/tokens")["tokens"]) != 2:
                assert time.monotonic() < deadline_s
            new = send(alice, "POST", "/v1/tokens", {"owner": "User:carol"}, 201)
            assert (new["owner"], new["requester"]) == ("User:carol", "User:alice")
            for token_id in (found["token_id"], found["other"], new["token_id"]):
                send(admin, "POST", f"/v1/tokens/{token_id}/expire", {})
            assert send(alice, "GET", "/v1/tokens")["tokens"] == []

        await deferToThread(manage_tokens_with_acls)
        assert await broker.client.get_children(TOKENS) == []
        assert not [text for text in (*texts, *logged) if found["hmac"] in text]

    with_brokers(1, tmp_path, certificates, coordinator.address, scenario, f"{settings(tmp_path)}\n{ENABLED}")


def test_disabled_and_unauthenticated(tmp_path: Path, certificates: Path, coordinator: CoordinatorProcess) -> None:
    """The errors are Kafka's; an unauthenticated caller cannot create a credential."""

    async def disabled(scene: Brokers) -> None:
        response = await deferToThread(Client(scene.brokers[0].admin.url, token=TOKEN).send, "GET", "/v1/tokens")
        assert (response.status_code, response.json()["title"]) == (403, "DELEGATION_TOKEN_AUTH_DISABLED")
        assert "delegation.token.secret.key" in response.json()["what_to_do"]

    async def anonymous(scene: Brokers) -> None:
        client = Client(scene.brokers[0].admin.url)
        for words in (("GET", "/v1/tokens"), ("POST", "/v1/tokens", {"owner": "User:alice"})):
            response = await deferToThread(client.send, *words)
            assert (response.status_code, response.json()["title"]) == (403, "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED")

    with_brokers(1, tmp_path, certificates, coordinator.address, disabled, settings(tmp_path))
    with_brokers(
        1, tmp_path, certificates, coordinator.address, anonymous, f"{ENABLED}\nkreplica.admin.listener=127.0.0.1:0"
    )


def test_tokens_on_the_command_line(tmp_path: Path, certificates: Path, coordinator: CoordinatorProcess) -> None:
    """A user creates a token for a job; a client with the settings that are written acts as this user."""
    password = tmp_path / "password"
    password.write_text(PASSWORDS["bob"])

    async def scenario(scene: Brokers) -> None:
        await scene.create_user("bob")
        url, config = scene.brokers[0].admin.url, tmp_path / "job.properties"

        def kreplica(*words: str) -> str:
            program = [str(Path(sys.executable).parent / "kreplica"), "token", *words]
            given = ("--admin", url, "--user", "bob", "--password-file", str(password))
            done = subprocess.run([*program, *given], capture_output=True, text=True, timeout=60)
            assert done.returncode == 0, done.stderr
            return done.stdout

        printed = await deferToThread(kreplica, "create", "--client-config", str(config))
        assert os.stat(config).st_mode & 0o777 == 0o600
        written = dict(line.split("=", 1) for line in config.read_text().splitlines())
        assert 'tokenauth="true"' in written["sasl.jaas.config"]
        assert "hmac" not in printed
        token_id = printed.split()[1]
        endpoint = secured_endpoints({"security.protocol": "SASL_PLAINTEXT", **written})
        connection = await connect(scene.reactor, "127.0.0.1", scene.port("LOCAL"), client_id="job", endpoint=endpoint)
        assert "User:bob" in scene.users
        await connection.close()
        assert token_id in await deferToThread(kreplica, "list")
        assert token_id in await deferToThread(kreplica, "renew", token_id, "--period", "2d")
        assert "was deleted" in await deferToThread(kreplica, "expire", token_id, "--yes")
        assert "No tokens." in await deferToThread(kreplica, "list")

    with_brokers(1, tmp_path, certificates, coordinator.address, scenario, f"{settings(tmp_path)}\n{ENABLED}")
