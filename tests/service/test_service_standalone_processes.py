"""Standalone brokers in their own processes are restarted after failures, and do not outlive the parent process."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kreplica.blocking import EARLIEST, Cluster, Producer, Reader, TopicPartition
from kreplica.blocking.admin import create_topic
from kreplica.blocking.offsets import end_offsets
from tests.support.server_process import free_ports
from tests.support.standalone import StandaloneProcess

TOPIC = "orders"
PARTITIONS = [TopicPartition(TOPIC, number) for number in range(2)]
START_S = 90.0
"""Time for three interpreters to start on a machine that may be busy."""

ORDERLY_STATUS = -15
"""Exit status after an orderly stop: twistd ends by the signal that stopped it."""


def wait_until(condition: Callable[[], Any], timeout_s: float = 60.0) -> Any:
    deadline_s = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline_s, "the condition did not become true"
        time.sleep(0.05)
    return found


def children(process: StandaloneProcess) -> dict[int, int]:
    """Return the ID of each broker's latest process, according to the log."""
    return {int(number): int(pid) for number, pid in re.findall(r"broker (\d) is process (\d+)", process.output)}


def is_running(pid: int) -> bool:
    """Return True if a process runs.

    A zombie is listed but does not run, unless it has other threads, which keep its sockets open until they end.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        threads = list(Path(f"/proc/{pid}/task").iterdir())
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX" or len(threads) > 1


def write(cluster: Cluster, *values: bytes) -> None:
    """Write values to both partitions, with acknowledgements of all replicas."""
    with Producer(cluster) as producer:
        for value in values:
            for partition in PARTITIONS:
                producer.send(TOPIC, value, partition=partition.partition)


def read(cluster: Cluster) -> list[list[bytes | None]]:
    """Return all values of each partition."""
    found: dict[TopicPartition, list[bytes | None]] = {partition: [] for partition in PARTITIONS}
    with Reader(cluster, dict.fromkeys(PARTITIONS, EARLIEST), ends=end_offsets(cluster, PARTITIONS)) as reader:
        for batch in reader.batches():
            found[batch.partition] += [record.value for record in batch.records]
    return list(found.values())


def all_in_sync(cluster: Cluster) -> bool:
    cluster.refresh([TOPIC])
    return all(set(partition.in_sync) == {1, 2} for partition in cluster.topic(TOPIC).partitions)


@pytest.fixture
def process(tmp_path: Path) -> Iterator[StandaloneProcess]:
    standalone = StandaloneProcess(tmp_path, brokers=2, arguments=("--processes",))
    try:
        yield standalone.start(START_S)
    finally:
        pids = children(standalone).values()
        standalone.kill()
        for pid in pids:
            wait_until(lambda pid=pid: not is_running(pid))


def test_killed_broker_is_restarted(process: StandaloneProcess, tmp_path: Path) -> None:
    """A killed broker rejoins the ISRs, an orderly stop follows, and a single process can serve the same data."""
    with Cluster(process.bootstrap_servers) as cluster:
        create_topic(cluster, TOPIC, partitions=2, replication_factor=2)
        wait_until(lambda: all_in_sync(cluster))
        assert {partition.leader for partition in cluster.topic(TOPIC).partitions} == {1, 2}
        assert {broker.rack for broker in cluster.refresh().brokers.values()} == {socket.gethostname()}
        write(cluster, b"one", b"two")
        assert read(cluster) == [[b"one", b"two"]] * 2

        first = children(process)
        os.kill(first[2], signal.SIGKILL)
        wait_until(lambda: children(process)[2] != first[2])
        assert "broker 2: ended by signal 9 (Killed); restarting it in 1 s" in process.output
        write(cluster, b"three")
        wait_until(lambda: "broker 2 is serving again" in process.output)
        wait_until(lambda: all_in_sync(cluster))
        assert children(process)[1] == first[1], "the other broker continues"
        assert read(cluster) == [[b"one", b"two", b"three"]] * 2

    last = children(process)
    assert process.stop(START_S) == ORDERLY_STATUS
    assert not any(is_running(pid) for pid in last.values())
    handed_over = r"^broker-2: .* broker 2 has handed over leadership of all its partitions$"
    assert re.search(handed_over, process.output, re.MULTILINE)
    assert process.output.splitlines()[-1].endswith(f"ZooKeeper server on port {process.coordinator_port} stopped")
    for number in (1, 2):
        marker = process.data_directory / f"broker-{number}" / ".kafka_cleanshutdown"
        assert json.loads(marker.read_text())["brokerEpoch"] > 0

    with StandaloneProcess(tmp_path, brokers=2) as other, Cluster(other.bootstrap_servers) as cluster:
        assert read(cluster) == [[b"one", b"two", b"three"]] * 2


def test_no_broker_outlives_its_parent(process: StandaloneProcess) -> None:
    """``kill -9`` of the parent ends all brokers, even one stopped by SIGSTOP; the next start recovers."""
    pids = children(process)
    os.kill(pids[2], signal.SIGSTOP)
    process.kill()
    wait_until(lambda: not any(is_running(pid) for pid in pids.values()), 10.0)
    process.start(START_S)
    os.kill(children(process)[1], signal.SIGSTOP)
    assert process.stop(START_S) == ORDERLY_STATUS, "a suspended broker is resumed, and stops in order"
    markers = [process.data_directory / f"broker-{number}" / ".kafka_cleanshutdown" for number in (1, 2)]
    assert all(marker.exists() for marker in markers)


def test_port_in_use(tmp_path: Path) -> None:
    """A one-line error names the broker and the reason, and no process is left."""
    process = StandaloneProcess(tmp_path, brokers=2, arguments=("--processes", "--log-format", "json"))
    with socket.create_server(("127.0.0.1", process.port + 1)):
        process.launch()
        assert process.wait(START_S) == 1
    (line,) = [line for line in process.output.splitlines() if line.startswith("kreplica: ")]
    assert line.startswith(f"kreplica: broker 2: cannot listen on PLAINTEXT://127.0.0.1:{process.port + 1}")
    assert "--port" in line
    lines = [json.loads(line) for line in process.output.splitlines() if line.startswith("{")]
    assert {each.get("host") for each in lines} == {None, "broker-1", "broker-2"}
    started = {each["fields"]["process"] for each in lines if "is process" in each["message"]}
    assert len(started) == 2
    assert not any(map(is_running, started))


def test_unknown_setting(tmp_path: Path) -> None:
    """The error is the same as for a single process, and is reported before any broker starts."""
    process = StandaloneProcess(tmp_path, arguments=("--processes", "--override", "num.partition=3"))
    process.launch()
    assert process.wait(START_S) == 1
    assert "num.partitions" in process.output
    assert not process.data_directory.exists()


def test_one_address_serves_all_brokers(tmp_path: Path) -> None:
    """The shared port accepts clients while any broker runs; clients then use the brokers' own ports."""
    (shared_port,) = free_ports(1)
    process = StandaloneProcess(tmp_path, brokers=2, arguments=("--processes", "--bootstrap-port", str(shared_port)))
    try:
        process.start(START_S)
        assert f"brokers      127.0.0.1:{shared_port} " in process.output
        with Cluster(f"127.0.0.1:{shared_port}") as cluster:
            create_topic(cluster, TOPIC, partitions=2, replication_factor=2)
            write(cluster, b"one")
            assert _ports(cluster) == {process.port, process.port + 1}
        killed = children(process)[2]
        os.kill(killed, signal.SIGKILL)
        wait_until(lambda: not is_running(killed))
        for _ in range(4):  # half of them would fail if connections still went to the killed broker
            with Cluster(f"127.0.0.1:{shared_port}") as cluster:
                assert process.port in _ports(cluster)
    finally:
        process.kill()


def _ports(cluster: Cluster) -> set[int]:
    return {broker.address.port for broker in cluster.refresh().brokers.values()}
