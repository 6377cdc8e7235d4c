"""Decodes record batches into Arrow columns.

A kernel decodes valid batches (``kernels.decode_columns``). In the code that it replaces, Python processes only the
start of each record, numpy and Arrow the rest: one buffer contains the records of many batches. The offsets of
an Arrow array over the buffer delimit, in this order, each key, the bytes before the value, the value, and the bytes
before the next key. ``take`` then copies the keys and values into columns. Malformed records raise the same errors as
in ``kreplica.wire.records``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from kreplica.errors import ProtocolError
from kreplica.spark.source.record_ends import Words, record_ends, words_of
from kreplica.transfer.record_columns import HEADERS_TYPE
from kreplica.wire import kernels
from kreplica.wire.batches import (
    CODEC_MASK,
    HEADER_SIZE,
    LENGTH_END,
    LOG_APPEND_TIME_BIT,
    RECORD_SIZE_MIN,
    BatchHeader,
)
from kreplica.wire.records import (
    DECOMPRESSED_SIZE_MAX,
    INT64_END,
    Headers,
    iter_heads,
    open_records,
    read_record,
)

Numbers: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"

BUFFER_SIZE_MAX = (1 << 31) - 1
"""Maximum bytes of records decoded together, since Arrow's offsets have 32 bits."""

_new_tuple = tuple.__new__
_VARINT_SHIFT_MAX = 63
_SHORT_SIZE_BITS = 2
_SHORT_SIZE = (1 << _SHORT_SIZE_BITS) - 1


class DecodedRecords(NamedTuple):
    """Records of one partition as columns, ordered by offset.

    :param timestamp_types: values of ``TimestampType``.
    :param headers: list of key-value pairs per record, null for a record without headers; None if headers were not
        requested.
    """

    offsets: Numbers
    timestamps_ms: Numbers
    timestamp_types: Numbers
    keys: pa.Array
    values: pa.Array
    headers: pa.Array | None

    def between(self, start: int, end: int) -> DecodedRecords:
        """Return the records with offsets from ``start`` to ``end``, exclusive."""
        first, last = np.searchsorted(self.offsets, (start, end))
        if first == 0 and last == len(self.offsets):
            return self
        offsets, times, types, keys, values, headers = self
        part = slice(int(first), int(last))
        return DecodedRecords(
            offsets[part],
            times[part],
            types[part],
            keys[part],
            values[part],
            None if headers is None else headers[part],
        )


class Section(NamedTuple):
    """A decompressed record batch.

    :param records: decompressed records; ``decode`` copies those of several batches into one buffer.
    """

    header: BatchHeader
    records: bytes | memoryview


def open_section(header: BatchHeader, batch: memoryview, size_max: int = DECOMPRESSED_SIZE_MAX) -> Section:
    """Decompress a batch.

    :raise ProtocolError: the batch is truncated, corrupt, or larger than ``size_max``.
    """
    # Indexes and tuple.__new__: a read of large records spends much of its time here.
    size = header[1] + LENGTH_END
    if not header[5] & CODEC_MASK and RECORD_SIZE_MIN * header[12] <= size - HEADER_SIZE <= size_max:
        return _new_tuple(Section, (header, batch[HEADER_SIZE:size]))
    return Section(header, open_records(batch, header, size_max))


def decode(sections: Sequence[Section], *, with_headers: bool = False) -> DecodedRecords:
    """Decode the records of batches of one partition.

    :param sections: batches with ascending offsets, at most ``BUFFER_SIZE_MAX`` bytes in total.
    :raise ProtocolError: a record is malformed.
    """
    if not any(section.header.record_count for section in sections):
        return _empty(with_headers)
    columns = None if kernels.decode_columns is None else kernels.decode_columns(list(sections))
    if columns is not None:
        return _from_kernel(columns, sections, with_headers)
    # Two bytes of padding allow a word to be read at every byte.
    buffer = b"".join([*[section.records for section in sections], b"\x00\x00"])
    try:
        return _decode(buffer, sections, with_headers)
    except (IndexError, ValueError):
        _raise_malformed(sections)
        raise


def _from_kernel(columns: tuple[Any, ...], sections: Sequence[Section], with_headers: bool) -> DecodedRecords:
    """Return the columns that the kernel placed in one buffer."""
    data, count, size, keys_size, key_nulls, values_size, value_nulls, with_headers_count = columns
    buffer, bits_size = pa.py_buffer(data), (count + 7) // 8
    ends, ends_size = 16 * count, 4 * (count + 1)
    bits = ends + 2 * ends_size
    keys, values = bits + 2 * bits_size, bits + 2 * bits_size + size

    def column(index: int, start: int, used: int, null_count: int) -> pa.Array:
        validity = buffer.slice(bits + index * bits_size, bits_size) if null_count else None
        buffers = [validity, buffer.slice(ends + index * ends_size, ends_size), buffer.slice(start, used)]
        return pa.BinaryArray.from_buffers(pa.binary(), count, buffers, null_count)

    return DecodedRecords(
        np.frombuffer(data, np.int64, count),
        np.frombuffer(data, np.int64, count, 8 * count),
        _timestamp_types(sections, count),
        column(0, keys, keys_size, key_nulls),
        column(1, values, values_size, value_nulls),
        _headers(sections, count, has_none=not with_headers_count) if with_headers else None,
    )


def _decode(buffer: bytes, sections: Sequence[Section], with_headers: bool) -> DecodedRecords:
    """Decode the records of one buffer.

    :raise ValueError: a record is malformed.
    :raise IndexError: a record is malformed; ``_raise_malformed`` finds it.
    """
    counts = [section.header.record_count for section in sections]
    ends = record_ends(buffer, counts, [len(section.records) for section in sections])
    starts = np.concatenate((np.zeros(1, dtype=np.int64), ends[:-1]))
    words = words_of(buffer)
    length, position = _varints(words, starts)
    if not (position + length == ends).all():
        raise ValueError("the length of a record differs from its size")
    time_delta, position = _varints(words, position + 1)  # record attributes are unused
    offset_delta, position = _varints(words, position)
    key_size, key_start = _varints(words, position)
    key_end = key_start + np.maximum(key_size, 0)
    value_size, value_start = _varints(words, key_end)
    value_end = value_start + np.maximum(value_size, 0)
    header_count, headers_start = _varints(words, value_end)
    has_no_headers = header_count == 0
    fits = (key_size >= -1) & (value_size >= -1) & (header_count >= 0)
    fits &= (key_size < len(buffer)) & (value_size < len(buffer))  # the sums did not overflow 64 bits
    fits &= np.where(has_no_headers, headers_start == ends, headers_start < ends)
    if not fits.all():
        raise ValueError("the fields of a record exceed its length")
    offsets = np.repeat([section.header.base_offset for section in sections], counts) + offset_delta
    _check_offsets(offset_delta, sections, counts)
    timestamps = _times(time_delta, sections, counts)
    types = _timestamp_types(sections, len(offsets))
    array = _pieces(buffer, (key_start, key_end, value_start, value_end))
    keys = _gather(array, 0, key_size)
    values = _gather(array, 2, value_size)
    headers = _headers(sections, len(offsets), has_none=bool(has_no_headers.all())) if with_headers else None
    return DecodedRecords(offsets, timestamps, types, keys, values, headers)


def _empty(with_headers: bool) -> DecodedRecords:
    none: Numbers = np.zeros(0, dtype=np.int64)
    empty = pa.nulls(0, pa.binary())
    return DecodedRecords(none, none, none, empty, empty, pa.nulls(0, HEADERS_TYPE) if with_headers else None)


def _varints(words: Words, positions: Numbers) -> tuple[Numbers, Numbers]:
    """Decode the zigzag varints at the given positions, and return their values and end positions.

    :raise ValueError: a varint does not end.
    :raise IndexError: a varint extends beyond the data.
    """
    found = _SHORT_VARINTS.take(words[positions])
    sizes = found & _SHORT_SIZE
    numbers = found >> _SHORT_SIZE_BITS
    if not sizes.all():
        long = np.flatnonzero(sizes == 0)
        numbers[long], sizes[long] = _long_varints(words, positions[long])
    return numbers, positions + sizes


def _long_varints(words: Words, positions: Numbers) -> tuple[Numbers, Numbers]:
    """Decode varints of three or more bytes; return their values and sizes."""
    raw = np.zeros(len(positions), dtype=np.uint64)
    sizes = np.zeros(len(positions), dtype=np.int64)
    unfinished = np.arange(len(positions))
    shift = 0
    while unfinished.size:
        if shift > _VARINT_SHIFT_MAX:
            raise ValueError("a varint has too many bytes")
        byte = (words[positions[unfinished] + sizes[unfinished]] & 0xFF).astype(np.uint64)
        if shift == _VARINT_SHIFT_MAX and (byte > 1).any():
            raise ValueError("a varint has too many bits")
        raw[unfinished] |= (byte & 0x7F) << np.uint64(shift)
        sizes[unfinished] += 1
        unfinished = unfinished[byte >= 0x80]
        shift += 7
    return _unzigzag(raw), sizes


def _unzigzag(raw: np.ndarray[Any, np.dtype[np.uint64]]) -> Numbers:
    return (raw >> np.uint64(1)).view(np.int64) ^ -(raw & np.uint64(1)).view(np.int64)


def _short_varints() -> Numbers:
    """Return a table, indexed by 16-bit word, of the varint at the start of the word, with its size in the lowest bits;
    0 if the varint is longer than the word.
    """
    word = np.arange(1 << 16, dtype=np.uint64)
    first, second = word & np.uint64(0xFF), word >> np.uint64(8)
    is_long = first >= 0x80
    raw = np.where(is_long, first & np.uint64(0x7F) | second << np.uint64(7), first)
    found: Numbers = (_unzigzag(raw) << _SHORT_SIZE_BITS) + 1 + is_long
    found[is_long & (second >= 0x80)] = 0
    return found


_SHORT_VARINTS = _short_varints()


def _check_offsets(deltas: Numbers, sections: Sequence[Section], counts: list[int]) -> None:
    """Check that offsets ascend within each batch up to its last offset."""
    firsts = np.concatenate(([0], np.cumsum(counts)))[:-1]
    firsts = firsts[np.array(counts) > 0]
    steps = np.diff(deltas, prepend=-1)
    steps[firsts] = deltas[firsts] + 1
    last = np.repeat([section.header.last_offset_delta for section in sections], counts)
    if not ((steps > 0) & (deltas <= last)).all():
        raise ValueError("offsets do not ascend")


def _times(deltas: Numbers, sections: Sequence[Section], counts: list[int]) -> Numbers:
    """Return the timestamps of all records."""
    is_append_time = [bool(section.header.attributes & LOG_APPEND_TIME_BIT) for section in sections]
    if all(is_append_time):
        times = np.repeat([section.header.max_timestamp for section in sections], counts)
    else:
        base = np.repeat([section.header.base_timestamp for section in sections], counts)
        times = base + deltas
        if (((base >= 0) == (deltas >= 0)) & ((times >= 0) != (base >= 0))).any():
            raise ValueError(f"a timestamp is beyond {INT64_END}")
        if any(is_append_time):
            own = np.repeat([section.header.max_timestamp for section in sections], counts)
            times = np.where(np.repeat(is_append_time, counts), own, times)
    return times


def _timestamp_types(sections: Sequence[Section], count: int) -> Numbers:
    """Return the timestamp types of all records."""
    types = [(section.header[5] & LOG_APPEND_TIME_BIT) >> 3 for section in sections]
    if types.count(types[0]) == len(types):
        return np.full(count, types[0], dtype=np.int32)
    return np.repeat(np.array(types, dtype=np.int32), [section.header.record_count for section in sections])


def _pieces(buffer: bytes, cuts: Sequence[Numbers]) -> pa.Array:
    """Cut the buffer at positions that ascend first across lists, then across rows, and return the pieces.

    The bytes before the first position are omitted; the piece after the last position is empty.
    """
    rows = len(cuts[0])
    whole = np.empty(len(cuts) * rows + 1, dtype=np.int32)
    for index, column in enumerate(cuts):
        whole[index : -1 : len(cuts)] = column
    whole[-1] = whole[-2]
    return pa.BinaryArray.from_buffers(pa.binary(), len(whole) - 1, [None, pa.py_buffer(whole), pa.py_buffer(buffer)])


def _gather(pieces: pa.Array, first: int, sizes: Numbers) -> pa.Array:
    """Return every fourth piece, starting with index ``first``; null if the size is negative."""
    is_null = sizes < 0
    if is_null.all():
        return pa.nulls(len(sizes), pa.binary())
    indices = np.arange(first, 4 * len(sizes), 4, dtype=np.int64)
    return pieces.take(pa.array(indices, mask=is_null if is_null.any() else None))


def _headers(sections: Sequence[Section], count: int, *, has_none: bool) -> pa.Array:
    if has_none:
        return pa.nulls(count, HEADERS_TYPE)
    rows: list[list[dict[str, Any]] | None] = []
    for headers in _each_headers(sections):
        rows.append([{"key": _text(name), "value": value} for name, value in headers] if headers else None)
    return pa.array(rows, HEADERS_TYPE)


def _each_headers(sections: Sequence[Section]) -> Iterable[Headers]:
    for header, data in sections:
        records = bytes(data)
        for head in iter_heads(records, header):
            yield read_record(records, head).headers


def _text(name: str) -> str:
    """Decode bytes to text as Arrow does: invalid UTF-8 becomes the replacement character."""
    return name.encode(errors="surrogateescape").decode(errors="replace")


def _raise_malformed(sections: Sequence[Section]) -> None:
    """Find the malformed record, and raise an error.

    :raise ProtocolError: always; names the malformed record and field if they are found.
    """
    for header, data in sections:
        records = bytes(data)
        for head in iter_heads(records, header):
            read_record(records, head)
    raise ProtocolError("RecordBatch.records", "malformed")
