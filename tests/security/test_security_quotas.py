"""Real clients with quotas are slowed down, and nothing fails."""

from __future__ import annotations

import select
import socket
import time
from pathlib import Path
from typing import Any

from sasl_scene import PASSWORDS, Brokers, with_brokers
from twisted.internet.threads import deferToThread

from kreplica.cluster.quotas import CONNECTION_CREATION_RATE, CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, QuotaEntity
from kreplica.runtime.pause import pause
from kreplica.wire.messages import ALTER_CLIENT_QUOTAS, INCREMENTAL_ALTER_CONFIGS
from tests.support.coordinator import CoordinatorProcess

RATE = 100_000
RECORDS, SIZE = 30, 10_000
SHORT_WINDOWS = "quota.window.num=2"


def write_and_read(scene: Brokers, user: str, topic: str) -> tuple[float, float]:
    """Write and read records with librdkafka; return the duration of both in seconds."""
    from confluent_kafka import Consumer, Producer

    config: dict[str, Any] = {
        "bootstrap.servers": f"127.0.0.1:{scene.port('LOCAL')}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": PASSWORDS[user],
    }
    errors: list[object] = []
    producer = Producer({**config, "enable.idempotence": True, "batch.num.messages": 1})
    producer.produce(topic, b"first", partition=0)
    assert producer.flush(20) == 0  # the topic exists
    started_s = time.monotonic()
    for number in range(RECORDS):
        producer.produce(
            topic, b"%d" % number + bytes(SIZE), partition=0, on_delivery=lambda error, _: errors.append(error)
        )
    assert producer.flush(30) == 0
    written_s = time.monotonic() - started_s
    assert errors == [None] * RECORDS
    consumer = Consumer({**config, "group.id": user, "auto.offset.reset": "earliest", "fetch.message.max.bytes": SIZE})
    consumer.subscribe([topic])
    values: list[bytes] = []
    started_s = time.monotonic()
    while len(values) < RECORDS + 1:
        message = consumer.poll(1.0)
        assert time.monotonic() < started_s + 30
        if message is not None:
            assert message.error() is None
            values.append(message.value())
    consumer.close()
    assert values == [b"first", *(b"%d" % number + bytes(SIZE) for number in range(RECORDS))]
    return written_s, time.monotonic() - started_s


def produce_once(scene: Brokers, topic: str) -> None:
    """Write a record with a new librdkafka client, which reconnects if its connections are closed."""
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": f"127.0.0.1:{scene.port('LOCAL')}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "admin",
            "sasl.password": PASSWORDS["admin"],
            "reconnect.backoff.max.ms": 500,
        }
    )
    producer.produce(topic, b"x")
    assert producer.flush(30) == 0


def count_closed_connections(port: int, count: int) -> int:
    """Open connections that send nothing; return the number of those that the broker closes within two seconds."""
    connected = {socket.create_connection(("127.0.0.1", port), timeout=20) for _ in range(count)}
    deadline_s = time.monotonic() + 2.0
    while (left_s := deadline_s - time.monotonic()) > 0:
        for each in select.select(list(connected), [], [], left_s)[0]:
            connected.remove(each)
            each.close()  # the broker sends no data, so it has closed the connection
    for each in connected:
        each.close()
    return count - len(connected)


async def set_configs(scene: Brokers, connection: Any, values: dict[str, str | None]) -> None:
    rows = [
        {"name": name, "config_operation": 1 if value is None else 0, "value": value}
        for name, value in values.items()
    ]
    resources = [{"resource_type": 4, "resource_name": "1", "configs": rows}]
    response = await connection.request(
        INCREMENTAL_ALTER_CONFIGS, 1, {"resources": resources, "validate_only": False}
    )
    assert [row["error_code"] for row in response["responses"]] == [0]


def test_limited_connections(
    tmp_path: Path, certificates: Path, coordinator: CoordinatorProcess, logged: list[str]
) -> None:
    """With connection limits, clients wait, but librdkafka can still write; brokers keep their connections."""

    async def scenario(scene: Brokers) -> None:
        connection = await scene.connection("LOCAL", "PLAIN", "admin")
        await deferToThread(produce_once, scene, "limited")
        limits = scene.brokers[0].connection_limits.limits
        before = limits.listeners["SASL_SSL"].open

        # Connections above the rate of an address are closed without being served, even with TLS.
        op = {"key": CONNECTION_CREATION_RATE, "value": 5, "remove": False}
        entry = {"entity": [{"entity_type": "ip", "entity_name": "127.0.0.1"}], "ops": [op]}
        response = await connection.request(ALTER_CLIENT_QUOTAS, 1, {"entries": [entry], "validate_only": False})
        assert [row["error_code"] for row in response["entries"]] == [0]
        for listener in ("SASL_SSL", "LOCAL"):
            assert await deferToThread(count_closed_connections, scene.port(listener), 15) >= 5
            assert limits.listeners[listener].held >= 5
        await deferToThread(produce_once, scene, "limited")
        await connection.request(
            ALTER_CLIENT_QUOTAS, 1, {"entries": [{**entry, "ops": [{**op, "remove": True}]}], "validate_only": False}
        )

        # The listener accepts connections at the limited rate.
        await set_configs(scene, connection, {"listener.name.local.max.connection.creation.rate": "20"})
        assert await deferToThread(count_closed_connections, scene.port("LOCAL"), 40) == 0
        await deferToThread(produce_once, scene, "limited")
        assert limits.listeners["LOCAL"].delays > 0
        await set_configs(scene, connection, {"listener.name.local.max.connection.creation.rate": None})

        # The broker has no free slot: a new connection waits, and idle ones are closed only for other brokers.
        await set_configs(scene, connection, {"max.connections": str(limits.open + 1)})
        idle = await scene.connection("LOCAL", "PLAIN", "admin")
        waiting = deferToThread(produce_once, scene, "limited")
        await pause(scene.reactor, 0.3)
        assert not waiting.called
        await set_configs(scene, connection, {"max.connections": None})
        await waiting
        assert limits.excess_closed == 0
        assert limits.listeners["SASL_SSL"].open >= before
        await idle.close()
        await connection.close()

    with_brokers(2, tmp_path, certificates, coordinator.address, scenario, SHORT_WINDOWS)


def test_librdkafka_is_slowed_down(
    tmp_path: Path, certificates: Path, coordinator: CoordinatorProcess, logged: list[str]
) -> None:
    """A user with quotas needs the time that its quota implies; another user does not."""

    async def scenario(scene: Brokers) -> None:
        connection = await scene.connection("LOCAL", "PLAIN", "admin")
        ops = [{"key": name, "value": RATE, "remove": False} for name in (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE)]
        entry = {"entity": [{"entity_type": "user", "entity_name": "alice"}], "ops": ops}
        body = {"entries": [entry], "validate_only": False}
        response = await connection.request(ALTER_CLIENT_QUOTAS, 1, body)
        assert [row["error_code"] for row in response["entries"]] == [0]
        await connection.close()
        for broker in scene.brokers:  # the other learns it from a notification
            while QuotaEntity("alice", None) not in broker.quotas.entries:
                await pause(scene.reactor, 0.05)
        slow = await deferToThread(write_and_read, scene, "alice", "slow")
        fast = await deferToThread(write_and_read, scene, "admin", "fast")
        # The first window of one second is not throttled.
        assert min(slow) > RECORDS * SIZE / RATE - 1.5
        assert fast[0] < slow[0]
        throttled = [broker.quotas.metrics for broker in scene.brokers]
        for name in (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE):
            assert sum(metrics[name].throttled for metrics in throttled) > 0

    with_brokers(2, tmp_path, certificates, coordinator.address, scenario, SHORT_WINDOWS)
