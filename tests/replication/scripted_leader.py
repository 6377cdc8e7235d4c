"""The leader's side of a follower's connections, scripted step by step in virtual time."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any
from uuid import UUID

from twisted.internet.error import ConnectionLost, ConnectionRefusedError
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.python.failure import Failure

from kreplica.model import Endpoint, TopicPartition
from kreplica.replication.follower.fetcher_config import FetcherConfig
from kreplica.replication.follower.fetchers import Fetchers
from kreplica.replication.leader.lease import Lease
from kreplica.replication.leadership import Leadership
from kreplica.replication.partition import LeaderContext, Partition
from kreplica.replication.purgatory import Purgatory
from kreplica.replication.throttle import ReplicationThrottle
from kreplica.runtime import Runtime
from kreplica.runtime.offload import Offload
from kreplica.server.fetch.partition import NO_DIVERGENCE
from kreplica.storage.directories.opening import LogToOpen
from kreplica.storage.log.appending import append_as_follower
from kreplica.storage.log.log import Log
from kreplica.storage.log_config import LogConfig
from kreplica.testing.simulator.disk import MemoryDisk
from kreplica.wire.batch_building import NEXT_OFFSET, build_batch
from kreplica.wire.batches import iter_headers, stamp
from kreplica.wire.framing import frame
from kreplica.wire.headers import build_response_header, parse_request_header
from kreplica.wire.messages import API_VERSIONS, APIS, FETCH, LIST_OFFSETS
from kreplica.wire.records import Record

Row = dict[str, Any]

FOLLOWER, LEADER = 1, 2


def topic_id(topic: str) -> UUID:
    return UUID(int=sum(topic.encode()) + 1)


def batches(base_offset: int, count: int, *, epoch: int) -> bytes:
    """Return batches of one record each, as a leader stores them."""
    data = b""
    for offset in range(base_offset, base_offset + count):
        one = bytearray(build_batch([Record(NEXT_OFFSET, 1000 + offset, None, b"value %d" % offset)]))
        stamp(one, offset, epoch)
        data += bytes(one)
    return data


class Link:
    """The leader's side of one connection."""

    def __init__(self, protocol: Any) -> None:
        self._protocol = protocol
        self._transport = StringTransport()
        self._read: list[tuple[int, int, int, Row]] = []
        protocol.makeConnection(self._transport)
        assert self._next(API_VERSIONS)[2] is not None
        keys = [
            {"api_key": api.key, "min_version": api.versions[0], "max_version": api.versions[1]}
            for api in (API_VERSIONS, FETCH, LIST_OFFSETS)
        ]
        self._answer(API_VERSIONS, self._last, {"error_code": 0, "api_keys": keys, "throttle_time_ms": 0})

    def _pull(self) -> None:
        data = self._transport.value()
        self._transport.clear()
        while data:
            size = int.from_bytes(data[:4], "big")
            request, data = data[4 : 4 + size], data[4 + size :]
            header = parse_request_header(request)
            assert header.body_offset is not None
            api = APIS[header.api_key]
            body = api.request.parse(header.api_version, request, header.body_offset)
            self._read.append((header.api_key, header.api_version, header.correlation_id, body))

    def _next(self, api: Any) -> tuple[int, int, int, Row]:
        self._pull()
        assert self._read, f"no {api.name} was received"
        self._last = self._read.pop(0)
        assert self._last[0] == api.key, f"expected {api.name}, received {APIS[self._last[0]].name}"
        return self._last

    def _answer(self, api: Any, request: tuple[int, int, int, Row], body: Row) -> None:
        _, version, correlation_id, _ = request
        header = build_response_header(api.response_header_version(version), correlation_id)
        self._protocol.dataReceived(frame(header + api.response.build(version, body)))

    @property
    def waiting(self) -> int:
        """Number of requests that were received but not processed."""
        self._pull()
        return len(self._read)

    def fetch(self) -> Row:
        """Return the next request, which must be a Fetch."""
        return self._next(FETCH)[3]

    def answer(self, *rows: tuple[TopicPartition, Row], session_id: int = 77, error_code: int = 0) -> None:
        """Respond to the last processed Fetch."""
        responses = [
            {"topic": key.topic, "topic_id": topic_id(key.topic), "partitions": [row]} for key, row in rows
        ]
        body = {"error_code": error_code, "session_id": session_id, "responses": responses, "throttle_time_ms": 0}
        self._answer(FETCH, self._last, body | {"node_endpoints": []})

    def answer_offsets(self, offsets: dict[TopicPartition, tuple[int, int]], *, error_code: int = 0) -> None:
        """Respond to two ListOffsets requests: for end offsets and for start offsets."""
        asked = [self._next(LIST_OFFSETS), self._next(LIST_OFFSETS)]
        for request in asked:
            topics = []
            for topic in request[3]["topics"]:
                rows = []
                for row in topic["partitions"]:
                    start, end = offsets[TopicPartition(topic["name"], row["partition_index"])]
                    offset = end if row["timestamp"] == -1 else start
                    rows.append({"partition_index": row["partition_index"], "error_code": error_code, "offset": offset})
                topics.append({"name": topic["name"], "partitions": rows})
            self._answer(LIST_OFFSETS, request, {"topics": topics})

    @property
    def closed(self) -> bool:
        return bool(self._transport.disconnecting or self._transport.disconnected)

    def lose(self) -> None:
        self._protocol.connectionLost(Failure(ConnectionLost()))


class World:
    """A follower's partitions and fetchers, with scripted leaders."""

    def __init__(self, config: FetcherConfig | None = None, throttle: ReplicationThrottle | None = None) -> None:
        self.reactor = MemoryReactorClock()
        self.disk = MemoryDisk(lambda: 0, directories=["/data"])
        self.broker_epoch = 5
        self.endpoints: dict[int, Endpoint] = {LEADER: Endpoint("PLAINTEXT", "leader", 9092)}
        self._turns: list[Callable[[], object]] = []
        reactor: Any = self.reactor
        runtime = Runtime(reactor, self.disk, Offload, random.Random(1), lambda: 1000)  # type: ignore[arg-type]
        self._context = LeaderContext(
            FOLLOWER,
            Purgatory(self._turns.append),
            Lease(reactor, lambda: True),
            self.reactor.seconds,
            lambda _: None,
            30.0,
        )
        self.fetchers = Fetchers(
            runtime, FOLLOWER, lambda: self.broker_epoch, self.endpoints.get, config or FetcherConfig(), throttle
        )

    def partition(
        self,
        topic: str = "t",
        number: int = 0,
        *,
        records: int = 0,
        epoch: int = 1,
        high_watermark: int = 0,
        **config: Any,
    ) -> Partition:
        """Return a following partition with a number of records of one epoch."""
        key = TopicPartition(topic, number)
        log = LogToOpen(f"/data/{key}", key, LogConfig(**config), self.disk, lambda: 1000).open()[0]
        if records:
            append_as_follower(log, batches(0, records, epoch=epoch), now_ms=1000)
        partition = Partition(
            key, topic_id(topic), log, self._context, high_watermark=high_watermark, min_insync_replicas=1
        )
        self.follow(partition, leader_epoch=epoch + 1)
        return partition

    def follow(self, partition: Partition, *, leader_epoch: int, leader: int = LEADER) -> None:
        """Apply a LeaderAndIsr request."""
        self.fetchers.stop(partition)
        partition.follow(
            Leadership(leader, leader_epoch, (leader,), (FOLLOWER, leader), 0, 0, partition.topic_id)
        )
        self.fetchers.start(partition)

    def advance(self, seconds: float = 0.0) -> None:
        """Advance the clock from one delayed call to the next."""
        end = self.reactor.seconds() + seconds
        while True:
            due = [call.getTime() for call in self.reactor.getDelayedCalls() if call.getTime() <= end]
            if not due:
                break
            self.reactor.advance(max(min(due) - self.reactor.seconds(), 0))
        self.reactor.advance(max(end - self.reactor.seconds(), 0))

    def end_turn(self) -> None:
        """Notify the watchers of changed partitions."""
        turns, self._turns[:] = list(self._turns), []
        for turn in turns:
            turn()

    @property
    def connecting(self) -> int:
        """Number of pending connection attempts."""
        return len(self.reactor.tcpClients)

    def accept(self) -> Link:
        """Accept the oldest connection attempt."""
        host, port, factory, *_ = self.reactor.tcpClients.pop(0)
        self.connected_to = (host, port)
        link = Link(factory.buildProtocol(None))
        self.advance()
        return link

    def refuse(self) -> None:
        """Reject the oldest connection attempt."""
        _, _, factory, *_ = self.reactor.tcpClients.pop(0)
        factory.clientConnectionFailed(None, Failure(ConnectionRefusedError()))

    def idle(self) -> bool:
        """True if no delayed call or request is pending."""
        return not self.reactor.getDelayedCalls()


def named(fetch: Row) -> list[tuple[int, int]]:
    """Return the (partition, offset) of each row in a Fetch."""
    return [(row["partition"], row["fetch_offset"]) for topic in fetch["topics"] for row in topic["partitions"]]


def forgotten(fetch: Row) -> list[int]:
    """Return the partitions that a Fetch removes from the session."""
    return [number for topic in fetch["forgotten_topics_data"] for number in topic["partitions"]]


def row(
    partition: Partition,
    *,
    records: bytes = b"",
    error_code: int = 0,
    high_watermark: int = 0,
    log_start_offset: int = 0,
    diverging: tuple[int, int] | None = None,
) -> tuple[TopicPartition, Row]:
    """Return a leader's response row for one partition."""
    epoch, end_offset = diverging or (-1, -1)
    return partition.topic_partition, {
        "partition_index": partition.topic_partition.partition,
        "error_code": error_code,
        "high_watermark": high_watermark,
        "last_stable_offset": high_watermark,
        "log_start_offset": log_start_offset,
        "diverging_epoch": {"epoch": epoch, "end_offset": end_offset} if diverging else NO_DIVERGENCE,
        "current_leader": {"leader_id": -1, "leader_epoch": -1},
        "snapshot_id": {"epoch": -1, "end_offset": -1},
        "aborted_transactions": None,
        "preferred_read_replica": -1,
        "records": records,
    }


def epochs_of(log: Log) -> list[tuple[int, int]]:
    """Return the (base offset, leader epoch) of every batch."""
    part = log.read(log.log_start_offset, size_max=1 << 20, offset_max=log.log_end_offset)
    data = b"".join(piece.read() for piece in part.ranges)
    return [(header.base_offset, header.partition_leader_epoch) for _, header in iter_headers(data)]
