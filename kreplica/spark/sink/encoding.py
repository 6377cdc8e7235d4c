"""Encodes Arrow columns as record batches: Arrow concatenates the fields of records; Python processes only whole
batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kreplica.wire.batch_building import seal
from kreplica.wire.batches import (
    MAGIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL_BIT,
    BatchHeader,
)
from kreplica.wire.compression import Codec, compress

Numbers: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"

NO_LEADER_EPOCH = -1
RECORD_OVERHEAD = 24
"""Approximate bytes per record besides key, value and headers; used to size batches."""

_TABLE_SIZE = 1 << 14
_ATTRIBUTES = b"\x00"
_NO_HEADERS = b"\x00"


class Rows(NamedTuple):
    """Columns of the records to write to one partition.

    :param keys: Arrow binary array with nulls; ``values`` has the same type.
    :param headers: encoded headers of each record, their count first (``headers_column``); None if no record has any.
    """

    timestamps_ms: Numbers
    keys: pa.Array
    values: pa.Array
    headers: pa.Array | None = None


class EncodedBatch(NamedTuple):
    """A complete record batch except for producer ID, epoch and sequence number."""

    data: bytearray
    record_count: int


def encode(
    rows: Rows, *, batch_size: int, codec: Codec = Codec.NONE, transactional: bool = False
) -> Iterator[EncodedBatch]:
    """Encode rows as batches, in order.

    :param batch_size: approximate size of a batch in bytes before compression; a larger row gets its own batch.
    """
    if not len(rows.timestamps_ms):
        return
    firsts = _batch_starts(rows, batch_size)
    sizes = np.diff(np.append(firsts, len(rows.timestamps_ms)))
    base_times = rows.timestamps_ms[firsts]
    time_deltas = rows.timestamps_ms - np.repeat(base_times, sizes)
    offset_deltas = np.arange(len(rows.timestamps_ms)) - np.repeat(firsts, sizes)
    records = _records(rows, time_deltas, offset_deltas)
    ends = _offsets(records)
    data = memoryview(records.buffers()[2] or b"")
    attributes = int(codec) | (TRANSACTIONAL_BIT if transactional else 0)
    last_times = np.maximum.reduceat(rows.timestamps_ms, firsts)
    for first, size, base_time, last_time in zip(
        firsts.tolist(), sizes.tolist(), base_times.tolist(), last_times.tolist(), strict=True
    ):
        header = BatchHeader(
            base_offset=0,
            length=0,
            partition_leader_epoch=NO_LEADER_EPOCH,
            magic=MAGIC,
            crc=0,
            attributes=attributes,
            last_offset_delta=size - 1,
            base_timestamp=base_time,
            max_timestamp=last_time,
            producer_id=NO_PRODUCER_ID,
            producer_epoch=NO_PRODUCER_EPOCH,
            base_sequence=NO_SEQUENCE,
            record_count=size,
        )
        section = compress(codec, data[ends[first] : ends[first + size]])
        yield EncodedBatch(bytearray(seal(header, section)), size)


def headers_column(column: pa.Array) -> pa.Array | None:
    """Encode headers in their wire format.

    :param column: a list of structs of ``key`` (text) and ``value`` (binary) per row, or null.
    :return: None if no row has headers.
    """
    if (
        column.null_count == len(column)
        or not pc.any(pc.greater(pc.fill_null(pc.list_value_length(column), 0), 0)).as_py()
    ):
        return None
    return pa.array([_headers(row) for row in column.to_pylist()], pa.binary())


def _headers(row: list[dict[str, Any]] | None) -> bytes:
    if not row:
        return _NO_HEADERS
    parts = [_varint(len(row))]
    for each in row:
        name = (each["key"] or "").encode()
        value = each["value"]
        parts += (_varint(len(name)), name)
        parts += (_varint(-1),) if value is None else (_varint(len(value)), value)
    return b"".join(parts)


def _batch_starts(rows: Rows, batch_size: int) -> Numbers:
    """Return the index of the first row of each batch."""
    sizes = np.maximum(_sizes(rows.keys), 0) + np.maximum(_sizes(rows.values), 0) + RECORD_OVERHEAD
    if rows.headers is not None:
        sizes += _sizes(rows.headers)
    ends = np.cumsum(sizes)
    starts = [0]
    while True:
        last_start = starts[-1]
        size_before = int(ends[last_start - 1]) if last_start else 0
        next_start = max(last_start + 1, int(np.searchsorted(ends, size_before + batch_size, side="right")))
        if next_start >= len(ends):
            return np.array(starts, dtype=np.int64)
        starts.append(next_start)


def _records(rows: Rows, time_deltas: Numbers, offset_deltas: Numbers) -> pa.Array:
    key_sizes, value_sizes = _sizes(rows.keys), _sizes(rows.values)
    fields = [time_deltas, offset_deltas, key_sizes, value_sizes]
    times, offsets, key_lengths, value_lengths = map(_varints, fields)
    headers = _NO_HEADERS if rows.headers is None else rows.headers
    contents = [np.maximum(key_sizes, 0), np.maximum(value_sizes, 0)]
    contents += [np.ones_like(key_sizes) if rows.headers is None else _sizes(rows.headers)]
    lengths: Numbers = np.sum([*map(_varint_sizes, fields), *contents], axis=0) + len(_ATTRIBUTES)
    return pc.binary_join_element_wise(
        _varints(lengths),
        _ATTRIBUTES,
        times,
        offsets,
        key_lengths,
        rows.keys,
        value_lengths,
        rows.values,
        headers,
        b"",
        null_handling="replace",
        null_replacement=b"",
    )


def _sizes(column: pa.Array) -> Numbers:
    """Return the size of each element in bytes; -1 for null."""
    if column.null_count == len(column):
        return np.full(len(column), -1, dtype=np.int64)
    sizes = np.diff(_offsets(column)).astype(np.int64)
    if column.null_count:
        sizes[column.is_null().to_numpy(zero_copy_only=False)] = -1
    return sizes


def _offsets(column: pa.Array) -> np.ndarray[Any, np.dtype[np.int32]]:
    """Return the start offset of each element in the column's data, and the end of the last element."""
    buffer = column.buffers()[1]
    return np.frombuffer(buffer, dtype=np.int32)[column.offset : column.offset + len(column) + 1]


def _varint_sizes(numbers: Numbers) -> Numbers:
    """Return the encoded size of each number as a zigzag varint."""
    zigzag = _zigzag(numbers)
    sizes = np.ones(len(numbers), dtype=np.int64)
    for bits in range(7, 64, 7):
        is_longer = zigzag >= np.uint64(1 << bits)
        if not is_longer.any():
            break
        sizes += is_longer
    return sizes


def _zigzag(numbers: Numbers) -> np.ndarray[Any, np.dtype[np.uint64]]:
    return ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)


def _varints(numbers: Numbers) -> pa.Array:
    """Encode numbers as zigzag varints: by table lookup if all are small, otherwise once per distinct number."""
    zigzag = _zigzag(numbers)
    if int(zigzag.max()) < _TABLE_SIZE:
        return _TABLE.take(pa.array(zigzag.astype(np.int32)))
    distinct, index = np.unique(zigzag, return_inverse=True)
    return pa.array([_uvarint(number) for number in distinct.tolist()], pa.binary()).take(pa.array(index))


def _varint(number: int) -> bytes:
    return _uvarint((number << 1) ^ (number >> 63))


def _uvarint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


_TABLE = pa.array([_uvarint(number) for number in range(_TABLE_SIZE)], pa.binary())
