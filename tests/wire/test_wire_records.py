"""Records inside batches: round trips, other libraries' batches, timestamps, and malformed bytes."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as PeerBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as PeerBuilder
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as OtherPeerBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as OtherPeerBuilder

from kreplica.errors import ProtocolError
from kreplica.wire.batch_building import build_batch, encode_record, seal
from kreplica.wire.batches import BatchHeader, TimestampType, check_batch, parse_header
from kreplica.wire.compression import Codec
from kreplica.wire.control_records import EndMarker, build_end_marker, parse_end_marker
from kreplica.wire.records import Record, find_timestamp, iter_keys, iter_records, max_timestamp_record

BYTES = st.none() | st.binary(max_size=200)
TIMESTAMPS = st.integers(-1, 2**62)
HEADERS = st.lists(st.tuples(st.text(max_size=70), BYTES), max_size=3).map(tuple)


@st.composite
def records_with_gaps(draw: st.DrawFn) -> list[Record]:
    """Strategy for records at increasing offsets, with gaps as after compaction."""
    offset, records = draw(st.integers(0, 2**40)), []
    for gap in draw(st.lists(st.integers(1, 200), min_size=1, max_size=12)):
        records.append(Record(offset, draw(TIMESTAMPS), draw(BYTES), draw(BYTES), draw(HEADERS)))
        offset += gap
    return records


PLAIN = [
    Record(0, 1_700_000_000_000, b"key", b"value", (("name", b"content"), ("none", None), ("", b""))),
    Record(1, 1_700_000_000_500, None, b"v" * 3_000),
    Record(2, 1_700_000_000_200, b"", None),
    Record(3, 1_699_999_999_900, b"k" * 100, b"", (("größe", b"\x00"),)),
]


@given(records=records_with_gaps(), codec=st.sampled_from(list(Codec)))
@settings(max_examples=150)
def test_record_round_trip(records: list[Record], codec: Codec) -> None:
    """Every field is restored, with any codec and with any gaps between offsets."""
    batch = build_batch(records, codec=codec, base_offset=records[0].offset)
    for buffer in (batch, bytearray(batch), memoryview(batch + b"the next batch")):
        assert list(iter_records(buffer)) == records
    assert list(iter_keys(batch)) == [(record.offset, record.key) for record in records]


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("builder", [PeerBuilder, OtherPeerBuilder])
def test_batches_of_python_clients_are_read(codec: Codec, builder: Callable[..., Any]) -> None:
    """Batches of aiokafka and kafka-python are valid and contain the sent records."""
    if builder is OtherPeerBuilder and codec in (Codec.SNAPPY, Codec.ZSTD):
        codec = Codec.NONE  # kafka-python lacks the libraries for the other codecs here
    peer = builder(2, codec, True, 5, 6, 7, 1 << 20)
    for record in PLAIN:
        peer.append(record.offset, record.timestamp_ms, record.key, record.value, list(record.headers))
    batch = bytes(peer.build())
    header = check_batch(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 6, 7)
    assert header.is_transactional
    assert list(iter_records(batch)) == PLAIN


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("reader", [PeerBatch, OtherPeerBatch])
def test_python_clients_read_batches(codec: Codec, reader: Callable[..., Any]) -> None:
    """aiokafka and kafka-python accept the CRC, and read the same records."""
    if reader is OtherPeerBatch and codec in (Codec.SNAPPY, Codec.ZSTD):
        codec = Codec.NONE
    batch = build_batch(PLAIN, codec=codec, producer_id=5, producer_epoch=6, base_sequence=7)
    peer = reader(bytearray(batch))
    assert peer.validate_crc()
    assert [
        Record(record.offset, record.timestamp, record.key, record.value, tuple(record.headers)) for record in peer
    ] == PLAIN


def test_extreme_numbers() -> None:
    """The lowest and highest 64-bit timestamps and the largest offset delta are restored."""
    records = [Record(0, -(2**63), None, b""), Record(2**31 - 1, -1, None, b"")]
    assert list(iter_records(build_batch(records))) == records
    records = [Record(0, 2**63 - 1, None, b""), Record(1, 0, None, b""), Record(2, 2**63 - 64, None, b"")]
    assert list(iter_records(build_batch(records))) == records


def test_header_names_that_are_not_utf8() -> None:
    """Such a record can be read, and keeps the bytes of the header name."""
    record = Record(0, 0, None, b"", (("caf\udce9", b"x"),))
    batch = build_batch([record])
    assert b"caf\xe9" in batch
    assert list(iter_records(batch)) == [record]


def test_offset_for_a_timestamp_is_exact() -> None:
    """The result is the first record that is not older, even if it is not the first of its batch."""
    batch = build_batch(PLAIN, codec=Codec.GZIP)
    assert find_timestamp(batch, 0) == (0, 1_700_000_000_000)
    assert find_timestamp(batch, 1_700_000_000_001) == (1, 1_700_000_000_500)
    assert find_timestamp(batch, 1_700_000_000_100, start_offset=2) == (2, 1_700_000_000_200)
    assert find_timestamp(batch, 1_700_000_000_501) is None
    assert find_timestamp(batch, 0, start_offset=4) is None


def test_offset_of_the_max_timestamp() -> None:
    """ListOffsets returns the earliest record with the highest timestamp (KIP-734)."""
    records = [Record(index, time, None, b"") for index, time in enumerate([5, 9, 3, 9])]
    batch = build_batch(records)
    assert max_timestamp_record(batch) == (1, 9)
    assert max_timestamp_record(batch, start_offset=2) == (3, 9)
    assert max_timestamp_record(batch, start_offset=4) is None
    by_append = build_batch(records, timestamp_type=TimestampType.LOG_APPEND_TIME)
    assert max_timestamp_record(by_append) == (0, 9)
    assert find_timestamp(by_append, 9) == (0, 9)


def test_transaction_markers() -> None:
    """A control batch states whether the transaction was committed or aborted."""
    for committed in (True, False):
        marker = EndMarker(committed, coordinator_epoch=12)
        batch = build_end_marker(marker, producer_id=7, producer_epoch=1, timestamp_ms=99)
        (record,) = iter_records(batch)
        assert (record.key, record.value) == (bytes((0, 0, 0, committed)), bytes((0, 0, 0, 0, 0, 12)))
        assert parse_end_marker(record) == marker
        peer = OtherPeerBatch(bytearray(batch))
        assert (peer.is_control_batch, peer.is_transactional, peer.validate_crc()) == (True, True, True)
        assert (next(iter(peer)).commit, parse_header(batch).base_sequence) == (committed, -1)


def test_other_control_records_are_not_markers() -> None:
    """Unknown control records are ignored; truncated markers are errors."""
    assert parse_end_marker(Record(0, 0, b"\x00\x00\x00\x02", b"")) is None
    for key, value in ((None, None), (b"\x00\x00\x00", b""), (b"\x00\x00\x00\x01", b"\x00\x00\x00\x00\x00")):
        with pytest.raises(ProtocolError, match=r"Record\(offset=5\)"):
            parse_end_marker(Record(5, 0, key, value))


def batch_around(records: bytes, **fields: int) -> bytes:
    """Return a batch with a valid CRC around arbitrary bytes."""
    header = BatchHeader(0, 0, -1, 2, 0, 0, 0, 0, 0, -1, -1, -1, 1)
    return seal(header._replace(**fields), records)


@pytest.mark.parametrize(
    ("records", "fields", "path"),
    [
        (b"", {}, "record_count"),
        (b"\x0c" + bytes(6), {"record_count": -1}, "record_count"),
        (b"\x0c" + bytes(6), {"record_count": 2}, "record_count"),
        (b"\x0b" + bytes(8), {}, r"records\[0\].length"),  # a negative length
        (b"\x08" + bytes(8), {}, r"records\[0\].length"),  # too small for its own fields
        (b"\x7e" + bytes(8), {}, r"records\[0\].length"),  # beyond the end
        (b"\xff" * 9, {}, r"records\[0\].length"),  # a varint of too many bytes
        (b"\x10\x00" + b"\xff" * 9, {}, r"records\[0\].length"),
        (b"\x1e\x00" + b"\xff" * 9 + b"\x02" + bytes(4), {}, "overlong varint"),  # 65 bits
        (b"\x0c\x00\x00\x01" + bytes(3), {}, r"offset_delta"),  # -1
        (b"\x0c\x00\x00\x02" + bytes(3), {}, r"offset_delta"),  # beyond the last
        ((b"\x0c" + bytes(6)) * 2, {"record_count": 2, "last_offset_delta": 1}, r"records\[1\].offset_delta"),
        (b"\x0c\x00\x02\x00" + bytes(3), {"base_timestamp": 2**63 - 1}, "timestamp_delta"),
        (b"\x0c\x00\x00\x00\x03" + bytes(2), {}, r"key"),  # length -2
        (b"\x0c\x00\x00\x00\x0a" + bytes(2), {}, r"key"),
        (b"\x0c\x00\x00\x00\x00\x0a" + bytes(1), {}, r"value"),
        (b"\x0e\x00\x00\x00\x00\x02v" + b"\x80", {}, r"headers"),
        (b"\x0c" + bytes(5) + b"\x02", {}, r"headers"),  # one header in no bytes
        (b"\x0c" + bytes(5) + b"\x01", {}, r"headers"),  # -1 headers
        (b"\x10" + bytes(5) + b"\x02\x01\x00", {}, r"headers.key"),  # no name
        (b"\x10" + bytes(5) + b"\x02\x00\x02", {}, r"headers.value"),
        (b"\x0e" + bytes(7), {}, r"length"),  # an extra byte after the last field
        (b"\x0c" + bytes(6) + b"\x00", {}, "after the last record"),
        (b"\x0c" + bytes(6), {"attributes": 7}, "codec 7"),
        (b"\x0c" + bytes(6), {"attributes": 4}, "zstd"),
    ],
)
def test_malformed_records_with_a_valid_crc(records: bytes, fields: dict[str, int], path: str) -> None:
    """Malformed records raise an error that names the invalid field."""
    with pytest.raises(ProtocolError, match=path):
        list(iter_records(batch_around(records, **fields)))


def test_smallest_record() -> None:
    """Each malformed batch of the previous test differs from this valid one in one place."""
    assert list(iter_records(batch_around(b"\x0c" + bytes(6)))) == [Record(0, 0, b"", b"")]


def test_truncated_batch_is_refused_at_any_byte() -> None:
    batch = build_batch(PLAIN)
    for size in range(len(batch)):
        with pytest.raises(ProtocolError):
            list(iter_records(batch[:size]))


def test_records_above_the_limit_are_refused() -> None:
    """The size limit of decompressed records also applies to uncompressed ones."""
    for codec in Codec:
        batch = build_batch([Record(0, 0, None, bytes(10_000))], codec=codec)
        with pytest.raises(ProtocolError, match="more than 9000 bytes"):
            list(iter_records(batch, decompressed_size_max=9_000))


def test_mutated_records_raise_only_the_typed_error() -> None:
    """With a valid CRC, any bytes are read as records at increasing offsets, or raise ProtocolError."""
    generator = random.Random(11)
    section = b"".join(encode_record(index, index, b"k%d" % index, b"v" * 30, (("h", b"x"),)) for index in range(4))
    refused = 0
    for _ in range(20_000):
        mutated = bytearray(section)
        for _ in range(generator.randint(1, 3)):
            mutated[generator.randrange(len(mutated))] = generator.randrange(256)
        batch = batch_around(bytes(mutated), record_count=4, last_offset_delta=3)
        try:
            records = list(iter_records(batch))
        except ProtocolError:
            refused += 1
        else:
            assert [record.offset for record in records] == [0, 1, 2, 3]
    assert 2_000 < refused < 20_000


@given(section=st.binary(max_size=60), count=st.integers(-1, 9), delta=st.integers(-1, 9), codec=st.integers(0, 7))
@settings(max_examples=400)
def test_any_bytes_as_records(section: bytes, count: int, delta: int, codec: int) -> None:
    """Random bytes raise only the typed error."""
    batch = batch_around(section, record_count=count, last_offset_delta=delta, attributes=codec)
    for read in (iter_records, iter_keys):
        try:
            assert len(list(read(batch))) == count
        except ProtocolError:
            pass
