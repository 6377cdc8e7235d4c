"""Produce requests for hundreds of partitions are appended in slices and in order, even though the frame's buffer is
reused."""

from __future__ import annotations

from typing import Any

import pytest
from server_scene import parse_answer, request_frame
from test_server_produce_runs import Broker, batch, large_batch, produce

from kreplica.errors import ErrorCode, LargeMessage
from kreplica.model import TopicPartition
from kreplica.runtime.slices import SLICE_STEPS_MAX
from kreplica.server.produce.sliced_produce import PARTITIONS_AT_ONCE, STEP_PARTITIONS
from kreplica.server.protocol.connection import Connection
from kreplica.server.protocol.request import COPIED_BYTES_MAX
from kreplica.wire import messages
from kreplica.wire.compression import Codec
from kreplica.wire.headers import parse_request_header
from kreplica.wire.messages import PRODUCE

MANY = PARTITIONS_AT_ONCE + 100
VERSION = 10
UNKNOWN = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


class Many(Broker):
    """Leader of ``many``, a topic with hundreds of partitions."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster.run_until(self.cluster.client().create_topic("many", MANY))
        self.cluster.wait_in_sync("many", range(MANY))

    def give(self, frame: bytes) -> None:
        """Pass a frame to the dispatcher; its buffer is reused unless the dispatcher keeps it."""
        buffer = bytearray(frame[4:])
        with self.resources.flush_scope:
            self.resources.dispatch.frame_received(self.connection, memoryview(buffer))
        if not self.connection.keeps_frame:
            buffer[:] = bytes(len(buffer))

    def ends(self) -> list[int]:
        """Return the log end offset of each partition."""
        found = [self.program.partitions.get(TopicPartition("many", index)) for index in range(MANY)]
        return [partition.log.log_end_offset for partition in found]

    def finish(self) -> int:
        """Run until the connection is read again.

        :return: the largest number of batches appended in one iteration of the event loop.
        """
        most, before = 0, sum(self.ends())

        def is_over() -> bool:
            nonlocal most, before
            now = sum(self.ends())
            most, before = max(most, now - before), now
            return not self.connection.paused

        self.cluster.run_until(is_over)
        return most

    def rows(self, number: int = 0) -> dict[str, list[dict[str, Any]]]:
        """Return the rows of a response by topic."""
        body = parse_answer(memoryview(self.answers()[number]), PRODUCE.key, VERSION)[1]
        rows = {topic["name"]: topic["partition_responses"] for topic in body["responses"]}
        assert len(rows) == len(body["responses"])
        return rows


@pytest.fixture(scope="module")
def shared() -> Many:
    return Many()


@pytest.fixture
def broker(shared: Many) -> Many:
    """The broker, with a new connection for this test."""
    shared.connection = shared.connect()
    return shared


def frame_of(topics: dict[str, list[bytes]], correlation_id: int = 1, acks: int = 1) -> bytes:
    data = [
        {"name": name, "partition_data": [{"index": index, "records": each} for index, each in enumerate(batches)]}
        for name, batches in topics.items()
    ]
    body = {"acks": acks, "timeout_ms": 1000, "topic_data": data}
    return request_frame(PRODUCE, VERSION, correlation_id, body)


@pytest.mark.parametrize("size", [10, 2000], ids=["copied", "kept"])
def test_an_iteration_appends_a_bounded_number_of_batches(broker: Many, size: int) -> None:
    """All batches are appended, the response has a row for each, and a small Produce is handled in between."""
    frame = frame_of({"many": [batch(b"v" * size)] * MANY, "nowhere": [batch()] * MANY})
    assert (len(frame) > COPIED_BYTES_MAX) == (size == 2000)
    before = broker.ends()
    broker.give(frame)
    assert broker.connection.paused
    assert broker.answers() == []
    other: Connection = broker.connect()
    broker.read(produce(7, batch()), connection=other)
    assert len(broker.answers(other)) == 1
    assert sum(broker.ends()) < sum(before) + MANY
    assert 0 < broker.finish() <= SLICE_STEPS_MAX * STEP_PARTITIONS
    broker.cluster.run_until(lambda: broker.answers())
    assert broker.ends() == [end + 1 for end in before]
    rows = broker.rows()
    assert list(rows) == ["many", "nowhere"]
    assert [(row["index"], row["error_code"], row["base_offset"]) for row in rows["many"]] == [
        (index, 0, end) for index, end in enumerate(before)
    ]
    assert [(row["index"], row["error_code"]) for row in rows["nowhere"]] == [(i, UNKNOWN) for i in range(MANY)]
    assert not broker.connection.keeps_frame


def test_stored_batches_survive_reuse_of_the_frame_buffer(broker: Many) -> None:
    contents = [batch(b"content %d" % index) for index in range(MANY)]
    before = broker.ends()
    broker.give(frame_of({"many": contents}))
    broker.finish()
    for index, expected in enumerate(contents):
        log = broker.program.partitions.get(TopicPartition("many", index)).log
        part = log.read(before[index], size_max=1 << 20, offset_max=log.log_end_offset)
        stored = b"".join(piece.read() for piece in part.ranges)
        assert stored[61:] == expected[61:]


def test_next_request_of_the_connection_waits(broker: Many) -> None:
    """The next request is read after all batches have been appended."""
    last = MANY - 1
    end = broker.ends()[last]
    broker.give(frame_of({"many": [batch()] * MANY}, correlation_id=1))
    broker.finish()
    broker.give(produce(2, batch(), version=VERSION, topic="many", index=last))
    broker.cluster.run_until(lambda: len(broker.answers()) == 2)
    assert [int.from_bytes(answer[:4], "big") for answer in broker.answers()] == [1, 2]
    assert [broker.rows(number)["many"][-1]["base_offset"] for number in (0, 1)] == [end, end + 1]


def test_compressed_batches_are_validated_before_any_is_appended(broker: Many) -> None:
    """A decompression bomb among hundreds of small batches is decompressed outside the event loop."""
    before = broker.ends()
    contents = [batch()] * MANY
    contents[5] = large_batch(5, Codec.GZIP)
    contents[6] = contents[6][:-3]
    broker.give(frame_of({"many": contents}))
    broker.finish()
    broker.cluster.run_until(lambda: broker.answers())
    codes = [row["error_code"] for row in broker.rows()["many"]]
    assert codes[6] != 0
    assert [code for index, code in enumerate(codes) if index != 6] == [0] * (MANY - 1)
    assert sum(broker.ends()) == sum(before) + MANY - 1


def test_invalid_acks_refuse_all_batches(broker: Many) -> None:
    before = broker.ends()
    broker.give(frame_of({"many": [batch()] * MANY}, acks=5))
    broker.finish()
    broker.cluster.run_until(lambda: broker.answers())
    assert {row["error_code"] for row in broker.rows()["many"]} == {int(ErrorCode.INVALID_REQUIRED_ACKS)}
    assert broker.ends() == before


def test_acks_0_sends_no_response(broker: Many) -> None:
    """All batches are appended."""
    before = broker.ends()
    broker.give(frame_of({"many": [batch()] * MANY}, acks=0))
    broker.finish()
    assert broker.ends() == [end + 1 for end in before]
    assert broker.answers() == []
    assert broker.connection.is_settled


def test_closed_connection_ends_the_work(broker: Many) -> None:
    """The remaining batches are not appended, and the frame's buffer is released."""
    before = sum(broker.ends())
    broker.give(frame_of({"many": [batch(b"v" * 2000)] * MANY}))
    assert broker.connection.keeps_frame
    broker.connection.lost()
    assert not broker.connection.keeps_frame
    assert len(broker.resources.flush_scope.slices) == 0 or broker.cluster.run(1) is None
    assert sum(broker.ends()) < before + MANY
    assert len(broker.resources.flush_scope.slices) == 0


def ask(broker: Many, api: messages.Api, version: int, body: dict[str, Any]) -> dict[str, Any]:
    """Return the response to a request, retried while the coordinator is not available."""
    for _ in range(100):
        connection = broker.connect()
        broker.read(request_frame(api, version, 1, body), connection=connection)
        broker.cluster.run_until(lambda connection=connection: broker.answers(connection))
        answer = parse_answer(memoryview(broker.answers(connection)[0]), api.key, version)[1]
        if answer["error_code"] not in (14, 15, 16):
            return answer
        broker.cluster.run(0.1)
    raise AssertionError(answer)


class Writer:
    """A transactional producer; each of its requests has a batch for every partition of ``many``."""

    def __init__(self, broker: Many, transactional_id: str) -> None:
        ask(broker, messages.FIND_COORDINATOR, 1, {"key": transactional_id, "key_type": 1})
        body = {"transactional_id": transactional_id, "transaction_timeout_ms": 60_000}
        answer = ask(broker, messages.INIT_PRODUCER_ID, 4, body)
        assert answer["error_code"] == 0
        self.transactional_id = transactional_id
        self.producer = {key: answer[key] for key in ("producer_id", "producer_epoch")}

    def frame(self, version: int, sequence: int = 0, size: int = 10, **of_first: int) -> bytes:
        """Return a Produce request; ``of_first`` are the producer fields of the first batch."""
        options = self.producer | {"transactional": True, "base_sequence": sequence}
        batches = [batch(b"v" * size, **options | of_first), *[batch(b"v" * size, **options)] * (MANY - 1)]
        data = [{"index": index, "records": each} for index, each in enumerate(batches)]
        topics = [{"name": "many", "partition_data": data}]
        body = {"transactional_id": self.transactional_id, "acks": 1, "timeout_ms": 1000, "topic_data": topics}
        return request_frame(PRODUCE, version, 1, body)


def codes_of(broker: Many, version: int) -> list[int]:
    """Return the error codes of the last response."""
    body = parse_answer(memoryview(broker.answers()[-1]), PRODUCE.key, version)[1]
    ((topic),) = body["responses"]
    assert [row["index"] for row in topic["partition_responses"]] == list(range(MANY))
    return [row["error_code"] for row in topic["partition_responses"]]


@pytest.mark.parametrize("size", [10, 2000], ids=["copied", "kept"])
def test_batches_of_a_transaction_are_appended_in_slices(broker: Many, size: int) -> None:
    """The first request adds its partitions to the transaction; for the second, they have already been added."""
    writer = Writer(broker, f"tx{size}")
    transactional = broker.resources.dispatch.table[PRODUCE.key].handle.transactional
    for sequence in range(2):
        before = broker.ends()
        broker.give(writer.frame(12, sequence, size))
        assert broker.connection.paused
        assert sum(broker.ends()) < sum(before) + MANY
        assert 0 < broker.finish() <= SLICE_STEPS_MAX * STEP_PARTITIONS
        broker.cluster.run_until(lambda count=sequence + 1: len(broker.answers()) == count)
        assert codes_of(broker, 12) == [0] * MANY
        assert broker.ends() == [end + 1 for end in before]
        assert transactional.kept_bytes == 0
        assert not broker.connection.keeps_frame


def test_large_request_outside_of_a_transaction_is_refused(broker: Many) -> None:
    """An older producer did not add the partitions: no batch is appended, and every row has the error."""
    writer, before = Writer(broker, "not-added"), broker.ends()
    broker.give(writer.frame(10))
    broker.cluster.run_until(lambda: broker.answers())
    assert set(codes_of(broker, 10)) == {int(ErrorCode.INVALID_TXN_STATE)}
    assert broker.ends() == before


def test_large_request_of_two_producers_is_refused(broker: Many) -> None:
    """A transaction has a single producer."""
    writer, before = Writer(broker, "two"), broker.ends()
    broker.give(writer.frame(12, producer_id=4242))
    broker.cluster.run_until(lambda: broker.answers())
    assert set(codes_of(broker, 12)) == {int(ErrorCode.INVALID_PRODUCER_ID_MAPPING)}
    assert broker.ends() == before


def test_producer_that_disconnects_while_its_partitions_are_added(broker: Many) -> None:
    """The coordinator responds after the connection has closed: nothing is appended, and no memory is kept."""
    writer, before = Writer(broker, "leaves"), broker.ends()
    transactional = broker.resources.dispatch.table[PRODUCE.key].handle.transactional
    broker.give(writer.frame(12))
    broker.cluster.run_until(lambda: transactional.kept_bytes > 0)
    broker.connection.lost()
    assert transactional.kept_bytes == 0
    broker.cluster.run(1)
    assert broker.ends() == before
    assert len(broker.resources.flush_scope.slices) == 0


def rows_frame(version: int, topics: int, partitions: int, last: int = 0) -> bytes:
    """Return a Produce request for topics that do not exist.

    :param last: index of the last partition.
    """
    rows = [{"index": index, "records": b"0123456789" * 8} for index in range(partitions)]
    data = [{"name": f"none{number}", "partition_data": rows} for number in range(topics)]
    data.append({"name": "none", "partition_data": [{"index": last, "records": None}]})
    return request_frame(PRODUCE, version, 1, {"acks": 1, "timeout_ms": 1000, "topic_data": data})


@pytest.mark.parametrize("version", [2, VERSION])
@pytest.mark.parametrize(("topics", "partitions"), [(1, 15_000), (5_000, 0)])
def test_request_of_many_rows_is_parsed_in_slices(broker: Many, version: int, topics: int, partitions: int) -> None:
    """No row is handled in the iteration in which the request arrives; the response has all rows, in order."""
    frame = rows_frame(version, topics, partitions, last=7)
    with pytest.raises(LargeMessage):
        PRODUCE.request.parse(version, frame, parse_request_header(memoryview(frame)[4:]).body_offset + 4)
    broker.give(frame)
    assert broker.connection.paused
    broker.cluster.run_until(lambda: broker.answers())
    body = parse_answer(memoryview(broker.answers()[0]), PRODUCE.key, version)[1]
    rows = [row["index"] for topic in body["responses"] for row in topic["partition_responses"]]
    assert rows == [*range(partitions)] * topics + [7]
    assert len(body["responses"]) == topics + 1
    assert not broker.connection.keeps_frame
    assert not broker.connection.paused


def test_large_request_with_a_malformed_end_closes_its_connection(broker: Many) -> None:
    """The error is found when the last row is parsed; nothing was appended, and the frame's buffer is released."""
    frame = bytearray(rows_frame(VERSION, 1, 15_000))
    frame[-8:] = b"\xff" * 8
    broker.give(bytes(frame))
    assert not broker.connection.closed
    broker.cluster.run_until(lambda: broker.connection.closed)
    assert not broker.connection.keeps_frame
    assert len(broker.resources.flush_scope.slices) == 0


def test_request_of_too_many_rows_is_refused(broker: Many) -> None:
    """The limit is the same as for requests that are not parsed in slices."""
    broker.give(rows_frame(VERSION, 1, 20_000))
    broker.cluster.run_until(lambda: broker.connection.closed)
