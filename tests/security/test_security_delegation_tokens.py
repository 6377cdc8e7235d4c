"""Delegation tokens (KIP-48, KIP-373) on brokers with real listeners."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sasl_scene import ILLEGAL_SASL_STATE, PASSWORDS, RECORDS, TIMEOUT_S, Brokers, with_brokers
from token_scene import (
    DAY_MS,
    DISABLED_CODE,
    EXPIRED,
    INVALID_TYPE,
    KEY,
    NOT_ALLOWED,
    NOT_FOUND,
    OWNER_MISMATCH,
    UNAUTHORIZED,
    WITH_ACLS,
    create,
    describe,
    expire,
    password_of,
    renew,
    token_config,
    token_connection,
    until,
    with_tokens,
)
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread

from kreplica.blocking import Cluster as BlockingCluster
from kreplica.blocking import Reader
from kreplica.blocking.secured_runtime import secured_runtime
from kreplica.client import Admin, ClientOptions, Cluster, Producer, default_runtime, errors, secured_endpoints
from kreplica.client.connection import connect
from kreplica.membership.delegation_tokens.token_store import TokenStore
from kreplica.model import TopicPartition
from kreplica.runtime.pause import pause
from kreplica.security.tokens.token import TokenLifetimes, hmac_of
from kreplica.security.tokens.znodes import CHANGES, TOKENS, decode_token, path_of
from kreplica.wire.messages import CREATE_ACLS, CREATE_DELEGATION_TOKEN, METADATA, SASL_HANDSHAKE
from tests.support.coordinator import CoordinatorProcess


@pytest.fixture
def logged(logged: list[str]) -> Iterator[list[str]]:
    """The messages of all log events, which must not contain the key of the tokens."""
    yield logged
    assert not [text for text in logged if KEY in text]


def test_life_of_a_token(
    tmp_path: Path, certificates: Path, coordinator: CoordinatorProcess, logged: list[str]
) -> None:
    """A token is created on one broker, and used, renewed and deleted on both."""

    async def scenario(scene: Brokers) -> None:
        alice = await scene.connection("LOCAL", "PLAIN", "alice")
        admin = await scene.connection("LOCAL", "PLAIN", "admin")
        before_ms = int(time.time() * 1000)
        token = await create(alice, "admin")
        after_ms = int(time.time() * 1000)
        assert token["error_code"] == 0
        assert (token["principal_type"], token["principal_name"]) == ("User", "alice")
        assert token["token_requester_principal_name"] == "alice"
        assert before_ms <= token["issue_timestamp_ms"] <= after_ms
        assert token["expiry_timestamp_ms"] - token["issue_timestamp_ms"] == DAY_MS
        assert token["max_timestamp_ms"] - token["issue_timestamp_ms"] == 7 * DAY_MS
        assert bytes(token["hmac"]) == hmac_of(token["token_id"], KEY.encode())

        data, _ = await scene.brokers[0].client.get_data(path_of(token["token_id"]))
        assert json.loads(data) == {
            "version": 3,
            "owner": "User%3Aalice",
            "tokenRequester": "User%3Aalice",
            "renewers": ["User%3Aadmin"],
            "issueTimestamp": token["issue_timestamp_ms"],
            "maxTimestamp": token["max_timestamp_ms"],
            "expiryTimestamp": token["expiry_timestamp_ms"],
            "tokenId": token["token_id"],
        }
        (change,) = await scene.brokers[0].client.get_children(CHANGES)
        assert change == "token_change_0000000000"
        assert (await scene.brokers[0].client.get_data(f"{CHANGES}/{change}"))[0] == token["token_id"].encode()

        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            other = scene.brokers[1].watches.tokens
            assert other is not None
            await until(scene, lambda found=other: found.cache.find(token["token_id"]) is not None)
            for broker in (0, 1):
                connection = await token_connection(scene, token, mechanism, broker)
                assert (await connection.request(METADATA, 1, {"topics": []}))["brokers"]
                server = scene.brokers[broker].server
                assert server is not None
                assert "User:alice" in {each.user for each in server.resources.connections}
                await connection.close()

        # The renewer renews the token on the other broker, for less and for more than the maximum lifetime.
        far = await connect_to(scene, "admin", 1)
        code, expires_ms = await renew(far, token["hmac"], 2 * DAY_MS)
        assert (code, abs(expires_ms - token["issue_timestamp_ms"] - 2 * DAY_MS) < 60_000) == (0, True)
        assert await renew(far, token["hmac"], 100 * DAY_MS) == (0, token["max_timestamp_ms"])
        assert (await describe(alice, every=True))[1][token["token_id"]]["expiry_timestamp"] == token[
            "max_timestamp_ms"
        ]
        code, expires_ms = await expire(alice, token["hmac"], 3_600_000)
        assert (code, abs(expires_ms - after_ms - 3_600_000) < 60_000) == (0, True)

        code, deleted_ms = await expire(admin, token["hmac"])
        assert (code, abs(deleted_ms - after_ms) < 60_000) == (0, True)
        assert await scene.brokers[0].client.get_children(TOKENS) == []
        assert await describe(far, every=True) == (0, {})
        assert await expire(far, token["hmac"]) == (NOT_FOUND, -1)
        assert await renew(alice, b"no such secret") == (NOT_FOUND, -1)
        with pytest.raises(errors.ClientError, match="does not exist or has expired"):
            await token_connection(scene, token)
        for connection in (alice, admin, far):
            await connection.close()
        secret = password_of(token)
        assert not [text for text in logged if secret in text or bytes(token["hmac"]).hex() in text]
        assert any(f"created delegation token {token['token_id']} of User:alice" in text for text in logged)

    with_tokens(tmp_path, certificates, coordinator.address, scenario, brokers=2)


async def connect_to(scene: Brokers, user: str, broker: int) -> Any:
    """Return an authenticated connection to one of the brokers."""
    endpoint = secured_endpoints(scene.config("LOCAL", "PLAIN", user))
    port = scene.brokers[broker]._ports["LOCAL"]
    return await connect(scene.reactor, "127.0.0.1", port, client_id="test", endpoint=endpoint)


def test_permissions(
    tmp_path: Path, certificates: Path, coordinator: CoordinatorProcess, logged: list[str]
) -> None:
    """Owners and renewers need no ACLs; others need CreateTokens, DescribeTokens or Describe (KIP-373)."""

    async def scenario(scene: Brokers) -> None:
        alice, admin = [await scene.connection("LOCAL", "PLAIN", user) for user in ("alice", "admin")]
        await scene.create_user("bob")
        bob = await scene.connection("LOCAL", "SCRAM-SHA-256", "bob")
        own = await create(alice)
        rejected = await create(alice, owner="bob")
        assert (rejected["error_code"], rejected["principal_name"], rejected["token_id"]) == (UNAUTHORIZED, "bob", "")
        assert rejected["expiry_timestamp_ms"] == rejected["max_timestamp_ms"] == -1
        group = {"principal_type": "Group", "principal_name": "g"}
        body = {"owner_principal_type": None, "owner_principal_name": None, "max_lifetime_ms": 1}
        invalid = await alice.request(CREATE_DELEGATION_TOKEN, 3, {**body, "renewers": [group]})
        assert invalid["error_code"] == INVALID_TYPE

        for_bob = await create(admin, owner="bob")  # a super user
        assert (for_bob["error_code"], for_bob["principal_name"]) == (0, "bob")
        assert for_bob["token_requester_principal_name"] == "admin"
        old = await create(alice, version=2)
        assert (old["error_code"], "token_requester_principal_name" in old) == (0, False)
        assert (await expire(alice, old["hmac"]))[0] == 0
        assert await renew(alice, for_bob["hmac"]) == (OWNER_MISMATCH, -1)
        assert await expire(admin, for_bob["hmac"]) == (OWNER_MISMATCH, -1)
        assert (await renew(bob, for_bob["hmac"]))[0] == 0

        ids = {own["token_id"], for_bob["token_id"]}
        assert set((await describe(admin, every=True))[1]) == ids
        assert set((await describe(admin, "alice"))[1]) == {own["token_id"]}
        assert set((await describe(admin, "admin"))[1]) == {for_bob["token_id"]}, "it requested the token"
        assert await describe(admin) == (0, {})
        assert set((await describe(bob, every=True))[1]) == {for_bob["token_id"]}
        assert await describe(bob, "alice") == (0, {})

        async def allow(kind: int, name: str, operation: int) -> None:
            row = {"resource_type": kind, "resource_name": name, "resource_pattern_type": 3, "operation": operation}
            row |= {"principal": "User:alice", "host": "*", "permission_type": 3}
            response = await admin.request(CREATE_ACLS, 2, {"creations": [row]})
            assert response["results"][0]["error_code"] == 0

        async def lists_exactly(expected: set[str], *owners: str) -> bool:
            return set((await describe(alice, *owners, every=not owners))[1]) == expected

        assert set((await describe(alice, every=True))[1]) == {own["token_id"]}
        await allow(6, for_bob["token_id"], 8)
        while not await lists_exactly(ids):
            await pause(scene.reactor, 0.02)
        second = await create(admin, owner="bob")
        assert set((await describe(alice, "bob"))[1]) == {for_bob["token_id"]}
        await allow(7, "User:bob", 14)
        while not await lists_exactly({for_bob["token_id"], second["token_id"]}, "bob"):
            await pause(scene.reactor, 0.02)
        await allow(7, "User:bob", 13)
        while (third := await create(alice, owner="bob"))["error_code"]:
            await pause(scene.reactor, 0.02)
        assert (third["error_code"], third["token_requester_principal_name"]) == (0, "alice")
        connection = await token_connection(scene, third)
        assert "User:bob" in scene.users

        # A client with a token cannot obtain another, so access cannot outlive the token's maximum lifetime.
        assert (await create(connection))["error_code"] == NOT_ALLOWED
        assert await renew(connection, third["hmac"]) == (NOT_ALLOWED, -1)
        assert await expire(connection, third["hmac"]) == (NOT_ALLOWED, -1)
        assert await describe(connection, every=True) == (NOT_ALLOWED, {})
        for each in (alice, admin, bob, connection):
            await each.close()

    with_tokens(tmp_path, certificates, coordinator.address, scenario, WITH_ACLS)


def test_disabled_tokens(tmp_path: Path, certificates: Path, coordinator: CoordinatorProcess) -> None:
    """Without a key, requests fail with Kafka's error, and no client can authenticate with a token."""

    async def scenario(scene: Brokers) -> None:
        alice = await scene.connection("LOCAL", "PLAIN", "alice")
        assert (await create(alice))["error_code"] == DISABLED_CODE
        assert await renew(alice, b"x") == (DISABLED_CODE, -1)
        assert await expire(alice, b"x") == (DISABLED_CODE, -1)
        assert await describe(alice, every=True) == (DISABLED_CODE, {})
        with pytest.raises(errors.ClientError, match="does not exist or has expired"):
            await token_connection(scene, {"token_id": "x", "hmac": b"x"})
        assert "delegation_token" not in await scene.brokers[0].client.get_children("/")
        await alice.close()

    with_brokers(1, tmp_path, certificates, coordinator.address, scenario)


class Clock:
    """A wall clock that a test can set forward."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def __call__(self) -> int:
        return time.time_ns() // 1_000_000 + self.ahead_ms


def test_expired_token(tmp_path: Path, certificates: Path, coordinator: CoordinatorProcess, logged: list[str]) -> None:
    """An expired token is rejected, and cannot be renewed."""
    clock = Clock()

    async def scenario(scene: Brokers) -> None:
        alice = await scene.connection("LOCAL", "PLAIN", "alice")
        first, second = await create(alice, max_ms=3_600_000), await create(alice)
        assert first["expiry_timestamp_ms"] == first["max_timestamp_ms"] == first["issue_timestamp_ms"] + 3_600_000
        clock.ahead_ms = 3_500_000
        await (await token_connection(scene, first)).close()
        clock.ahead_ms = 3_700_000
        with pytest.raises(errors.ClientError, match="does not exist or has expired"):
            await token_connection(scene, first)
        assert await renew(alice, first["hmac"]) == (EXPIRED, -1)
        assert await expire(alice, first["hmac"], 1000) == (EXPIRED, -1)
        assert (await expire(alice, first["hmac"]))[0] == 0
        await (await token_connection(scene, second)).close()
        # Notifications older than 15 minutes are removed.
        while await scene.brokers[0].client.get_children(CHANGES):
            await pause(scene.reactor, 0.02)
        await alice.close()

    with_tokens(tmp_path, certificates, coordinator.address, scenario, wall_clock_ms=clock)


def test_expired_tokens_are_deleted(
    tmp_path: Path, certificates: Path, coordinator: CoordinatorProcess, logged: list[str]
) -> None:
    """The controller deletes expired tokens."""
    clock = Clock()

    async def scenario(scene: Brokers) -> None:
        alice = await scene.connection("LOCAL", "PLAIN", "alice")
        token = await create(alice)
        stores = [broker.watches.tokens for broker in scene.brokers]
        clock.ahead_ms = DAY_MS + 60_000
        await until(scene, lambda: all(store is not None and not store.cache.tokens for store in stores))
        assert await scene.brokers[0].client.get_children(TOKENS) == []
        assert sum(f"deleted delegation token {token['token_id']}" in text for text in logged) == 1
        await alice.close()

    more = "delegation.token.expiry.check.interval.ms=100"
    with_tokens(tmp_path, certificates, coordinator.address, scenario, more, brokers=2, wall_clock_ms=clock)


def test_sessions_of_tokens(
    tmp_path: Path, certificates: Path, coordinator: CoordinatorProcess, logged: list[str]
) -> None:
    """A session lasts as long as its token; a deleted token cannot continue it (KIP-368)."""

    async def scenario(scene: Brokers) -> None:
        alice = await scene.connection("LOCAL", "PLAIN", "alice")
        token = await create(alice)
        assert (await expire(alice, token["hmac"], 1000))[0] == 0
        renewed, idle = await token_connection(scene, token), await token_connection(scene, token)
        idle.session.end()
        assert (await renew(alice, token["hmac"], 1000))[0] == 0
        for _ in range(3):
            await renewed.request(METADATA, 1, {"topics": []})
            await pause(scene.reactor, 0.5)
            assert (await renew(alice, token["hmac"], 1200))[0] == 0
        with pytest.raises(errors.ConnectionLost):
            await idle.request(METADATA, 1, {"topics": []})
        assert any("the session expired" in text for text in logged)
        # Sessions with passwords do not expire on this listener, so they cannot authenticate again.
        response = await alice.request(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
        assert response["error_code"] == ILLEGAL_SASL_STATE

        assert (await expire(alice, token["hmac"]))[0] == 0
        await renewed.request(METADATA, 1, {"topics": []})  # until its session ends
        await until(scene, lambda: renewed.closed)
        assert any("the delegation token does not exist" in text for text in logged)
        await alice.close()

    with_tokens(tmp_path, certificates, coordinator.address, scenario)


def test_clients_of_every_kind(
    tmp_path: Path, certificates: Path, coordinator: CoordinatorProcess, logged: list[str]
) -> None:
    """Both kreplica clients use a token with the option of Java's login module; kafka-python announces it too."""

    async def scenario(scene: Brokers) -> None:
        alice = await scene.connection("LOCAL", "PLAIN", "alice")
        token = await create(alice)
        config = token_config(scene, "SASL_SSL", token)
        options = ClientOptions(connect_timeout_s=TIMEOUT_S, operation_timeout_s=TIMEOUT_S)
        runtime = default_runtime(scene.reactor, endpoint=secured_endpoints(config))
        port = scene.port("SASL_SSL")
        async with Cluster(f"127.0.0.1:{port}", options=options, runtime=runtime) as cluster:
            await Admin(cluster).create_topic("orders", partitions=1, replication_factor=1)
            producer = Producer(cluster)
            deliveries = [producer.send("orders", b"%d" % number) for number in range(RECORDS)]
            await producer.flush()
            assert [(await each).offset for each in deliveries] == list(range(RECORDS))
            await producer.close()
        assert await deferToThread(read_blocking, port, config) == RECORDS
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            assert await deferToThread(read_with_kafka_python, scene.port("LOCAL"), token, mechanism) == RECORDS
        # librdkafka cannot announce a token, so the ID of the token is an unknown user.
        assert await deferToThread(error_of_librdkafka, scene.port("LOCAL"), token)
        await alice.close()

    with_tokens(tmp_path, certificates, coordinator.address, scenario)


def test_administration(
    tmp_path: Path, certificates: Path, coordinator: CoordinatorProcess, logged: list[str]
) -> None:
    """Both clients create, renew, list and delete tokens, and can use Java's settings for a token."""

    async def scenario(scene: Brokers) -> None:
        async with scene.cluster("LOCAL", "PLAIN", "alice") as cluster:
            admin = Admin(cluster)
            carol = "User:carol"
            token = await admin.create_delegation_token(renewers=["User:bob"], max_lifetime_ms=DAY_MS, owner=carol)
            assert (token.owner, token.requester, token.renewers) == ("User:carol", "User:alice", ("User:bob",))
            assert token.max_ms - token.issued_ms == DAY_MS
            assert token.password not in repr(token)
            assert await admin.describe_delegation_tokens() == [token]
            assert await admin.describe_delegation_tokens(["User:dave"]) == []
            with pytest.raises(errors.BrokerRefused, match="DELEGATION_TOKEN_OWNER_MISMATCH"):
                await admin.renew_delegation_token(token.hmac)
            own = await admin.create_delegation_token()
            renewed_ms = await admin.renew_delegation_token(own.hmac, 2 * DAY_MS)
            assert abs(renewed_ms - own.issued_ms - 2 * DAY_MS) < 60_000
            assert await admin.expire_delegation_token(own.hmac, DAY_MS) < renewed_ms
            await admin.expire_delegation_token(own.hmac)
            assert await admin.describe_delegation_tokens() == [token]
            with pytest.raises(ValueError, match="not a principal"):
                await admin.create_delegation_token(owner="carol")
        config = {"security.protocol": "SASL_PLAINTEXT", **token.client_config("SCRAM-SHA-256")}
        endpoint = secured_endpoints(config)
        connection = await connect(scene.reactor, "127.0.0.1", scene.port("LOCAL"), client_id="t", endpoint=endpoint)
        assert "User:carol" in scene.users
        await connection.close()
        await deferToThread(administer_blocking, scene.port("LOCAL"), scene.config("LOCAL", "PLAIN", "alice"))

    with_tokens(tmp_path, certificates, coordinator.address, scenario)


def administer_blocking(port: int, config: dict[str, str]) -> None:
    from kreplica.blocking.admin import (
        create_delegation_token,
        delegation_tokens,
        expire_delegation_token,
        renew_delegation_token,
    )

    with BlockingCluster(f"127.0.0.1:{port}", runtime=secured_runtime(config)) as cluster:
        token = create_delegation_token(cluster, renewers=["User:bob"])
        renewed_ms = renew_delegation_token(cluster, token.hmac, 2 * DAY_MS)
        (found,) = [each for each in delegation_tokens(cluster, ["User:alice"]) if each.owner == "User:alice"]
        assert (found.token_id, found.expires_ms) == (token.token_id, renewed_ms)
        expire_delegation_token(cluster, token.hmac)
        assert token.token_id not in {each.token_id for each in delegation_tokens(cluster)}


def read_blocking(port: int, config: dict[str, str]) -> int:
    partition = TopicPartition("orders", 0)
    with (
        BlockingCluster(f"127.0.0.1:{port}", runtime=secured_runtime(config)) as cluster,
        Reader(cluster, {partition: 0}) as reader,
    ):
        count = 0
        while count < RECORDS:
            count += sum(len(batch.records) for batch in reader.read(5.0))
        return count


def read_with_kafka_python(port: int, token: dict[str, Any], mechanism: str) -> int:
    """Read with kafka-python's SCRAM implementation, extended to announce a token."""
    from kafka import KafkaConsumer
    from kafka.net import sasl
    from kafka.net.sasl import scram

    class Announcing(scram.ScramClient):
        def first_message(self) -> bytes:
            self.auth_message = super().first_message().removeprefix(b"n,,") + b",tokenauth=true"
            return b"n,," + self.auth_message

    class TokenMechanism(scram.SaslMechanismScram):
        def __init__(self, **config: Any) -> None:
            super().__init__(**config)
            self._scram_client = Announcing(token["token_id"], password_of(token), mechanism)

    sasl.register_sasl_mechanism(mechanism, TokenMechanism, overwrite=True)
    try:
        consumer = KafkaConsumer(
            "orders",
            bootstrap_servers=f"127.0.0.1:{port}",
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            sasl_plain_username=token["token_id"],
            sasl_plain_password=password_of(token),
            auto_offset_reset="earliest",
            consumer_timeout_ms=5000,
        )
        records = consumer.poll(timeout_ms=TIMEOUT_S * 1000)
        count = sum(map(len, records.values()))
        while count < RECORDS:
            next(consumer)
            count += 1
        consumer.close()
        return count
    finally:
        sasl.register_sasl_mechanism(mechanism, scram.SaslMechanismScram, overwrite=True)


def error_of_librdkafka(port: int, token: dict[str, Any]) -> str:
    """Return the error of a client that sends the token as user and password without announcing it."""
    from confluent_kafka.admin import AdminClient

    found: list[str] = []
    config: dict[str, Any] = {
        "bootstrap.servers": f"127.0.0.1:{port}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": token["token_id"],
        "sasl.password": password_of(token),
        "error_cb": lambda error: found.append(str(error)),
    }
    admin = AdminClient(config)
    deadline_s = time.monotonic() + TIMEOUT_S
    while not any("invalid user name or password" in text for text in found):
        assert time.monotonic() < deadline_s, found
        admin.poll(0.1)
    return found[0]


def test_tokens_after_a_restart(tmp_path: Path, certificates: Path, coordinator: CoordinatorProcess) -> None:
    """A restarted broker accepts existing tokens; a broker with a different key rejects them."""
    tokens: list[dict[str, Any]] = []

    async def first(scene: Brokers) -> None:
        alice = await scene.connection("LOCAL", "PLAIN", "alice")
        tokens.append(await create(alice))
        await alice.close()

    async def second(scene: Brokers) -> None:
        store = scene.brokers[0].watches.tokens
        assert store is not None
        (token,) = store.cache.tokens
        assert decode_token((await scene.brokers[0].client.get_data(path_of(token.token_id)))[0]) == token
        await (await token_connection(scene, tokens[0])).close()

    async def third(scene: Brokers) -> None:
        with pytest.raises(errors.ClientError, match="invalid user name or password"):
            await token_connection(scene, tokens[0])

    with_tokens(tmp_path, certificates, coordinator.address, first)
    with_tokens(tmp_path, certificates, coordinator.address, second)
    alias = "delegation.token.master.key=planted-other-key"
    with_brokers(1, tmp_path, certificates, coordinator.address, third, alias)


def test_damaged_znodes(
    tmp_path: Path, certificates: Path, coordinator: CoordinatorProcess, logged: list[str]
) -> None:
    """A damaged token is logged and ignored; other tokens work."""

    async def scenario(scene: Brokers) -> None:
        client = scene.brokers[0].client
        alice = await scene.connection("LOCAL", "PLAIN", "alice")
        token = await create(alice)
        await client.create(path_of("damaged"), b"{}")
        for data in (b"damaged", b"../../config", b""):
            await client.create(f"{CHANGES}/token_change_", data, sequence=True)
        assert set((await describe(alice, every=True))[1]) == {token["token_id"]}
        await until(scene, lambda: any("/delegation_token/tokens/damaged: malformed" in text for text in logged))
        await client.delete(path_of(token["token_id"]))
        assert await renew(alice, token["hmac"]) == (NOT_FOUND, -1)
        await alice.close()

    with_tokens(tmp_path, certificates, coordinator.address, scenario)


def test_token_created_during_a_read(tmp_path: Path, certificates: Path, coordinator: CoordinatorProcess) -> None:
    """A read that listed the tokens before this broker created one does not remove the new token."""

    async def scenario(scene: Brokers) -> None:
        client = scene.brokers[0].client
        lifetimes = TokenLifetimes(DAY_MS, DAY_MS)
        store = TokenStore(scene.brokers[0].runtime, client, KEY.encode(), lifetimes)
        await store.create("User:alice", "User:alice", (), -1)
        await store.catch_up()
        store.forget()
        reading = Deferred.fromCoroutine(store._apply_changes())
        await client.sync()  # a round trip, after which the read lists the tokens
        token, _ = await store.create("User:alice", "User:alice", (), -1)
        assert not reading.called, "the read is too short for this test"
        await reading
        assert store.cache.find(token.token_id) == token

    with_tokens(tmp_path, certificates, coordinator.address, scenario)


def test_representations_contain_no_secrets() -> None:
    """No representation contains a secret."""
    from kreplica.security.sasl.credentials import credentials_of
    from kreplica.security.tokens.token_cache import TokenCache

    cache = TokenCache(KEY.encode())
    token = TokenLifetimes(1000, 500).new_token("id", "User:alice", "User:alice", (), -1, 0)
    cache.put(token)
    credential = cache.credential("SCRAM-SHA-256", "id")
    assert credential is not None
    secret = password_of({"hmac": cache.hmac_of(token)})
    jaas = f'Module required username="id" password="{secret}" tokenauth="true";'
    credentials = credentials_of("SCRAM-SHA-256", jaas, "sasl.jaas.config")
    texts = repr((cache, token, credential, credentials))
    assert KEY not in texts
    assert secret not in texts
    assert PASSWORDS["alice"] not in texts
