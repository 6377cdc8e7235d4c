"""Decoding record batches to Arrow columns gives the same records and errors as reading record by record, both with and
without the kernel.
"""

from __future__ import annotations

import datetime
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kreplica.errors import ProtocolError
from kreplica.spark.source.decoding import DecodedRecords, decode, open_section
from kreplica.transfer.record_columns import HEADERS_TYPE
from kreplica.wire import kernels
from kreplica.wire.batch_building import BatchBuilder, seal
from kreplica.wire.batches import HEADER_SIZE, TimestampType, parse_header
from kreplica.wire.compression import Codec
from kreplica.wire.records import Headers, Record, iter_records
from tests.support.kernels import both, needs_kernels

NULLABLE = st.none() | st.binary(max_size=300)
HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3).map(tuple)
ROW = st.tuples(st.integers(-1, 1 << 62), NULLABLE, NULLABLE, HEADERS, st.integers(1, 20_000))
BATCH = st.tuples(
    st.lists(ROW, min_size=1, max_size=20), st.sampled_from(list(Codec)), st.sampled_from(list(TimestampType))
)


def build(rows, base_offset=0, **options):
    builder = BatchBuilder(base_offset=base_offset, **options)
    offset = base_offset - 1
    for timestamp_ms, key, value, headers, step in rows:
        offset += step
        builder.append(timestamp_ms, key, value, headers, offset=offset)
    return builder.build()


def decode_batches(*batches: bytes, with_headers: bool = True) -> DecodedRecords:
    """Decode with and without the kernel, check that the columns or the errors are the same, and return the columns."""
    sections = [open_section(parse_header(batch), memoryview(batch)) for batch in batches]
    both(lambda: lists_of(decode(sections, with_headers=with_headers)))
    return decode(sections, with_headers=with_headers)


def lists_of(found: DecodedRecords) -> list[object]:
    for column in (found.keys, found.values):
        column.validate(full=True)
    numbers = [column.tolist() for column in (found.offsets, found.timestamps_ms, found.timestamp_types)]
    return [*numbers, found.keys.to_pylist(), found.values.to_pylist(), found.headers and found.headers.to_pylist()]


def rows_of(found: DecodedRecords) -> list[Record]:
    headers = found.headers.to_pylist() if found.headers is not None else [None] * len(found.offsets)
    return [
        Record(offset, time, key, value, tuple((each["key"], each["value"]) for each in row or ()))
        for offset, time, key, value, row in zip(
            found.offsets.tolist(), found.timestamps_ms.tolist(), found.keys.to_pylist(), found.values.to_pylist(),
            headers, strict=True,
        )
    ]  # fmt: skip


@settings(max_examples=150)
@given(st.lists(BATCH, min_size=1, max_size=4))
def test_columns_equal_the_records(batches) -> None:
    """Columns equal the records read one by one, with several batches, codecs, gaps, nulls, headers and types."""
    encoded_batches, next_offset = [], 0
    for rows, codec, timestamp_type in batches:
        batch = build(rows, next_offset, codec=codec, timestamp_type=timestamp_type)
        next_offset = parse_header(batch).next_offset
        encoded_batches.append(batch)
    found = decode_batches(*encoded_batches)
    assert rows_of(found) == [record for batch in encoded_batches for record in iter_records(batch)]
    kinds = [int(parse_header(batch).timestamp_type) for batch in encoded_batches for _ in iter_records(batch)]
    assert found.timestamp_types.tolist() == kinds
    assert found.keys.type == found.values.type == pa.binary()
    assert found.headers is not None
    assert found.headers.type == HEADERS_TYPE
    found.keys.validate(full=True)
    found.values.validate(full=True)


def test_range_of_offsets() -> None:
    """The first batch may start before the requested range, and the last one may end after it."""
    batch = build([(10 + number, b"k", b"%d" % number, (), 2) for number in range(10)], 100)
    found = decode_batches(batch, with_headers=False)
    assert found.headers is None
    assert found.offsets.tolist() == list(range(101, 121, 2))
    part = found.between(104, 110)
    assert part.offsets.tolist() == [105, 107, 109]
    assert part.values.to_pylist() == [b"2", b"3", b"4"]
    assert part.timestamps_ms.tolist() == [12, 13, 14]
    assert found.between(0, 1000) is found
    assert len(found.between(500, 600).offsets) == 0


def test_batches_without_records() -> None:
    """Empty batches, which compaction may leave, contribute no rows."""
    full = build([(1, None, b"v", (("h", b"x"),), 1)])
    header = parse_header(full)
    empty = seal(header._replace(record_count=0, attributes=0), b"")
    assert rows_of(decode_batches(empty)) == []
    assert rows_of(decode_batches(empty, full, empty)) == [Record(0, 1, None, b"v", (("h", b"x"),))]


def test_large_numbers() -> None:
    """Sizes, offset deltas and timestamp deltas are decoded for varints of every length."""
    now = int(datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC).timestamp() * 1000)
    sizes = [0, 1, 63, 64, 8191, 8192, 1_048_575, 1_048_576]
    rows = [(now * (-1) ** number, b"k" * size, b"v" * size, (), 100_000) for number, size in enumerate(sizes)]
    rows[1] = (-1, *rows[1][1:])
    batch = build(rows)
    assert rows_of(decode_batches(batch)) == list(iter_records(batch))


def outcome(read, batch):
    try:
        return read(batch)
    except ProtocolError as error:
        return str(error)


def as_text(headers: Headers) -> Headers:
    return tuple((name.encode(errors="surrogateescape").decode(errors="replace"), data) for name, data in headers)


def test_damaged_records_raise_the_same_errors() -> None:
    """For changed bytes, both decoders return the same records, or raise ProtocolError with the same text."""
    batch = build([(number, b"key", b"value", (("h", b"x"),) if number % 3 == 0 else (), 1) for number in range(9)])
    random, refused = Random(1), 0
    for _ in range(2000):
        damaged = bytearray(batch)
        for _ in range(random.randint(1, 3)):
            damaged[random.randrange(HEADER_SIZE, len(batch))] = random.choice(
                (0, 1, 2, 0x7F, 0x80, 0xFF, random.randrange(256))
            )
        expected = outcome(lambda batch: list(iter_records(batch)), bytes(damaged))
        found = outcome(lambda batch: rows_of(decode_batches(batch)), bytes(damaged))
        if isinstance(expected, str):
            refused += 1
            assert found == expected
        else:
            assert found == [each._replace(headers=as_text(each.headers)) for each in expected]
    assert refused > 1000


def many_batches(random: Random, count: int, sizes: tuple[int, ...]) -> list[bytes]:
    """Return many batches of about ten records each."""
    batches, next_offset = [], 0
    for _ in range(count):
        rows = [(random.randrange(1 << 41), random.choice((None, b"key")), b"v" * random.choice(sizes), (), 1)
                for _ in range(random.choice((1, 9, 10, 10, 11)))]  # fmt: skip
        batches.append(build(rows, next_offset))
        next_offset += len(rows)
    return batches


@pytest.mark.parametrize("sizes", [(0, 10, 50, 60, 70, 1000), (5, 8180, 8200)])
def test_many_batches_in_parallel(sizes: tuple[int, ...]) -> None:
    """Small records of many batches are decoded in parallel; the result is the same."""
    batches = many_batches(Random(1), 200, sizes)
    found = decode_batches(*batches)
    assert rows_of(found) == [record for batch in batches for record in iter_records(batch)]
    found.values.validate(full=True)


def test_damaged_record_among_many_batches() -> None:
    """The result is the same records or the same error as for the damaged batch alone."""
    random, refused = Random(2), 0
    batches = many_batches(random, 100, (0, 10, 70))
    for _ in range(300):
        index = random.randrange(len(batches))
        damaged = bytearray(batches[index])
        damaged[random.randrange(HEADER_SIZE, len(damaged))] = random.randrange(256)
        expected = outcome(lambda batch: list(iter_records(batch)), bytes(damaged))
        found = outcome(
            lambda batch, index=index: rows_of(decode_batches(*batches[:index], batch, *batches[index + 1 :])),
            bytes(damaged),
        )
        if isinstance(expected, str):
            refused += 1
            assert found == expected
        else:
            first = sum(len(list(iter_records(batch))) for batch in batches[:index])
            assert found[first : first + len(expected)] == [
                each._replace(headers=as_text(each.headers)) for each in expected
            ]
    assert 50 < refused < 250


def test_overflowing_sizes() -> None:
    """A value size of nearly 2**63 bytes, which would overflow, is rejected."""
    batch = bytearray(build([(0, None, b"v" * 20, (), 1)]))
    huge = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"
    index = batch.index(b"v" * 20) - 1
    batch[index : index + len(huge)] = huge
    with pytest.raises(ProtocolError):
        decode_batches(bytes(batch))


@needs_kernels
def test_kernel_decodes_common_batches() -> None:
    """The kernel decodes nulls, headers, gaps, codecs and both timestamp types, so the slower code is not needed."""
    rows = [(5, None, b"v", (), 1), (9, b"k" * 70, None, (("h", b"x"),), 3), (-1, b"", b"w" * 9000, (), 900)]
    batches = [build(rows, codec=codec, timestamp_type=kind) for codec in Codec for kind in TimestampType]
    sections = [open_section(parse_header(batch), memoryview(batch)) for batch in batches]
    found = kernels.decode_columns(sections)
    assert found[1] == 3 * len(batches)
    assert found[7] == len(batches)


@needs_kernels
def test_kernel_declines_inconsistent_sections() -> None:
    """Sections whose headers do not match their records, or that are too large together, need the Python code."""
    batch = build([(1, b"k", b"v", (), 1)] * 3)
    header, records = open_section(parse_header(batch), memoryview(batch))
    good = (header, records)
    for section in (
        (header._replace(record_count=2), records),
        (header._replace(record_count=4), records),
        (header._replace(record_count=-1), records),
        (header._replace(record_count=1 << 40), records),
        (header._replace(last_offset_delta=1), records),
        (header._replace(base_offset=2**63 - 2), records),
        (header._replace(base_timestamp=2**63 - 1), bytes(records).replace(b"\x00\x00\x00\x02k", b"\x00\x02\x00\x02k")),
        (header, records[:-1]),
        (header, bytes(records) + b"\x00"),
    ):
        assert kernels.decode_columns([good, section, good]) is None
    assert kernels.decode_columns([(header._replace(record_count=0), b"")] * 2)[:2] == (bytearray(8), 0)
    assert kernels.decode_columns([])[:2] == (bytearray(8), 0)


@needs_kernels
@pytest.mark.parametrize(
    "sections",
    [
        5,
        [5],
        [(5, b"")],
        [((), b"")],
        [(("text",) * 13, b"")],
        [((0,) * 13, 5)],
        [((2**64,) * 13, b"")],
        [((0,) * 13,)],
    ],
    ids=repr,
)
def test_invalid_arguments_of_the_kernel(sections: object) -> None:
    """Invalid arguments raise errors and do not crash the process."""
    with pytest.raises((TypeError, OverflowError, IndexError, SystemError)):
        kernels.decode_columns(sections)
