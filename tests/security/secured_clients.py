"""Other projects' clients, which write a record over SASL_SSL and read it back as members of a group."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

TIMEOUT_S = 40
PLAIN, SCRAM_256, SCRAM_512 = "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"
MECHANISMS = (PLAIN, SCRAM_256, SCRAM_512)


class Login(NamedTuple):
    """Arguments of a client.

    :param group: the group that the client joins.
    """

    port: int
    mechanism: str
    user: str
    password: str
    ca_file: Path
    topic: str
    group: str

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def librdkafka(self) -> dict[str, str]:
        """Configuration for librdkafka."""
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.ca_file),
            "sasl.mechanism": self.mechanism,
            "sasl.username": self.user,
            "sasl.password": self.password,
        }


def with_confluent_kafka(login: Login, value: bytes) -> bytes:
    from confluent_kafka import Consumer, Producer

    producer = Producer(login.librdkafka)
    producer.produce(login.topic, value)
    assert producer.flush(TIMEOUT_S) == 0
    consumer = Consumer({**login.librdkafka, "group.id": login.group, "auto.offset.reset": "earliest"})
    consumer.subscribe([login.topic])
    message = consumer.poll(TIMEOUT_S)
    assert message is not None, "no record"
    assert message.error() is None, message.error()
    consumer.commit(message, asynchronous=False)
    consumer.close()
    return bytes(message.value() or b"")


def with_kafka_python(login: Login, value: bytes) -> bytes:
    from kafka import KafkaConsumer, KafkaProducer

    options = {
        "bootstrap_servers": login.bootstrap,
        "security_protocol": "SASL_SSL",
        "ssl_cafile": str(login.ca_file),
        "sasl_mechanism": login.mechanism,
        "sasl_plain_username": login.user,
        "sasl_plain_password": login.password,
    }
    producer = KafkaProducer(**options)
    producer.send(login.topic, value).get(TIMEOUT_S)
    producer.close()
    reading = {"group_id": login.group, "auto_offset_reset": "earliest", "consumer_timeout_ms": TIMEOUT_S * 1000}
    consumer = KafkaConsumer(login.topic, **options, **reading)
    record = next(consumer)
    consumer.commit()
    consumer.close()
    return bytes(record.value)


def with_aiokafka(login: Login, value: bytes) -> bytes:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka.helpers import create_ssl_context

    async def main() -> bytes:
        options = {
            "bootstrap_servers": login.bootstrap,
            "security_protocol": "SASL_SSL",
            "ssl_context": create_ssl_context(cafile=str(login.ca_file)),
            "sasl_mechanism": login.mechanism,
            "sasl_plain_username": login.user,
            "sasl_plain_password": login.password,
        }
        async with AIOKafkaProducer(**options) as producer:
            await producer.send_and_wait(login.topic, value)
        reading = {"group_id": login.group, "auto_offset_reset": "earliest"}
        async with AIOKafkaConsumer(login.topic, **options, **reading) as consumer:
            record = await asyncio.wait_for(consumer.getone(), TIMEOUT_S)
            await consumer.commit()
            return bytes(record.value)

    return asyncio.run(main())


def with_kcat(login: Login, value: bytes) -> bytes:
    options = [f"-X{name}={each}" for name, each in login.librdkafka.items()]
    subprocess.run(["kcat", *options, "-P", "-t", login.topic], input=value, check=True, timeout=TIMEOUT_S)
    reading = ["kcat", *options, "-Xauto.offset.reset=earliest", "-J", "-q", "-c1", "-G", login.group, login.topic]
    done = subprocess.run(reading, check=True, timeout=TIMEOUT_S, stdout=subprocess.PIPE)
    return str(json.loads(done.stdout)["payload"]).encode()


CLIENTS: Mapping[str, Callable[[Login, bytes], bytes]] = {
    "librdkafka (confluent-kafka)": with_confluent_kafka,
    "kcat": with_kcat,
    "kafka-python": with_kafka_python,
    "aiokafka": with_aiokafka,
}
