"""Real clients with quotas: they are slowed down, and nothing fails."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from sasl_scene import PASSWORDS, Brokers, with_brokers
from twisted.internet.threads import deferToThread

from kreplica.cluster.quotas import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, QuotaEntity
from kreplica.runtime.pause import pause
from kreplica.wire.messages import ALTER_CLIENT_QUOTAS
from tests.support.coordinator import CoordinatorProcess

RATE = 100_000
RECORDS, SIZE = 30, 10_000
SHORT_WINDOWS = "quota.window.num=2"


def write_and_read(scene: Brokers, user: str, topic: str) -> tuple[float, float]:
    """Write and read records with librdkafka; return the seconds of both."""
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
    began_s = time.monotonic()
    for number in range(RECORDS):
        producer.produce(
            topic, b"%d" % number + bytes(SIZE), partition=0, on_delivery=lambda error, _: errors.append(error)
        )
    assert producer.flush(30) == 0
    written_s = time.monotonic() - began_s
    assert errors == [None] * RECORDS
    consumer = Consumer({**config, "group.id": user, "auto.offset.reset": "earliest", "fetch.message.max.bytes": SIZE})
    consumer.subscribe([topic])
    values: list[bytes] = []
    began_s = time.monotonic()
    while len(values) < RECORDS + 1:
        message = consumer.poll(1.0)
        assert time.monotonic() < began_s + 30
        if message is not None:
            assert message.error() is None
            values.append(message.value())
    consumer.close()
    assert values == [b"first", *(b"%d" % number + bytes(SIZE) for number in range(RECORDS))]
    return written_s, time.monotonic() - began_s


def test_librdkafka_is_slowed_down(
    tmp_path: Path, certificates: Path, coordinator: CoordinatorProcess, logged: list[str]
) -> None:
    """A user with quotas takes the time that its bytes need; the other user does not."""

    async def story(scene: Brokers) -> None:
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
        # One window of a second is free.
        assert min(slow) > RECORDS * SIZE / RATE - 1.5
        assert fast[0] < slow[0]
        throttled = [broker.quotas.metrics for broker in scene.brokers]
        for name in (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE):
            assert sum(metrics[name].throttled for metrics in throttled) > 0

    with_brokers(2, tmp_path, certificates, coordinator.address, story, SHORT_WINDOWS)
