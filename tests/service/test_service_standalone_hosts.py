"""Several brokers in one process, each killed, paused and cut off while the process and the others go on."""

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
ENDED_IN_ORDER = -15
"""twistd ends by the signal that it was stopped with, once everything has stopped."""

SETTINGS = {
    "zookeeper.session.timeout.ms": 4000,
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "replica.lag.time.max.ms": 4000,
}


def asked(process: StandaloneProcess, method: str, path: str) -> tuple[int, Any]:
    """The status, and the document."""
    request = Request(f"{process.admin_url}{path}", method=method)
    try:
        with urlopen(request, timeout=30) as answer:
            return answer.status, json.load(answer)
    except HTTPError as error:
        return error.code, json.load(error)


def press(process: StandaloneProcess, action: str, broker: int) -> dict[int, str]:
    """Press a button; the states of all brokers after it."""
    status, document = asked(process, "POST", f"/v1/standalone/brokers/{broker}/{action}")
    assert status == 200, document
    return {row["broker_id"]: row["state"] for row in document["brokers"]}


def until(condition: Callable[[], Any], timeout_s: float = 30.0) -> Any:
    deadline_s = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline_s, "it did not come about"
        time.sleep(0.05)
    return found


def in_sync(process: StandaloneProcess) -> list[set[int]]:
    """Of each partition of the topic, as a client is told."""
    metadata = AdminClient({"bootstrap.servers": process.bootstrap_servers}).list_topics(TOPIC, timeout=20)
    return [set(partition.isrs) for partition in metadata.topics[TOPIC].partitions.values()]


def open_below(process: StandaloneProcess, directory: Path) -> list[str]:
    """What the process has open in a directory."""
    folder = Path(f"/proc/{process.pid}/fd")
    targets = []
    for name in os.listdir(folder):
        try:
            targets.append(os.readlink(folder / name))
        except FileNotFoundError:
            continue  # closed meanwhile
    return [target for target in targets if target.startswith(f"{directory}/")]


class Writer:
    """Writes numbers, and knows which are acknowledged."""

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
        """Some to each partition; returns when all are acknowledged."""
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
    with StandaloneProcess(tmp_path, brokers=3, arguments=tuple(overrides)) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap_servers})
        for future in admin.create_topics([NewTopic(TOPIC, 3, 3)]).values():
            future.result(20)
        yield running


def test_each_broker_in_turn_is_killed_and_started_again(process: StandaloneProcess) -> None:
    """Clients write on, nothing acknowledged is lost, a killed broker has no file open, and it joins again."""
    writer = Writer(process)
    writer.write()
    for broker in (1, 2, 3):
        directory = process.data_directory / f"broker-{broker}"
        assert open_below(process, directory)
        assert press(process, "kill", broker)[broker] == "dead"
        assert open_below(process, directory) == []
        writer.write()
        assert press(process, "start", broker)[broker] == "running"
        assert "cleaned up" not in process.output
        until(lambda: all(isr == {1, 2, 3} for isr in in_sync(process)))
    writer.write()
    assert read_all(process, len(writer.acknowledged)) == sorted(writer.acknowledged) == list(range(150))
    assert "broker-2: broker 2 has joined" in process.output, "each line says which broker it is of"
    assert process.stop() == ENDED_IN_ORDER


def test_the_admin_port_outlives_every_broker(process: StandaloneProcess) -> None:
    """With broker 1 dead another answers; with all of them dead the page and its buttons are there, and say so."""
    press(process, "kill", 1)
    assert asked(process, "GET", "/health/ready")[0] == 200
    assert asked(process, "GET", "/v1/groups")[0] == 200
    press(process, "kill", 2)
    press(process, "kill", 3)
    status, problem = asked(process, "GET", "/v1/groups")
    assert (status, problem["title"]) == (503, "BROKER_NOT_AVAILABLE")
    assert problem["what_to_do"] == "Start one: POST /v1/standalone/brokers/1/start"
    with urlopen(f"{process.admin_url}/", timeout=20) as page:
        assert page.headers["content-type"].startswith("text/html")
    states = asked(process, "GET", "/v1/standalone")[1]["brokers"]
    assert [(row["broker_id"], row["state"]) for row in states] == [(1, "dead"), (2, "dead"), (3, "dead")]
    assert press(process, "start", 2)[2] == "running"
    assert asked(process, "GET", "/v1/groups")[0] == 200
    assert process.stop() == ENDED_IN_ORDER


def test_paused_and_cut_off(process: StandaloneProcess) -> None:
    """What a broker led is led by others within a session's time; afterwards it takes up where it was."""
    writer = Writer(process)
    writer.write()
    assert press(process, "pause", 2)[2] == "paused"
    writer.write()
    assert all(2 not in isr for isr in until(lambda: isrs_without(process, 2)))
    assert press(process, "resume", 2)[2] == "running"
    until(lambda: all(isr == {1, 2, 3} for isr in in_sync(process)))
    assert press(process, "cut", 3)[3] == "cut"
    writer.write()
    assert press(process, "mend", 3)[3] == "running"
    until(lambda: all(isr == {1, 2, 3} for isr in in_sync(process)))
    assert read_all(process, 90) == list(range(90))


def isrs_without(process: StandaloneProcess, broker: int) -> list[set[int]] | None:
    isrs = in_sync(process)
    return isrs if all(broker not in isr for isr in isrs) else None


def test_it_stops_in_order_whatever_is_paused_cut_or_dead(process: StandaloneProcess) -> None:
    """On SIGTERM all that live flush and are marked clean; one that was killed repairs itself at the next start."""
    writer = Writer(process)
    writer.write()
    press(process, "kill", 1)
    press(process, "pause", 2)
    press(process, "cut", 3)
    assert process.stop() == ENDED_IN_ORDER
    markers = [process.data_directory / f"broker-{broker}" / ".kafka_cleanshutdown" for broker in (1, 2, 3)]
    assert [marker.exists() for marker in markers] == [False, True, True]
    process.start()
    assert read_all(process, 30) == list(range(30))


def test_buttons_that_cannot_be_pressed(process: StandaloneProcess) -> None:
    """What is so already stays so; what is not possible is a problem that says what to do; a dry run does nothing."""
    assert asked(process, "POST", "/v1/standalone/brokers/9/kill")[0] == 404
    assert press(process, "start", 1) == {1: "running", 2: "running", 3: "running"}
    assert press(process, "mend", 1)[1] == "running"
    tried = asked(process, "POST", "/v1/standalone/brokers/2/kill?dry_run=true")[1]
    assert (tried["dry_run"], tried["znodes"], tried["brokers"][1]["state"]) == (True, [], "running")
    press(process, "kill", 2)
    assert press(process, "kill", 2)[2] == "dead"
    for action in ("pause", "cut"):
        status, problem = asked(process, "POST", f"/v1/standalone/brokers/2/{action}")
        assert (status, problem["detail"]) == (409, "broker 2 is dead")


def test_a_start_that_fails_can_be_tried_again(process: StandaloneProcess) -> None:
    """Why it fails is said, nothing of the broker is left, and it starts once the reason is gone."""
    press(process, "kill", 2)
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", process.port + 1))
        taken.listen()
        status, problem = asked(process, "POST", "/v1/standalone/brokers/2/start")
        assert (status, problem["title"]) == (503, "BROKER_NOT_AVAILABLE")
        assert f"broker 2 cannot start: cannot listen on PLAINTEXT://127.0.0.1:{process.port + 1}" in problem["detail"]
        assert open_below(process, process.data_directory / "broker-2") == []
    assert press(process, "start", 2) == {1: "running", 2: "running", 3: "running"}
    assert process.stop() == ENDED_IN_ORDER


def test_one_broker_alone_has_no_buttons(tmp_path: Path) -> None:
    """A process of one broker says that there is nothing to press, and how to have something."""
    with StandaloneProcess(tmp_path) as alone:
        status, problem = asked(alone, "GET", "/v1/standalone")
        assert (status, "--brokers 3" in problem["what_to_do"]) == (404, True)
