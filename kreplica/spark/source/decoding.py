"""Record batches become Arrow columns: a short hop from record to record in Python, all else in numpy and Arrow.

One buffer holds the records of many batches.  Offsets into it are laid so that one Arrow array over the buffer has, in
turn, each key, what lies before the value, the value, and what lies before the next key; ``take`` then gathers the keys
and the values, without a copy in Python.  A record that is malformed is told as ``kreplica.wire.records`` tells it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from kreplica.errors import ProtocolError
from kreplica.spark.source.record_ends import Words, record_ends, words_of
from kreplica.wire.batches import HEADER_SIZE, LOG_APPEND_TIME_BIT, RECORD_SIZE_MIN, BatchHeader
from kreplica.wire.compression import Codec
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
"""Bytes of records that are decoded at once: Arrow's offsets are of 32 bits."""

_VARINT_SHIFT_MAX = 63
_SHORT_SIZE_BITS = 2
_SHORT_SIZE = (1 << _SHORT_SIZE_BITS) - 1
_HEADER_FIELDS = pa.struct([("key", pa.string()), ("value", pa.binary())])
HEADERS_TYPE = pa.list_(_HEADER_FIELDS)


class Decoded(NamedTuple):
    """Records of one partition, field by field, in the order of their offsets.

    :param timestamp_types: as ``TimestampType``.
    :param headers: a list of key and value each, null where a record has none; None where nobody wants them.
    """

    offsets: Numbers
    timestamps_ms: Numbers
    timestamp_types: Numbers
    keys: pa.Array
    values: pa.Array
    headers: pa.Array | None

    def between(self, start: int, end: int) -> Decoded:
        """Those from an offset on, and before another."""
        first, last = np.searchsorted(self.offsets, (start, end))
        if first == 0 and last == len(self.offsets):
            return self
        offsets, times, types, keys, values, headers = self
        part = slice(int(first), int(last))
        return Decoded(
            offsets[part],
            times[part],
            types[part],
            keys[part],
            values[part],
            None if headers is None else headers[part],
        )


class Section(NamedTuple):
    """A batch that was opened.

    :param records: decompressed; ``decode`` copies those of several batches into one buffer.
    """

    header: BatchHeader
    records: bytes | memoryview


def open_section(header: BatchHeader, batch: memoryview, size_max: int = DECOMPRESSED_SIZE_MAX) -> Section:
    """Open a batch.

    :raise ProtocolError: it is cut short, corrupt, or larger.
    """
    if header.codec == Codec.NONE and RECORD_SIZE_MIN * header.record_count <= header.size - HEADER_SIZE <= size_max:
        return Section(header, batch[HEADER_SIZE : header.size])
    return Section(header, open_records(batch, header, size_max))


def decode(sections: Sequence[Section], *, with_headers: bool = False) -> Decoded:
    """The records of some batches of one partition.

    :param sections: of ascending offsets, and at most ``BUFFER_SIZE_MAX`` bytes in all.
    :raise ProtocolError: a record is malformed.
    """
    # Two bytes more, so that the word at each byte can be read.
    buffer = b"".join([*[section.records for section in sections], b"\x00\x00"])
    if not any(section.header.record_count for section in sections):
        return _nothing(with_headers)
    try:
        return _decode(buffer, sections, with_headers)
    except (IndexError, ValueError):
        _explain(sections)
        raise


def _decode(buffer: bytes, sections: Sequence[Section], with_headers: bool) -> Decoded:
    """:raise ValueError: something is wrong somewhere; or IndexError."""
    counts = [section.header.record_count for section in sections]
    ends = record_ends(buffer, counts, [len(section.records) for section in sections])
    starts = np.concatenate((np.zeros(1, dtype=np.int64), ends[:-1]))
    words = words_of(buffer)
    length, position = _varints(words, starts)
    if not (position + length == ends).all():
        raise ValueError("a length does not fit")
    time_delta, position = _varints(words, position + 1)  # no attribute of a record has a meaning
    offset_delta, position = _varints(words, position)
    key_size, key_at = _varints(words, position)
    key_end = key_at + np.maximum(key_size, 0)
    value_size, value_at = _varints(words, key_end)
    value_end = value_at + np.maximum(value_size, 0)
    header_count, behind = _varints(words, value_end)
    plain = header_count == 0
    fits = (key_size >= -1) & (value_size >= -1) & (header_count >= 0)
    fits &= (key_size < len(buffer)) & (value_size < len(buffer))  # no sum of them went beyond 64 bits
    fits &= np.where(plain, behind == ends, behind < ends)
    if not fits.all():
        raise ValueError("a record does not fit")
    offsets = np.repeat([section.header.base_offset for section in sections], counts) + offset_delta
    _check_offsets(offset_delta, sections, counts)
    timestamps, types = _times(time_delta, sections, counts)
    array = _pieces(buffer, (key_at, key_end, value_at, value_end))
    keys = _gather(array, 0, key_size)
    values = _gather(array, 2, value_size)
    headers = _headers(sections, plain) if with_headers else None
    return Decoded(offsets, timestamps, types, keys, values, headers)


def _nothing(with_headers: bool) -> Decoded:
    none: Numbers = np.zeros(0, dtype=np.int64)
    empty = pa.nulls(0, pa.binary())
    return Decoded(none, none, none, empty, empty, pa.nulls(0, HEADERS_TYPE) if with_headers else None)


def _varints(words: Words, at: Numbers) -> tuple[Numbers, Numbers]:
    """The zigzag varints at some positions, and the positions behind them.

    :raise ValueError: a number does not end; or IndexError, where it is beyond the data.
    """
    found = _SHORT_VARINTS.take(words[at])
    sizes = found & _SHORT_SIZE
    numbers = found >> _SHORT_SIZE_BITS
    if not sizes.all():
        long = np.flatnonzero(sizes == 0)
        numbers[long], sizes[long] = _long_varints(words, at[long])
    return numbers, at + sizes


def _long_varints(words: Words, at: Numbers) -> tuple[Numbers, Numbers]:
    """Varints of three bytes and more, and how many bytes they have."""
    raw = np.zeros(len(at), dtype=np.uint64)
    sizes = np.zeros(len(at), dtype=np.int64)
    more = np.arange(len(at))
    shift = 0
    while more.size:
        if shift > _VARINT_SHIFT_MAX:
            raise ValueError("a number of too many bytes")
        byte = (words[at[more] + sizes[more]] & 0xFF).astype(np.uint64)
        if shift == _VARINT_SHIFT_MAX and (byte > 1).any():
            raise ValueError("a number of too many bits")
        raw[more] |= (byte & 0x7F) << np.uint64(shift)
        sizes[more] += 1
        more = more[byte >= 0x80]
        shift += 7
    return _unzigzag(raw), sizes


def _unzigzag(raw: np.ndarray[Any, np.dtype[np.uint64]]) -> Numbers:
    return (raw >> np.uint64(1)).view(np.int64) ^ -(raw & np.uint64(1)).view(np.int64)


def _short_varints() -> Numbers:
    """By two bytes: the number that begins there, and in the lowest bits its size; 0 where it takes more of them."""
    word = np.arange(1 << 16, dtype=np.uint64)
    first, second = word & np.uint64(0xFF), word >> np.uint64(8)
    is_long = first >= 0x80
    raw = np.where(is_long, first & np.uint64(0x7F) | second << np.uint64(7), first)
    found: Numbers = (_unzigzag(raw) << _SHORT_SIZE_BITS) + 1 + is_long
    found[is_long & (second >= 0x80)] = 0
    return found


_SHORT_VARINTS = _short_varints()


def _check_offsets(deltas: Numbers, sections: Sequence[Section], counts: list[int]) -> None:
    """Offsets ascend within each batch, up to its last one."""
    firsts = np.concatenate(([0], np.cumsum(counts)))[:-1]
    firsts = firsts[np.array(counts) > 0]
    steps = np.diff(deltas, prepend=-1)
    steps[firsts] = deltas[firsts] + 1
    last = np.repeat([section.header.last_offset_delta for section in sections], counts)
    if not ((steps > 0) & (deltas <= last)).all():
        raise ValueError("offsets do not ascend")


def _times(deltas: Numbers, sections: Sequence[Section], counts: list[int]) -> tuple[Numbers, Numbers]:
    """Timestamps, and what they mean, of all records."""
    stamped = [bool(section.header.attributes & LOG_APPEND_TIME_BIT) for section in sections]
    if all(stamped):
        times = np.repeat([section.header.max_timestamp for section in sections], counts)
    else:
        base = np.repeat([section.header.base_timestamp for section in sections], counts)
        times = base + deltas
        if (((base >= 0) == (deltas >= 0)) & ((times >= 0) != (base >= 0))).any():
            raise ValueError(f"a timestamp beyond {INT64_END}")
        if any(stamped):
            own = np.repeat([section.header.max_timestamp for section in sections], counts)
            times = np.where(np.repeat(stamped, counts), own, times)
    return times, np.repeat(np.array(stamped, dtype=np.int32), counts)


def _pieces(buffer: bytes, cuts: Sequence[Numbers]) -> pa.Array:
    """The buffer, cut at positions that ascend from list to list and then from row to row.

    The piece before the first cut is left out, that behind the last is empty.
    """
    rows = len(cuts[0])
    whole = np.empty(len(cuts) * rows + 1, dtype=np.int32)
    for index, column in enumerate(cuts):
        whole[index : -1 : len(cuts)] = column
    whole[-1] = whole[-2]
    return pa.BinaryArray.from_buffers(pa.binary(), len(whole) - 1, [None, pa.py_buffer(whole), pa.py_buffer(buffer)])


def _gather(pieces: pa.Array, first: int, sizes: Numbers) -> pa.Array:
    """Every fourth piece, null where the size says so."""
    is_null = sizes < 0
    if is_null.all():
        return pa.nulls(len(sizes), pa.binary())
    indices = np.arange(first, 4 * len(sizes), 4, dtype=np.int64)
    return pieces.take(pa.array(indices, mask=is_null if is_null.any() else None))


def _headers(sections: Sequence[Section], plain: np.ndarray[Any, np.dtype[np.bool_]]) -> pa.Array:
    if plain.all():
        return pa.nulls(len(plain), HEADERS_TYPE)
    rows: list[list[dict[str, Any]] | None] = []
    for headers in _each_headers(sections):
        rows.append([{"key": _text(name), "value": value} for name, value in headers] if headers else None)
    return pa.array(rows, HEADERS_TYPE)


def _each_headers(sections: Sequence[Section]) -> Iterable[Headers]:
    for header, opened in sections:
        records = bytes(opened)
        for head in iter_heads(records, header):
            yield read_record(records, head).headers


def _text(name: str) -> str:
    """What Arrow takes as text: bytes that are no UTF-8 become the sign for that."""
    return name.encode(errors="surrogateescape").decode(errors="replace")


def _explain(sections: Sequence[Section]) -> None:
    """:raise ProtocolError: naming the record and the field that are malformed."""
    for header, opened in sections:
        records = bytes(opened)
        for head in iter_heads(records, header):
            read_record(records, head)
    raise ProtocolError("RecordBatch.records", "malformed")
