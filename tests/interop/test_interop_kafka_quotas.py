"""Apache Kafka's ConfigCommand sets quotas and limits of connections; needs Java and Maven: part of the soak."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import apache_kafka
import pytest
from confluent_kafka import Producer

from tests.support.process_cluster import ProcessCluster, direct_places
from tests.support.real_zookeeper import RealZooKeeper

pytestmark = pytest.mark.soak

USER, CLIENT = ("--entity-type", "users"), ("--entity-type", "clients")
IP, BROKERS = ("--entity-type", "ips"), ("--entity-type", "brokers")
DEFAULT = ("--entity-default",)

ENTITIES: list[tuple[tuple[str, ...], str, str]] = [
    ((*USER, "--entity-name", "alice"), "user-principal 'alice'", "producer_byte_rate=1000"),
    ((*USER, *DEFAULT), "the default user-principal", "request_percentage=12.5"),
    ((*CLIENT, "--entity-name", "app"), "client-id 'app'", "consumer_byte_rate=2000"),
    ((*CLIENT, *DEFAULT), "the default client-id", "controller_mutation_rate=3.5"),
    (
        (*USER, "--entity-name", "alice", *CLIENT, "--entity-name", "app"),
        "user-principal 'alice', client-id 'app'",
        "producer_byte_rate=500",
    ),
    ((*IP, "--entity-name", "192.0.2.1"), "ip '192.0.2.1'", "connection_creation_rate=10"),
    ((*IP, *DEFAULT), "the default ip", "connection_creation_rate=100"),
]
"""Arguments of an entity, how the tool names it, and a quota."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    """Three brokers on a real ZooKeeper."""
    try:
        apache_kafka.class_path()
    except apache_kafka.NoKafka as missing:
        pytest.skip(f"not tried with Apache Kafka's tools: {missing}")
    directory: Path = tmp_path_factory.mktemp("quotas")
    with (
        RealZooKeeper(directory / "zookeeper") as zookeeper,
        ProcessCluster(directory, direct_places(zookeeper.connect_string)) as cluster,
    ):
        yield cluster


def tool(cluster: ProcessCluster, *arguments: object) -> str:
    return apache_kafka.run_tool("kafka.admin.ConfigCommand", cluster.bootstrap_servers, *arguments)


@pytest.mark.parametrize(("entity", "name", "quota"), ENTITIES, ids=[name for _, name, _ in ENTITIES])
def test_quotas(cluster: ProcessCluster, entity: tuple[str, ...], name: str, quota: str) -> None:
    """Quotas are set, described and deleted."""
    assert "Completed updating" in tool(cluster, "--alter", *entity, "--add-config", quota)
    key, value = quota.split("=")
    assert f"Quota configs for {name} are {key}={float(value)}" in tool(cluster, "--describe", *entity)
    assert "Completed updating" in tool(cluster, "--alter", *entity, "--delete-config", key)
    assert key not in tool(cluster, "--describe", *entity)


def test_limits_of_connections(cluster: ProcessCluster) -> None:
    """The limits change at run time, for all brokers and for one; a value that allows no connection is rejected."""
    limits = "max.connections=500,max.connection.creation.rate=50,max.connections.per.ip=400"
    tool(cluster, "--alter", *BROKERS, *DEFAULT, "--add-config", limits)
    one = (*BROKERS, "--entity-name", "1")
    own = "listener.name.plaintext.max.connections=300,max.connections.per.ip.overrides=[192.0.2.1:5]"
    tool(cluster, "--alter", *one, "--add-config", own)
    of_one, of_all = tool(cluster, "--describe", *one), tool(cluster, "--describe", *BROKERS, *DEFAULT)
    for described, shown in (
        (of_one, "listener.name.plaintext.max.connections=300"),
        (of_one, "max.connections.per.ip.overrides=192.0.2.1:5"),
        (of_all, "max.connections=500"),
        (of_all, "max.connection.creation.rate=50"),
    ):
        assert re.search(rf"^\s*{re.escape(shown)} ", described, re.MULTILINE), described
    with pytest.raises(AssertionError, match=r"max\.connections=0 would allow no connections"):
        tool(cluster, "--alter", *BROKERS, *DEFAULT, "--add-config", "max.connections=0")
    names = ",".join(limit.split("=")[0] for limit in limits.split(","))
    tool(cluster, "--alter", *BROKERS, *DEFAULT, "--delete-config", names)
    tool(cluster, "--alter", *one, "--delete-config", ",".join(each.split("=")[0] for each in own.split(",")))


def test_throttled_client(cluster: ProcessCluster, topic: str) -> None:
    """librdkafka reports the throttle times of a quota that the tool has set."""
    cluster.create_topic(topic, 1)
    entity = (*CLIENT, "--entity-name", "slow")
    tool(cluster, "--alter", *entity, "--add-config", "producer_byte_rate=1000")
    throttled_s: list[float] = []
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "client.id": "slow",
            "throttle_cb": lambda event: throttled_s.append(event.throttle_time),
        }
    )
    producer.produce(topic, bytes(20_000), partition=0)
    assert producer.flush(30) == 0
    producer.poll(1.0)
    assert max(throttled_s) > 5.0
    tool(cluster, "--alter", *entity, "--delete-config", "producer_byte_rate")
