"""Scripted brokers over socket pairs, in virtual time, without threads.

A broker acts only while the client waits.  It responds to ApiVersions and Metadata itself, and to other requests with
the reactions that the test sets.
"""

from __future__ import annotations

import random
import select
import socket
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from kreplica.blocking import Cluster
from kreplica.blocking.blocking_runtime import BlockingRuntime
from kreplica.client_core.options import ClientOptions
from kreplica.wire.batches import iter_headers
from kreplica.wire.framing import FrameReader, frame
from kreplica.wire.headers import build_response_header, parse_request_header
from kreplica.wire.messages import API_VERSIONS, APIS, FETCH, METADATA, PRODUCE, Api

TOPIC_ID = UUID(int=7)
WALL_CLOCK_MS = 1_700_000_000_000


@dataclass
class Request:
    """A received request."""

    api: Api
    version: int
    correlation_id: int
    body: dict[str, Any]
    connection: BrokerConnection
    at_s: float

    def response_bytes(self, body: dict[str, Any]) -> bytes:
        header = build_response_header(self.api.response_header_version(self.version), self.correlation_id)
        return frame(header + self.api.response.build(self.version, body))

    def respond(self, body: dict[str, Any]) -> None:
        self.connection.send(self.response_bytes(body))


Reaction = Callable[[Request], "dict[str, Any] | None"]
"""Reaction to a request: returns the response's body, or None after another action."""


class BrokerConnection:
    """The broker's end of one connection."""

    def __init__(self, broker: ScriptedBroker, end: socket.socket) -> None:
        self.broker = broker
        self._end = end
        self._end.setblocking(False)
        self._frames = FrameReader()
        self.closed = False

    def send(self, data: bytes) -> None:
        try:
            self._end.sendall(data)
        except BrokenPipeError:  # the client was interrupted and has closed its end
            self.close()

    def send_later(self, seconds: float, data: bytes) -> None:
        self.broker.brokers.call_later(seconds, lambda: self.closed or self.send(data))

    def close(self) -> None:
        self.closed = True
        self._end.close()

    def receive(self) -> None:
        while not self.closed:
            try:
                data = self._end.recv(1 << 20)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self.close()
                return
            for content in list(self._frames.feed(data)):
                self.broker.handle(self, content)


class ScriptedBroker:
    """A broker: ``then`` sets the reaction to the next request of an API, ``always`` the default reaction."""

    def __init__(self, brokers: ScriptedBrokers, broker_id: int) -> None:
        self.brokers = brokers
        self.broker_id = broker_id
        self.host = f"broker-{broker_id}"
        self.is_down = False
        self.connections: list[BrokerConnection] = []
        self.requests: list[Request] = []
        self._next: dict[int, deque[Reaction]] = defaultdict(deque)
        self._always: dict[int, Reaction] = {
            API_VERSIONS.key: lambda request: versions(),
            METADATA.key: lambda request: brokers.metadata(request.body),
        }

    def then(self, api: Api, *reactions: Reaction) -> None:
        self._next[api.key] += reactions

    def always(self, api: Api, reaction: Reaction) -> None:
        self._always[api.key] = reaction

    def requests_to(self, api: Api) -> list[Request]:
        return [request for request in self.requests if request.api is api]

    def kill(self) -> None:
        self.is_down = True
        for connection in self.connections:
            connection.close()

    def handle(self, connection: BrokerConnection, content: memoryview) -> None:
        header = parse_request_header(content)
        api = APIS[header.api_key]
        assert header.body_offset is not None
        body = api.request.parse(header.api_version, bytes(content), header.body_offset)
        request = Request(api, header.api_version, header.correlation_id, body, connection, self.brokers.now_s)
        self.requests.append(request)
        reactions = self._next[api.key]
        reaction = reactions.popleft() if reactions else self._always.get(api.key)
        assert reaction is not None, f"{self.host} has no response for {api.name}"
        response = reaction(request)
        if response is not None:
            request.respond(response)


class ScriptedBrokers:
    """A cluster of scripted brokers with one topic, ``t``; time passes only while the client waits.

    :param leaders: leaders of its partitions.
    """

    def __init__(self, brokers: int = 1, leaders: Sequence[int] = (1,)) -> None:
        self.now_s = 1000.0
        self.brokers = {number: ScriptedBroker(self, number) for number in range(1, brokers + 1)}
        self.leaders = list(leaders)
        self.epochs = [0 for _ in leaders]
        self._scheduled: list[tuple[float, Callable[[], object]]] = []
        self.sleeps: list[float] = []

    def __getitem__(self, broker_id: int) -> ScriptedBroker:
        return self.brokers[broker_id]

    def cluster(self, **options: Any) -> Cluster:
        bootstrap = [(broker.host, 9092) for broker in self.brokers.values()]
        return Cluster(bootstrap, options=ClientOptions(**options), runtime=self.runtime())

    def runtime(self) -> BlockingRuntime:
        return BlockingRuntime(
            clock=lambda: self.now_s,
            wall_clock_ms=lambda: WALL_CLOCK_MS,
            sleep=self.sleep,
            random=random.Random(1),
            connect=self.connect,
            wait_readable=self.wait_readable,
        )

    def move(self, partition: int, leader: int) -> None:
        self.leaders[partition] = leader
        self.epochs[partition] += 1

    def metadata(self, body: dict[str, Any]) -> dict[str, Any]:
        names = ["t"] if body["topics"] is None else [row["name"] for row in body["topics"]]
        return {
            "throttle_time_ms": 0,
            "brokers": [{"node_id": each.broker_id, "host": each.host, "port": 9092} for each in self.brokers.values()],
            "cluster_id": "c",
            "controller_id": 1,
            "topics": [self._topic(name) for name in names],
        }

    def _topic(self, name: str) -> dict[str, Any]:
        if name != "t":
            return {"error_code": 3, "name": name, "topic_id": TOPIC_ID, "is_internal": False, "partitions": []}
        ids = list(self.brokers)
        rows = [
            {
                "error_code": 0 if leader >= 0 else 5,
                "partition_index": index,
                "leader_id": leader,
                "leader_epoch": self.epochs[index],
                "replica_nodes": ids,
                "isr_nodes": ids,
                "offline_replicas": [],
            }
            for index, leader in enumerate(self.leaders)
        ]
        return {"error_code": 0, "name": name, "topic_id": TOPIC_ID, "is_internal": False, "partitions": rows}

    # --- time and sockets ---

    def call_later(self, seconds: float, action: Callable[[], object]) -> None:
        self._scheduled.append((self.now_s + seconds, action))

    def connect(self, host: str, port: int, timeout_s: float) -> socket.socket:
        broker = next(each for each in self.brokers.values() if each.host == host)
        if broker.is_down:
            raise ConnectionRefusedError("refused")
        client_end, broker_end = socket.socketpair()
        broker.connections.append(BrokerConnection(broker, broker_end))
        return client_end

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self._pass_until(self.now_s + seconds)
        self._run_brokers()

    def wait_readable(self, sockets: Sequence[socket.socket], timeout_s: float) -> list[socket.socket]:
        deadline_s = self.now_s + max(0.0, timeout_s)
        while True:
            self._run_brokers()
            ready, _, _ = select.select(sockets, [], [], 0)
            if ready:
                return ready
            pending = [at_s for at_s, _ in self._scheduled if at_s <= deadline_s]
            if not pending:
                self.now_s = deadline_s
                return []
            self._pass_until(min(pending))

    def _pass_until(self, at_s: float) -> None:
        self.now_s = at_s
        actions = [action for each_s, action in self._scheduled if each_s <= at_s]
        self._scheduled = [pair for pair in self._scheduled if pair[0] > at_s]
        for action in actions:
            action()

    def _run_brokers(self) -> None:
        for broker in self.brokers.values():
            for connection in list(broker.connections):
                connection.receive()
            broker.connections = [connection for connection in broker.connections if not connection.closed]


def versions(**highest: int) -> dict[str, Any]:
    """Return all versions of the library, limited by maximum versions of some APIs: ``fetch=11``."""
    rows = [
        {
            "api_key": api.key,
            "min_version": api.versions[0],
            "max_version": highest.get(api.name.lower(), api.versions[1]),
        }
        for api in APIS.values()
    ]
    return {"error_code": 0, "api_keys": rows, "throttle_time_ms": 0}


def produced_batches(request: Request) -> list[tuple[int, Any]]:
    """Return (partition, batch header) of each batch in a Produce request."""
    return [
        (row["index"], header)
        for topic in request.body["topic_data"]
        for row in topic["partition_data"]
        for _, header in iter_headers(row["records"])
    ]


def produce_response(request: Request, *, error: int = 0, base_offset: int = 0, throttle_ms: int = 0) -> dict[str, Any]:
    """Return the same result for each batch of a request."""
    assert request.api is PRODUCE
    rows = [
        {"index": index, "error_code": error, "base_offset": -1 if error else base_offset, "log_append_time_ms": -1}
        for index, _ in produced_batches(request)
    ]
    return {"responses": [{"name": "t", "partition_responses": rows}], "throttle_time_ms": throttle_ms}


def fetch_response(request: Request, records: dict[int, bytes], *, error: int = 0, **fields: Any) -> dict[str, Any]:
    """Return records, or an error, for each requested partition."""
    assert request.api is FETCH
    rows = [
        {
            "partition_index": row["partition"],
            "error_code": error,
            "high_watermark": 1000,
            "last_stable_offset": 1000,
            "log_start_offset": 0,
            "aborted_transactions": [],
            "records": b"" if error else records.get(row["partition"], b""),
            **fields,
        }
        for topic in request.body["topics"]
        for row in topic["partitions"]
    ]
    return {
        "throttle_time_ms": 0,
        "error_code": 0,
        "session_id": 0,
        "responses": [{"topic": "t", "topic_id": TOPIC_ID, "partitions": rows}],
    }
