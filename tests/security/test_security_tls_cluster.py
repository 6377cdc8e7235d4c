"""Three brokers that use TLS between each other and to their clients, with real sockets."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from tls_scene import Brokers, config, settings, with_brokers
from twisted.internet.threads import deferToThread

from kreplica.blocking import Cluster as BlockingCluster
from kreplica.blocking.secured_runtime import secured_runtime
from kreplica.client import Admin, Producer, errors, secured_endpoints
from kreplica.errors import SettingsError
from kreplica.runtime import real_runtime
from kreplica.runtime.pause import pause
from kreplica.security.tls import reloading
from kreplica.security.tls.development_ca import create_certificate, open_authority
from kreplica.service.composition.broker import Broker
from tests.support.coordinator import CoordinatorProcess

RECORDS = 50


def test_cluster_with_tls(tmp_path: Path, certificates: Path, coordinator: CoordinatorProcess) -> None:
    """Records are replicated over TLS, and clients of every kind read them."""

    async def scenario(scene: Brokers) -> None:
        async with scene.cluster("CLIENTS", config(certificates, client="alice")) as cluster:
            await Admin(cluster).create_topic("orders", partitions=1, replication_factor=3)
            producer = Producer(cluster)
            deliveries = [producer.send("orders", b"%d" % number) for number in range(RECORDS)]
            await producer.flush()
            assert [(await each).offset for each in deliveries] == list(range(RECORDS))
            assert "User:alice" in scene.users
            await producer.close()
        for client_config in (config(certificates), config(certificates, client="alice")):
            listener_name = "CLIENTS" if "ssl.keystore.location" in client_config else "SSL"
            address = scene.address(listener_name)
            assert await deferToThread(read_blocking, address, client_config) == RECORDS
            assert await deferToThread(read_with_kafka_python, address, certificates, len(client_config) > 3) == RECORDS
            assert await deferToThread(read_with_librdkafka, address, certificates, len(client_config) > 3) == RECORDS

    with_brokers(3, tmp_path, certificates, coordinator.address, scenario)


def read_blocking(address: str, client_config: dict[str, str]) -> int:
    from kreplica.blocking import Reader
    from kreplica.model import TopicPartition

    runtime = secured_runtime(client_config)
    partition = TopicPartition("orders", 0)
    with BlockingCluster(address, runtime=runtime) as cluster, Reader(cluster, {partition: 0}) as reader:
        count = 0
        while count < RECORDS:
            count += sum(len(batch.records) for batch in reader.read(5.0))
        return count


def read_with_kafka_python(address: str, certificates: Path, has_certificate: bool) -> int:
    from kafka import KafkaConsumer

    own = {"ssl_certfile": f"{certificates}/alice.pem", "ssl_keyfile": f"{certificates}/alice.pem"}
    consumer = KafkaConsumer(
        "orders",
        bootstrap_servers=address,
        security_protocol="SSL",
        ssl_cafile=f"{certificates}/ca.pem",
        auto_offset_reset="earliest",
        consumer_timeout_ms=5000,
        **(own if has_certificate else {}),
    )
    count = 0
    for _ in consumer:
        count += 1
        if count == RECORDS:
            break
    consumer.close()
    return count


def read_with_librdkafka(address: str, certificates: Path, has_certificate: bool) -> int:
    from confluent_kafka import Consumer

    own = {"ssl.certificate.location": f"{certificates}/alice.pem", "ssl.key.location": f"{certificates}/alice.pem"}
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "security.protocol": "SSL",
            "ssl.ca.location": f"{certificates}/ca.pem",
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **(own if has_certificate else {}),
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


def test_refused_connections(tmp_path: Path, certificates: Path, coordinator: CoordinatorProcess) -> None:
    """Each error contains the reason; plaintext and silent connections do not affect other clients."""

    async def scenario(scene: Brokers) -> None:
        async def connection_error(listener_name: str, client_config: dict[str, str], host: str = "127.0.0.1") -> str:
            async with scene.cluster(listener_name, client_config, host) as cluster:
                with pytest.raises(errors.ClientError) as caught:
                    await cluster.refresh()
            return f"{caught.value} {caught.value.__cause__}"

        unknown = await connection_error("SSL", config(certificates, authority="other/ca.pem"))
        assert "the certificate authority is not in the trust store" in unknown
        wrong_host = await connection_error("SSL", config(certificates), "localhost")
        assert "the certificate of CN=broker is not valid for the host localhost" in wrong_host
        assert await connection_error("CLIENTS", config(certificates))
        assert await connection_error("SSL", {"security.protocol": "PLAINTEXT"})
        silent = socket.create_connection(("127.0.0.1", scene.brokers[0]._ports["SSL"]))
        async with scene.cluster("SSL", config(certificates)) as cluster:
            assert len((await cluster.refresh()).brokers) == 1
        without_host = {**config(certificates), "ssl.endpoint.identification.algorithm": ""}
        async with scene.cluster("SSL", without_host, "localhost") as cluster:
            assert len((await cluster.refresh()).brokers) == 1
        silent.close()

    with_brokers(1, tmp_path, certificates, coordinator.address, scenario)


def test_changed_certificate(
    tmp_path: Path, certificates: Path, coordinator: CoordinatorProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New connections use the new certificate; an invalid file changes nothing."""
    broker_files = tmp_path / "broker"
    broker_files.mkdir()
    for name in ("broker.pem", "ca.pem"):
        (broker_files / name).write_bytes((certificates / name).read_bytes())
    monkeypatch.setattr(reloading, "CHECK_INTERVAL_S", 0.0)

    async def scenario(scene: Brokers) -> None:
        async def can_connect(authority: str) -> bool:
            try:
                async with scene.cluster("SSL", config(certificates, authority=authority)) as cluster:
                    await cluster.refresh()
            except errors.ClientError:
                return False
            return True

        async def wait_until_connected(authority: str) -> None:
            for _ in range(50):
                if await can_connect(authority):
                    return
                await pause(scene.reactor, 0.1)
            pytest.fail(f"no connection with {authority}")

        assert await can_connect("ca.pem")
        (broker_files / "broker.pem").write_text("not a certificate")
        for _ in range(3):
            assert await can_connect("ca.pem")
        other = open_authority(certificates / "other", 10)
        renewed = create_certificate(tmp_path, other, "renewed", ["127.0.0.1"], 10)
        (broker_files / "broker.pem").write_bytes(renewed.read_bytes())
        await wait_until_connected("other/ca.pem")
        assert not await can_connect("ca.pem")

    with_brokers(1, tmp_path, broker_files, coordinator.address, scenario)


def test_invalid_settings_stop_the_start(tmp_path: Path, certificates: Path) -> None:
    """The error names the listener's setting."""
    from twisted.internet import reactor

    valid = settings(1, tmp_path, certificates, "127.0.0.1:1")
    with pytest.raises(SettingsError, match=r"ssl\.keystore\.location=.*broker\.pem"):
        Broker(real_runtime(reactor), settings(1, tmp_path, tmp_path, "127.0.0.1:1"))
    assert valid.of_listener("CLIENTS", ["ssl.client.auth"]) == {"ssl.client.auth": "required"}
    assert valid.of_listener("SSL", ["ssl.client.auth"]) == {"ssl.client.auth": "none"}
    with pytest.raises(SettingsError, match=r"Did you mean ssl\.truststore\.location"):
        secured_endpoints({"ssl.truststore.locations": "x"})
    with pytest.raises(SettingsError, match=r"sasl\.mechanism is not set"):
        secured_endpoints({"security.protocol": "SASL_SSL"})
