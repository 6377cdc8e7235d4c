"""A listener only for the controller's requests, with its own security protocol and real sockets (KIP-291)."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from tls_scene import Brokers, with_brokers

from kreplica.client import Admin, Cluster, Producer
from kreplica.runtime.pause import pause
from kreplica.server.fetch.handler import Fetch
from kreplica.server.handlers.cluster.control import LeaderAndIsr, StopReplica, UpdateMetadata
from kreplica.settings import BrokerSettings
from tests.support.coordinator import CoordinatorProcess

LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SECRET = "planted-secret-7"


def settings(broker_id: int, directory: Path, certificates: Path, connect: str, more: str) -> BrokerSettings:
    """Return the settings of a broker: INTERNAL is open, and CONTROL needs TLS and a password."""
    return BrokerSettings.from_text(f"""
        broker.id={broker_id}
        listeners=INTERNAL://127.0.0.1:0,CONTROL://127.0.0.1:0
        listener.security.protocol.map=INTERNAL:PLAINTEXT,CONTROL:SASL_SSL
        inter.broker.listener.name=INTERNAL
        {more}
        sasl.mechanism.inter.broker.protocol=PLAIN
        listener.name.control.sasl.enabled.mechanisms=PLAIN
        listener.name.control.plain.sasl.jaas.config={LOGIN} required username="controller" password="{SECRET}" \\
          user_controller="{SECRET}";
        listener.name.control.ssl.keystore.type=PEM
        listener.name.control.ssl.keystore.location={certificates}/broker.pem
        listener.name.control.ssl.truststore.type=PEM
        listener.name.control.ssl.truststore.location={certificates}/ca.pem
        offsets.topic.replication.factor=1
        log.dirs={directory}/{broker_id}
        zookeeper.connect={connect}
    """)


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> dict[str, set[tuple[str, str]]]:
    """The (listener, user) pairs of the controller's requests and of followers' fetches, by name of the handler."""
    found: dict[str, set[tuple[str, str]]] = defaultdict(set)

    def record_requests_of(handler: Any) -> None:
        handle = handler.__call__

        def record_and_handle(self: Any, request: Any) -> None:
            body = request.body
            if handler is not Fetch or body.get("replica_state", {"replica_id": -1})["replica_id"] >= 0:
                found[handler.__name__].add((request.connection.listener, request.connection.user))
            handle(self, request)

        monkeypatch.setattr(handler, "__call__", record_and_handle)

    for handler in (LeaderAndIsr, StopReplica, UpdateMetadata, Fetch):
        record_requests_of(handler)
    return found


async def use_topic(scene: Brokers) -> None:
    """Create a topic with two replicas, write to it and delete it."""
    async with Cluster(scene.address("INTERNAL")) as cluster:
        admin = Admin(cluster)
        await admin.create_topic("orders", partitions=2, replication_factor=2, configs={"min.insync.replicas": "2"})
        async with Producer(cluster) as producer:
            await producer.send("orders", b"x")
        await admin.delete_topic("orders")
    for broker in scene.brokers:
        while any(key.topic == "orders" for key in broker.directories.logs):
            await pause(scene.reactor, 0.05)


def test_requests_of_the_controller(
    tmp_path: Path,
    certificates: Path,
    coordinator: CoordinatorProcess,
    requests: dict[str, set[tuple[str, str]]],
    logged: list[str],
) -> None:
    """The controller's requests arrive on the CONTROL listener, authenticated; followers fetch over INTERNAL."""

    async def scenario(scene: Brokers) -> None:
        await use_topic(scene)
        data, _ = await scene.brokers[0].client.get_data("/brokers/ids/2")
        registered = json.loads(data)
        ports = scene.brokers[1]._ports
        assert set(registered["endpoints"]) == {f"{name}://127.0.0.1:{ports[name]}" for name in ("INTERNAL", "CONTROL")}
        assert registered["listener_security_protocol_map"]["CONTROL"] == "SASL_SSL"

    more = "control.plane.listener.name=control"
    with_brokers(2, tmp_path, certificates, coordinator.address, scenario, more, settings)
    control = {("CONTROL", "User:controller")}
    assert requests == {
        "LeaderAndIsr": control,
        "UpdateMetadata": control,
        "StopReplica": control,
        "Fetch": {("INTERNAL", "User:ANONYMOUS")},
    }
    assert not [text for text in logged if SECRET in text]


def test_control_requests_without_control_plane_listener(
    tmp_path: Path, certificates: Path, coordinator: CoordinatorProcess, requests: dict[str, set[tuple[str, str]]]
) -> None:
    """Without control.plane.listener.name, the controller uses INTERNAL, even if the CONTROL listener exists."""
    with_brokers(2, tmp_path, certificates, coordinator.address, use_topic, "", settings)
    assert {listener for found in requests.values() for listener, _ in found} == {"INTERNAL"}
