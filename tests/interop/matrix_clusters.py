"""The clusters of the matrix: three brokers of kreplica, of Apache Kafka 3.9, and of its newest 4.x."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

import apache_kafka
from kraft_cluster import KraftCluster

from kreplica.testing.fixtures.kafka_cluster import KafkaCluster

KREPLICA = "kreplica"
KAFKA_3 = "kafka-3.9"
KAFKA_4 = "kafka-4.x"

VERSIONS: Mapping[str, str] = {KAFKA_3: apache_kafka.KAFKA_VERSION, KAFKA_4: apache_kafka.NEWEST_VERSION}
NAMES = (KREPLICA, *VERSIONS)

SETTINGS: Mapping[str, object] = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 500,
    "group.consumer.min.session.timeout.ms": 500,
    "group.consumer.session.timeout.ms": 1500,
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.heartbeat.interval.ms": 200,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
}
"""Settings of every cluster: short timeouts for tests."""

KAFKA_SETTINGS: Mapping[str, object] = {
    **SETTINGS,
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "offsets.topic.num.partitions": 5,
    "transaction.state.log.num.partitions": 5,
    "log.cleaner.dedupe.buffer.size": 4 << 20,
    "log.message.timestamp.before.max.ms": 9223372036854775807,
}
"""Kafka's settings equivalent to those of the fixture's clusters, and a small heap."""


class Brokers(Protocol):
    """Blocking operations of a scenario on the brokers."""

    @property
    def bootstrap_servers(self) -> str: ...

    def kill(self, broker: int) -> object:
        """Kill a broker with SIGKILL."""

    def start(self, broker: int) -> object:
        """Start a killed broker."""


class UnderTest(NamedTuple):
    """One cluster of the matrix.

    :param name: one of ``NAMES``.
    """

    name: str
    brokers: Brokers

    @property
    def version(self) -> str | None:
        """Version of Kafka; None for kreplica."""
        return VERSIONS.get(self.name)


@contextmanager
def run_cluster(name: str, make: Callable[..., KafkaCluster], directory: Path) -> Iterator[UnderTest]:
    """Run a cluster of that name.

    :param make: a function like the fixture ``kafka_cluster_factory``.
    :raise NoKafka: it is a cluster of Apache Kafka, and Java or Maven is missing.
    """
    if name == KREPLICA:
        with make(settings=SETTINGS) as cluster:
            yield UnderTest(name, cluster)
        return
    version = VERSIONS[name]
    apache_kafka.server_class_path(version)
    with KraftCluster(directory, version, KAFKA_SETTINGS) as kafka:
        yield UnderTest(name, kafka)
