"""Kafka Streams with exactly-once, versions 3 and 4, while brokers and the application are killed.

Needs Java and Maven, so it is part of the soak.
"""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import apache_kafka
import pytest
from bouncing import bounce, committed_records, three_brokers
from confluent_kafka import Producer

from tests.support.process_cluster import ProcessCluster

pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]

PROGRAM = Path(__file__).with_name("java") / "Counts.java"
PARTITIONS = 3
BOUNCES = 6
WORDS = [f"word-{number % 50}" for number in range(6000)]
SETTLE_S_MAX = 120


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    """Three brokers."""
    with three_brokers(tmp_path_factory.mktemp("streams")) as cluster:
        yield cluster


class Application:
    """One of the counting processes, with its own state directory."""

    def __init__(self, version: str, cluster: ProcessCluster, topic: str, directory: Path) -> None:
        java = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
        program = ["-cp", apache_kafka.streams_class_path(version), str(PROGRAM)]
        arguments = [cluster.bootstrap_servers, topic, topic, f"{topic}-out", str(directory)]
        self._command = [*java, *program, *arguments]
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(self._command)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


def write(producer: Producer, topic: str, number: int) -> None:
    """Write one of the parts of the words."""
    size = len(WORDS) // BOUNCES
    for index in range(number * size, (number + 1) * size):
        producer.produce(topic, WORDS[index], partition=index % PARTITIONS)
    assert producer.flush(60) == 0


def counts(cluster: ProcessCluster, topic: str) -> dict[str, int]:
    """Return the last committed count of each word; counts never decrease."""
    found: dict[str, int] = {}
    for partition in range(PARTITIONS):
        for message in committed_records(cluster, topic, partition):
            word, count = message.key().decode(), int(message.value())
            assert count >= found.get(word, 0), f"{word} was counted {found[word]} times, and then {count}"
            found[word] = count
    return found


@pytest.mark.parametrize("version", ["3.9.1", "4.1.0"])
def test_each_word_is_counted_once(cluster: ProcessCluster, topic: str, tmp_path: Path, version: str) -> None:
    """Two processes count, one of them is killed and restarted; brokers restart: no word is lost or counted twice."""
    try:
        apache_kafka.streams_class_path(version)
    except apache_kafka.NoKafka as missing:
        pytest.skip(f"not tried with Kafka Streams {version}: {missing}")
    for name in (topic, f"{topic}-out"):
        cluster.create_topic(name, PARTITIONS)
    with ExitStack() as stack:
        applications = []
        for number in range(2):
            applications.append(Application(version, cluster, topic, tmp_path / str(number)))
            stack.callback(applications[number].kill)
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        for number in range(BOUNCES):
            write(producer, topic, number)
            bounce(cluster, number)
            if number == BOUNCES // 2:
                applications[1].kill()
                applications[1].start()
        end = time.monotonic() + SETTLE_S_MAX
        while (counted := counts(cluster, f"{topic}-out")) != Counter(WORDS):
            assert time.monotonic() < end, counted
            time.sleep(1)
    assert cluster.tracebacks() == []
