"""Apache Kafka's exactly-once test, TransactionalMessageCopier, while brokers are killed and paused.

Needs Java and Maven, so it is part of the soak.
"""

from __future__ import annotations

import itertools
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import apache_kafka
import pytest
from bouncing import bounce, committed_records, three_brokers
from confluent_kafka import Producer

from tests.support.process_cluster import ProcessCluster

pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]

COPIER = "org.apache.kafka.tools.TransactionalMessageCopier"
RECORDS = 20_000
"""Number of records in each of the two partitions."""

PARTITIONS = (0, 1)
TIME_S_MAX = 300
PAUSE_S = 4


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    """Three brokers."""
    try:
        apache_kafka.class_path()
    except apache_kafka.NoKafka as missing:
        pytest.skip(f"not tried with Apache Kafka's message copier: {missing}")
    with three_brokers(tmp_path_factory.mktemp("copier")) as cluster:
        yield cluster


class Copier:
    """A copier of one partition, or one of two in a group; it aborts random transactions."""

    def __init__(self, servers: str, topic: str, partition: int, *, in_group: bool, directory: Path) -> None:
        java = ["java", "-Xmx192m", "-XX:TieredStopAtLevel=1", "-cp", apache_kafka.class_path()]
        source = ["--input-topic", topic, "--input-partition", str(partition), "--max-messages", str(RECORDS)]
        target = ["--output-topic", f"{topic}-out", "--transactional-id", f"{topic}-{partition}"]
        group = ["--consumer-group", topic, "--use-group-metadata", *(["--group-mode"] if in_group else [])]
        command = [COPIER, "--enable-random-aborts", "--broker-list", servers, *source, *target, *group]
        self._output = directory / f"copier-{partition}.out"
        with open(self._output, "w") as output:
            self._process = subprocess.Popen([*java, *command], stdout=output, stderr=output)

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def state(self) -> str:
        """Return the exit status of the process, and the end of its output."""
        return f"{self._process.poll()}: {self._output.read_text()[-2000:]}"

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


def write(cluster: ProcessCluster, topic: str, partition: int) -> list[bytes]:
    values = [b"%d of %d" % (number, partition) for number in range(RECORDS)]
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "queue.buffering.max.messages": RECORDS})
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(60) == 0
    return values


@pytest.mark.parametrize("in_group", [False, True], ids=["assigned", "in a group"])
def test_each_record_is_copied_once(cluster: ProcessCluster, topic: str, tmp_path: Path, in_group: bool) -> None:
    """Two copiers abort some transactions, and brokers restart: each record is committed once."""
    for name in (topic, f"{topic}-out"):
        cluster.create_topic(name, partitions=len(PARTITIONS))
    written = [value for partition in PARTITIONS for value in write(cluster, topic, partition)]
    with ExitStack() as stack:
        copiers = []
        for partition in PARTITIONS:
            copier = Copier(cluster.bootstrap_servers, topic, partition, in_group=in_group, directory=tmp_path)
            stack.callback(copier.kill)
            copiers.append(copier)
        end = time.monotonic() + TIME_S_MAX
        for number in itertools.count():
            time.sleep(PAUSE_S)
            if not any(copier.running for copier in copiers):
                break
            assert time.monotonic() < end, [copier.state() for copier in copiers]
            bounce(cluster, number)
        assert number >= 1, "the copiers finished before a broker was restarted"
        copied = [
            message.value() for each in PARTITIONS for message in committed_records(cluster, f"{topic}-out", each)
        ]
        assert sorted(copied) == sorted(written), [copier.state() for copier in copiers]
    assert cluster.tracebacks() == []
