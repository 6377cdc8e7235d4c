"""An Apache Kafka broker in a cluster with a kreplica controller.

Needs Java and Maven, so it is part of the soak.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import apache_kafka
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from kreplica.wire.messages import INIT_PRODUCER_ID
from tests.support.blocking_client import BlockingClient
from tests.support.process_cluster import ProcessCluster, direct_places, wait_until
from tests.support.real_zookeeper import RealZooKeeper

pytestmark = [pytest.mark.soak, pytest.mark.timeout(300)]

KAFKA = 2
BLOCK_SIZE = 1000
PRODUCERS = 1010
"""More producer IDs than one block contains, so that the Kafka broker requests a second block."""


@pytest.fixture(scope="module", autouse=True)
def _kafka() -> None:
    try:
        apache_kafka.class_path()
    except apache_kafka.NoKafka as missing:
        pytest.skip(f"not tried with Apache Kafka's broker: {missing}")


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ProcessCluster, apache_kafka.Broker]]:
    """kreplica's broker 1, the controller, and Apache Kafka's broker 2 on one ZooKeeper."""
    directory: Path = tmp_path_factory.mktemp("mixed")
    with RealZooKeeper(directory / "zookeeper") as zookeeper:
        address = zookeeper.connect_string
        with ProcessCluster(directory, direct_places(address, 1), settings={"min.insync.replicas": 1}) as cluster:
            assert cluster.controller() == 1
            settings = {"broker_id": KAFKA, "zookeeper_session_timeout_ms": 6000}
            with apache_kafka.broker(directory, address, directory / "kafka-logs", **settings) as kafka:
                wait_until(lambda: KAFKA in {row["node_id"] for row in cluster.metadata()["brokers"]}, "Kafka's broker")
                yield cluster, kafka


def initialized_producer_id(client: BlockingClient) -> int:
    """Initialize an idempotent producer on a broker and return its producer ID; waits until one is available."""

    def initialize() -> dict[str, int] | None:
        body = {
            "transactional_id": None,
            "transaction_timeout_ms": 1000,
            "producer_id": -1,
            "producer_epoch": -1,
        }
        answer = client.request(INIT_PRODUCER_ID, body, version=4)
        return answer if answer["error_code"] == 0 else None

    return wait_until(initialize, "a producer ID")["producer_id"]


def test_a_kafka_broker_gets_its_producer_ids(mixed: tuple[ProcessCluster, apache_kafka.Broker]) -> None:
    """InitProducerId works on a Kafka broker: it gets unique blocks from kreplica."""
    cluster, kafka = mixed
    host, port = kafka.bootstrap_servers.split(":")
    with BlockingClient(host, int(port)) as there, BlockingClient("127.0.0.1", cluster.brokers[1].place.port) as here:
        ids = [initialized_producer_id(there) for _ in range(PRODUCERS)]
        own = [initialized_producer_id(here) for _ in range(3)]
    assert len(set(ids) | set(own)) == len(ids) + len(own)
    blocks = [block for block, _ in itertools.groupby(each // BLOCK_SIZE for each in ids)]
    assert len(blocks) == 2, "a block of 1,000, and one more"
    assert not set(blocks) & {each // BLOCK_SIZE for each in own}
    assert cluster.tracebacks() == []


def test_an_idempotent_producer_writes_to_a_kafka_broker(mixed: tuple[ProcessCluster, apache_kafka.Broker]) -> None:
    """A partition that kreplica's controller places on the Kafka broker accepts records of an idempotent producer."""
    cluster, kafka = mixed
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([NewTopic("orders", 1, replica_assignment=[[KAFKA]])])["orders"].result(30)
    offsets: list[int] = []
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "enable.idempotence": True})
    for number in range(100):
        producer.produce("orders", str(number), on_delivery=lambda _, message: offsets.append(message.offset()))
    assert producer.flush(60) == 0
    assert offsets == list(range(100))
    assert cluster.tracebacks() == []
