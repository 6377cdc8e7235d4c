"""A whole cluster: three broker processes and a real ZooKeeper on this machine, with a producer at 1,000 records/s.

Brokers are killed and stopped, topics of 1,000 partitions are created and deleted, and records are replicated.  The
time from the controller's notification to the last broker's response is taken from the controller's log.
"""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID

from confluent_kafka import Producer

from benchmarks.zookeeper import SCRATCH, ZOOKEEPER_FLAGS
from kreplica.wire import messages
from tests.support.outside_clients import SteadyProducer
from tests.support.process_cluster import ProcessCluster, direct_places, wait_until
from tests.support.real_zookeeper import RealZooKeeper

PARTITIONS = {"quick": 2_000, "full": 10_000}
TOPIC_PARTITIONS = 1_000
LOAD_TOPIC = "load"
LOAD_PARTITIONS = 10
RECORDS_PER_SECOND = 1_000
SESSION_TIMEOUT_MS = 6_000
WAIT_S_MAX = 120.0
TARGET_MS = {"create": 2_000, "delete": 3_000, "failover": 1_000}
PRODUCED_MB = {"quick": 100, "full": 500}
RECORD_SIZE = 1_000
BATCH_SIZES = (16 * 1024, 128 * 1024)

_STEP = re.compile(
    r"controller: (\w+): handled in (\d+) ms, all brokers responded after (\d+) ms "
    r"\(ZooKeeper: (\d+) round trips, (\d+) znodes, (\d+) bytes; brokers: (\d+) commands, (\d+) bytes\)"
)


def run(scale: str = "quick") -> list[dict[str, Any]]:
    """Run all measurements on one cluster.

    :return: rows of the controller's events, then rows of replicated throughput.
    """
    with _cluster() as cluster:
        measured = Measured(cluster)
        rows = measured.topics(PARTITIONS[scale] // TOPIC_PARTITIONS)
        with SteadyProducer(
            cluster.bootstrap_servers, LOAD_TOPIC, LOAD_PARTITIONS, records_per_second=RECORDS_PER_SECOND
        ) as producer:
            rows += measured.failures(producer)
            producer.finish()
        rows.append(measured.deletion())
        return rows + throughput(cluster, PRODUCED_MB[scale])


@contextmanager
def _cluster() -> Iterator[ProcessCluster]:
    SCRATCH.mkdir(parents=True, exist_ok=True)
    settings = {"zookeeper.session.timeout.ms": SESSION_TIMEOUT_MS, "auto.leader.rebalance.enable": "false"}
    with (
        TemporaryDirectory(prefix="cluster-", dir=SCRATCH, ignore_cleanup_errors=True) as directory,
        RealZooKeeper(Path(directory, "zookeeper"), tick_time_ms=500, jvm_flags=ZOOKEEPER_FLAGS) as zookeeper,
        ProcessCluster(Path(directory), direct_places(zookeeper.connect_string), settings=settings) as cluster,
    ):
        yield cluster


class Measured:
    """A cluster, and the measurements from its controllers' logs."""

    def __init__(self, cluster: ProcessCluster) -> None:
        self._cluster = cluster
        self._topics: list[str] = []

    # --- events ---

    def topics(self, count: int) -> list[dict[str, Any]]:
        """Create topics of 1,000 partitions one after another, and return a row for the slowest."""
        self._cluster.create_topic(LOAD_TOPIC, LOAD_PARTITIONS)
        seconds = []
        before = self._steps("TopicsChanged")
        for number in range(count):
            started_s = time.monotonic()
            self._create(f"wide-{number}", TOPIC_PARTITIONS)
            seconds.append(time.monotonic() - started_s)
        steps = self._new_steps("TopicsChanged", before, count)
        slowest = max(steps, key=lambda step: step["applied, ms"])
        row = {"event": "1,000 partitions created", "partitions": TOPIC_PARTITIONS, **slowest}
        return [row | self._verdict(slowest["applied, ms"], "create") | {"a client saw, ms": _ms(max(seconds))}]

    def failures(self, producer: SteadyProducer) -> list[dict[str, Any]]:
        """Kill a broker, stop another cleanly, and kill the controller, each after all replicas are in sync."""
        producer.wait_for_more(RECORDS_PER_SECOND)
        partitions = LOAD_PARTITIONS + len(self._topics) * TOPIC_PARTITIONS
        rows = []
        for event, kind, kills, of_controller in (
            ("a broker is killed", "BrokersChanged", True, False),
            ("a broker is stopped", "ShutdownRequested", False, False),
            ("the controller is killed", "ControllerChanged", True, True),
        ):
            self._wait_until_whole()
            controller = self._cluster.controller()
            victim = next(b for b in sorted(self._cluster.brokers) if (b == controller) is of_controller)
            before = self._steps(kind)
            producer.longest_silence_s = 0.0
            if kills:
                self._cluster.brokers[victim].kill()
            else:
                self._cluster.brokers[victim].stop(WAIT_S_MAX)
            step = max(self._new_steps(kind, before, 1), key=lambda step: step["commands"])
            producer.wait_for_more(RECORDS_PER_SECOND, WAIT_S_MAX)
            row = {"event": event, "partitions": partitions, **step}
            row |= self._verdict(step["applied, ms"], "failover")
            rows.append(row | {"a client saw, ms": _ms(producer.longest_silence_s)})
            self._cluster.brokers[victim].start(WAIT_S_MAX)
        return rows

    def deletion(self) -> dict[str, Any]:
        """Delete a topic of 1,000 partitions, and wait until no broker has any of its files."""
        self._wait_until_whole()
        name = self._topics.pop()
        started_s = time.monotonic()
        topic = {"name": name, "topic_id": UUID(int=0)}
        body = {"topics": [topic], "topic_names": [name], "timeout_ms": 60_000}
        self._cluster.request(messages.DELETE_TOPICS, body, of=self._cluster.controller(), version=5)
        directories = [path for broker in self._cluster.brokers.values() for path in broker.log_directories]
        wait_until(
            lambda: not any(path.name.startswith(name) for each in directories for path in each.iterdir()),
            "the files to be gone",
            WAIT_S_MAX,
        )
        taken_ms = _ms(time.monotonic() - started_s)
        return {
            "event": "1,000 partitions deleted",
            "partitions": TOPIC_PARTITIONS,
            **dict.fromkeys(_step_of(["0"] * 8)),
            **self._verdict(taken_ms, "delete"),
            "a client saw, ms": taken_ms,
        }

    def _create(self, name: str, partitions: int) -> None:
        topic = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": len(self._cluster.brokers),
            "assignments": [],
            "configs": [{"name": "file.delete.delay.ms", "value": "0"}],
        }
        body = {"topics": [topic], "timeout_ms": 60_000, "validate_only": False}
        response = self._cluster.request(messages.CREATE_TOPICS, body, of=self._cluster.controller())["topics"][0]
        if response["error_code"]:
            raise RuntimeError(f"{name}: {response['error_message']}")
        self._topics.append(name)

    def _wait_until_whole(self) -> None:
        for name in (LOAD_TOPIC, *self._topics):
            self._cluster.wait_until_in_sync(name, WAIT_S_MAX)

    # --- controllers' logs ---

    def _steps(self, kind: str) -> list[dict[str, int]]:
        output = "\n".join(broker.all_output for broker in self._cluster.brokers.values())
        return [_step_of(fields) for fields in _STEP.findall(output) if fields[0] == kind]

    def _new_steps(self, kind: str, before: list[dict[str, int]], count: int) -> list[dict[str, int]]:
        def new() -> list[dict[str, int]]:
            steps = self._steps(kind)
            for step in before:
                steps.remove(step)
            return steps if len(steps) >= count else []

        return wait_until(new, f"the controller to log the cost of {kind}", WAIT_S_MAX)

    @staticmethod
    def _verdict(taken_ms: int, target: str) -> dict[str, Any]:
        return {"target, ms": TARGET_MS[target], "": "pass" if taken_ms < TARGET_MS[target] else "missed"}


def _step_of(fields: Any) -> dict[str, int]:
    names = (
        "handled, ms",
        "applied, ms",
        "round trips",
        "znodes",
        "KB with ZooKeeper",
        "commands",
        "KB of commands",
    )
    step = dict(zip(names, map(int, fields[1:]), strict=True))
    return {name: value // 1000 if name.startswith("KB") else value for name, value in step.items()}


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def throughput(cluster: ProcessCluster, size_mb: int) -> list[dict[str, Any]]:
    """Measure MB/s, CPU time and the followers' lag while 1 KB records are written to a partition on three brokers."""
    return [
        _throughput(cluster, size_mb, batch_size, acks) for acks in ("all", "1") for batch_size in BATCH_SIZES
    ]


def _throughput(cluster: ProcessCluster, size_mb: int, batch_size: int, acks: str) -> dict[str, Any]:
    rates, caught_up_s = [], []
    cpu_s: dict[bool, list[float]] = {True: [], False: []}
    for repetition in range(3):
        topic = f"produced-{acks}-{batch_size}-{repetition}"
        cluster.create_topic(topic)
        leader = cluster.leader(topic)
        before_s = {number: broker.cpu_seconds() for number, broker in cluster.brokers.items()}
        rates.append(size_mb / _produce(cluster.bootstrap_servers, topic, size_mb, batch_size, acks))
        caught_up_s.append(_produce(cluster.bootstrap_servers, topic, 0, batch_size, "all"))
        for number, broker in cluster.brokers.items():
            cpu_s[number == leader].append((broker.cpu_seconds() - before_s[number]) / size_mb)
    return {
        "replicated produce": f"RF 3, acks={acks}, batches of {batch_size // 1024} KB",
        "MB/s": round(statistics.median(rates)),
        "leader's CPU, us/MB": round(1e6 * statistics.median(cpu_s[True])),
        "a follower's CPU, us/MB": round(1e6 * statistics.median(cpu_s[False])),
        "followers caught up after, ms": _ms(statistics.median(caught_up_s)),
    }


def _produce(bootstrap_servers: str, topic: str, size_mb: int, batch_size: int, acks: str) -> float:
    """Produce one record, and then this number of megabytes; return the seconds until all are acknowledged."""
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap_servers,
        "acks": acks,
        "linger.ms": 5,
        "batch.size": batch_size,
        "batch.num.messages": 100_000,
        "queue.buffering.max.kbytes": 65_536,
    }
    producer = Producer(settings)
    producer.list_topics(topic)  # connects to the leader
    value = b"x" * RECORD_SIZE
    started_s = time.monotonic()
    for _ in range(1 + size_mb * 1_000_000 // RECORD_SIZE):
        while True:
            try:
                producer.produce(topic, value, partition=0)
                break
            except BufferError:
                producer.poll(0.01)
    producer.flush()
    return time.monotonic() - started_s
