"""Large requests are parsed, handled and answered in slices; other connections are served in between."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest
from server_scene import parse_answer, request_frame
from test_server_dispatch import MemoryTransport

from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import TopicPartition
from kreplica.runtime import time_slice
from kreplica.server.authorization.authorized_operations import AuthorizedOperations
from kreplica.server.handlers.cluster.control import LeaderAndIsr, UpdateMetadata
from kreplica.server.handlers.groups.offset_fetch import OffsetFetch
from kreplica.server.metadata.creation_limits import TopicCreationLimits
from kreplica.server.metadata.handler import Metadata
from kreplica.server.metadata.metadata_cache import MetadataCache
from kreplica.server.protocol.connection import Connection
from kreplica.server.protocol.dispatch import Dispatch
from kreplica.server.protocol.handler_table import HandlerEntry
from kreplica.server.protocol.limits import Bounds
from kreplica.server.protocol.metrics import ServerMetrics
from kreplica.server.protocol.request import COPIED_BYTES_MAX, Request
from kreplica.server.transport.flush_scope import FlushScope
from kreplica.wire.messages import API_VERSIONS, LEADER_AND_ISR, METADATA, OFFSET_FETCH, UPDATE_METADATA
from tests.support.iterated_clock import IteratedClock

NAMES = 50_000
SOFTWARE = {"client_software_name": "librdkafka", "client_software_version": "2.16.0-a"}


class Broker:
    """A dispatcher that serves Metadata and ApiVersions, on a clock that does not advance by itself."""

    def __init__(self, bounds: Bounds | None = None) -> None:
        self.clock = IteratedClock()
        self.flush_scope = FlushScope(self.clock)
        self.metrics = ServerMetrics()
        self.bounds = bounds or Bounds()
        operations = AuthorizedOperations(None)
        limits = TopicCreationLimits(self.clock.seconds)
        cache = MetadataCache(self.clock)
        metadata = Metadata(cache, None, operations, auto_create=False, creations=limits)  # type: ignore[arg-type]
        table = {METADATA.key: HandlerEntry.of(METADATA, metadata)}
        self.dispatch = Dispatch(table, self.metrics, self.clock.seconds, self.flush_scope, self.bounds)

    def connect(self) -> Client:
        return Client(self)

    def iterations(self, most: int = 10_000) -> int:
        """Run the event loop until it is idle; return the number of iterations."""
        count = 0
        while self.clock.getDelayedCalls():
            self.clock.iterate()
            count += 1
            assert count < most
        return count


class Client:
    """One connection and the responses sent on it."""

    def __init__(self, broker: Broker) -> None:
        self.transport = MemoryTransport()
        self._broker = broker
        self.connection = Connection(
            "PLAINTEXT", "1.2.3.4:5", broker.bounds, broker.flush_scope, broker.metrics, broker.clock.seconds
        )
        self.connection.attach(self.transport)

    def send(self, frame: bytes) -> bytearray:
        """Pass a frame to the dispatcher; return its buffer."""
        buffer = bytearray(frame)
        with self._broker.flush_scope:
            self._broker.dispatch.frame_received(self.connection, memoryview(buffer)[4:])
        return buffer

    def answers(self) -> int:
        return len(self.transport.frames())

    def rows(self, version: int) -> list[dict[str, Any]]:
        (frame,) = self.transport.frames()
        topics: list[dict[str, Any]] = parse_answer(frame, METADATA.key, version)[1]["topics"]
        return topics


def names_frame(count: int, correlation_id: int = 1, version: int = 4) -> bytes:
    rows = [{"name": f"n{number:07d}"} for number in range(count)]
    return request_frame(METADATA, version, correlation_id, {"topics": rows, "allow_auto_topic_creation": False})


def api_versions_frame() -> bytes:
    return request_frame(API_VERSIONS, 3, 9, SOFTWARE)


def test_large_metadata_request_takes_many_iterations() -> None:
    """Each iteration does a bounded part of the work, and the response is complete."""
    broker = Broker()
    client = broker.connect()
    client.send(names_frame(NAMES))
    assert client.answers() == 0
    assert broker.iterations() > 10
    rows = client.rows(4)
    assert [row["name"] for row in rows] == [f"n{number:07d}" for number in range(NAMES)]
    # No controller has sent topics yet, so no topic can be reported as unknown.
    assert {row["error_code"] for row in rows} == {int(ErrorCode.LEADER_NOT_AVAILABLE)}


def test_another_connection_is_served_in_between() -> None:
    """A small request is answered in the iteration in which it arrives."""
    broker = Broker()
    large, other = broker.connect(), broker.connect()
    large.send(names_frame(NAMES))
    for served in range(1, 6):
        broker.clock.iterate()
        other.send(api_versions_frame())
        assert other.answers() == served
    assert large.answers() == 0


def test_connection_of_a_large_request_is_not_read_meanwhile() -> None:
    """Requests after it are neither parsed nor reordered; reading resumes after the response."""
    broker = Broker()
    client = broker.connect()
    client.send(names_frame(NAMES))
    assert not client.transport.is_reading
    broker.clock.iterate()
    assert not client.transport.is_reading
    broker.iterations()
    assert client.transport.is_reading
    client.send(names_frame(3, correlation_id=2))
    assert [int.from_bytes(frame[:4], "big") for frame in client.transport.frames()] == [1, 2]


def test_responses_keep_their_order() -> None:
    """A large response precedes that of a later request that was read in the same iteration."""
    broker = Broker()
    client = broker.connect()
    client.send(names_frame(3_000, correlation_id=1))
    client.send(names_frame(1, correlation_id=2))
    assert client.answers() == 0
    broker.iterations()
    assert [int.from_bytes(frame[:4], "big") for frame in client.transport.frames()] == [1, 2]


@pytest.mark.parametrize("iterations", [0, 1, 5, 15])
def test_closed_connection_ends_the_work(iterations: int) -> None:
    """Whichever phase it interrupts (parsing, handling, building), nothing is left on the event loop."""
    broker = Broker()
    client = broker.connect()
    client.send(names_frame(NAMES))
    for _ in range(iterations):
        broker.clock.iterate()
    client.connection.lost()
    assert broker.iterations() <= 1
    assert len(broker.flush_scope.slices) == 0
    assert client.answers() == 0


def test_frame_in_the_shared_buffer_is_copied() -> None:
    """The next read into this buffer does not change the request."""
    broker = Broker()
    client = broker.connect()
    frame = names_frame(5_000)
    assert len(frame) < COPIED_BYTES_MAX
    buffer = client.send(frame)
    buffer[:] = bytes(len(buffer))
    broker.iterations()
    assert client.rows(4)[0]["name"] == "n0000000"


def test_longer_frame_is_kept_until_it_is_parsed() -> None:
    """The transport may reuse its buffer after parsing, or when the connection ends."""
    broker = Broker()
    parsed, lost = broker.connect(), broker.connect()
    for client in (parsed, lost):
        client.send(names_frame(NAMES))
        assert client.connection.keeps_frame
    lost.connection.lost()
    assert lost.transport.state == "frame released"
    broker.iterations()
    assert parsed.transport.state == "frame released"
    assert not parsed.connection.keeps_frame


def test_malformed_large_request_closes_its_connection() -> None:
    broker = Broker()
    client = broker.connect()
    frame = bytearray(names_frame(NAMES))
    frame[-8:] = b"\xff" * 8
    client.send(bytes(frame))
    broker.iterations()
    assert client.transport.state in ("closed", "frame released")
    assert client.connection.closed
    assert broker.metrics.api(METADATA.key).errors == 1


def test_request_of_excessive_size_is_refused() -> None:
    """The request's parsed form would exceed the memory limit, so the connection closes before anything is parsed."""
    broker = Broker(Bounds(parsed_bytes_max=1_000_000))
    client = broker.connect()
    client.send(names_frame(NAMES))
    broker.iterations()
    assert client.connection.closed


def test_frame_too_long_for_its_api_is_refused() -> None:
    """``kreplica.request.without.records.max.bytes`` limits requests without records."""
    broker = Broker(Bounds(request_bytes_max_without_records=100_000))
    client = broker.connect()
    client.send(names_frame(NAMES))
    assert client.connection.closed
    assert broker.clock.getDelayedCalls() == []


def test_many_large_requests_share_the_iterations() -> None:
    """Eight requests do the same amount of work per iteration as one; a small request is served in each iteration."""
    broker = Broker()
    clients = [broker.connect() for _ in range(8)]
    other = broker.connect()
    for client in clients:
        client.send(names_frame(10_000))
    iterations = 0
    before = broker.flush_scope.slices.steps
    while broker.clock.getDelayedCalls():
        broker.clock.iterate()
        iterations += 1
        assert broker.flush_scope.slices.steps - before <= 64
        before = broker.flush_scope.slices.steps
        other.send(api_versions_frame())
        assert other.answers() == iterations
    assert [client.answers() for client in clients] == [1] * 8


def test_large_request_is_described_in_the_stall_log() -> None:
    """The line contains the API, the size, the client and its address."""
    broker = Broker()
    client = broker.connect()
    frame = names_frame(3)
    text = broker.dispatch.description(client.connection, memoryview(frame)[4:])
    assert text.startswith(f"Metadata v4 ({len(frame) - 4} bytes) from client ")
    assert text.endswith("at 1.2.3.4:5")


def test_offsets_of_many_partitions_are_fetched_in_slices() -> None:
    """OffsetFetch for 50,000 partitions takes many iterations and returns all of them."""

    class NoGroups:
        """Shards of a broker that coordinates no group."""

        def current_shard_of(self, group_id: str) -> None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)

    broker = Broker()
    broker.dispatch.table[OFFSET_FETCH.key] = HandlerEntry.of(OFFSET_FETCH, OffsetFetch(NoGroups()))  # type: ignore[arg-type]
    client = broker.connect()
    topics = [{"name": "t", "partition_indexes": list(range(NAMES))}]
    client.send(request_frame(OFFSET_FETCH, 1, 1, {"group_id": "g", "topics": topics}))
    assert client.answers() == 0
    assert broker.iterations() > 10
    (frame,) = client.transport.frames()
    ((topic,),) = (parse_answer(frame, OFFSET_FETCH.key, 1)[1]["topics"],)
    assert [row["partition_index"] for row in topic["partitions"]] == list(range(NAMES))
    assert {row["error_code"] for row in topic["partitions"]} == {int(ErrorCode.NOT_COORDINATOR)}


def test_leader_and_isr_of_many_partitions_yields(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other work runs between slices of parsing and of building the response."""
    monkeypatch.setattr(time_slice, "SLICE_SECONDS_MAX", -1.0)  # a slice per partition
    count = 50

    class ReplicaStub:
        """Fence, admission, replicas and settings of a broker that executes all controller requests."""

        def admit(self, request: Request, decided: Callable[[ErrorCode], None]) -> None:
            decided(ErrorCode.NONE)

        async def in_order(self, obey: Callable[[], Awaitable[Any]]) -> Any:
            return await obey()

        def rejection(self, *epochs: int) -> ErrorCode:
            return ErrorCode.NONE

        def knows(self, topic: str) -> bool:
            return True

        async def read_new_topics(self, topics: list[str]) -> None:
            assert topics == []

        def recheck(self) -> None:
            """Check whether a start that waits for partition roles can continue."""

        async def lead_and_follow(self, leaderships: dict[TopicPartition, Any]) -> dict[TopicPartition, ErrorCode]:
            return dict.fromkeys(leaderships, ErrorCode.NONE)

    broker, obedient = Broker(), ReplicaStub()
    handler = LeaderAndIsr(broker.clock, obedient, obedient, obedient, obedient, obedient)  # type: ignore[arg-type]
    broker.dispatch.table[LEADER_AND_ISR.key] = HandlerEntry.of(LEADER_AND_ISR, handler)
    client = broker.connect()
    row = {
        "controller_epoch": 1, "leader": 1, "leader_epoch": 0, "isr": [1], "partition_epoch": 0, "replicas": [1],
        "adding_replicas": [], "removing_replicas": [], "is_new": False,
    }  # fmt: skip
    rows = [{"partition_index": number, **row} for number in range(count)]
    states = [{"topic_name": "t", "topic_id": UUID(int=1), "partition_states": rows}]
    body = {
        "controller_id": 1, "controller_epoch": 1, "broker_epoch": 1, "type": 0, "topic_states": states,
        "live_leaders": [],
    }  # fmt: skip
    client.send(request_frame(LEADER_AND_ISR, 5, 1, body))
    assert broker.iterations() >= 2 * count
    (frame,) = client.transport.frames()
    ((topic,),) = (parse_answer(frame, LEADER_AND_ISR.key, 5)[1]["topics"],)
    assert [row["partition_index"] for row in topic["partition_errors"]] == list(range(count))


class NoFence:
    """Admission and fence of a broker whose controller is never replaced, and settings that drop nothing."""

    rejected = ErrorCode.NONE

    def admit(self, request: Request, decided: Callable[[ErrorCode], None]) -> None:
        decided(ErrorCode.NONE)

    def rejection(self, *epochs: int) -> ErrorCode:
        return self.rejected

    def forget(self, topic: str) -> None:
        """Keep the settings."""


def metadata_frame(topics: int, partitions: int, leader: int = 1, correlation_id: int = 1) -> bytes:
    row = {
        "controller_epoch": 1, "leader": leader, "leader_epoch": 0, "isr": [1], "zk_version": 0, "replicas": [1],
        "offline_replicas": [],
    }  # fmt: skip
    states = [
        {
            "topic_name": f"t{number}",
            "topic_id": UUID(int=number + 1),
            "partition_states": [{"partition_index": index, **row} for index in range(partitions)],
        }
        for number in range(topics)
    ]
    body = {
        "controller_id": 1, "is_kraft_controller": False, "type": 0, "controller_epoch": 1, "broker_epoch": 1,
        "topic_states": states, "live_brokers": [],
    }  # fmt: skip
    return request_frame(UPDATE_METADATA, 8, correlation_id, body)


def metadata_of(broker: Broker, fence: NoFence) -> MetadataCache:
    cache = MetadataCache(broker.clock)
    handler = UpdateMetadata(fence, fence, cache, fence)  # type: ignore[arg-type]
    broker.dispatch.table[UPDATE_METADATA.key] = HandlerEntry.of(UPDATE_METADATA, handler)
    return cache


@pytest.mark.parametrize(("topics", "partitions"), [(100, 300), (5_000, 1)])
def test_metadata_of_many_partitions_is_applied_in_slices(topics: int, partitions: int) -> None:
    """Observers are called once, after the last slice; a reader sees whole topics."""
    broker = Broker()
    cache = metadata_of(broker, NoFence())
    client = broker.connect()
    sizes: list[int] = []
    seen: list[int] = []
    cache.on_change(lambda: seen.append(len(cache.topics)))
    client.send(metadata_frame(topics, partitions))
    while broker.clock.getDelayedCalls():
        broker.clock.iterate()
        sizes.append(len(cache.topics))
        assert {len(topic.partitions) for topic in cache.topics.values()} <= {partitions}
    assert seen == [topics]
    assert len(set(sizes)) > 1 or topics * partitions < 10_000
    assert client.answers() == 1
    assert sum(len(topic.partitions) for topic in cache.topics.values()) == topics * partitions


@pytest.mark.parametrize("iterations", [1, 5, 10])
def test_metadata_of_a_controller_that_is_replaced_meanwhile(iterations: int) -> None:
    """The remaining slices are dropped, and the response has the error STALE_CONTROLLER_EPOCH."""
    broker, fence = Broker(), NoFence()
    cache = metadata_of(broker, fence)
    client = broker.connect()
    client.send(metadata_frame(200, 300))
    for _ in range(iterations):
        broker.clock.iterate()
    fence.rejected = ErrorCode.STALE_CONTROLLER_EPOCH
    broker.iterations()
    assert len(cache.topics) < 200
    (frame,) = client.transport.frames()
    assert parse_answer(frame, UPDATE_METADATA.key, 8)[1]["error_code"] == int(ErrorCode.STALE_CONTROLLER_EPOCH)


def test_metadata_that_is_sent_again_replaces_the_first() -> None:
    """An older request does not overwrite the state of a newer one."""
    broker = Broker()
    cache = metadata_of(broker, NoFence())
    first, second = broker.connect(), broker.connect()
    first.send(metadata_frame(200, 300))
    while not cache.topics:
        broker.clock.iterate()
    assert len(cache.topics) < 200
    second.send(metadata_frame(200, 1, leader=2))
    broker.iterations()
    assert {topic.partitions[0].leader for topic in cache.topics.values()} == {2}
    assert len(cache.topics) == 200
