"""Exactly once, end to end: results of a chain of consumers and transactional producers while brokers restart."""

import itertools
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.support.process_cluster import ProcessCluster, direct_places, wait_until

PARTITIONS = 4
WORKERS = 2
WORKER = Path(__file__).with_name("exactly_once_worker.py")
STALLED_S_MAX = 180.0

MOVING = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
)
"""Errors of a client while the coordinator moves; it retries."""


class Workers:
    """Processes of the chain; a worker that ends or is killed is restarted with its transactional ID."""

    def __init__(self, bootstrap, source, target, batch_max, directory):
        self._arguments = (bootstrap, f"chain-{source}")
        self._work = (source, target, str(batch_max))
        self._seeds = itertools.count()
        self._directory = directory
        self._running = {}
        self.restarts = 0

    def __enter__(self):
        self.keep_running()
        return self

    def __exit__(self, *_):
        for process in self._running.values():
            process.kill()
            process.wait()

    def keep_running(self):
        for number in range(WORKERS):
            process = self._running.get(number)
            if process is None or process.poll() is not None:
                self.restarts += process is not None
                command = [sys.executable, WORKER, *self._arguments, f"worker-{number}", *self._work]
                with open(self._directory / f"worker-{number}.log", "ab") as log:
                    self._running[number] = subprocess.Popen(
                        [*command, str(next(self._seeds))], stdout=log, stderr=subprocess.STDOUT
                    )

    def kill(self, number):
        self._running[number].kill()
        self._running[number].wait()

    def output(self, number):
        return (self._directory / f"worker-{number}.log").read_text()

    def count(self, word):
        return sum(self.output(number).count(word) for number in range(WORKERS))


def value_of(number):
    return b"%012d" % number


def fill(cluster, topic, records):
    """Write record i to partition i modulo the number of partitions, so that each partition's records are in order."""
    failed = []
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "enable.idempotence": True,
            "linger.ms": 20,
            "queue.buffering.max.messages": 200_000,
        }
    )
    for number in range(records):
        while True:
            try:
                producer.produce(
                    topic,
                    value_of(number),
                    partition=number % PARTITIONS,
                    on_delivery=lambda error, _: failed.append(error) if error else None,
                )
                break
            except BufferError:
                producer.poll(0.1)
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0
    assert not failed


def read(cluster, topic, isolation):
    """Return all values by partition, as a consumer with that isolation level reads them."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": f"reader-{topic}-{isolation}",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    values = {partition: [] for partition in range(PARTITIONS)}
    ended = set()
    deadline_s = time.monotonic() + 120
    while len(ended) < PARTITIONS:
        assert time.monotonic() < deadline_s, f"{topic} cannot be read to its end"
        for message in consumer.consume(10_000, 1.0):
            if message.error():
                ended.add(message.partition())
            else:
                values[message.partition()].append(message.value())
                ended.discard(message.partition())
    consumer.close()
    return values


def committed_count(cluster, group, topic, before):
    """Return the number of records that the group has committed, or ``before`` while its coordinator moves."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": group})
    try:
        partitions = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
        rows = consumer.committed(partitions, timeout=60)
        return before if any(row.error for row in rows) else sum(max(row.offset, 0) for row in rows)
    except KafkaException as error:
        if error.args[0].code() not in MOVING:
            raise
        return before
    finally:
        consumer.close()


def check_exactly_once(cluster, target, records):
    """Check that every record of the source exists once, in the order of its partition."""
    seen = read(cluster, target, "read_committed")
    everything = Counter(itertools.chain.from_iterable(seen.values()))
    wanted = {b"seen " + value_of(number) for number in range(records)}
    doubled = [value for value, count in everything.items() if count > 1]
    assert not doubled, f"{len(doubled)} are duplicated, such as {doubled[:5]}"
    lost = sorted(wanted - everything.keys())
    assert not lost, f"{len(lost)} are missing, such as {lost[:5]}"
    assert everything.keys() == wanted
    for partition, values in seen.items():
        assert values == sorted(values), f"partition {partition} is out of order"
    written = sum(len(values) for values in read(cluster, target, "read_uncommitted").values())
    return written - records


def run_chain(cluster, directory, records, bounces, batch_max):
    """Run the chain until all records are processed; return the number of aborted records and the seconds."""
    source, target = f"source-{records}", f"target-{records}"
    for topic in (source, target):
        cluster.create_topic(topic, PARTITIONS)
    fill(cluster, source, records)
    started_s = progressed_s = time.monotonic()
    processed = 0
    next_brokers = itertools.cycle(cluster.brokers.values())
    with Workers(cluster.bootstrap_servers, source, target, batch_max, directory) as workers:
        while processed < records:
            if bounces and processed:
                bounce(next(next_brokers), hard=bounces % 2 == 0)
                bounces -= 1
                if bounces == 1:
                    workers.kill(0)
            time.sleep(1.0)
            workers.keep_running()
            before, processed = processed, committed_count(cluster, f"chain-{source}", source, processed)
            now_s = time.monotonic()
            progressed_s = now_s if processed > before else progressed_s
            assert now_s - progressed_s < STALLED_S_MAX, (
                f"stuck at {processed} of {records}:\n{workers.output(0)[-3000:]}"
            )
        took_s = time.monotonic() - started_s
        committed, aborted = workers.count("committed"), workers.count("aborted")
        print(f"{committed} transactions committed, {aborted} aborted, {workers.restarts} restarts of workers")
    aborted = check_exactly_once(cluster, target, records)
    assert not cluster.tracebacks()
    return aborted, took_s


def bounce(broker, *, hard):
    if hard:
        broker.kill()
    else:
        broker.stop()
    broker.start()


@pytest.fixture
def chain_cluster(zookeeper, tmp_path):
    settings = {
        "offsets.topic.num.partitions": 4,
        "transaction.state.log.num.partitions": 4,
        "group.initial.rebalance.delay.ms": 0,
        "offsets.topic.replication.factor": 3,
    }
    places = direct_places(f"{zookeeper.connect_string}/{tmp_path.name}")
    with ProcessCluster(tmp_path, places, settings=settings) as cluster:
        wait_until(lambda: cluster.controller() > 0, "a controller")
        yield cluster


def test_a_chain_is_exactly_once(chain_cluster, tmp_path):
    """Every source record is transformed exactly once, even though brokers restart and transactions abort."""
    aborted, took_s = run_chain(chain_cluster, tmp_path, records=10_000, bounces=2, batch_max=100)
    print(f"10,000 records in {took_s:.0f} s, {aborted} records were aborted")


@pytest.mark.soak
def test_a_chain_with_a_million_records(chain_cluster, tmp_path):
    """With a million records, every broker is stopped and killed (``kill -9``) several times."""
    aborted, took_s = run_chain(chain_cluster, tmp_path, records=1_000_000, bounces=24, batch_max=1000)
    print(f"1,000,000 records in {took_s:.0f} s, {aborted} records were aborted")
    assert aborted > 0
