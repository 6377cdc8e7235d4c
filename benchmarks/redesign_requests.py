"""Controller commands to one broker: one partition per request, and all partitions in one request."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from struct import Struct
from typing import Any

from kreplica.wire.headers import build_request_header
from kreplica.wire.messages import LEADER_AND_ISR

LEADER_AND_ISR_VERSION = max(LEADER_AND_ISR.versions)
TOPIC_PARTITIONS = 1_000
_LENGTH = Struct(">i")


def seconds_of_requests(port: int, sizes: Sequence[int], limit_s: float) -> dict[str, list[tuple[float, bool]]]:
    """Measure both ways with each number of partitions, in ascending order.

    :param port: port of the broker.
    :param limit_s: as for ``redesign_writes.seconds_of_writes``.
    :return: for each way and size: the seconds, and True if they are computed.
    """
    channel = _Channel(port)
    one_by_one: list[tuple[float, bool]] = []
    each_s = 0.0
    for size in sizes:
        if each_s * size > limit_s:
            one_by_one.append((each_s * size, True))
            continue
        started_s = time.perf_counter()
        for number in range(size):
            channel.send([number])
        took_s = time.perf_counter() - started_s
        each_s = took_s / size
        one_by_one.append((took_s, False))
    batched = []
    for size in sizes:
        started_s = time.perf_counter()
        channel.send(range(size))
        batched.append((time.perf_counter() - started_s, False))
    channel.close()
    return {"one per request": one_by_one, "one request": batched}


class _Channel:
    """Connection of a controller to a broker, with at most one request in flight."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, partitions: Sequence[int]) -> None:
        """Send LeaderAndIsr with these partitions, and wait for the response."""
        api, version = LEADER_AND_ISR, LEADER_AND_ISR_VERSION
        head = build_request_header(api.request_header_version(version), api.key, version, 1, "controller")
        data = head + api.request.build(version, leader_and_isr(partitions))
        self._socket.sendall(_LENGTH.pack(len(data)) + data)
        (size,) = _LENGTH.unpack(self._receive(_LENGTH.size))
        self._receive(size)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _receive(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                raise ConnectionError("the broker closed the connection")
            data += part
        return data


def leader_and_isr(partitions: Sequence[int]) -> dict[str, Any]:
    """Return the body of a LeaderAndIsr for these partitions, 1,000 per topic."""
    topics: dict[int, list[dict[str, Any]]] = {}
    for number in partitions:
        topics.setdefault(number // TOPIC_PARTITIONS, []).append(_state(number % TOPIC_PARTITIONS))
    states = [{"topic_name": f"topic-{number}", "partition_states": rows} for number, rows in topics.items()]
    return {
        "controller_id": 1,
        "controller_epoch": 1,
        "broker_epoch": -1,
        "type": 0,
        "topic_states": states,
        "live_leaders": [],
    }


def _state(index: int) -> dict[str, Any]:
    return {"partition_index": index, "controller_epoch": 1, "leader": 1, "leader_epoch": 1, "isr": [1, 2, 3],
            "partition_epoch": 1, "replicas": [1, 2, 3], "is_new": False}  # fmt: skip
