"""Several brokers in one process; each is killed, paused and isolated while the others continue."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.standalone import StandaloneProcess

TOPIC = "orders"
ORDERLY_STATUS = -15
"""Exit status after an orderly stop: twistd ends by the signal that stopped it."""

SETTINGS = {
    "zookeeper.session.timeout.ms": 4000,
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "replica.lag.time.max.ms": 4000,
}


def send_request(process: StandaloneProcess, method: str, path: str) -> tuple[int, Any]:
    """Send a request to the admin API, and return (status, document)."""
    request = Request(f"{process.admin_url}{path}", method=method)
    try:
        with urlopen(request, timeout=30) as response:
            return response.status, json.load(response)
    except HTTPError as error:
        return error.code, json.load(error)


def act_on_broker(process: StandaloneProcess, action: str, broker: int) -> dict[int, str]:
    """Perform an action on a broker, and return the states of all brokers afterwards."""
    status, document = send_request(process, "POST", f"/v1/standalone/brokers/{broker}/{action}")
    assert status == 200, document
    return {row["broker_id"]: row["state"] for row in document["brokers"]}


def wait_until(condition: Callable[[], Any], timeout_s: float = 30.0) -> Any:
    deadline_s = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline_s, "the condition did not become true"
        time.sleep(0.05)
    return found


def in_sync(process: StandaloneProcess) -> list[set[int]]:
    """Return the in-sync replicas of each partition of the topic, as clients see them."""
    metadata = AdminClient({"bootstrap.servers": process.bootstrap_servers}).list_topics(TOPIC, timeout=20)
    return [set(partition.isrs) for partition in metadata.topics[TOPIC].partitions.values()]


def open_files(process: StandaloneProcess, directory: Path) -> list[str]:
    """Return the files that the process has open in a directory."""
    folder = Path(f"/proc/{process.pid}/fd")
    targets = []
    for name in os.listdir(folder):
        try:
            targets.append(os.readlink(folder / name))
        except FileNotFoundError:
            continue  # closed in the meantime
    return [target for target in targets if target.startswith(f"{directory}/")]


class Writer:
    """Producer of consecutive numbers that records which of them are acknowledged."""

    def __init__(self, process: StandaloneProcess) -> None:
        self.acknowledged: list[int] = []
        self._number = 0
        self._producer = Producer(
            {
                "bootstrap.servers": process.bootstrap_servers,
                "enable.idempotence": True,
                "socket.timeout.ms": 3000,
                "delivery.timeout.ms": 60_000,
                "retry.backoff.ms": 50,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )

    def write(self, count: int = 30) -> None:
        """Write records to all partitions, and return when all are acknowledged."""
        for _ in range(count):
            number, self._number = self._number, self._number + 1
            self._producer.produce(TOPIC, str(number), partition=number % 3, on_delivery=self._delivered(number))
        assert self._producer.flush(60) == 0

    def _delivered(self, number: int) -> Callable[..., None]:
        def delivered(error: Any, _: Any) -> None:
            assert error is None, error
            self.acknowledged.append(number)

        return delivered


def read_all(process: StandaloneProcess, count: int) -> list[int]:
    consumer = Consumer({"bootstrap.servers": process.bootstrap_servers, "group.id": "readers", "log_level": 0})
    consumer.assign([TopicPartition(TOPIC, number, OFFSET_BEGINNING) for number in range(3)])
    found: list[int] = []
    while len(found) < count:
        messages = consumer.consume(count, timeout=20)
        assert messages, f"{len(found)} of {count} were read"
        found += [int(message.value() or b"") for message in messages]
    consumer.close()
    return sorted(found)


@pytest.fixture
def process(tmp_path: Path) -> Iterator[StandaloneProcess]:
    overrides = [word for name, value in SETTINGS.items() for word in ("--override", f"{name}={value}")]
    with StandaloneProcess(tmp_path, brokers=3, arguments=tuple(overrides)) as started_process:
        admin = AdminClient({"bootstrap.servers": started_process.bootstrap_servers})
        for future in admin.create_topics([NewTopic(TOPIC, 3, 3)]).values():
            future.result(20)
        yield started_process


@pytest.mark.soak
def test_each_broker_is_killed_and_restarted(process: StandaloneProcess) -> None:
    """Clients continue, no acknowledged record is lost, and a killed broker has no open file and rejoins."""
    writer = Writer(process)
    writer.write()
    for broker in (1, 2, 3):
        directory = process.data_directory / f"broker-{broker}"
        assert open_files(process, directory)
        assert act_on_broker(process, "kill", broker)[broker] == "dead"
        assert open_files(process, directory) == []
        writer.write()
        assert act_on_broker(process, "start", broker)[broker] == "running"
        assert "cleaned up" not in process.output
        wait_until(lambda: all(isr == {1, 2, 3} for isr in in_sync(process)))
    writer.write()
    assert read_all(process, len(writer.acknowledged)) == sorted(writer.acknowledged) == list(range(150))
    assert "broker-2: broker 2 has joined" in process.output, "each line names its broker"
    assert process.stop() == ORDERLY_STATUS


def test_admin_port_serves_without_brokers(process: StandaloneProcess) -> None:
    """Other brokers answer for a dead one; if all are dead, the dashboard and the broker actions still work."""
    act_on_broker(process, "kill", 1)
    assert send_request(process, "GET", "/health/ready")[0] == 200
    assert send_request(process, "GET", "/v1/groups")[0] == 200
    act_on_broker(process, "kill", 2)
    act_on_broker(process, "kill", 3)
    status, problem = send_request(process, "GET", "/v1/groups")
    assert (status, problem["title"]) == (503, "BROKER_NOT_AVAILABLE")
    assert problem["what_to_do"] == "Start one: POST /v1/standalone/brokers/1/start"
    with urlopen(f"{process.admin_url}/", timeout=20) as page:
        assert page.headers["content-type"].startswith("text/html")
    states = send_request(process, "GET", "/v1/standalone")[1]["brokers"]
    assert [(row["broker_id"], row["state"]) for row in states] == [(1, "dead"), (2, "dead"), (3, "dead")]
    assert act_on_broker(process, "start", 2)[2] == "running"
    assert send_request(process, "GET", "/v1/groups")[0] == 200
    assert process.stop() == ORDERLY_STATUS


def test_pause_and_isolation(process: StandaloneProcess) -> None:
    """While a broker is paused or isolated, others take over its leaderships; later it rejoins the ISRs."""
    writer = Writer(process)
    writer.write()
    assert act_on_broker(process, "pause", 2)[2] == "paused"
    writer.write()
    assert all(2 not in isr for isr in wait_until(lambda: isrs_without(process, 2)))
    assert act_on_broker(process, "resume", 2)[2] == "running"
    wait_until(lambda: all(isr == {1, 2, 3} for isr in in_sync(process)))
    assert act_on_broker(process, "cut", 3)[3] == "cut"
    writer.write()
    assert act_on_broker(process, "mend", 3)[3] == "running"
    wait_until(lambda: all(isr == {1, 2, 3} for isr in in_sync(process)))
    assert read_all(process, 90) == list(range(90))


def isrs_without(process: StandaloneProcess, broker: int) -> list[set[int]] | None:
    isrs = in_sync(process)
    return isrs if all(broker not in isr for isr in isrs) else None


def test_orderly_stop_with_paused_isolated_and_dead_brokers(process: StandaloneProcess) -> None:
    """On SIGTERM, all live brokers write their clean-shutdown marker; a killed one recovers at the next start."""
    writer = Writer(process)
    writer.write()
    act_on_broker(process, "kill", 1)
    act_on_broker(process, "pause", 2)
    act_on_broker(process, "cut", 3)
    assert process.stop() == ORDERLY_STATUS
    markers = [process.data_directory / f"broker-{broker}" / ".kafka_cleanshutdown" for broker in (1, 2, 3)]
    assert [marker.exists() for marker in markers] == [False, True, True]
    process.start()
    assert read_all(process, 30) == list(range(30))


def test_invalid_actions(process: StandaloneProcess) -> None:
    """A repeated action changes nothing, an impossible one is refused with a reason, and a dry run does nothing."""
    assert send_request(process, "POST", "/v1/standalone/brokers/9/kill")[0] == 404
    assert act_on_broker(process, "start", 1) == {1: "running", 2: "running", 3: "running"}
    assert act_on_broker(process, "mend", 1)[1] == "running"
    dry_run = send_request(process, "POST", "/v1/standalone/brokers/2/kill?dry_run=true")[1]
    assert (dry_run["dry_run"], dry_run["znodes"], dry_run["brokers"][1]["state"]) == (True, [], "running")
    act_on_broker(process, "kill", 2)
    assert act_on_broker(process, "kill", 2)[2] == "dead"
    for action in ("pause", "cut"):
        status, problem = send_request(process, "POST", f"/v1/standalone/brokers/2/{action}")
        assert (status, problem["detail"]) == (409, "broker 2 is dead")


def test_failed_start_can_be_repeated(process: StandaloneProcess) -> None:
    """A failed start returns the reason and leaves no open file; it succeeds once the reason is removed."""
    act_on_broker(process, "kill", 2)
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", process.port + 1))
        listener.listen()
        status, problem = send_request(process, "POST", "/v1/standalone/brokers/2/start")
        assert (status, problem["title"]) == (503, "BROKER_NOT_AVAILABLE")
        assert f"broker 2 cannot start: cannot listen on PLAINTEXT://127.0.0.1:{process.port + 1}" in problem["detail"]
        assert open_files(process, process.data_directory / "broker-2") == []
    assert act_on_broker(process, "start", 2) == {1: "running", 2: "running", 3: "running"}
    assert process.stop() == ORDERLY_STATUS


def test_single_broker_has_no_actions(tmp_path: Path) -> None:
    """The error names the option that starts several brokers."""
    with StandaloneProcess(tmp_path) as process:
        status, problem = send_request(process, "GET", "/v1/standalone")
        assert (status, "--brokers 3" in problem["what_to_do"]) == (404, True)
