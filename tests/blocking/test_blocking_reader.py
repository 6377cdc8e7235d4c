"""Requests of the blocking reader, and the records that it returns."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from scripted_brokers import Request, ScriptedBrokers, fetch_response, versions

from kreplica.blocking import Isolation, Reader, ReaderOptions, TopicPartition
from kreplica.blocking.reader import OutOfRange
from kreplica.client_core.errors import BrokerRefused, CorruptBatch, GaveUp, OffsetOutOfRange
from kreplica.errors import ErrorCode
from kreplica.wire.batch_building import build_batch, filter_batch
from kreplica.wire.batches import TimestampType
from kreplica.wire.control_records import EndMarker, build_end_marker
from kreplica.wire.messages import API_VERSIONS, FETCH, LIST_OFFSETS
from kreplica.wire.records import Record

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def batch(base: int, count: int, **options: Any) -> bytes:
    records = [Record(base + delta, 1000 + base + delta, None, b"%d" % (base + delta)) for delta in range(count)]
    return build_batch(records, base_offset=base, **options)


def end_marker(offset: int, producer_id: int, *, committed: bool) -> bytes:
    batch_bytes = bytearray(build_end_marker(EndMarker(committed, 0), producer_id, 0, 1))
    batch_bytes[:8] = offset.to_bytes(8, "big")
    return bytes(batch_bytes)


class Log:
    """Batches of one partition, served as a leader does: starting with the batch that contains the offset."""

    def __init__(self, *batches: bytes) -> None:
        self.batches = [(int.from_bytes(each[:8], "big"), each) for each in batches]

    def serve(self, request: Request, **more: Any) -> dict[str, Any]:
        row = request.body["topics"][0]["partitions"][0]
        data = b"".join(each for base, each in self.batches if self._end(each, base) > row["fetch_offset"])
        return fetch_response(request, {row["partition"]: data}, **more)

    def _end(self, each: bytes, base: int) -> int:
        return base + int.from_bytes(each[23:27], "big") + 1


def read_all(brokers: ScriptedBrokers, end: int, start: int = 0, **options: Any) -> tuple[list[bytes | None], Reader]:
    with Reader(brokers.cluster(), {T0: start}, ends={T0: end}, options=ReaderOptions(**options)) as reader:
        return [record.value for record in reader.records()], reader


def requested_offsets(brokers: ScriptedBrokers, broker: int = 1) -> list[int]:
    return [
        row["fetch_offset"]
        for request in brokers[broker].requests_to(FETCH)
        for topic in request.body["topics"]
        for row in topic["partitions"]
    ]


def test_records_between_two_offsets() -> None:
    """Start and end may be within a batch: records outside are skipped, and the reader stops at the end."""
    brokers = ScriptedBrokers()
    brokers[1].always(FETCH, Log(batch(0, 5), batch(5, 5)).serve)
    values, reader = read_all(brokers, 8, start=2)
    assert values == [b"%d" % number for number in range(2, 8)]
    assert reader.positions == {T0: 8}
    assert reader.is_done


def test_all_fields_of_a_record() -> None:
    """The fields are offset, timestamp and its type, key, value and headers."""
    brokers = ScriptedBrokers()
    batch_bytes = build_batch(
        [Record(7, 123, b"k", None, (("h", b"1"), ("h", None)))],
        base_offset=7,
        timestamp_type=TimestampType.LOG_APPEND_TIME,
    )
    brokers[1].always(FETCH, Log(batch_bytes).serve)
    with Reader(brokers.cluster(), {T0: 7}, ends={T0: 8}) as reader:
        (record,) = reader.records()
    assert record == ("t", 0, 7, 123, TimestampType.LOG_APPEND_TIME, b"k", None, (("h", b"1"), ("h", None)))


def test_compaction_leaves_gaps() -> None:
    """The next offset is the one after a batch, even if compaction removed its last records or all of them."""
    brokers = ScriptedBrokers()
    thinned = filter_batch(batch(0, 10), lambda record: record.offset in (2, 5))
    empty = filter_batch(batch(10, 10), lambda record: False, keep_empty=True)
    assert thinned is not None
    assert empty is not None
    brokers[1].then(FETCH, Log(thinned, empty).serve)
    brokers[1].always(FETCH, lambda request: None)
    with Reader(brokers.cluster(), {T0: 0}) as reader:
        (read,) = reader.read()
        assert [record.offset for record in read.records] == [2, 5]
        assert reader.positions == {T0: 20}
        reader.read(0.1)
    assert requested_offsets(brokers) == [0, 20]


def test_committed_records_only() -> None:
    """Only the records of aborted transactions are omitted; markers are never returned."""
    brokers = ScriptedBrokers()
    transactional = {"transactional": True, "producer_epoch": 0, "base_sequence": 0}
    log = Log(
        batch(0, 2, producer_id=1, **transactional),
        batch(2, 2, producer_id=2, **transactional),
        batch(4, 1),
        end_marker(5, 1, committed=False),
        batch(6, 1, producer_id=1, **transactional),
        end_marker(7, 2, committed=True),
        end_marker(8, 1, committed=True),
    )
    aborted = [{"producer_id": 1, "first_offset": 0}]
    brokers[1].always(FETCH, partial(log.serve, aborted_transactions=aborted))
    values, reader = read_all(brokers, 9, isolation=Isolation.READ_COMMITTED)
    assert values == [b"2", b"3", b"4", b"6"]
    assert reader.positions == {T0: 9}
    assert brokers[1].requests_to(FETCH)[0].body["isolation_level"] == 1

    brokers[1].always(FETCH, partial(log.serve, aborted_transactions=None))
    assert read_all(brokers, 9)[0] == [b"0", b"1", b"2", b"3", b"4", b"6"]


def test_position_between_batches() -> None:
    """The position is exact between the batches of a response, so that no record is lost when the loop is left."""
    brokers = ScriptedBrokers()
    brokers[1].always(FETCH, Log(batch(0, 3), batch(3, 3), batch(6, 3)).serve)
    with Reader(brokers.cluster(), {T0: 0}, ends={T0: 8}) as reader:
        seen = []
        for read in reader.batches():
            seen.append((read.records[-1].offset, read.next_offset, reader.positions[T0], reader.is_done))
            if len(seen) == 2:
                break
        assert seen == [(2, 3, 3, False), (5, 6, 6, False)]
        assert [record.offset for record in reader.records()] == [6, 7]
        assert reader.is_done


def test_moved_leader() -> None:
    """The next fetch is sent to the new leader, and no record is returned twice."""
    brokers = ScriptedBrokers(2, (1,))

    def moved(request: Request) -> dict[str, Any]:
        brokers.move(0, 2)
        return fetch_response(request, {}, error=ErrorCode.NOT_LEADER_OR_FOLLOWER)

    brokers[1].then(FETCH, Log(batch(0, 3)).serve, moved)
    brokers[2].always(FETCH, Log(batch(0, 3), batch(3, 3)).serve)
    values, _ = read_all(brokers, 6)
    assert values == [b"%d" % number for number in range(6)]
    assert requested_offsets(brokers, 2) == [3]


def test_connection_lost_within_a_response() -> None:
    """The same offsets are fetched again on a new connection."""
    brokers = ScriptedBrokers()
    log = Log(batch(0, 5))

    def half(request: Request) -> None:
        request.connection.send(request.response_bytes(log.serve(request))[:50])
        request.connection.close()

    brokers[1].then(FETCH, half)
    brokers[1].always(FETCH, log.serve)
    assert read_all(brokers, 5)[0] == [b"%d" % number for number in range(5)]
    assert requested_offsets(brokers) == [0, 0]


def test_response_byte_by_byte() -> None:
    brokers = ScriptedBrokers()
    log = Log(batch(0, 5))

    def slowly(request: Request) -> None:
        for index, byte in enumerate(request.response_bytes(log.serve(request))):
            request.connection.send_later(index * 0.05, bytes((byte,)))

    brokers[1].always(FETCH, slowly)
    assert read_all(brokers, 5)[0] == [b"%d" % number for number in range(5)]


def test_damaged_batch_is_fetched_again() -> None:
    """After damage in transit another fetch succeeds; permanent damage is an error after the last intact record."""
    damaged = bytearray(batch(3, 3))
    damaged[-1] ^= 1
    brokers = ScriptedBrokers()
    brokers[1].then(FETCH, Log(batch(0, 3), bytes(damaged)).serve)
    brokers[1].always(FETCH, Log(batch(0, 3), batch(3, 3)).serve)
    assert read_all(brokers, 6)[0] == [b"%d" % number for number in range(6)]

    brokers = ScriptedBrokers()
    brokers[1].then(FETCH, Log(batch(0, 3)).serve)
    brokers[1].always(FETCH, Log(batch(0, 3), bytes(damaged)).serve)
    values = []
    with Reader(brokers.cluster(), {T0: 0}, ends={T0: 6}, options=ReaderOptions(patience_s=5)) as reader:
        with pytest.raises(GaveUp, match="offset 3 is damaged") as failure:
            values += [record.value for record in reader.records()]
        assert reader.positions == {T0: 3}
    assert isinstance(failure.value.__cause__, CorruptBatch)


def test_offset_out_of_range() -> None:
    """The error contains the valid range; with a reset policy, the reader continues at the start or the end."""

    def out_of_range(request: Request) -> dict[str, Any]:
        return fetch_response(request, {}, error=ErrorCode.OFFSET_OUT_OF_RANGE, log_start_offset=10, high_watermark=20)

    def offsets(request: Request) -> dict[str, Any]:
        (row,) = request.body["topics"][0]["partitions"]
        offset = {-2: 10, -1: 20}[row["timestamp"]]
        found = {"partition_index": 0, "error_code": 0, "timestamp": -1, "offset": offset}
        return {"throttle_time_ms": 0, "topics": [{"name": "t", "partitions": [found]}]}

    for choice, first in ((OutOfRange.FAIL, None), (OutOfRange.EARLIEST, 10), (OutOfRange.LATEST, 20)):
        brokers = ScriptedBrokers()
        brokers[1].always(LIST_OFFSETS, offsets)
        brokers[1].then(FETCH, out_of_range)
        brokers[1].always(FETCH, Log(batch(10, 10), batch(20, 2)).serve)
        with Reader(brokers.cluster(), {T0: 3}, options=ReaderOptions(out_of_range=choice)) as reader:
            if first is None:
                with pytest.raises(OffsetOutOfRange, match="offset 3 of t-0, which has offsets 10 to 20") as failure:
                    reader.read()
                assert failure.value.log_start_offset == 10
            else:
                assert reader.read()[0].records[0].offset == first


def test_permanent_error() -> None:
    """Final errors are raised at once, retriable ones after ``patience_s``."""
    brokers = ScriptedBrokers()
    brokers[1].always(FETCH, partial(fetch_response, records={}, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    with Reader(brokers.cluster(), {T0: 0}) as reader, pytest.raises(BrokerRefused, match="TOPIC_AUTHORIZATION"):
        reader.read()
    assert brokers.now_s == 1000

    brokers[1].always(FETCH, partial(fetch_response, records={}, error=ErrorCode.KAFKA_STORAGE_ERROR))
    with (
        Reader(brokers.cluster(), {T0: 0}, options=ReaderOptions(patience_s=9)) as reader,
        pytest.raises(GaveUp, match="KAFKA_STORAGE_ERROR"),
    ):
        reader.read(timeout_s=1000)
    assert 1009 < brokers.now_s < 1015


def test_leaders_and_partitions_are_read_in_turn() -> None:
    """A leader or partition that always has data does not starve the others."""
    brokers = ScriptedBrokers(2, (1, 2, 1))

    def endless(request: Request) -> dict[str, Any]:
        """Serve only the first requested partition, as a broker does if its response is full."""
        row = request.body["topics"][0]["partitions"][0]
        return fetch_response(request, {row["partition"]: batch(row["fetch_offset"], 1)})

    brokers[1].always(FETCH, endless)
    brokers[2].always(FETCH, endless)
    partitions = [TopicPartition("t", number) for number in range(3)]
    with Reader(brokers.cluster(), dict.fromkeys(partitions, 0)) as reader:
        for _ in range(60):
            assert reader.read()
        counts = sorted(reader.positions.values())
    assert counts[0] >= 10


def test_next_fetch_is_sent_while_a_response_is_parsed() -> None:
    """The reader sends the next fetch before it parses a response, so that both sides work at the same time."""
    brokers = ScriptedBrokers()
    brokers[1].always(FETCH, Log(batch(0, 3), batch(3, 3)).serve)
    with Reader(brokers.cluster(), {T0: 0}) as reader:
        reader.read()
        brokers.sleep(0)
        assert requested_offsets(brokers) == [0, 6]


def test_no_records() -> None:
    """The reader waits until its timeout, and returns an empty list."""
    brokers = ScriptedBrokers()
    brokers[1].always(
        FETCH, lambda request: request.connection.send_later(0.5, request.response_bytes(fetch_response(request, {})))
    )
    with Reader(brokers.cluster(), {T0: 0}) as reader:
        assert reader.read(timeout_s=3) == []
    assert brokers.now_s == pytest.approx(1003, abs=0.6)


def test_old_broker() -> None:
    """The reader uses the older API versions of an old broker."""

    brokers = ScriptedBrokers()
    brokers[1].always(API_VERSIONS, lambda request: versions(fetch=4, metadata=1))
    brokers[1].always(FETCH, Log(batch(0, 3)).serve)
    assert read_all(brokers, 3)[0] == [b"0", b"1", b"2"]
    assert brokers[1].requests_to(FETCH)[0].version == 4


def test_batch_truncated_by_an_old_broker() -> None:
    """A batch that never fits is an error, not an endless loop."""
    brokers = ScriptedBrokers()
    brokers[1].always(FETCH, lambda request: fetch_response(request, {0: batch(0, 3)[:-2]}))
    with Reader(brokers.cluster(), {T0: 0}) as reader, pytest.raises(Exception, match="partition_size_max"):
        reader.read()
