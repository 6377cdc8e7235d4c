"""Reads all records of a batch into columns, or into rows.

A plain record has no key, no headers, and the offset after the previous one.  Plain records of equal size are checked
with strided slices, one byte position at a time, and one ``unpack_from`` extracts their values.  Other plain records
take one ``unpack_from`` each; all other records are read byte by byte.  After an error, ``records`` reads the section
again and raises a detailed error.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import repeat
from struct import Struct
from struct import error as StructError
from typing import Any, Generic, NamedTuple, TypeVar

from kreplica.errors import ProtocolError
from kreplica.wire import kernels
from kreplica.wire.batches import CODEC_MASK, HEADER_SIZE, LENGTH_END, LOG_APPEND_TIME_BIT, BatchHeader, Bytes
from kreplica.wire.records import (
    INT64_END,
    Headers,
    Record,
    iter_heads,
    open_records,
    read_headers,
    read_record,
    read_varint,
)

SAME_SIZE_MIN = 12
"""Minimum number of records of equal size that are read in bulk."""

EXTRACTORS_CACHED = 32
"""Maximum number of cached ``_extractor`` structs."""

RETRY_AFTER = 16
"""Number of records read one by one after two consecutive failed attempts to read records in bulk."""

_TIMESTAMP_MAX = 1 << 62
_new = tuple.__new__

# Values of varints of one and two bytes, by their bytes as a little-endian number; other numbers are invalid.
_NO_NUMBER = 1 << 64
_NO_LENGTH = 1 << 29
_TWO_BYTES = [number & 0x7F | 0x80 | number >> 7 << 8 for number in range(1 << 14)]
_NUMBERS = ([_NO_NUMBER] * (1 << 8), [_NO_NUMBER] * (1 << 16))
for _numbers, _raws in zip(_NUMBERS, (range(1 << 7), _TWO_BYTES), strict=True):
    for _number, _raw in enumerate(_raws):
        _numbers[_raw] = (_number >> 1) ^ -(_number & 1)
_LENGTHS = [[number if 0 <= number < _NO_NUMBER else _NO_LENGTH for number in numbers] for numbers in _NUMBERS]
_DELTAS = ([*range(0, 1 << 7, 2)], _TWO_BYTES[::2])
_DELTA_BYTES = ([bytes(_DELTAS[0])], [bytes(raw & 0xFF for raw in _DELTAS[1]), bytes(raw >> 8 for raw in _DELTAS[1])])
_PREFIXES = [
    [(Struct(f"<Hx{time}{delta}BH").unpack_from, Struct(f"<Bx{time}{delta}BB").unpack_from) for delta in "BH"]
    for time in "BH"
]


class Columns(NamedTuple):
    """Columns of all records of a batch, of equal length."""

    offsets: list[int]
    timestamps: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    headers: list[Headers]


Row = TypeVar("Row", bound=tuple[Any, ...])


class RowShape(NamedTuple, Generic[Row]):
    """Layout of a named tuple that holds one record, and fields that are equal for all records of a batch.

    :param constants: one value per field; the values at ``places`` are not used.
    :param places: indexes of the fields for offset, timestamp, key, value and headers.
    """

    row_type: type[Row]
    constants: tuple[Any, ...]
    places: bytes


RECORD_ROWS = RowShape(Record, (None,) * 5, bytes(range(5)))


def open_rows(
    batch: Bytes, header: BatchHeader, decompressed_size_max: int, shape: RowShape[Row]
) -> tuple[list[Row], int]:
    """Return all records of a batch, and their decompressed size.

    :raise ProtocolError: as in ``records.open_records``, ``records.read_record`` and ``records.iter_heads``.
    """
    size = header[1] + LENGTH_END - HEADER_SIZE
    if not header[5] & CODEC_MASK and HEADER_SIZE + size <= len(batch) and size <= decompressed_size_max:
        rows = _read_rows(memoryview(batch)[HEADER_SIZE : HEADER_SIZE + size], header, shape)
        if rows is not None:
            return rows, size
    section = open_records(batch, header, decompressed_size_max)
    return read_rows(section, header, shape), len(section)


def read_rows(section: bytes, header: BatchHeader, shape: RowShape[Row]) -> list[Row]:
    """Return all records of a section.

    :raise ProtocolError: as in ``records.read_record`` and ``records.iter_heads``.
    """
    rows = _read_rows(section, header, shape)
    if rows is not None:
        return rows
    columns = read_columns(section, header)
    row_type, constants, places = shape
    fields: list[Any] = [repeat(constant, len(columns.offsets)) for constant in constants]
    for place, column in zip(places, columns, strict=True):
        fields[place] = column
    return list(map(_new, repeat(row_type), zip(*fields, strict=True)))


def _read_rows(section: Bytes, header: BatchHeader, shape: RowShape[Row]) -> list[Row] | None:
    """Return all records of a section; None if there is no kernel, or it leaves the section to the Python code."""
    if kernels.read_rows is None:
        return None
    base_offset, _, _, _, _, attributes, last_delta, base_timestamp, max_timestamp, _, _, _, count = header
    has_append_time = attributes & LOG_APPEND_TIME_BIT
    rows: list[Row] | None = kernels.read_rows(
        *shape, section, base_offset, base_timestamp, last_delta, count, has_append_time, max_timestamp
    )
    return rows


def read_records(section: bytes, header: BatchHeader) -> list[Record]:
    """Return all records of a section.

    :raise ProtocolError: as in ``records.read_record`` and ``records.iter_heads``.
    """
    return read_rows(section, header, RECORD_ROWS)


def read_columns(section: bytes, header: BatchHeader) -> Columns:
    """Return all records of a section as columns.

    :raise ProtocolError: as in ``records.read_record`` and ``records.iter_heads``.
    """
    if -_TIMESTAMP_MAX < header[7] < _TIMESTAMP_MAX:
        try:
            return _SectionReader(section, header).read()
        except (IndexError, OverflowError, ProtocolError):
            pass
    records = [read_record(section, head) for head in iter_heads(section, header)]
    return Columns(*([list(column) for column in zip(*records, strict=True)] or [[], [], [], [], []]))


class _SectionReader:
    """Reads the records of one section.

    :ivar end: position after the last record read.
    :ivar delta: offset delta of that record.
    :ivar start: start of the last record that was read byte by byte.
    :ivar time_size: bytes of the timestamp of that record.
    """

    __slots__ = ("columns", "count", "delta", "end", "header", "section", "start", "time_size")

    def __init__(self, section: bytes, header: BatchHeader) -> None:
        self.section = section
        self.header = header
        self.count = header.record_count
        self.columns = Columns([], [], [], [], [])
        self.start = self.end = 0
        self.delta = -1
        self.time_size = 1

    def read(self) -> Columns:
        """Read the section.

        :raise OverflowError, IndexError, ProtocolError: the section is malformed.
        """
        header, count, columns = self.header, self.count, self.columns
        values, timestamps = columns.values, columns.timestamps
        try_from, was_tried = 0, False
        while len(values) < count:
            if len(values) >= try_from:
                if self._read_plain() or self._read_keyed():
                    was_tried = False
                    continue
                try_from, was_tried = len(values) + (RETRY_AFTER if was_tried else 1), True
            self._read_one_by_one(try_from)
        if self.end != len(self.section) or self.delta > header.last_offset_delta:
            raise OverflowError
        if timestamps:
            distinct = timestamps if timestamps.count(timestamps[0]) < count else timestamps[:1]
            if not -INT64_END <= min(distinct) <= max(distinct) < INT64_END:
                raise OverflowError
        if header.attributes & LOG_APPEND_TIME_BIT:
            timestamps[:] = [header.max_timestamp] * count
        return columns

    def _read_plain(self) -> int:
        """Read consecutive plain records, and return their number, which may be 0.

        Their lengths take one or two bytes; their timestamps and offsets take as many bytes as those of the first.
        """
        columns, first, start = self.columns, self.delta + 1, self.end
        is_wide = first > 63
        key_at = start + (3 if self.section[start] < 0x80 else 4) + self.time_size + is_wide
        if self.section[key_at] != 1:
            return 0
        deltas = _DELTAS[is_wide][first : first + self.count - len(columns.values)]
        if len(deltas) < SAME_SIZE_MIN:
            times = self._read_each(deltas, is_wide)
        else:
            times = self._read_each(deltas[:1], is_wide)
            if times:
                times += self._read_same_size(start, None, first + 1, len(deltas) - 1) or self._read_each(
                    deltas[1:], is_wide
                )
        columns.keys.extend(repeat(None, len(times)))
        return self._add(first, times)

    def _read_keyed(self) -> int:
        """If the last record has a key, read the following records of the same size; return their number."""
        columns, first = self.columns, self.delta + 1
        key = columns.keys[-1] if columns.values else None
        is_wide = first > 63
        if key is None or columns.values[-1] is None or columns.headers[-1] or is_wide != (self.delta > 63):
            return 0
        count = min(self.count - len(columns.values), len(_DELTAS[is_wide]) - first)
        return self._add(first, self._read_same_size(self.start, key, first, count))

    def _add(self, first: int, times: list[int]) -> int:
        """Add the offsets, timestamps and headers of records whose keys and values were added; return their number."""
        count = len(times)
        if count:
            columns, header = self.columns, self.header
            columns.offsets.extend(range(header[0] + first, header[0] + first + count))
            columns.timestamps.extend(_times(times, header[7], _NUMBERS[self.time_size - 1]))
            columns.headers.extend(repeat((), count))
            self.delta = first + count - 1
        return count

    def _read_each(self, deltas: list[int], is_wide: bool) -> list[int]:
        """Add the values of plain records up to the first record that is not plain; return their encoded timestamps."""
        section, start, (lengths_of_one, lengths) = self.section, self.end, _LENGTHS
        long, short = _PREFIXES[self.time_size - 1][is_wide]
        head = self.time_size + is_wide + 7  # bytes before the value, if both lengths take two bytes
        after, head_less = head - 1, head - 2
        times: list[int] = []
        add_value, add_time = self.columns.values.append, times.append
        try:
            for delta in deltas:
                length, time, found_delta, key, value_length = long(section, start)
                size = lengths[value_length]
                if lengths[length] == size + after:
                    value_at = start + head
                else:  # a length of one byte
                    is_long = length > 0x7F
                    _, time, found_delta, key, value_length = short(section, start + is_long)
                    size = lengths_of_one[value_length]
                    if (lengths if is_long else lengths_of_one)[length] != size + head_less:
                        break
                    value_at = start + head_less + is_long
                stop = value_at + size
                if found_delta != delta or key != 1 or section[stop]:
                    break
                add_value(section[value_at:stop])
                add_time(time)
                start = stop + 1
        except StructError:
            pass  # fewer bytes remain than in the longest prefix
        self.end = start
        return times

    def _read_same_size(self, start: int, key: bytes | None, first: int, count: int) -> list[int]:
        """Add the keys and values of the records after the one at ``start`` if all have its size; otherwise add none.

        The sizes are checked with strided slices, one byte position at a time.

        :param start: start of the last record that was read.
        :param key: key of that record.
        :param first: offset delta of the next record.
        :param count: maximum number of records to add.
        :return: the encoded timestamps of the added records.
        """
        section, end, columns, is_wide = self.section, self.end, self.columns, first > 63
        size, value = end - start, columns.values[-1] or b""
        count = min(count, (len(section) - end) // size)
        if count < SAME_SIZE_MIN:
            return []
        stop = end + count * size
        time_at = start + (2 if section[start] < 0x80 else 3)
        delta_at = time_at + self.time_size
        length_at, value_at = delta_at + 1 + is_wide, end - 1 - len(value)
        key_at = read_varint(section, length_at)[1]
        key_end = key_at + len(key or b"")
        for place in (*range(start, time_at - 1), *range(length_at, key_at), *range(key_end, value_at), end - 1):
            if section[place + size : stop : size] != section[place : place + 1] * count:
                return []
        for place, expected in enumerate(_DELTA_BYTES[is_wide], delta_at + size):
            if section[place:stop:size] != expected[first : first + count]:
                return []
        if key is None:
            columns.values.extend(_extractor(value_at - start, 0, 0, len(value), count)(section, end))
        else:
            extracted = _extractor(key_at - start, len(key), value_at - key_end, len(value), count)(section, end)
            columns.keys.extend(extracted[::2])
            columns.values.extend(extracted[1::2])
        self.end = stop
        times = section[time_at + size : stop : size]
        if self.time_size == 1:
            return list(times)
        return [low | high << 8 for low, high in zip(times, section[time_at + size + 1 : stop : size], strict=True)]

    def _read_one_by_one(self, try_from: int) -> None:
        """Read records one by one, until the end or until bulk reading may be tried again.

        Varints are decoded inline: a function would be called five times per record.
        """
        section, header, count = self.section, self.header, self.count
        base_offset, base_timestamp = header.base_offset, header.base_timestamp
        columns = self.columns
        add_offset, add_timestamp = columns.offsets.append, columns.timestamps.append
        add_key, add_value, add_headers = columns.keys.append, columns.values.append, columns.headers.append
        index, end, previous, section_end = len(columns.values), self.end, self.delta, len(section)
        while index < count:
            start = end
            if (byte := section[start]) < 0x80:
                end, position = start + 1 + ((byte >> 1) ^ -(byte & 1)), start + 2
            elif (second := section[start + 1]) < 0x80:
                end, position = start + 2 + ((second << 6 | (byte & 0x7F) >> 1) ^ -(byte & 1)), start + 3
            else:
                size, position = read_varint(section, start)
                end, position = position + size, position + 1
            timestamp_at = position
            if (byte := section[position]) < 0x80:
                timestamp, position = (byte >> 1) ^ -(byte & 1), position + 1
            else:
                timestamp, position = read_varint(section, position)
            delta_at = position
            if (byte := section[position]) < 0x80:
                delta, position = (byte >> 1) ^ -(byte & 1), position + 1
            elif (second := section[position + 1]) < 0x80:
                delta, position = (second << 6 | (byte & 0x7F) >> 1) ^ -(byte & 1), position + 2
            else:
                delta, position = read_varint(section, position)
            key, key_at = None, position + 1
            if section[position] != 1:
                size, key_at = read_varint(section, position)
                if size < 0:
                    raise OverflowError
                key = section[key_at : key_at + size]
            value_length_at = key_at + (0 if key is None else size)
            if (byte := section[value_length_at]) < 0x80:
                size, value_at = (byte >> 1) ^ -(byte & 1), value_length_at + 1
            elif (second := section[value_length_at + 1]) < 0x80:
                size, value_at = (second << 6 | (byte & 0x7F) >> 1) ^ -(byte & 1), value_length_at + 2
            else:
                size, value_at = read_varint(section, value_length_at)
            position = value_at if size == -1 else value_at + size
            value = None if size == -1 else section[value_at:position]
            headers: Headers = ()
            position += 1
            if section[position - 1]:
                headers, position = read_headers(section, position - 1, end, base_offset + delta)
            if position != end or size < -1 or not previous < delta:
                raise OverflowError
            previous, index = delta, index + 1
            add_offset(base_offset + delta)
            add_timestamp(base_timestamp + timestamp)
            add_key(key)
            add_value(value)
            add_headers(headers)
            if (
                (key is None or (end < section_end and section[end] == section[start]))
                and index >= try_from
                and not headers
                and delta_at - timestamp_at <= 2
            ):
                self.start, self.time_size = start, delta_at - timestamp_at
                break
        self.end, self.delta = end, previous


@lru_cache(maxsize=EXTRACTORS_CACHED)
def _extractor(before: int, key: int, between: int, value: int, count: int) -> Callable[[bytes, int], tuple[bytes,
...]]:
    """Return a function that extracts keys and values of one size, with the given gaps before and between them."""
    fields = f"{before}x{key}s{between}x{value}sx" if between else f"{before}x{value}sx"
    return Struct(fields * count).unpack_from


def _times(raw: list[int], base: int, numbers: list[int]) -> list[int]:
    """Decode timestamps."""
    if raw.count(raw[0]) == len(raw):  # all in the same millisecond
        return [base + numbers[raw[0]]] * len(raw)
    return [base + numbers[encoded] for encoded in raw]
