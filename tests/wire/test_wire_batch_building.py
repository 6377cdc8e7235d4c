"""Building batches record by record, and rewriting them without some of their records."""

from __future__ import annotations

import pytest
from kafka.record.default_records import DefaultRecordBatch as PeerBatch

from kreplica.errors import ProtocolError
from kreplica.wire.batch_building import NEXT_OFFSET, BatchBuilder, build_batch, filter_batch, seal
from kreplica.wire.batches import HEADER_SIZE, TimestampType, parse_header, verify_crc
from kreplica.wire.compression import Codec
from kreplica.wire.records import Record, iter_records

RECORDS = [
    Record(100, 5_000, b"a", b"1", (("h", b"x"),)),
    Record(101, 9_000, b"b", b"2"),
    Record(102, 7_000, b"a", None),
    Record(103, 6_000, b"c", b"4"),
]


def batch_of(codec: Codec = Codec.NONE) -> bytes:
    """Return a transactional batch of the four records, as stored in a log."""
    return build_batch(
        RECORDS,
        codec=codec,
        base_offset=100,
        leader_epoch=8,
        producer_id=7,
        producer_epoch=3,
        base_sequence=41,
        transactional=True,
    )


def test_records_are_added_until_the_batch_is_full() -> None:
    """Offsets are consecutive, and the uncompressed size is known before each addition."""
    builder = BatchBuilder()
    assert builder.size == HEADER_SIZE
    assert [builder.append(10 + index, b"k", bytes(100)) for index in range(20)] == list(range(20))
    batch = builder.build()
    assert (builder.record_count, builder.size) == (20, len(batch))
    assert parse_header(batch).max_timestamp == 29


def test_records_without_an_offset_are_consecutive() -> None:
    """Explicit offsets may have gaps."""
    records = [Record(NEXT_OFFSET, 0, None, b"x"), Record(7, 0, None, b"y"), Record(NEXT_OFFSET, 0, None, b"z")]
    assert [record.offset for record in iter_records(build_batch(records, base_offset=5))] == [5, 7, 8]


def test_offsets_must_increase() -> None:
    """A repeated offset, or one before the batch, is refused, and the batch is not changed."""
    builder = BatchBuilder(base_offset=10)
    for offset in (9, -5):
        with pytest.raises(ValueError, match="not larger than"):
            builder.append(0, None, b"", offset=offset)
    builder.append(0, None, b"", offset=12)
    with pytest.raises(ValueError, match="offset 12 is not larger than 12"):
        builder.append(0, None, b"", offset=12)
    assert (builder.record_count, parse_header(builder.build()).last_offset) == (1, 12)


def test_batch_without_records_is_not_built() -> None:
    with pytest.raises(ValueError, match="no records"):
        build_batch([])


@pytest.mark.parametrize("codec", list(Codec))
def test_compaction_keeps_fields_of_remaining_records(codec: Codec) -> None:
    """Remaining records keep offset, time and headers; the batch keeps its offset range and its producer's sequence."""
    batch = batch_of(codec)
    filtered = filter_batch(batch, lambda record: record.offset in (100, 102))
    assert filtered is not None
    assert list(iter_records(filtered)) == [RECORDS[0], RECORDS[2]]
    before, after = parse_header(batch), parse_header(filtered)
    assert verify_crc(filtered, after)
    assert after == before._replace(length=len(filtered) - 12, crc=after.crc, record_count=2, max_timestamp=7_000)
    assert (after.last_offset, after.last_sequence) == (103, 44)
    assert [record.offset for record in iter_records(filter_batch(filtered, lambda record: True) or b"")] == [100, 102]


def test_compaction_without_removals_changes_nothing() -> None:
    """The result is the same bytes, without those that follow the batch."""
    batch = batch_of(Codec.ZSTD)
    assert filter_batch(memoryview(batch + b"next"), lambda record: True) == batch


def test_compaction_drops_a_batch_or_keeps_it_empty() -> None:
    """A batch without records is removed, unless its producer's last sequence must be kept (KIP-98)."""
    batch = batch_of(Codec.LZ4)
    assert filter_batch(batch, lambda record: False) is None
    emptied = filter_batch(batch, lambda record: False, keep_empty=True)
    assert emptied is not None
    header = parse_header(emptied)
    assert (len(emptied), header.record_count, header.codec) == (HEADER_SIZE, 0, Codec.NONE)
    assert (header.base_offset, header.last_offset, header.last_sequence) == (100, 103, 44)
    assert (header.producer_id, header.producer_epoch, header.is_transactional) == (7, 3, True)
    assert (header.base_timestamp, header.max_timestamp, header.partition_leader_epoch) == (9_000, 9_000, 8)
    assert verify_crc(emptied, header)
    assert list(iter_records(emptied)) == []
    assert filter_batch(emptied, lambda record: True) is None
    assert filter_batch(emptied, lambda record: True, keep_empty=True) == emptied


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_delete_horizon_keeps_record_timestamps(codec: Codec) -> None:
    """A batch stores its delete horizon in place of its base timestamp (KIP-534); once set, it does not change."""
    first = filter_batch(batch_of(codec), lambda record: record.offset != 101, delete_horizon_ms=2**41)
    assert first is not None
    header = parse_header(first)
    assert (header.has_delete_horizon, header.base_timestamp, header.max_timestamp) == (True, 2**41, 7_000)
    assert verify_crc(first, header)
    kept = [RECORDS[0], RECORDS[2], RECORDS[3]]
    assert list(iter_records(first)) == kept
    if codec is Codec.NONE:
        assert [(record.offset, record.timestamp) for record in PeerBatch(bytearray(first))] == [
            (record.offset, record.timestamp_ms) for record in kept
        ]
    again = filter_batch(first, lambda record: record.key != b"c", delete_horizon_ms=2**42)
    assert again is not None
    assert parse_header(again).base_timestamp == 2**41
    assert list(iter_records(again)) == kept[:2]
    assert filter_batch(first, lambda record: True, delete_horizon_ms=2**42) == first


def test_delete_horizon_without_removals() -> None:
    """The delete horizon is set when a cleaner first sees the batch, even if no record is removed."""
    rewritten = filter_batch(batch_of(), lambda record: True, delete_horizon_ms=50)
    assert rewritten is not None
    assert parse_header(rewritten).has_delete_horizon
    assert list(iter_records(rewritten)) == RECORDS


def test_append_time_survives_compaction() -> None:
    """With LogAppendTime, the remaining records keep the time at which they were appended."""
    batch = build_batch(RECORDS, base_offset=100, timestamp_type=TimestampType.LOG_APPEND_TIME)
    filtered = filter_batch(batch, lambda record: record.offset == 100, delete_horizon_ms=1)
    assert filtered is not None
    assert [record.timestamp_ms for record in iter_records(filtered)] == [9_000]
    assert parse_header(filtered).timestamp_type is TimestampType.LOG_APPEND_TIME


def test_malformed_records_stop_compaction() -> None:
    """Compaction of a batch with malformed records raises ProtocolError."""
    batch = batch_of()
    bad = seal(parse_header(batch), batch[HEADER_SIZE:-1])
    with pytest.raises(ProtocolError):
        filter_batch(bad, lambda record: True)
