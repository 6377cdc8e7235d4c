"""The clusters that the matrix compares: three brokers of ours, of Apache Kafka 3.9, and of its newest 4.x."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

import apache_kafka
from kraft_cluster import KraftCluster

from kreplica.testing.fixtures.kafka_cluster import KafkaCluster

OURS = "kreplica"
KAFKA_3 = "kafka-3.9"
KAFKA_4 = "kafka-4.x"

VERSIONS: Mapping[str, str] = {KAFKA_3: apache_kafka.KAFKA_VERSION, KAFKA_4: apache_kafka.NEWEST_VERSION}
NAMES = (OURS, *VERSIONS)

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
"""Of every cluster: nobody wants to wait in a test."""

KAFKA_SETTINGS: Mapping[str, object] = {
    **SETTINGS,
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "offsets.topic.num.partitions": 5,
    "transaction.state.log.num.partitions": 5,
    "log.cleaner.dedupe.buffer.size": 4 << 20,
    "log.message.timestamp.before.max.ms": 9223372036854775807,
}
"""As our fixture's clusters have it, and a heap that is small."""


class Brokers(Protocol):
    """What a scenario may do to the brokers; it blocks."""

    @property
    def bootstrap_servers(self) -> str: ...

    def kill(self, broker: int) -> object:
        """``kill -9``."""

    def start(self, broker: int) -> object:
        """Start one that was killed."""


class UnderTest(NamedTuple):
    """One cluster of the matrix.

    :param name: one of ``NAMES``.
    """

    name: str
    brokers: Brokers

    @property
    def version(self) -> str | None:
        """Kafka's; None of ours."""
        return VERSIONS.get(self.name)


@contextmanager
def started(name: str, make: Callable[..., KafkaCluster], directory: Path) -> Iterator[UnderTest]:
    """A cluster of that name.

    :param make: as the fixture ``kafka_cluster_factory`` does.
    :raise NoKafka: it is one of Apache Kafka's, and Java or Maven is missing.
    """
    if name == OURS:
        with make(settings=SETTINGS) as ours:
            yield UnderTest(name, ours)
        return
    version = VERSIONS[name]
    apache_kafka.server_class_path(version)
    with KraftCluster(directory, version, KAFKA_SETTINGS) as kafka:
        yield UnderTest(name, kafka)
