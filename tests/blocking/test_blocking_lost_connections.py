"""The blocking client with connections that break anywhere within requests and responses, on a real cluster."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count

import pytest

from kreplica.blocking import Cluster, Isolation, Producer, ProducerOptions, Reader, ReaderOptions, default_runtime
from kreplica.blocking.admin import create_topic
from kreplica.blocking.offsets import end_offsets, topic_partitions
from kreplica.client_core.errors import TransactionFailed
from kreplica.client_core.offsets import EARLIEST
from kreplica.client_core.options import ClientOptions
from kreplica.testing.fixtures.kafka_cluster import KafkaCluster

PARTITIONS = 3
numbers = count(1)


class BreakingSocket:
    """A socket that breaks after a given number of bytes in both directions, within a request or a response."""

    def __init__(self, wrapped: socket.socket, budget: int) -> None:
        self._wrapped = wrapped
        self._budget = budget

    def sendall(self, data: bytes) -> None:
        self._wrapped.sendall(data[: max(0, self._budget)])
        self._spend(len(data))

    def recv(self, size: int) -> bytes:
        data = self._wrapped.recv(min(size, max(1, self._budget)))
        self._spend(len(data))
        return data

    def _spend(self, size: int) -> None:
        self._budget -= size
        if self._budget <= 0:
            self._wrapped.close()
            raise ConnectionResetError("broken by the test")

    def settimeout(self, seconds: float) -> None:
        self._wrapped.settimeout(seconds)

    def fileno(self) -> int:
        return self._wrapped.fileno()

    def close(self) -> None:
        self._wrapped.close()


@pytest.fixture(scope="module")
def shared_cluster(kafka_cluster_factory: Callable[..., KafkaCluster]) -> Iterator[KafkaCluster]:
    with kafka_cluster_factory(3) as cluster:
        yield cluster


def breaking_cluster(shared_cluster: KafkaCluster, seed: int, budget_max: int) -> tuple[Cluster, list[int]]:
    """Yield a client whose connections last for a random number of bytes, and the list of connections."""
    real = default_runtime()
    draw = random.Random(seed)
    made: list[int] = []

    def connect(host: str, port: int, timeout_s: float) -> socket.socket:
        # Enough for ApiVersions, otherwise no request would ever be sent.
        made.append(draw.randrange(1500, budget_max))
        return BreakingSocket(real.connect(host, port, timeout_s), made[-1])  # type: ignore[return-value]

    options = ClientOptions(backoff_s=0.002, backoff_s_max=0.02)
    return Cluster(shared_cluster.bootstrap_servers, options=options, runtime=replace(real, connect=connect)), made


def new_topic(shared_cluster: KafkaCluster) -> str:
    name = f"broken-{next(numbers)}"
    with Cluster(shared_cluster.bootstrap_servers) as cluster:
        create_topic(cluster, name, PARTITIONS, 3)
    return name


def read_values(cluster: Cluster, topic: str, isolation: Isolation) -> dict[int, list[int]]:
    partitions = topic_partitions(cluster, topic)
    ends = end_offsets(cluster, partitions)
    options = ReaderOptions(isolation=isolation, fetch_size_max=3000, partition_size_max=1500)
    found: dict[int, list[int]] = {each.partition: [] for each in partitions}
    with Reader(cluster, dict.fromkeys(partitions, EARLIEST), ends=ends, options=options) as reader:
        for record in reader.records():
            found[record.partition].append(int(record.value or b""))
    return found


@pytest.mark.parametrize("seed", range(5))
def test_records_are_written_once_and_in_order(shared_cluster: KafkaCluster, seed: int) -> None:
    """Records are written once and in order, although connections break before, within and after requests."""
    topic, records = new_topic(shared_cluster), 3000
    cluster, made = breaking_cluster(shared_cluster, seed, 5000)
    options = ProducerOptions(batch_size=300, linger_s=0.0005)
    with cluster, Producer(cluster, options) as producer:
        for number in range(records):
            producer.send(topic, b"%d" % number, partition=number % PARTITIONS)
    assert producer.written == records
    assert len(made) > 15
    with Cluster(shared_cluster.bootstrap_servers) as steady:
        found = read_values(steady, topic, Isolation.READ_UNCOMMITTED)
    assert found == {each: list(range(each, records, PARTITIONS)) for each in range(PARTITIONS)}


def test_records_are_read_once_and_in_order(shared_cluster: KafkaCluster) -> None:
    """Records are read once and in order, although connections break within responses."""
    topic, records = new_topic(shared_cluster), 3000
    with (
        Cluster(shared_cluster.bootstrap_servers) as steady,
        Producer(steady, ProducerOptions(batch_size=600)) as producer,
    ):
        for number in range(records):
            producer.send(topic, b"%d" % number, partition=number % PARTITIONS)
    cluster, made = breaking_cluster(shared_cluster, 1, 6000)
    with cluster:
        found = read_values(cluster, topic, Isolation.READ_UNCOMMITTED)
    assert found == {each: list(range(each, records, PARTITIONS)) for each in range(PARTITIONS)}
    assert len(made) > 10


@pytest.mark.parametrize("seed", range(3))
def test_transactions_are_visible_completely_or_not_at_all(shared_cluster: KafkaCluster, seed: int) -> None:
    """Committed records are read once and in order, aborted ones never, wherever the connection breaks."""
    topic = new_topic(shared_cluster)
    cluster, made = breaking_cluster(shared_cluster, seed, 2200)
    committed: list[int] = []
    with cluster, Producer(cluster, ProducerOptions(transactional_id=topic, batch_size=300)) as producer:
        for number in range(30):
            values = range(number * 30, number * 30 + 30)
            producer.begin()
            try:
                for value in values:
                    producer.send(topic, b"%d" % value, partition=value % PARTITIONS)
                if number % 4 == 3:
                    producer.abort()
                    continue
                producer.commit()
                committed += values
            except TransactionFailed:
                producer.abort()
    assert len(made) > 15
    assert len(committed) >= 18 * 30
    with Cluster(shared_cluster.bootstrap_servers) as steady:
        found = read_values(steady, topic, Isolation.READ_COMMITTED)
    assert found == {each: [value for value in committed if value % PARTITIONS == each] for each in range(PARTITIONS)}
