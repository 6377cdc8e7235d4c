"""Exactly-once writes in real Spark: although tasks, workers, drivers and brokers die, each row is written once."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest
from failing_query import ROWS_PER_BATCH, SOURCE, Copy, command
from failing_sink import AFTER, BEFORE, BETWEEN, DECIDED, ERROR, HALF, KILL, TASK, pending_failures, plan_failure

from kreplica.blocking import Cluster, Isolation, Producer, Reader, ReaderOptions
from kreplica.blocking.offsets import end_offsets, topic_partitions
from kreplica.client_core.errors import LeaderUnknown
from kreplica.client_core.offsets import EARLIEST
from kreplica.model import TopicPartition
from kreplica.testing.fixtures.kafka_cluster import KafkaCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = 4
BATCHES = 5
ROWS = ROWS_PER_BATCH * BATCHES // PARTITIONS
SLOW_S = 900
"""Time limit of a test, which is slow while other tests run."""

CONNECT_ERROR = "Python worker failed to connect back"
"""Error that Spark sometimes reports on a busy machine."""

DRIVER_FAILURES = (BEFORE, DECIDED, BETWEEN, AFTER)


@pytest.fixture(scope="module")
def fragile_brokers() -> Iterator[KafkaCluster]:
    """Brokers that tests kill and restart, and a source topic with rows."""
    settings = {"transaction.two.phase.commit.enable": True}
    with KafkaCluster(3, topics={SOURCE: PARTITIONS}, settings=settings, session_timeout_ms=5000) as cluster:
        with Cluster(cluster.bootstrap_servers) as client, Producer(client) as producer:
            for number in range(ROWS):
                for partition in range(PARTITIONS):
                    producer.send(SOURCE, str(number).encode(), key=str(partition).encode(), partition=partition)
        yield cluster


def check(brokers: KafkaCluster, topic: str) -> None:
    """Check that each row was written once and in order, and that no transaction remains open."""
    with Cluster(brokers.bootstrap_servers) as cluster:
        partitions = topic_partitions(cluster, topic)

        def ends_without_open_transactions() -> dict[TopicPartition, int]:
            committed, ends = (end_offsets(cluster, partitions, each) for each in reversed(Isolation))
            if committed != ends:
                raise LeaderUnknown("a transaction is open")
            return ends

        ends = cluster.retrying(ends_without_open_transactions, 30.0)
        options = ReaderOptions(isolation=Isolation.READ_COMMITTED)
        with Reader(cluster, dict.fromkeys(partitions, EARLIEST), ends=ends, options=options) as reader:
            found: dict[bytes | None, list[int]] = {}
            for record in reader.records():
                assert record.value is not None
                found.setdefault(record.key, []).append(int(record.value))
    assert found == {str(partition).encode(): list(range(ROWS)) for partition in range(PARTITIONS)}


@contextmanager
def kill_and_restart_brokers(brokers: KafkaCluster, seed: int) -> Iterator[None]:
    """Repeatedly kill and restart one broker at a time, within the context."""
    stop, random = threading.Event(), Random(seed)

    def kill_brokers() -> None:
        while not stop.wait(random.uniform(0.2, 1.5)):
            broker = random.choice(brokers.brokers)
            brokers.kill(broker, notice=random.choice(("now", "session")))
            stop.wait(random.uniform(0.2, 1.5))
            brokers.start(broker)
            brokers.wait_until_in_sync()

    killer = threading.Thread(target=kill_brokers)
    killer.start()
    try:
        yield
    finally:
        stop.set()
        killer.join()


def new_copy(brokers: KafkaCluster, tmp_path: Path, mode: str, name: str) -> tuple[Copy, Path]:
    topic, plan = f"{name}-{mode}", tmp_path / "plan"
    brokers.create_topic(topic, 2)
    plan.mkdir()
    return Copy(brokers.bootstrap_servers, topic, str(tmp_path / "checkpoint"), str(plan), mode, 4), plan


@contextmanager
def run_driver(copy: Copy) -> Iterator[subprocess.Popen[str]]:
    """Run a driver in a separate process, and kill it when the context ends."""
    with subprocess.Popen(command(copy), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as driver:
        try:
            yield driver
        finally:
            driver.kill()


def with_random_lanes(copy: Copy, random: Random) -> Copy:
    lanes = random.randint(2, PARTITIONS) if copy.mode == "many" else 1
    return Copy(copy.bootstrap, copy.topic, copy.checkpoint, copy.plan, copy.mode, lanes)


def run_until_done(spark: SparkSession, copy: Copy, random: Random) -> int:
    """Run the query, and restart it with another number of tasks after each planned failure.

    :return: number of failures.
    """
    failures = 0
    while True:
        try:
            with_random_lanes(copy, random).run(spark)
        except Exception as error:
            failures += "Failed: batch" in str(error)
            if "Failed: batch" not in str(error) and CONNECT_ERROR not in str(error):
                raise
        else:
            return failures


@pytest.mark.timeout(SLOW_S)
@pytest.mark.parametrize("mode", ["one", pytest.param("many", marks=pytest.mark.soak)])
def test_query_that_fails_at_every_step(
    spark: SparkSession, fragile_brokers: KafkaCluster, tmp_path: Path, mode: str
) -> None:
    """A query that fails at every step, and is restarted with varying numbers of tasks, writes each row once."""
    copy, plan = new_copy(fragile_brokers, tmp_path, mode, "steps")
    failures = [(0, DECIDED), (1, AFTER)]
    if mode == "many":
        failures += [(2, HALF), (3, BETWEEN), (4, BEFORE)]
    for batch_id, place in failures:
        plan_failure(plan, batch_id, place, ERROR)
    assert run_until_done(spark, copy, Random(1)) == len(failures)
    assert not pending_failures(plan)
    check(fragile_brokers, copy.topic)


@pytest.mark.soak
@pytest.mark.timeout(SLOW_S)
def test_killed_driver(spark: SparkSession, fragile_brokers: KafkaCluster, tmp_path: Path) -> None:
    """After a failed task and a killed worker, broker and driver, another driver continues with fewer tasks."""
    copy, plan = new_copy(fragile_brokers, tmp_path, "many", "killed")
    plan_failure(plan, 0, HALF, ERROR)
    plan_failure(plan, 0, TASK, KILL)
    plan_failure(plan, 2, BETWEEN, KILL)
    leader = fragile_brokers.leader_of(copy.topic)
    with run_driver(copy) as driver:
        while len(pending_failures(plan)) == 3 and driver.poll() is None:
            time.sleep(0.05)
        fragile_brokers.kill(leader)
        _, errors = driver.communicate(timeout=SLOW_S)
    assert driver.returncode != 0
    assert not pending_failures(plan), errors
    Copy(copy.bootstrap, copy.topic, copy.checkpoint, copy.plan, "many", 1).run(spark)
    fragile_brokers.start(leader)
    check(fragile_brokers, copy.topic)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("mode", ["one", "many"])
def test_crash_matrix(fragile_brokers: KafkaCluster, tmp_path: Path, mode: str, seed: int) -> None:
    """Tasks, workers, drivers and brokers are killed at random points, and each row is written once."""
    random = Random(f"{mode}-{seed}")
    copy, plan = new_copy(fragile_brokers, tmp_path, mode, f"matrix-{seed}")
    for batch_id in range(BATCHES):
        for place in random.sample((HALF, TASK), random.randint(0, 2)):
            plan_failure(plan, batch_id, place, random.choice((ERROR, KILL)))
        for place in random.sample(DRIVER_FAILURES, random.randint(0, 1)):
            if mode == "many" or place != BETWEEN:
                plan_failure(plan, batch_id, place, random.choice((ERROR, KILL, KILL)))
    with kill_and_restart_brokers(fragile_brokers, seed):
        for _ in range(3 * BATCHES):
            with run_driver(with_random_lanes(copy, random)) as driver:
                _, errors = driver.communicate(timeout=SLOW_S)
            if not driver.returncode:
                break
        assert driver.returncode == 0, errors
    check(fragile_brokers, copy.topic)
