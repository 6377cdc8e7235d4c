"""Batches built from Arrow columns equal those built from records."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from kreplica.spark.sink.encoding import RECORD_OVERHEAD, Rows, encode, headers_column
from kreplica.spark.sink.partitioning import murmur2, partitions_of_keys
from kreplica.transfer.record_columns import HEADERS_TYPE
from kreplica.wire.batch_building import build_batch
from kreplica.wire.batches import parse_header, verify_crc
from kreplica.wire.compression import Codec
from kreplica.wire.partitioning import murmur2 as murmur2_of_one
from kreplica.wire.partitioning import partition_of_key
from kreplica.wire.records import Record, iter_records

NULLABLE = st.none() | st.binary(max_size=40) | st.integers(60, 70).map(bytes) | st.integers(8190, 8200).map(bytes)
HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=2).map(tuple)
TIMES = st.integers(0, 1000) | st.integers(-1, 1 << 62)
ROW = st.tuples(TIMES, NULLABLE, NULLABLE, HEADERS)


def rows_of(row_tuples) -> Rows:
    headers = pa.array(
        [[{"key": name, "value": data} for name, data in row[3]] if row[3] else None for row in row_tuples],
        HEADERS_TYPE,
    )
    return Rows(
        np.array([row[0] for row in row_tuples], dtype=np.int64),
        pa.array([row[1] for row in row_tuples], pa.binary()),
        pa.array([row[2] for row in row_tuples], pa.binary()),
        headers_column(headers),
    )


@settings(max_examples=150)
@given(
    st.lists(ROW, min_size=1, max_size=40),
    st.integers(1, 20_000),
    st.sampled_from(list(Codec)),
    st.booleans(),
    st.integers(0, 3),
)
def test_batches_have_the_rows(row_tuples, batch_size, codec, transactional, skipped) -> None:
    """Rows are encoded in order, in batches of at most the given size, with the same bytes as record by record."""
    skipped = min(skipped, len(row_tuples) - 1)
    columns = rows_of(row_tuples)
    row_tuples = row_tuples[skipped:]
    rows = Rows(*(None if column is None else column[skipped:] for column in columns))
    batches = list(encode(rows, batch_size=batch_size, codec=codec, transactional=transactional))
    found = [record for batch in batches for record in iter_records(bytes(batch.data))]
    assert [tuple(record)[1:] for record in found] == row_tuples
    for batch in batches:
        header = parse_header(batch.data)
        assert verify_crc(batch.data, header)
        assert header.record_count == batch.record_count
        records = [Record(offset, *record[1:]) for offset, record in enumerate(list(iter_records(bytes(batch.data))))]
        assert bytes(batch.data) == build_batch(records, codec=codec, transactional=transactional)
        size = sum(RECORD_OVERHEAD + len(each.key or b"") + len(each.value or b"") for each in records)
        assert size <= batch_size or header.record_count == 1


def test_largest_timestamp_delta() -> None:
    """The largest deltas need the longest varints."""
    for far in (1 << 61, (1 << 62) - 1, 1 << 62, (1 << 63) - 2):
        (batch,) = encode(rows_of([(0, None, None, ()), (far, None, None, ())]), batch_size=1000)
        assert [record.timestamp_ms for record in iter_records(bytes(batch.data))] == [0, far]


def test_no_rows_give_no_batch() -> None:
    assert list(encode(rows_of([]), batch_size=100)) == []


@settings(max_examples=100)
@given(st.lists(st.none() | st.binary(max_size=30), min_size=1, max_size=30), st.integers(1, 100), st.integers(0, 3))
def test_keys_map_to_the_same_partition_as_in_other_clients(keys, partitions, skipped) -> None:
    """Hashes and partitions equal those of other clients, even for a slice of a column."""
    column = pa.array([b"x"] * skipped + keys, pa.binary())[skipped:]
    assert murmur2(column).tolist() == [murmur2_of_one(key or b"") for key in keys]
    expected = [-1 if key is None else partition_of_key(key, partitions) for key in keys]
    assert partitions_of_keys(column, partitions).tolist() == expected
