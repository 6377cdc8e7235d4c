"""Time until a broker executes LeaderAndIsr while producers saturate it, by the order in which it handles requests.

The benchmark acts as the controller: it moves the leadership of a partition to a broker that does not exist, and back.
Records that the broker acknowledges with acks=1 in between are those that it truncates when it follows the new leader.
"""

from __future__ import annotations

import json
import selectors
import socket
import subprocess
import sys
import time
from base64 import urlsafe_b64decode
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from random import Random
from statistics import median
from struct import Struct
from typing import Any
from uuid import UUID

from benchmarks.broker_process import BrokerProcess
from benchmarks.raw_client import RawClient, record_batch
from benchmarks.redesign_broker import ORDERS, POLL_S
from benchmarks.zookeeper_load import Pipe
from kreplica.wire.headers import build_request_header, parse_response_header
from kreplica.wire.messages import LEADER_AND_ISR, PRODUCE
from kreplica.zookeeper.records import Opcode, Stat
from kreplica.zookeeper.requests import GetChildren, GetData
from kreplica.zookeeper.responses import decode_children, decode_data

TOPIC = "load"
ABSENT_BROKER = 999
RECORD_BYTES = 10_000
PRODUCER_COUNT = 200
"""Number of producers, each with one request in flight."""
SETTLING_S = 0.05
VERSION = max(LEADER_AND_ISR.versions)
PRODUCE_VERSION = 7
_LENGTH = Struct(">i")


def priority_rows(trials: int, orders: Sequence[str] = ORDERS) -> Iterator[dict[str, Any]]:
    """Measure each order of requests, with and without producers.

    :param trials: number of leadership moves.
    """
    for order in orders:
        launcher = (sys.executable, "-m", "benchmarks.redesign_broker", order)
        with BrokerProcess({"num.partitions": "1"}, launcher=launcher) as broker:
            broker.wait_until_ready()
            _create_topic(broker.port)
            controller = _Controller(broker)
            for producers in (0, PRODUCER_COUNT):
                yield {"order": order, "producers": producers} | _measured(broker.port, controller, trials, producers)
            controller.close()


def _measured(port: int, controller: _Controller, trials: int, producers: int) -> dict[str, Any]:
    with _Producers(port, producers) as load:
        moved = [controller.move_and_return() for _ in range(trials + 1)][1:]  # the first move marks the connection
    truncated = [load.acknowledged_between(sent_s, returned_s) for sent_s, _, returned_s in moved]
    taken_ms = [(executed_s - sent_s) * 1000 for sent_s, executed_s, _ in moved]
    return {
        "requests/s": load.requests_per_s(),
        "executed after, ms (median)": round(median(taken_ms), 2),
        "ms (largest)": round(max(taken_ms), 2),
        "records truncated (median)": median(truncated),
        "records (largest)": max(truncated),
    }


class _Controller:
    """Sends LeaderAndIsr to a broker in the name of its elected controller."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._random = Random(1)
        znodes = Pipe(broker.coordinator_port)
        self._broker_id = int(_children(znodes, "/brokers/ids")[0])
        self._broker_epoch = _znode(znodes, f"/brokers/ids/{self._broker_id}")[1].czxid
        self._controller_id = json.loads(_data(znodes, "/controller"))["brokerid"]
        self._controller_epoch = int(_data(znodes, "/controller_epoch"))
        topic_id = json.loads(_data(znodes, f"/brokers/topics/{TOPIC}"))["topic_id"]
        self._topic_id = UUID(bytes=urlsafe_b64decode(f"{topic_id}=="))
        self._leader_epoch = json.loads(_data(znodes, f"/brokers/topics/{TOPIC}/partitions/0/state"))["leader_epoch"]
        znodes.close()
        self._socket = socket.create_connection(("127.0.0.1", broker.port), 30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def move_and_return(self) -> tuple[float, float, float]:
        """Move the leadership away and back.

        :return: the times at which the move was sent, was executed, and was about to be reversed.
        """
        # Start at a random time within a handler's poll.
        time.sleep(SETTLING_S + self._random.uniform(0, POLL_S))
        request = self._request(ABSENT_BROKER)
        sent_s = time.monotonic()
        self._send(request)
        executed_s = time.monotonic()
        time.sleep(SETTLING_S)
        returned_s = time.monotonic()
        self._send(self._request(self._broker_id))
        return sent_s, executed_s, returned_s

    def _request(self, leader: int) -> bytes:
        self._leader_epoch += 1
        state = {
            "partition_index": 0,
            "controller_epoch": self._controller_epoch,
            "leader": leader,
            "leader_epoch": self._leader_epoch,
            "isr": [leader],
            "partition_epoch": self._leader_epoch,
            "replicas": [self._broker_id, ABSENT_BROKER],
            "is_new": False,
        }
        body = {
            "controller_id": self._controller_id,
            "controller_epoch": self._controller_epoch,
            "broker_epoch": self._broker_epoch,
            "type": 0,
            "topic_states": [{"topic_name": TOPIC, "topic_id": self._topic_id, "partition_states": [state]}],
            "live_leaders": [{"broker_id": leader, "host_name": "127.0.0.1", "port": 1}],
        }
        head = build_request_header(
            LEADER_AND_ISR.request_header_version(VERSION), LEADER_AND_ISR.key, VERSION, 1, "controller"
        )
        return head + LEADER_AND_ISR.request.build(VERSION, body)

    def _send(self, request: bytes) -> None:
        self._socket.sendall(_LENGTH.pack(len(request)) + request)
        response = _receive(self._socket, _LENGTH.unpack(_receive(self._socket, _LENGTH.size))[0])
        _, start = parse_response_header(LEADER_AND_ISR.response_header_version(VERSION), memoryview(response))
        body = LEADER_AND_ISR.response.parse(VERSION, memoryview(response), start)
        if body["error_code"]:
            raise AssertionError(f"LeaderAndIsr was refused: {body}")


def _receive(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionError("the broker closed the connection")
        data += part
    return data


def _data(znodes: Pipe, path: str) -> bytes:
    return _znode(znodes, path)[0]


def _znode(znodes: Pipe, path: str) -> tuple[bytes, Stat]:
    error, body = znodes.request(Opcode.GET_DATA, GetData(path).encode())
    assert not error, f"{path}: error {error}"
    return decode_data(body, 0, len(body))


def _children(znodes: Pipe, path: str) -> list[str]:
    error, body = znodes.request(Opcode.GET_CHILDREN, GetChildren(path).encode())
    assert not error, f"{path}: error {error}"
    return decode_children(body, 0, len(body))


def _create_topic(port: int) -> None:
    client = RawClient(port)
    client.request_topic(TOPIC.encode())
    while client.produce(TOPIC.encode(), b"x"):
        time.sleep(0.01)
    client.close()


# --- producers ---


class _Producers:
    """Process with producers that send the next request after the response to the previous one; a context manager.

    :param count: 0 for no process.
    """

    def __init__(self, port: int, count: int) -> None:
        self._command = [sys.executable, "-m", "benchmarks.redesign_priority", str(port), str(count)]
        self._count = count
        self._times_s: list[float] = []

    def __enter__(self) -> _Producers:
        if self._count:
            self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            assert self._process.stdout is not None
            self._process.stdout.readline()  # all producers are connected
            time.sleep(10 * SETTLING_S)
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if self._count:
            output, _ = self._process.communicate()
            self._times_s = json.loads(output)

    def acknowledged_between(self, start_s: float, end_s: float) -> int:
        """Return the number of records whose acknowledgements arrived between two times."""
        return bisect_right(self._times_s, end_s) - bisect_right(self._times_s, start_s)

    def requests_per_s(self) -> int:
        """Return the rate of acknowledged requests over the whole run."""
        times_s = self._times_s
        return round(len(times_s) / (times_s[-1] - times_s[0])) if len(times_s) > 1 else 0


def _produce_frame() -> bytes:
    batch = record_batch(bytes(RECORD_BYTES), time.time_ns() // 1_000_000)
    body = {
        "transactional_id": None,
        "acks": 1,
        "timeout_ms": 30_000,
        "topic_data": [{"name": TOPIC, "partition_data": [{"index": 0, "records": batch}]}],
    }
    head = build_request_header(
        PRODUCE.request_header_version(PRODUCE_VERSION), PRODUCE.key, PRODUCE_VERSION, 1, "producer"
    )
    data = head + PRODUCE.request.build(PRODUCE_VERSION, body)
    return _LENGTH.pack(len(data)) + data


def _produce(port: int, count: int) -> list[float]:
    """Produce until standard input ends; return the times of acknowledgements without an error."""
    frame = _produce_frame()
    error_at = _LENGTH.size + 4 + 4 + 2 + len(TOPIC) + 4 + 4
    selector = selectors.DefaultSelector()
    selector.register(sys.stdin, selectors.EVENT_READ)
    for _ in range(count):
        connection = socket.create_connection(("127.0.0.1", port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(frame)
        selector.register(connection, selectors.EVENT_READ)
    print("ready", flush=True)
    times_s: list[float] = []
    while True:
        for key, _ in selector.select():
            if key.fileobj is sys.stdin:
                return times_s
            connection = key.fileobj  # type: ignore[assignment]
            response = connection.recv(1000)
            if not response:
                raise ConnectionError("the broker closed the connection")
            if response[error_at : error_at + 2] == b"\0\0":
                times_s.append(time.monotonic())
            connection.sendall(frame)


if __name__ == "__main__":
    json.dump(_produce(int(sys.argv[1]), int(sys.argv[2])), sys.stdout)
