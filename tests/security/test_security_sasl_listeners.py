"""Clients and brokers that authenticate with SASL on real listeners."""

from __future__ import annotations

import socket
import struct
from pathlib import Path

import pytest
from sasl_scene import (
    AUTHENTICATION_FAILED,
    ILLEGAL_SASL_STATE,
    PASSWORDS,
    RECORDS,
    TIMEOUT_S,
    Brokers,
    settings,
    with_brokers,
)
from twisted.internet.threads import deferToThread

from kreplica.blocking import Cluster as BlockingCluster
from kreplica.blocking import Reader
from kreplica.blocking.secured_runtime import secured_runtime
from kreplica.client import Admin, Producer, errors, secured_endpoints
from kreplica.client_core.errors import AuthenticationFailed
from kreplica.errors import SettingsError
from kreplica.model import TopicPartition
from kreplica.runtime import real_runtime
from kreplica.runtime.pause import pause
from kreplica.service.composition.broker import Broker
from kreplica.settings import BrokerSettings
from kreplica.wire.messages import METADATA, SASL_AUTHENTICATE, SASL_HANDSHAKE
from tests.support.coordinator import CoordinatorProcess
from tests.support.real_reactor import run


def test_clients_of_every_kind(
    tmp_path: Path, certificates: Path, coordinator: CoordinatorProcess, logged: list[str]
) -> None:
    """Brokers authenticate to each other, and clients authenticate with each mechanism on each listener."""

    async def scenario(scene: Brokers) -> None:
        async with scene.cluster("SASL_SSL", "PLAIN", "alice") as cluster:
            await Admin(cluster).create_topic("orders", partitions=1, replication_factor=2)
            producer = Producer(cluster)
            deliveries = [producer.send("orders", b"%d" % number) for number in range(RECORDS)]
            await producer.flush()
            assert [(await each).offset for each in deliveries] == list(range(RECORDS))
            assert {"User:alice", "User:admin"} <= scene.users
            await producer.close()
        await scene.create_user("bob")
        for listener, mechanism, user in (
            ("SASL_SSL", "SCRAM-SHA-512", "bob"),
            ("LOCAL", "SCRAM-SHA-256", "bob"),
            ("SASL_SSL", "PLAIN", "alice"),
            ("SHORT", "PLAIN", "alice"),
        ):
            async with scene.cluster(listener, mechanism, user) as cluster:
                assert len((await cluster.refresh()).brokers) == 2
                assert f"User:{user}" in scene.users
            arguments = scene.port(listener), scene.config(listener, mechanism, user), mechanism, user
            assert await deferToThread(read_blocking, *arguments) == RECORDS
            assert await deferToThread(read_with_kafka_python, *arguments) == RECORDS
            assert await deferToThread(read_with_librdkafka, *arguments) == RECORDS

    with_brokers(2, tmp_path, certificates, coordinator.address, scenario)


def read_blocking(port: int, config: dict[str, str], mechanism: str, user: str) -> int:
    partition = TopicPartition("orders", 0)
    with (
        BlockingCluster(f"127.0.0.1:{port}", runtime=secured_runtime(config)) as cluster,
        Reader(cluster, {partition: 0}) as reader,
    ):
        count = 0
        while count < RECORDS:
            count += sum(len(batch.records) for batch in reader.read(5.0))
        return count


def read_with_kafka_python(port: int, config: dict[str, str], mechanism: str, user: str) -> int:
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(
        "orders",
        bootstrap_servers=f"127.0.0.1:{port}",
        security_protocol=config["security.protocol"],
        sasl_mechanism=mechanism,
        sasl_plain_username=user,
        sasl_plain_password=PASSWORDS[user],
        ssl_cafile=config.get("ssl.truststore.location"),
        auto_offset_reset="earliest",
        consumer_timeout_ms=5000,
    )
    count = 0
    for _ in consumer:
        count += 1
        if count == RECORDS:
            break
    consumer.close()
    return count


def read_with_librdkafka(port: int, config: dict[str, str], mechanism: str, user: str) -> int:
    from confluent_kafka import Consumer

    location = config.get("ssl.truststore.location")
    consumer = Consumer(
        {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "security.protocol": config["security.protocol"],
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": PASSWORDS[user],
            "group.id": f"readers-{port}-{mechanism}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **({} if location is None else {"ssl.ca.location": location}),
        }
    )
    consumer.subscribe(["orders"])
    count = 0
    while count < RECORDS:
        message = consumer.poll(10)
        assert message is not None, f"only {count} records"
        assert message.error() is None, message.error()
        count += 1
    consumer.close()
    return count


def test_rejected_clients(
    tmp_path: Path, certificates: Path, coordinator: CoordinatorProcess, logged: list[str]
) -> None:
    """The errors contain the reason; a client that is not authenticated can do nothing else."""

    async def scenario(scene: Brokers) -> None:
        for mechanism, user, password in (
            ("PLAIN", "alice", "wrong-password"),
            ("PLAIN", "bob", None),
            ("SCRAM-SHA-256", "bob", None),
        ):
            async with scene.cluster("LOCAL", mechanism, user, password) as cluster:
                with pytest.raises(errors.ClientError) as caught:
                    await cluster.refresh()
            chain = f"{caught.value} {caught.value.__cause__}"
            assert f"user '{user}' is rejected: Authentication failed: invalid user name or password" in chain
        async with scene.cluster("SHORT", "SCRAM-SHA-256", "bob") as cluster:
            with pytest.raises(errors.ClientError, match="UNSUPPORTED_SASL_MECHANISM for SCRAM-SHA-256"):
                await cluster.refresh()
        assert sum("authentication of 127.0.0.1" in text for text in logged) >= 4

        connection = await scene.unauthenticated("LOCAL")
        await connection.negotiate()
        assert METADATA.key in connection.versions
        with pytest.raises(errors.ConnectionLost):
            await connection.request(METADATA, 1, {"topics": None})
        connection = await scene.unauthenticated("LOCAL")
        with pytest.raises(errors.ConnectionLost):
            await connection.request(SASL_AUTHENTICATE, 1, {"auth_bytes": b"x"})
        connection = await scene.unauthenticated("LOCAL")
        with pytest.raises(errors.ConnectionLost):
            await connection.request(SASL_AUTHENTICATE, 1, {"auth_bytes": bytes(600_000)})
        connection = await scene.connection("LOCAL", "PLAIN", "alice")
        response = await connection.request(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
        assert response["error_code"] == ILLEGAL_SASL_STATE
        await connection.close()

    with_brokers(1, tmp_path, certificates, coordinator.address, scenario)


def test_sessions_end(
    tmp_path: Path, certificates: Path, coordinator: CoordinatorProcess, logged: list[str]
) -> None:
    """A client that authenticates again keeps its connection; other clients lose theirs (KIP-368)."""

    async def scenario(scene: Brokers) -> None:
        renewed = await scene.connection("SHORT", "PLAIN", "alice")
        idle = await scene.connection("SHORT", "PLAIN", "alice")
        idle.session.end()
        for _ in range(15):
            await renewed.request(METADATA, 1, {"topics": []})
            await pause(scene.reactor, 0.1)
        with pytest.raises(errors.ConnectionLost):
            await idle.request(METADATA, 1, {"topics": []})
        assert any("the session expired" in text for text in logged)
        # Another user may not continue the session.
        await renewed.request(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
        token = b"\0admin\0" + PASSWORDS["admin"].encode()
        response = await renewed.request(SASL_AUTHENTICATE, 1, {"auth_bytes": token})
        assert response["error_code"] == AUTHENTICATION_FAILED
        assert "another user" in response["error_message"]

    with_brokers(1, tmp_path, certificates, coordinator.address, scenario)


def test_tokens_without_headers(tmp_path: Path, certificates: Path, coordinator: CoordinatorProcess) -> None:
    """Version 0 of SaslHandshake is followed by plain frames, as old clients send them."""

    def talk(port: int, password: str) -> list[bytes]:
        with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as connected:
            handshake = struct.pack(">hhih", SASL_HANDSHAKE.key, 0, 1, -1) + struct.pack(">h", 5) + b"PLAIN"
            metadata = struct.pack(">hhih", METADATA.key, 1, 2, -1) + struct.pack(">i", 0)
            responses = []
            for frame in (handshake, b"\0alice\0" + password.encode(), metadata):
                connected.sendall(struct.pack(">i", len(frame)) + frame)
                head = connected.recv(4)
                if not head:
                    return responses
                responses.append(connected.recv(struct.unpack(">i", head)[0]) if head != bytes(4) else b"")
            return responses

    async def scenario(scene: Brokers) -> None:
        responses = await deferToThread(talk, scene.port("LOCAL"), PASSWORDS["alice"])
        assert responses[0][:6] == struct.pack(">ih", 1, 0)
        assert responses[1] == b""
        assert responses[2][:4] == struct.pack(">i", 2)
        assert len(await deferToThread(talk, scene.port("LOCAL"), "wrong")) == 1

    with_brokers(1, tmp_path, certificates, coordinator.address, scenario)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("sasl.enabled.mechanisms=GSSAPI", "GSSAPI: the mechanism is not supported; use one of PLAIN, SCRAM-SHA-256"),
        ("sasl.mechanism.inter.broker.protocol=GSSAPI", "sasl.mechanism.inter.broker.protocol=GSSAPI"),
        ("listener.name.local.plain.sasl.jaas.config=Module required;", "a login module with an option user_NAME"),
        ("listener.name.local.plain.sasl.jaas.config=Module required a", "plain.sasl.jaas.config: column"),
        ("listener.name.sasl_ssl.plain.sasl.jaas.config=Module required user_a=b;", "no username and no password"),
    ],
)
def test_invalid_settings(
    tmp_path: Path, certificates: Path, coordinator: CoordinatorProcess, change: str, message: str
) -> None:
    """The broker does not start; the error names the setting."""
    from twisted.internet import reactor

    name = change.partition("=")[0]
    text = settings(1, tmp_path, certificates, coordinator.address)
    lines = [f"{each}={text.text(each)}" for each in text.configured_names if each != name]
    broker_settings = BrokerSettings.from_text("\n".join([*lines, change]))

    async def start() -> None:
        broker = Broker(real_runtime(reactor), broker_settings)
        try:
            await broker.start()
        finally:
            await broker.stop()
            broker.runtime.offload.stop()

    with pytest.raises(SettingsError) as caught:
        run(start(), check_left_behind=False)
    assert message in str(caught.value)


def test_client_settings() -> None:
    """Errors name the setting, and contain no password."""
    for config, message in (
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism is not set"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}, "the mechanism is not supported"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}, "sasl.jaas.config is not set"),
        ({"security.protocol": "SSH"}, "the protocols are PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
    ):
        with pytest.raises(SettingsError) as caught:
            secured_endpoints(config)
        assert message in str(caught.value)
    assert not AuthenticationFailed("x").retriable
