"""A simulated cluster with a topic, and producers on a separate host."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from kreplica.client.client_runtime import runtime_of
from kreplica.client.cluster import Cluster
from kreplica.client.producer import Producer, ProducerOptions
from kreplica.client_core.fetched_batches import FetchedRecords, Isolation, aborted_transactions_of, open_batches
from kreplica.client_core.options import ClientOptions
from kreplica.model import TopicPartition
from kreplica.testing.cluster.cluster import SimulatedCluster
from kreplica.wire.batches import iter_headers
from kreplica.wire.records import Record


class Scene:
    """A simulated cluster, and producers that write to its topic t with four partitions.

    :param brokers: number of brokers; each partition has replicas on up to three of them.
    """

    def __init__(self, seed: int = 7, brokers: int = 1, overrides: tuple[str, ...] = ()) -> None:
        self.brokers = SimulatedCluster(seed=seed, brokers=brokers, overrides=overrides)
        self.brokers.start()
        self.create("t", 4, min(3, brokers))
        self.host = self.brokers.host("application")
        self.cluster = self.new_cluster()
        self._producers: list[Producer] = []
        self._reads = 0

    def new_cluster(self, **options: Any) -> Cluster:
        runtime = runtime_of(self.host.runtime)
        client_options = ClientOptions(client_id="app", **options)
        return Cluster(self.brokers.bootstrap_servers, options=client_options, runtime=runtime)

    def create(self, topic: str, partitions: int = 1, replicas: int = 1) -> None:
        self.run(self.brokers.client().create_topic(topic, partitions, replication_factor=replicas))
        self.brokers.wait_in_sync(topic, range(partitions))

    def producer(self, *, cluster: Cluster | None = None, **options: Any) -> Producer:
        producer = Producer(cluster or self.cluster, ProducerOptions(**options))
        self._producers.append(producer)
        return producer

    def run(self, goal: Any, timeout_s: float = 120.0) -> Any:
        return self.brokers.run_until(goal, timeout_s)

    def error(self, goal: Any, timeout_s: float = 120.0) -> Any:
        """Run an operation that must fail, and return its error."""
        failures: list[Failure] = []
        operation = goal if isinstance(goal, Deferred) else Deferred.fromCoroutine(goal)
        operation.addErrback(failures.append)
        self.run(operation, timeout_s)
        assert failures, "the operation succeeded"
        return failures[0].value

    def records(self, partition: int, topic: str = "t") -> list[Record]:
        self._reads += 1
        client = self.brokers.leader_client(topic, partition, name=f"reader-{self._reads}")
        records = self.run(client.read_all(topic, partition))
        self.run(client.close())
        return records

    def values(self, partition: int, topic: str = "t") -> list[bytes | None]:
        return [record.value for record in self.records(partition, topic)]

    def records_per_batch(self, partition: int, topic: str = "t") -> list[int]:
        """Return the number of records in each batch of the log."""
        data = memoryview(self._fetch(topic, partition, 0)["records"])
        return [header.record_count for _, header in iter_headers(data)]

    def committed_values(self, partition: int, topic: str = "t") -> list[bytes | None]:
        """Return the values that a read_committed consumer sees."""
        row = self._fetch(topic, partition, int(Isolation.READ_COMMITTED))
        data = memoryview(row["records"] or b"")
        fetched = FetchedRecords(TopicPartition(topic, partition), data, 0, 0, aborted_transactions_of(row))
        return [record.value for batch in open_batches(fetched) for record in batch.records]

    def _fetch(self, topic: str, partition: int, isolation: int) -> dict[str, Any]:
        self._reads += 1
        client = self.brokers.leader_client(topic, partition, name=f"reader-{self._reads}")
        row = self.run(client.fetch_row(topic, partition, 0, isolation=isolation))
        self.run(client.close())
        return row

    def close(self) -> None:
        """Close everything, and check that no timer of the producers is left."""
        for producer in self._producers:
            self.run(producer.close(flush=False))
        self.run(self.cluster.close())
        self.brokers.run(0.1)
        left = [str(each) for each in self.host.reactor.getDelayedCalls()]
        assert left == []
        self.brokers.stop()
