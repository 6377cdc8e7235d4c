"""Record batches decode to the same Arrow columns as to records; errors name the position."""

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
from kreplica.wire.batch_building import BatchBuilder, seal
from kreplica.wire.batches import HEADER_SIZE, TimestampType, parse_header
from kreplica.wire.compression import Codec
from kreplica.wire.records import Headers, Record, iter_records

NULLABLE = st.none() | st.binary(max_size=300)
HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3).map(tuple)
ROW = st.tuples(st.integers(-1, 1 << 62), NULLABLE, NULLABLE, HEADERS, st.integers(1, 20_000))
BATCH = st.tuples(
    st.lists(ROW, min_size=1, max_size=20), st.sampled_from(list(Codec)), st.sampled_from(list(TimestampType))
)


def built(rows, base_offset=0, **options):
    builder = BatchBuilder(base_offset=base_offset, **options)
    offset = base_offset - 1
    for timestamp_ms, key, value, headers, step in rows:
        offset += step
        builder.append(timestamp_ms, key, value, headers, offset=offset)
    return builder.build()


def decoded(*batches: bytes, with_headers: bool = True) -> DecodedRecords:
    sections = [open_section(parse_header(batch), memoryview(batch)) for batch in batches]
    return decode(sections, with_headers=with_headers)


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
    """They equal records read one by one: several batches, codecs, gaps, nulls, headers, both timestamp types."""
    made, next_offset = [], 0
    for rows, codec, timestamp_type in batches:
        batch = built(rows, next_offset, codec=codec, timestamp_type=timestamp_type)
        next_offset = parse_header(batch).next_offset
        made.append(batch)
    found = decoded(*made)
    assert rows_of(found) == [record for batch in made for record in iter_records(batch)]
    kinds = [int(parse_header(batch).timestamp_type) for batch in made for _ in iter_records(batch)]
    assert found.timestamp_types.tolist() == kinds
    assert found.keys.type == found.values.type == pa.binary()
    assert found.headers is not None
    assert found.headers.type == HEADERS_TYPE
    found.keys.validate(full=True)
    found.values.validate(full=True)


def test_a_range_of_offsets() -> None:
    """The first batch may start before the range, the last may end after it."""
    batch = built([(10 + number, b"k", b"%d" % number, (), 2) for number in range(10)], 100)
    found = decoded(batch, with_headers=False)
    assert found.headers is None
    assert found.offsets.tolist() == list(range(101, 121, 2))
    part = found.between(104, 110)
    assert part.offsets.tolist() == [105, 107, 109]
    assert part.values.to_pylist() == [b"2", b"3", b"4"]
    assert part.timestamps_ms.tolist() == [12, 13, 14]
    assert found.between(0, 1000) is found
    assert len(found.between(500, 600).offsets) == 0


def test_batches_without_records() -> None:
    """Compaction leaves empty batches; they contribute no rows."""
    full = built([(1, None, b"v", (("h", b"x"),), 1)])
    header = parse_header(full)
    empty = seal(header._replace(record_count=0, attributes=0), b"")
    assert rows_of(decoded(empty)) == []
    assert rows_of(decoded(empty, full, empty)) == [Record(0, 1, None, b"v", (("h", b"x"),))]


def test_large_numbers() -> None:
    """Varints of every length in sizes, offsets and timestamp differences."""
    now = int(datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC).timestamp() * 1000)
    sizes = [0, 1, 63, 64, 8191, 8192, 1_048_575, 1_048_576]
    rows = [(now * (-1) ** number, b"k" * size, b"v" * size, (), 100_000) for number, size in enumerate(sizes)]
    rows[1] = (-1, *rows[1][1:])
    batch = built(rows)
    assert rows_of(decoded(batch)) == list(iter_records(batch))


def outcome(read, batch):
    try:
        return read(batch)
    except ProtocolError as error:
        return str(error)


def as_text(headers: Headers) -> Headers:
    return tuple((name.encode(errors="surrogateescape").decode(errors="replace"), data) for name, data in headers)


def test_a_malformed_record_is_named() -> None:
    """Any changed byte causes a ProtocolError or valid records, but no other error."""
    batch = built([(number, b"key", b"value", (("h", b"x"),) if number % 3 == 0 else (), 1) for number in range(9)])
    random, refused = Random(1), 0
    for _ in range(2000):
        damaged = bytearray(batch)
        for _ in range(random.randint(1, 3)):
            damaged[random.randrange(HEADER_SIZE, len(batch))] = random.choice(
                (0, 1, 2, 0x7F, 0x80, 0xFF, random.randrange(256))
            )
        wanted = outcome(lambda batch: list(iter_records(batch)), bytes(damaged))
        found = outcome(lambda batch: rows_of(decoded(batch)), bytes(damaged))
        if isinstance(wanted, str):
            refused += 1
            assert found == wanted
        else:
            assert found == [each._replace(headers=as_text(each.headers)) for each in wanted]
    assert refused > 1000


def many_batches(random: Random, count: int, sizes: tuple[int, ...]) -> list[bytes]:
    """Return batches as producers of small batches write them."""
    made, next_offset = [], 0
    for _ in range(count):
        rows = [(random.randrange(1 << 41), random.choice((None, b"key")), b"v" * random.choice(sizes), (), 1)
                for _ in range(random.choice((1, 9, 10, 10, 11)))]  # fmt: skip
        made.append(built(rows, next_offset))
        next_offset += len(rows)
    return made


@pytest.mark.parametrize("sizes", [(0, 10, 50, 60, 70, 1000), (5, 8180, 8200)])
def test_many_batches_in_parallel(sizes: tuple[int, ...]) -> None:
    """Records are decoded in parallel over batches, except records that are too long."""
    made = many_batches(Random(1), 200, sizes)
    found = decoded(*made)
    assert rows_of(found) == [record for batch in made for record in iter_records(batch)]
    found.values.validate(full=True)


def test_a_malformed_record_among_many_batches() -> None:
    """The error is the same as for the batch alone, and readable records are the same."""
    random, refused = Random(2), 0
    made = many_batches(random, 100, (0, 10, 70))
    for _ in range(300):
        at = random.randrange(len(made))
        damaged = bytearray(made[at])
        damaged[random.randrange(HEADER_SIZE, len(damaged))] = random.randrange(256)
        wanted = outcome(lambda batch: list(iter_records(batch)), bytes(damaged))
        found = outcome(lambda batch, at=at: rows_of(decoded(*made[:at], batch, *made[at + 1 :])), bytes(damaged))
        if isinstance(wanted, str):
            refused += 1
            assert found == wanted
        else:
            first = sum(len(list(iter_records(batch))) for batch in made[:at])
            assert found[first : first + len(wanted)] == [
                each._replace(headers=as_text(each.headers)) for each in wanted
            ]
    assert 50 < refused < 250


def test_overflowing_sizes() -> None:
    """A value of nearly 2**63 bytes, whose end overflows to a small number, is rejected."""
    batch = bytearray(built([(0, None, b"v" * 20, (), 1)]))
    huge = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"
    at = batch.index(b"v" * 20) - 1
    batch[at : at + len(huge)] = huge
    with pytest.raises(ProtocolError):
        decoded(bytes(batch))
