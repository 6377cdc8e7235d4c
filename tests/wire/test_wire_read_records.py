"""Reading all records of a batch at once equals reading them one by one, even if records are malformed.

Both the kernel and the Python code are compared.
"""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kreplica.errors import ProtocolError
from kreplica.wire import record_columns
from kreplica.wire.batch_building import build_batch
from kreplica.wire.batches import BatchHeader, TimestampType, parse_header
from kreplica.wire.records import Record, iter_heads, open_records, read_record
from tests.support.kernels import both

SIZE_MAX = 1 << 20

data = st.none() | st.binary(max_size=20) | st.integers(60, 70).map(bytes) | st.integers(8190, 8195).map(bytes)
headers = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=2).map(tuple)
times = st.integers(0, 200) | st.integers(0, 2**62)
rows = st.lists(st.tuples(st.integers(1, 9000), times, data, data, headers), min_size=1, max_size=8)


def read_records(section: bytes, header: BatchHeader) -> list[Record]:
    return both(record_columns.read_records, section, header)


def read_one_by_one(section: bytes, header: BatchHeader) -> list[Record]:
    return [read_record(section, head) for head in iter_heads(section, header)]


def outcome(read: object, section: bytes, header: BatchHeader) -> object:
    try:
        return read(section, header)  # type: ignore[operator]
    except ProtocolError as error:
        return str(error)


def batch_of(record_fields: list[tuple[object, ...]], timestamp_type: TimestampType) -> bytes:
    records, offset = [], 0
    for gap, *rest in record_fields:
        offset += gap  # type: ignore[operator]
        records.append(Record(offset, *rest))  # type: ignore[arg-type]
    return build_batch(records, timestamp_type=timestamp_type)


@given(rows, st.sampled_from(TimestampType))
def test_valid_records(record_fields: list[tuple[object, ...]], timestamp_type: TimestampType) -> None:
    """Records have lengths and deltas of one or more bytes, nulls, headers, and both timestamp types."""
    batch = batch_of(record_fields, timestamp_type)
    header = parse_header(batch)
    section = open_records(batch, header, SIZE_MAX)
    assert read_records(section, header) == read_one_by_one(section, header)
    assert all(isinstance(record, Record) for record in read_records(section, header))


@given(rows, st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), min_size=1, max_size=4), st.integers(-3, 3))
def test_malformed_records(record_fields: list[tuple[object, ...]], changes: list[tuple[int, int]], more: int) -> None:
    """With changed bytes and wrong counts, the result is the same records or the same error."""
    batch = batch_of(record_fields, TimestampType.CREATE_TIME)
    header = parse_header(batch)
    section = bytearray(open_records(batch, header, SIZE_MAX))
    for position, byte in changes:
        section[position % len(section)] = byte
    header = header._replace(record_count=max(0, header.record_count + more))
    assert outcome(read_records, bytes(section), header) == outcome(read_one_by_one, bytes(section), header)


similar_rows = st.tuples(
    st.integers(8, 150),
    st.sampled_from([1, 1, 1, 5]),
    st.sampled_from([0, 1, 3, 200]),
    st.none() | st.binary(min_size=2, max_size=70),
    st.none() | st.binary(max_size=70),
)


@given(
    st.lists(similar_rows, min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 9000), st.integers(0, 255)), max_size=3),
)
def test_similar_records(runs: list[tuple[object, ...]], changes: list[tuple[int, int]]) -> None:
    """Runs of records with the same size and shape give the same result, intact or damaged."""
    records, offset, now_ms = [], 0, 1_000
    for count, gap, step_ms, key, value in runs:
        for _ in range(count):  # type: ignore[call-overload]
            offset, now_ms = offset + gap, now_ms + step_ms  # type: ignore[operator]
            records.append(Record(offset, now_ms, key, value))  # type: ignore[arg-type]
    batch = build_batch(records)
    header = parse_header(batch)
    section = bytearray(open_records(batch, header, SIZE_MAX))
    assert read_records(bytes(section), header) == records
    for position, byte in changes:
        section[position % len(section)] = byte
    assert outcome(read_records, bytes(section), header) == outcome(read_one_by_one, bytes(section), header)


@given(st.binary(max_size=40), st.integers(0, 4), st.integers(0, 5))
@example(b"\x10\x00\x00\x00\x0d\x00\x00\x00\x00", 1, 0)  # a key of -7 bytes
def test_any_bytes(section: bytes, count: int, last_delta: int) -> None:
    header = parse_header(build_batch([Record(0, 5, None, b"")]))
    header = header._replace(record_count=count, last_offset_delta=last_delta)
    assert outcome(read_records, section, header) == outcome(read_one_by_one, section, header)


@pytest.mark.parametrize("value_size", [0, 3, 57, 60, 150])
@pytest.mark.parametrize("later_ms", [0, 70])
@pytest.mark.parametrize("key", [None, b"\x01\x00key"])
def test_each_changed_byte(value_size: int, later_ms: int, key: bytes | None) -> None:
    """Bytes are changed in the first records and in a record whose offset delta has two bytes."""
    values = [bytes(value_size), b"\x01" * value_size]
    records = [Record(number, 1000 + later_ms * (number > 0), key, values[number % 2]) for number in range(70)]
    batch = build_batch(records)
    header = parse_header(batch)
    original = open_records(batch, header, SIZE_MAX)
    heads = [head[0] for head in iter_heads(original, header)]
    assert read_records(original, header) == records
    for timestamp_type in TimestampType:
        typed_header = header._replace(attributes=timestamp_type << 3)
        for first in (heads[0], heads[1], heads[66]):
            for position in (*range(first, min(first + 11, len(original))), len(original) - 1):
                for byte in (0, 1, 12, 0x80, 0xFF, original[position] ^ 2, original[position - 1]):
                    section = bytearray(original)
                    section[position] = byte
                    assert outcome(read_records, bytes(section), typed_header) == outcome(
                        read_one_by_one, bytes(section), typed_header
                    )
