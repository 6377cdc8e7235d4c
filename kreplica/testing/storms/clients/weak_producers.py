"""Producers with weaker guarantees on a separate topic: one with ``acks=1``, one that is not idempotent.

Acknowledged records of the first may be lost, and records of the second may be written twice, but all readers must
receive the same records.
"""

from __future__ import annotations

from collections.abc import Mapping

from kreplica.model import TopicPartition
from kreplica.testing.anomalies import Expectations, report
from kreplica.testing.clients.idempotent_producer import IdempotentProducer, Load
from kreplica.testing.clients.tailing_consumer import TailingConsumer
from kreplica.testing.cluster.state import is_all_committed, is_in_sync
from kreplica.testing.histories.record_history import History, check_nothing_lost
from kreplica.testing.storms.cluster_run import ClusterRun

TOPIC = "weak-producers"
ACKS_1, NOT_IDEMPOTENT = 0, 1
"""Partitions, by the producer that writes to them."""

INTERVAL_S = 0.5
VALUE_SIZE_MAX = 150
LATEST = -1

LOADS = {
    ACKS_1: Load(TOPIC, [ACKS_1], 1, INTERVAL_S, value_size_max=VALUE_SIZE_MAX),
    NOT_IDEMPOTENT: Load(
        TOPIC, [NOT_IDEMPOTENT], interval_s=INTERVAL_S, value_size_max=VALUE_SIZE_MAX, idempotent=False
    ),
}
EXPECTATIONS = {ACKS_1: Expectations(kept=False), NOT_IDEMPOTENT: Expectations(written_once=False)}


class WeakProducers:
    """A producer and a consumer for each of the two partitions, with separate histories."""

    def __init__(self, run: ClusterRun, replicas: int, configs: Mapping[str, str]) -> None:
        self._run = run
        cluster = run.cluster
        self.keys = [TopicPartition(TOPIC, partition) for partition in LOADS]
        admin = cluster.client()
        cluster.run_until(admin.create_topic(TOPIC, len(LOADS), configs, replication_factor=replicas))
        cluster.run_until(admin.close())
        self.histories = [History(key.partition + 1, lambda: cluster.simulation.now_s) for key in self.keys]
        for key, history in zip(self.keys, self.histories, strict=True):
            run.invariants.add(key, history if key.partition == NOT_IDEMPOTENT else None)
        self._producers = [self._producer(key) for key in self.keys]
        self._consumers = [self._consumer(key) for key in self.keys]

    def _producer(self, key: TopicPartition) -> IdempotentProducer:
        client = self._run.cluster.leader_client(*key, name=TOPIC)
        runtime = self._run.cluster.simulation.host(TOPIC).runtime
        producer = IdempotentProducer(runtime, client, LOADS[key.partition], self.histories[key.partition])
        producer.start()
        return producer

    def _consumer(self, key: TopicPartition) -> TailingConsumer:
        client = self._run.cluster.leader_client(*key, name=TOPIC)
        consumer = TailingConsumer(client.reactor, client, *key, self.histories[key.partition])
        consumer.start()
        return consumer

    @property
    def hosts(self) -> list[str]:
        return [TOPIC]

    def converge(self) -> None:
        cluster = self._run.cluster
        for key, producer, consumer in zip(self.keys, self._producers, self._consumers, strict=True):
            cluster.run_until(lambda key=key: is_in_sync(cluster, key), timeout_s=180.0)
            cluster.run_until(producer.finish(), timeout_s=300.0)
            cluster.run_until(lambda key=key: is_all_committed(cluster, key), timeout_s=120.0)
            client = cluster.leader_client(*key, name=TOPIC)
            end = cluster.run_until(client.find_offset(*key, LATEST))
            cluster.run_until(client.close())
            cluster.run_until(lambda consumer=consumer, end=end: consumer.position >= end, timeout_s=120.0)
            cluster.run_until(consumer.finish(), timeout_s=120.0)
            self._check(key)

    def _check(self, key: TopicPartition) -> None:
        cluster, history = self._run.cluster, self.histories[key.partition]
        report(history.observations, EXPECTATIONS[key.partition]).check()
        client = cluster.leader_client(*key, name=TOPIC)
        records = cluster.run_until(client.read_all(*key), timeout_s=120.0)
        cluster.run_until(client.close())
        assert [record.offset for record in records] == list(range(len(records))), f"{key} has gaps"
        check_nothing_lost(records, history.seen[key.partition], f"read in {key}")
        if key.partition == NOT_IDEMPOTENT:
            check_nothing_lost(records, history.acked[key.partition], f"acknowledged in {key}")
        cluster.wait_log_end_offsets(key, len(records))
