"""Clients that push their metrics (KIP-714): librdkafka, and in the soak the Java client and Kafka's tools."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import apache_kafka
import pytest
from confluent_kafka import Consumer, Producer

DEADLINE_S = 20
PROGRAM = Path(__file__).parent / "java" / "Metrics.java"


def admin_api(broker: Any, path: str, body: Any = None) -> Any:
    """Send a GET request to the admin API, or a PATCH request with a body."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    request = Request(broker.admin_url + path, data, headers, method="GET" if body is None else "PATCH")
    with urlopen(request, timeout=10) as response:
        return json.load(response)


def subscribe(broker: Any, name: str, **settings: Any) -> None:
    admin_api(
        broker, f"/v1/configs/client-metrics/{name}", {"set": {k.replace("_", "."): v for k, v in settings.items()}}
    )


def client_with_metrics(broker: Any, client_id: str, poll: Callable[[], Any]) -> Any:
    """Poll until the client has pushed metrics, and return its row."""
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        poll()
        rows = admin_api(broker, f"/v1/clients?filter=client_id={client_id},metrics>0")["clients"]
        if rows:
            return rows[0]
    raise AssertionError(f"{client_id} pushed no metrics within {DEADLINE_S} s")


def test_librdkafka_pushes(broker: Any, topic: str) -> None:
    """The metrics of the subscription arrive, and are linked to a connection."""
    client_id = f"producer-{topic}"
    subscribe(broker, topic, metrics="org.apache.kafka.producer.", interval_ms=100, match=f"client_id={client_id}")
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "client.id": client_id, "log_level": 3})

    def produce() -> None:
        producer.produce(topic, b"x")
        producer.poll(0.1)

    row = client_with_metrics(broker, client_id, produce)
    producer.flush(10)
    assert (row["software_name"], row["state"], row["subscriptions"]) == (
        "confluent-kafka-python",
        "SUBSCRIBED",
        [topic],
    )
    pushed = admin_api(broker, f"/v1/clients/{row['client_instance_id']}")
    names = {each["name"] for each in pushed["metrics"]}
    assert "org.apache.kafka.producer.node.request.latency.avg" in names
    assert all(name.startswith("org.apache.kafka.producer.") for name in names)
    (created,) = (each for each in pushed["metrics"] if each["name"].endswith("connection.creation.total"))
    assert (created["kind"], created["value"] >= 1) == ("sum", True)
    connections = admin_api(broker, "/v1/brokers/1/connections")["connections"]
    assert row["client_instance_id"] in {each["client_instance_id"] for each in connections}
    admin_api(broker, f"/v1/configs/client-metrics/{topic}", {"remove": ["metrics", "interval.ms", "match"]})


def test_terminating_consumer_pushes_once_more(broker: Any, topic: str) -> None:
    """The last metrics of a closed client stay visible for a while."""
    client_id = f"consumer-{topic}"
    subscribe(broker, topic, metrics="*", interval_ms=60_000, match=f"client_id={client_id}")
    options = {"client.id": client_id, "group.id": topic, "log_level": 3}
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, **options})
    consumer.subscribe([topic])
    end = time.monotonic() + DEADLINE_S
    while not admin_api(broker, f"/v1/clients?filter=client_id={client_id}")["clients"]:
        assert time.monotonic() < end
        consumer.poll(0.1)
    consumer.close()
    row = client_with_metrics(broker, client_id, lambda: time.sleep(0.05))
    assert row["state"] == "TERMINATED"
    assert admin_api(broker, f"/v1/clients/{row['client_instance_id']}")["metrics"]


@pytest.mark.soak
def test_java_client_pushes(broker: Any, topic: str) -> None:
    """The Java client finds the subscription that Kafka's tool has created, lists and deletes."""
    try:
        apache_kafka.class_path()
    except apache_kafka.NoKafka as missing:
        pytest.skip(str(missing))

    def tool(*arguments: object) -> str:
        return apache_kafka.run_tool("ClientMetricsCommand", broker.bootstrap_servers, *arguments)

    subscription = ("--metrics", "org.apache.kafka.producer.", "--interval", 200, "--match", f"client_id={topic}")
    assert f"Altered client metrics config for {topic}." in tool("--alter", "--name", topic, *subscription)
    assert topic in tool("--list").split()
    described = tool("--describe", "--name", topic)
    assert "interval.ms=200" in described
    assert f"match=client_id={topic}" in described
    classes = apache_kafka.client_class_path(apache_kafka.KAFKA_VERSION)
    command = ["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", classes, str(PROGRAM)]
    with subprocess.Popen([*command, broker.bootstrap_servers, topic], stdout=subprocess.PIPE) as process:
        try:
            row = client_with_metrics(broker, topic, lambda: time.sleep(0.1))
            pushed = admin_api(broker, f"/v1/clients/{row['client_instance_id']}")
        finally:
            process.terminate()
    assert row["software_name"] == "apache-kafka-java"
    values = {each["name"]: each["value"] for each in pushed["metrics"]}
    assert values["org.apache.kafka.producer.record.send.total"] > 0
    tool("--delete", "--name", topic)
    assert topic not in tool("--list").split()
