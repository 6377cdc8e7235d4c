"""Builds producers' batches; all records of a batch are encoded in bulk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import chain, pairwise, repeat

from kreplica.wire import kernels
from kreplica.wire.batch_building import (
    NO_HEADERS,
    NO_LEADER_EPOCH,
    NULL,
    encode_fields,
    seal,
    seal_in_place,
    varint,
)
from kreplica.wire.batches import (
    HEADER_SIZE,
    MAGIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL_BIT,
    BatchHeader,
)
from kreplica.wire.compression import Codec, compress
from kreplica.wire.records import Headers

PLAIN_SIZE_END = 8000
"""Values of at least this size are not encoded by column, because the tables have an entry for each value size."""

_VARINT_ENDS = (1 << 6, 1 << 13, 1 << 20, 1 << 27, 1 << 31)
"""The smallest numbers whose zigzag varints take two, three, four and five bytes, and the exclusive limit."""


def build_producer_batch(
    timestamps: Sequence[int],
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    headers: Sequence[Headers],
    codec: int,
    *,
    transactional: bool = False,
) -> bytearray:
    """Return a producer's batch without a producer ID, which ``batches.stamp_producer`` can set.

    :param timestamps: one per record, as in the other three sequences.
    :raise ValueError: there are no records.
    """
    if not timestamps:
        raise ValueError("the batch has no records")
    count, base_timestamp = len(timestamps), timestamps[0]
    header = BatchHeader(
        base_offset=0,
        length=0,
        partition_leader_epoch=NO_LEADER_EPOCH,
        magic=MAGIC,
        crc=0,
        attributes=codec | TRANSACTIONAL_BIT if transactional else codec,
        last_offset_delta=count - 1,
        base_timestamp=base_timestamp,
        max_timestamp=max(timestamps),
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        base_sequence=NO_SEQUENCE,
        record_count=count,
    )
    if kernels.encode_records is not None:
        batch: bytearray | None = kernels.encode_records(timestamps, keys, values, headers)
    else:
        batch = None
    if batch is not None:
        if codec == Codec.NONE:
            seal_in_place(batch, header)
            return batch
        return bytearray(seal(header, compress(codec, memoryview(batch)[HEADER_SIZE:])))
    records = _plain_records(timestamps, keys, values, headers) or _any_records(timestamps, keys, values, headers)
    return bytearray(seal(header, compress(codec, records)))


def _plain_records(
    timestamps: Sequence[int],
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    headers: Sequence[Headers],
) -> bytes:
    """Encode plain records (no keys, no headers, timestamps within 64 ms) by column; return ``b""`` if a record is not
    plain."""
    count, base_timestamp, end = len(timestamps), timestamps[0], _VARINT_ENDS[0]
    if (
        keys[0] is not None
        or keys.count(None) < count
        or any(headers)
        or not base_timestamp <= min(timestamps) <= max(timestamps) < base_timestamp + end
    ):
        return b""
    try:
        sizes = list(map(len, values))  # type: ignore[arg-type]
    except TypeError:
        return b""  # a value is None
    if max(sizes) >= PLAIN_SIZE_END or count > _VARINT_ENDS[1]:
        return b""
    small = _small_varints()
    times = [small[timestamp - base_timestamp] for timestamp in timestamps]
    heads = [*map(_plain_heads(1).__getitem__, sizes[:end]), *map(_plain_heads(2).__getitem__, sizes[end:])]
    rows = zip(heads, times, small, map(_plain_tails().__getitem__, sizes), values, repeat(NO_HEADERS))
    return b"".join(chain.from_iterable(rows))


@cache
def _plain_heads(delta_size: int) -> list[bytes]:
    """Return the bytes before the timestamp of a plain record, by value size."""
    small = _small_varints()
    return [small[size + len(small[size]) + delta_size + 4] + b"\x00" for size in range(PLAIN_SIZE_END)]


@cache
def _plain_tails() -> list[bytes]:
    """Return the bytes between the offset and the value of a plain record, by value size."""
    return [NULL + size for size in _small_varints()[:PLAIN_SIZE_END]]


def _any_records(
    timestamps: Sequence[int],
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    headers: Sequence[Headers],
) -> bytes:
    count, base_timestamp = len(timestamps), timestamps[0]
    parts: list[bytes] = []
    rows = zip(timestamps, keys, values, headers, strict=True)
    for begin, end in pairwise((0, *_VARINT_ENDS)):
        if begin < count:
            deltas = (
                _small_varints()[begin:end] if end <= _VARINT_ENDS[1] else map(varint, range(begin, min(end, count)))
            )
            _encode_run(parts, deltas, rows, base_timestamp)
    return b"".join(parts)


def _encode_run(
    parts: list[bytes],
    deltas: Iterable[bytes],
    rows: Iterator[tuple[int, bytes | None, bytes | None, Headers]],
    base_timestamp: int,
) -> None:
    """Encode records like ``encode_record``, but faster if a record has the timestamp and sizes of the previous one.

    :param deltas: varints of the offset deltas, all of one size; ``rows`` yields at most one record for each.
    """
    small, small_end = _small_varints(), _VARINT_ENDS[1]
    last_timestamp_ms = last_key_size = last_value_size = -2
    timestamp_delta = head = key_head = value_head = b""
    for delta, (timestamp_ms, key, value, headers) in zip(deltas, rows, strict=False):
        if value is None or headers:
            parts.append(encode_fields(varint(timestamp_ms - base_timestamp), delta, key, value, headers))
            continue
        key_size, value_size = -1 if key is None else len(key), len(value)
        if value_size != last_value_size or timestamp_ms != last_timestamp_ms or key_size != last_key_size:
            if timestamp_ms != last_timestamp_ms:
                timestamp_delta = b"\x00" + varint(timestamp_ms - base_timestamp)
            value_head = small[value_size] if value_size < small_end else varint(value_size)
            size = 2 + len(timestamp_delta) + len(delta) + len(value_head) + value_size
            if key is not None:
                key_head = small[key_size] if key_size < small_end else varint(key_size)
                size += len(key_head) + key_size - 1
            head = (small[size] if size < small_end else varint(size)) + timestamp_delta
            last_timestamp_ms, last_key_size, last_value_size = timestamp_ms, key_size, value_size
        if key is None:
            parts += (head, delta, NULL, value_head, value, NO_HEADERS)
        else:
            parts += (head, delta, key_head, key, value_head, value, NO_HEADERS)


@cache
def _small_varints() -> list[bytes]:
    """Return the varints of up to two bytes."""
    return [varint(number) for number in range(_VARINT_ENDS[1])]
