"""Kafka Connect: file copies, and an exactly-once source while workers and brokers are killed.

Needs Java and Maven, so it is part of the soak.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import apache_kafka
import pytest
from bouncing import bounce, committed_records, three_brokers
from connect_process import DISTRIBUTED, FILE_SINK, FILE_SOURCE, STANDALONE, WORKER, ConnectProcess, Rest

from tests.support.process_cluster import ProcessCluster, wait_until

pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]

LINES = [f"line {number:05}" for number in range(6000)]
KILLS = 3
WAIT_S_MAX = 120


@pytest.fixture(scope="module", autouse=True)
def _connect() -> None:
    try:
        apache_kafka.connect_class_path()
    except apache_kafka.NoKafka as missing:
        pytest.skip(f"not tried with Kafka Connect: {missing}")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    """Three brokers."""
    with three_brokers(tmp_path_factory.mktemp("connect")) as cluster:
        yield cluster


def append(file: Path, lines: list[str]) -> None:
    """Append lines to the file that a source connector reads."""
    with open(file, "a") as source:
        source.writelines(f"{line}\n" for line in lines)


def values(cluster: ProcessCluster, topic: str) -> list[str]:
    """Return the values of the committed records in the topic's only partition."""
    return [message.value().decode() for message in committed_records(cluster, topic, 0)]


def test_a_file_is_copied_through_a_topic(cluster: ProcessCluster, topic: str, tmp_path: Path) -> None:
    """A standalone worker copies each line once and in order, despite a restart in the middle."""
    cluster.create_topic(topic)
    source, sink = tmp_path / "source.txt", tmp_path / "sink.txt"
    worker = {
        **WORKER,
        "bootstrap.servers": cluster.bootstrap_servers,
        "listeners": f"http://127.0.0.1:{apache_kafka.free_port()}",
        "offset.storage.file.filename": tmp_path / "offsets",
    }
    files = {
        "worker": worker,
        "source": {"name": f"{topic}-in", "connector.class": FILE_SOURCE, "file": source, "topic": topic},
        "sink": {"name": f"{topic}-out", "connector.class": FILE_SINK, "file": sink, "topics": topic},
    }
    half = len(LINES) // 2
    append(source, LINES[:half])
    with ConnectProcess(STANDALONE, tmp_path / "worker", files) as connect:
        wait_until(lambda: sink.exists() and len(sink.read_text().splitlines()) >= half, "the first half", WAIT_S_MAX)
        connect.stop()
        append(source, LINES[half:])
        connect.start()
        wait_until(lambda: len(sink.read_text().splitlines()) >= len(LINES), "the second half", WAIT_S_MAX)
        connect.stop()
    assert sink.read_text().splitlines() == LINES
    assert values(cluster, topic) == LINES
    assert cluster.tracebacks() == []


def test_a_source_writes_each_line_once(cluster: ProcessCluster, topic: str, tmp_path: Path) -> None:
    """Workers that run an exactly-once source are killed, and brokers restarted: no line is lost or duplicated."""
    cluster.create_topic(topic)
    source, name = tmp_path / "source.txt", f"{topic}-in"
    source.touch()
    workers: dict[int, ConnectProcess] = {}
    with ExitStack() as stack:
        for number in range(2):
            port = apache_kafka.free_port()
            settings = _distributed(cluster, topic, port)
            workers[port] = ConnectProcess(DISTRIBUTED, tmp_path / f"worker-{number}", {"worker": settings})
            stack.enter_context(workers[port])
        rest = Rest(list(workers))
        connector = {
            "connector.class": FILE_SOURCE,
            "file": source,
            "topic": topic,
            "exactly.once.support": "required",
        }
        wait_until(lambda: rest.put_connector(name, connector), "the connector", WAIT_S_MAX)
        size = len(LINES) // KILLS
        for number in range(KILLS):
            victim = wait_until(lambda: rest.worker_port(name), "a running task", WAIT_S_MAX)
            first, middle, end = number * size, number * size + size // 2, (number + 1) * size
            append(source, LINES[first:middle])
            wait_until(lambda before=first: len(values(cluster, topic)) > before, "the first lines", WAIT_S_MAX)
            append(source, LINES[middle:end])
            workers[victim].kill()
            bounce(cluster, number)
            workers[victim].start()
            wait_until(
                lambda after=end: len(values(cluster, topic)) >= after,
                "all lines of this part",
                WAIT_S_MAX,
                lambda: len(values(cluster, topic)),
            )
    assert values(cluster, topic) == LINES
    assert cluster.tracebacks() == []


def _distributed(cluster: ProcessCluster, topic: str, port: int) -> dict[str, object]:
    internal = {f"{kind}.storage.topic": f"{topic}-{kind}" for kind in ("config", "offset", "status")}
    replicated = {f"{kind}.storage.replication.factor": 3 for kind in ("config", "offset", "status")}
    return {
        **WORKER,
        **internal,
        **replicated,
        "offset.storage.partitions": 3,
        "bootstrap.servers": cluster.bootstrap_servers,
        "group.id": f"{topic}-workers",
        "listeners": f"http://127.0.0.1:{port}",
        "exactly.once.source.support": "enabled",
        "session.timeout.ms": 6000,
        "heartbeat.interval.ms": 500,
        "scheduled.rebalance.max.delay.ms": 1000,
    }
