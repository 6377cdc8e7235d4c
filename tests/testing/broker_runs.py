"""Simulated broker runs shared by several tests: one of ordinary use, with a trace, and one with crashes.

``python broker_runs.py SEED`` prints the trace of ordinary use, for comparison between processes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Any

from twisted.internet.defer import Deferred

from kreplica.errors import KafkaError
from kreplica.model import TopicPartition
from kreplica.runtime.disk import Disk
from kreplica.storage.log.log import Log
from kreplica.testing.anomalies import Expectations, report
from kreplica.testing.clients.idempotent_producer import IdempotentProducer, Load
from kreplica.testing.clients.tailing_consumer import TailingConsumer
from kreplica.testing.clients.wire_client import WireClient
from kreplica.testing.cluster.cluster import BROKER_PORT, SimulatedCluster
from kreplica.testing.histories.record_history import History, check_complete, check_nothing_lost
from kreplica.wire.batch_building import BatchBuilder
from kreplica.wire.records import Record

TOPIC = "load"
DEFAULT = {"segment.bytes": "5000"}
"""Default topic settings, except that segments are rolled often."""

EVERY_ACK_SYNCED = {**DEFAULT, "flush.messages": "1"}
QUICK = (
    "zookeeper.session.timeout.ms=6000",
    "log.flush.offset.checkpoint.interval.ms=2000",
    "log.retention.check.interval.ms=2000",
)
"""A short session timeout, and intervals short enough for checkpoints and retention checks in every run."""


def batch(*values: bytes, timestamp_ms: int = 1_700_000_000_000) -> bytes:
    """Encode a batch of values without keys."""
    builder = BatchBuilder()
    for value in values:
        builder.append(timestamp_ms, None, value)
    return builder.build()


def values(records: Iterable[Record]) -> list[bytes | None]:
    """Return the values of records."""
    return [record.value for record in records]


def retry_until_success(cluster: SimulatedCluster, ask: Callable[[], Any]) -> Any:
    """Repeat a request until it succeeds, as clients do until a broker has learned which partitions it leads."""
    for _ in range(100):
        try:
            return cluster.run_until(ask())
        except KafkaError as error:
            if not error.code.retriable:
                raise
        cluster.run(0.5)
    raise AssertionError("the request never succeeded")


# --- ordinary use -----------------------------------------------------------------------------------------------------


def ordinary_use(seed: int) -> str:
    """Run typical client requests between a broker's first start and an orderly stop.

    :return: the trace of all events, the client's results, and a digest of the files.
    """
    trace: list[str] = []
    cluster = SimulatedCluster(seed, trace=trace.append)
    cluster.start()
    trace.append(repr(cluster.run_until(_typical_requests(cluster))))
    cluster.stop()
    assert cluster.simulation.failures == []
    for machine in (cluster.zookeeper, *cluster.brokers.values()):
        for path, data in _files(machine.host.disk, "/data"):
            trace.append(f"{machine.host.name}{path} {len(data)} {sha256(data).hexdigest()}")
    return "\n".join(trace)


async def _typical_requests(cluster: SimulatedCluster) -> list[Any]:
    client, reader = cluster.client(), cluster.client()
    seen: list[Any] = []
    await client.create_topic("orders", 3, {"retention.ms": "3600000"})
    seen.append(await client.produce("orders", 1, batch(b"first", b"second")))
    waiting = Deferred.fromCoroutine(reader.fetch("orders", 1, 2, wait_ms=5_000))
    seen.append(await client.produce("orders", 1, batch(b"third"), acks=1))
    seen.append(await waiting)
    await client.produce("orders", 1, batch(b"fourth"), acks=0)
    seen.append(await reader.fetch("orders", 1, 3, wait_ms=5_000))
    seen.append(await client.list_offset("orders", 1, -2))
    seen.append(await client.list_offset("orders", 1, -1))
    seen.append(await client.read_all("orders", 1))
    seen.append(await client.metadata())
    await client.delete_topic("orders")
    seen.append((await client.metadata())["topics"])
    await client.close()
    await reader.close()
    return seen


def _files(disk: Disk, path: str) -> Iterator[tuple[str, bytes]]:
    for name in disk.list_directory(path):
        below = f"{path}/{name}"
        if disk.is_directory(below):
            yield from _files(disk, below)
        else:
            yield below, disk.read_file(below)


# --- a run with crashes -----------------------------------------------------------------------------------------------


class CrashRun:
    """One broker whose machine can be crashed, one idempotent producer, and one consumer per partition.

    :param interval_s: mean time between two batches for a partition.
    :ivar history: responses received by the clients.
    """

    def __init__(
        self,
        seed: int,
        *,
        partitions: int = 1,
        acks: int = -1,
        configs: Mapping[str, str] = DEFAULT,
        interval_s: float = 0.005,
    ) -> None:
        self.cluster = cluster = SimulatedCluster(seed, overrides=QUICK)
        self.machine = cluster.brokers[1]
        self.random = cluster.simulation.random
        self.partitions = partitions
        self.history = History(partitions, lambda: cluster.simulation.now_s)
        cluster.start()
        admin = cluster.client()
        cluster.run_until(admin.create_topic(TOPIC, partitions, configs))
        cluster.run_until(admin.close())
        host = cluster.simulation.host("producer")
        load = Load(TOPIC, range(partitions), acks, interval_s)
        self.producer = IdempotentProducer(host.runtime, self._client("producer"), load, self.history)
        self.producer.start()
        self.consumers = [self._consumer(partition) for partition in range(partitions)]

    def _consumer(self, partition: int) -> TailingConsumer:
        name = f"consumer-{partition}"
        reactor = self.cluster.simulation.host(name).reactor
        consumer = TailingConsumer(reactor, self._client(name), TOPIC, partition, self.history)
        consumer.start()
        return consumer

    def _client(self, name: str) -> WireClient:
        return WireClient(self.cluster.simulation.host(name).reactor, "broker-1", BROKER_PORT, client_id=name)

    def log(self, partition: int) -> Log:
        """Return a partition's log in the running broker."""
        return self.machine.program.directories.logs[TopicPartition(TOPIC, partition)]

    def run_load(self) -> None:
        """Run until more records are acknowledged, and stop at a random event."""
        wanted = self.history.acked_count + self.random.randrange(1, 60)
        self.cluster.run_until(lambda: self.history.acked_count >= wanted, timeout_s=120.0)
        self.steps(self.random.randrange(200))
        assert self.history.contradictions == []

    def steps(self, count: int) -> None:
        """Run this number of events."""
        for _ in range(count):
            self.cluster.simulation.step()

    def crash(self, *, power_loss: bool) -> None:
        """Crash the machine and restart it, sometimes with a second crash during the restart."""
        while True:
            self.machine.power_loss() if power_loss else self.machine.kill()
            if self.random.random() < 0.2:
                self.cluster.run(self.random.uniform(0.0, 20.0))
            starting = self.machine.start()
            if self.random.random() < 0.7:
                break
            self.steps(self.random.randrange(300))
        self.cluster.run_until(starting, timeout_s=120.0)

    def finish(self) -> None:
        """Run until all records that were sent are acknowledged."""
        self.cluster.run_until(self.producer.finish(), timeout_s=300.0)
        for consumer in self.consumers:
            self.cluster.run_until(consumer.finish(), timeout_s=120.0)

    def check(self, *, everything_sent: bool = True) -> None:
        """Check that each partition contains the expected records in order, and stop everything.

        :param everything_sent: True to require every record that was sent, even if it was not acknowledged.
        """
        assert self.history.contradictions == []
        report(self.history.observations, Expectations(kept=everything_sent, caught_up=False)).check()
        client = self.cluster.client()
        for partition in range(self.partitions):
            records = self.cluster.run_until(client.read_all(TOPIC, partition), timeout_s=120.0)
            check_complete(records, partition)
            check_nothing_lost(records, self.history.acked[partition], "acknowledged")
            check_nothing_lost(records, self.history.seen[partition], "read")
            assert not everything_sent or len(records) == self.history.sent[partition]
        self.cluster.run_until(client.close())
        self.cluster.stop()
        assert self.cluster.simulation.failures == []


def bytes_of(log: Log) -> bytes:
    """Return all bytes of a log, committed or not."""
    return b"".join(segment.file.read_at(0, segment.size) for segment in log.segments)


if __name__ == "__main__":
    print(ordinary_use(int(sys.argv[1])))
