"""Produce requests from one read are handled together; responses and logs are the same as one by one."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import pytest
from server_scene import parse_answer, request_frame
from sink import Sink

from kreplica.errors import ErrorCode
from kreplica.model import TopicPartition
from kreplica.replication import Partition
from kreplica.server.produce.batching import RUN_MAX, ProduceRuns
from kreplica.server.protocol.connection import Connection
from kreplica.testing.cluster.cluster import SimulatedCluster
from kreplica.wire.batch_building import NEXT_OFFSET, build_batch
from kreplica.wire.compression import Codec
from kreplica.wire.messages import LIST_OFFSETS, METADATA, PRODUCE
from kreplica.wire.records import Record
from tests.support.kernels import needs_kernels, without_kernels

COMPRESSING = (Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
VERSIONS = (3, 7, 9, PRODUCE.versions[1])


def batch(value: bytes = b"v", **options: Any) -> bytes:
    return build_batch([Record(NEXT_OFFSET, 1_700_000_000_000, None, value, ())], **options)


def large_batch(number: int, codec: Codec) -> bytes:
    """Return a batch that is small when compressed and large when decompressed."""
    return batch(b"%d" % number * 100_000, codec=codec)


def produce(
    number: int, records: bytes | None, *, acks: int = 1, version: int = 9, topic: str = "t", index: int = 0
) -> bytes:
    rows = [{"index": index, "records": records}]
    body = {"acks": acks, "timeout_ms": 1000, "topic_data": [{"name": topic, "partition_data": rows}]}
    return request_frame(PRODUCE, version, number, body)


class Broker:
    """The leader of topic ``t`` in a cluster, and connections to it."""

    def __init__(self, brokers: int = 1, overrides: Sequence[str] = ()) -> None:
        self.cluster = SimulatedCluster(seed=1, brokers=brokers, overrides=overrides)
        self.cluster.start()
        client = self.cluster.client()
        self.cluster.run_until(client.create_topic("t", 2, replication_factor=brokers))
        self.cluster.wait_in_sync("t", [0, 1])
        self.program = self.cluster.brokers[self.cluster.leader_of("t", 0)].program
        self.resources = self.program.server.resources
        self.sinks: dict[Connection, Sink] = {}
        self.connection = self.connect()
        self.runs = self.resources.dispatch._runs

    def connect(self, peer: str = "1.2.3.4:5") -> Connection:
        connection: Connection = self.resources.connection("PLAINTEXT", peer)
        sink = self.sinks[connection] = Sink()
        connection.attach(sink)
        return connection

    def read(self, *frames: bytes, connection: Connection | None = None) -> None:
        """Deliver the requests as one read, in a buffer that is reused afterwards; wait while reading is paused."""
        connection = connection or self.connection
        buffer = memoryview(bytearray(b"".join(frames)))
        dispatch, position, size = self.resources.dispatch, 0, len(buffer)
        while position < size:
            with self.resources.flush_scope:
                while position < size and not connection.paused:
                    end = position + 4 + int.from_bytes(buffer[position : position + 4], "big")
                    frame = buffer[position + 4 : end]
                    dispatch.frame_received(connection, frame)
                    position = dispatch.extend_run(connection, frame, buffer, end, size) if end < size else end
            buffer[:position] = bytes(position)
            if connection.held:
                self.cluster.run_until(lambda: not connection.held)

    def answers(self, connection: Connection | None = None) -> list[bytes]:
        return [bytes(frame) for frame in self.sinks[connection or self.connection].frames()]

    def partition(self, index: int = 0) -> Partition:
        partition: Partition | None = self.program.partitions.get(TopicPartition("t", index))
        assert partition is not None
        return partition

    def log(self, index: int = 0) -> bytes:
        log = self.partition(index).log
        part = log.read(0, size_max=1 << 30, offset_max=log.log_end_offset)
        return b"".join(piece.read() for piece in part.ranges)


class Sequences:
    """Frames of a few producers, most of them valid."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._next = 0

    def frame(self, number: int, version: int) -> bytes:
        chance = self._chance
        kind = chance.random()
        options: dict[str, Any] = {"version": version, "index": chance.choice([0, 0, 0, 0, 1])}
        options["acks"] = chance.choice([1, 1, 1, 1, -1])
        if kind < 0.5:
            return produce(number, batch(b"%d" % number), **options)
        if kind < 0.55:
            return produce(number, batch(b"%d" % number, codec=chance.choice(COMPRESSING)), **options)
        if kind < 0.6:
            return produce(number, large_batch(number, chance.choice(COMPRESSING)), **options)
        if kind < 0.8:
            sequence = self._next + (chance.random() < 0.1)
            self._next = max(self._next, sequence + 1)
            records = batch(b"%d" % number, producer_id=7, producer_epoch=0, base_sequence=sequence)
            return produce(number, records, **options | {"index": 0})
        if kind < 0.84:
            damaged = bytearray(batch(b"damaged"))
            damaged[-1] ^= 1
            return produce(number, bytes(damaged), **options)
        if kind < 0.88:
            return produce(number, chance.choice([None, b"", b"short", batch() * 2]), **options)
        if kind < 0.92:
            return produce(number, batch(), **options | {"topic": chance.choice(["nowhere", "__consumer_offsets"])})
        if kind < 0.95:
            return produce(number, batch(), **options | {"acks": 2})
        if kind < 0.97:
            rows = [{"partition_index": 0, "timestamp": -1}]
            asked = {"replica_id": -1, "topics": [{"name": "t", "partitions": rows}]}
            return request_frame(LIST_OFFSETS, 1, number, asked)
        return request_frame(METADATA, 1, number, {"topics": []})


@pytest.mark.parametrize("has_kernels", [pytest.param(True, marks=needs_kernels), False])
@pytest.mark.parametrize("version", VERSIONS)
def test_batched_handling_equals_sequential_handling(version: int, has_kernels: bool) -> None:
    """Every response and every byte of the log are the same."""
    with nullcontext() if has_kernels else without_kernels():
        _compare_with_sequential_handling(version)


def _compare_with_sequential_handling(version: int) -> None:
    chance = random.Random(version)
    together, apart = Broker(), Broker()
    apart.resources.dispatch._runs = None
    sequences = Sequences(chance)
    for _ in range(30):
        frames = [sequences.frame(number, version) for number in range(chance.choice([1, 2, 8, 30, 2 * RUN_MAX + 3]))]
        together.read(*frames)
        for frame in frames:
            apart.read(frame)
        assert together.answers() == apart.answers()
        assert together.log() == apart.log()
        assert together.log(1) == apart.log(1)
        together.sinks[together.connection].sends.clear()
        apart.sinks[apart.connection].sends.clear()
    theirs, ours = (broker.resources.metrics.api(PRODUCE.key) for broker in (apart, together))
    assert (ours.requests, ours.bytes_in, ours.bytes_out) == (theirs.requests, theirs.bytes_in, theirs.bytes_out)
    assert ours.times is not None
    assert sum(ours.times.counts) == ours.requests


@pytest.mark.parametrize("of_another_kind", [False, True])
def test_requests_do_not_overtake_a_batch_in_validation(of_another_kind: bool) -> None:
    """Requests of any API wait if they follow a large compressed batch on the same connection."""
    broker = Broker()
    other = broker.connect()
    frames = [produce(number, batch(b"%d" % number)) for number in range(9)]
    frames[0] = produce(0, batch(b"first", codec=Codec.GZIP))
    frames[3] = produce(3, large_batch(3, Codec.GZIP))
    frames[4] = produce(4, batch(b"another kind"), acks=-1) if of_another_kind else frames[4]
    frames[6] = produce(6, large_batch(6, Codec.LZ4))
    with broker.resources.flush_scope:
        for frame in frames[:4]:
            broker.resources.dispatch.frame_received(broker.connection, memoryview(frame)[4:])
    assert broker.connection.held
    assert broker.connection.paused
    broker.read(produce(100, batch(b"of another connection")), connection=other)
    assert len(broker.answers(other)) == 1, "others are served meanwhile"
    broker.cluster.run_until(lambda: not broker.connection.held)
    broker.read(*frames[4:])
    broker.cluster.run_until(lambda: not broker.connection.outstanding)
    answers = [parse_answer(memoryview(answer), PRODUCE.key, 9) for answer in broker.answers()]
    offsets = [body["responses"][0]["partition_responses"][0]["base_offset"] for _, body in answers]
    assert [number for number, _ in answers] == list(range(9))
    assert offsets == sorted(offsets)
    assert broker.partition().log.log_end_offset == 10


def test_leader_that_resigned_during_validation() -> None:
    """Leadership is checked again after validation."""
    broker = Broker(brokers=3)
    broker.read(produce(0, batch()))
    frame = produce(1, large_batch(1, Codec.GZIP))
    with broker.resources.flush_scope:
        broker.resources.dispatch.frame_received(broker.connection, memoryview(frame)[4:])
    assert broker.connection.held
    partition = broker.partition()
    partition.follow(partition.leadership)
    broker.cluster.run_until(lambda: not broker.connection.held)
    _, body = parse_answer(memoryview(broker.answers()[-1]), PRODUCE.key, 9)
    assert body["responses"][0]["partition_responses"][0]["error_code"] == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_connection_that_closes_during_validation() -> None:
    """The connection's batch is dropped, and the next connection's is validated."""
    broker = Broker()
    frame = produce(1, large_batch(1, Codec.GZIP))
    with broker.resources.flush_scope:
        broker.resources.dispatch.frame_received(broker.connection, memoryview(frame)[4:])
    assert broker.connection.held
    broker.connection.drop("the test")
    broker.connection = broker.connect()
    broker.read(produce(2, large_batch(2, Codec.GZIP)))
    broker.cluster.run_until(lambda: not broker.connection.outstanding)
    assert len(broker.answers()) == 1
    assert broker.partition().log.log_end_offset == 1


def test_responses_are_sent_as_one_buffer() -> None:
    """This applies from the second request that matches a template."""
    broker = Broker()
    broker.read(produce(0, batch()))
    sink = broker.sinks[broker.connection]
    sink.sends.clear()
    broker.read(*(produce(number, batch()) for number in range(RUN_MAX)))
    assert len(sink.sends) == 1
    assert len(broker.answers()) == RUN_MAX


def test_connections_are_separate() -> None:
    """Similar requests of two connections are answered on their own connection."""
    broker = Broker()
    broker.read(produce(0, batch()))
    other = broker.connect()
    with broker.resources.flush_scope:
        broker.read(produce(1, batch(b"1")), produce(2, batch(b"2")))
        broker.read(produce(3, batch(b"3")), connection=other)
        broker.read(produce(4, batch(b"4")))
    numbers = [[int.from_bytes(answer[:4], "big") for answer in broker.answers(of)] for of in (None, other)]
    assert numbers == [[0, 1, 2, 4], [3]]


def test_batch_behind_a_pending_one() -> None:
    """Once the in-sync followers have replicated the records, responses are sent in request order."""
    broker = Broker(brokers=3)
    broker.read(produce(0, batch()), produce(1, batch(), acks=-1))
    broker.read(*(produce(number, batch(), acks=-1 if number % 3 else 1) for number in range(2, 20)))
    assert [int.from_bytes(answer[:4], "big") for answer in broker.answers()] == [0]
    assert broker.connection.outstanding == 19
    broker.cluster.run_until(lambda: len(broker.answers()) == 20)
    answers = [parse_answer(memoryview(answer), PRODUCE.key, 9) for answer in broker.answers()]
    rows = [body["responses"][0]["partition_responses"][0] for _, body in answers]
    assert [number for number, _ in answers] == list(range(20))
    assert [(row["error_code"], row["base_offset"]) for row in rows] == [(0, number) for number in range(20)]


def test_connection_that_closes_while_requests_wait() -> None:
    """No response is sent, and no state remains."""
    broker = Broker(brokers=3)
    broker.read(produce(0, batch(), acks=-1))
    broker.cluster.run_until(lambda: len(broker.answers()) == 1)
    broker.read(*(produce(number, batch(), acks=-1) for number in range(1, 9)))
    broker.connection.drop("the test")
    broker.cluster.run_until(lambda: broker.partition().is_committed(9))
    assert len(broker.answers()) == 1


def test_partition_led_elsewhere() -> None:
    """All requests get NOT_LEADER_OR_FOLLOWER."""
    broker = Broker(brokers=3)
    broker.read(produce(0, batch()))
    broker.sinks[broker.connection].sends.clear()
    partition = broker.partition()
    partition.follow(partition.leadership)
    broker.read(*(produce(number, batch()) for number in range(5)))
    answers = [parse_answer(memoryview(answer), PRODUCE.key, 9)[1] for answer in broker.answers()]
    codes = [body["responses"][0]["partition_responses"][0]["error_code"] for body in answers]
    assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 5


@needs_kernels
def test_requests_behind_a_rejected_one() -> None:
    """Requests that repeat one that was not handled, such as after the session expired, are not added to a run."""
    broker = Broker()
    broker.read(produce(0, batch()))
    dispatch, connection = broker.resources.dispatch, broker.connection
    frames = [produce(1, batch()), produce(2, batch(), index=1), produce(3, batch(), index=1)]
    buffer = memoryview(bytearray(b"".join(frames)))
    rejected, end = len(frames[0]) + 4, len(frames[0]) + len(frames[1])
    with broker.resources.flush_scope:
        dispatch.frame_received(connection, buffer[4 : len(frames[0])])
        frame = buffer[rejected:end]
        assert dispatch.extend_run(connection, frame, buffer, end, len(buffer)) == end
    assert len(broker.answers()) == 2
    assert [broker.partition(index).log.log_end_offset for index in (0, 1)] == [2, 0]


def test_requests_before_an_invalid_frame() -> None:
    """The requests are appended and answered before the connection closes."""
    broker = Broker()
    broker.read(produce(0, batch()))
    broker.read(produce(1, batch()), produce(2, batch()), b"\0\0\0\4" + b"\x7f\xff\0\0")
    assert len(broker.answers()) == 3
    assert broker.connection.closed


def test_failing_handler() -> None:
    """The handler's connection is closed; the next read is handled."""
    broker = Broker()
    broker.read(produce(0, batch()))
    assert isinstance(broker.runs, ProduceRuns)

    def fail(run: object) -> None:
        raise LookupError

    handle, broker.runs._handle = broker.runs._handle, fail
    broker.read(produce(1, batch()), produce(2, batch()))
    assert broker.connection.closed
    broker.runs._handle = handle
    other = broker.connect()
    broker.read(produce(3, batch()), connection=other)
    assert len(broker.answers(other)) == 1
