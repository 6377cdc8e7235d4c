"""The records inside a batch, all at once, column by column: for who reads whole batches.

Records that follow each other often have the same size and shape: such a run is checked and cut by slices with a
stride, a column of bytes at a time, which costs a fraction of going from field to field.  All others are read in place
where their varints have one or two bytes.  Nothing is taken on trust: at the first thing that is wrong this gives up,
and ``records`` says what it is.
"""

from __future__ import annotations

from itertools import repeat
from typing import NamedTuple

from kreplica.errors import ProtocolError
from kreplica.wire.batches import LOG_APPEND_TIME_BIT, BatchHeader
from kreplica.wire.records import (
    INT64_END,
    Headers,
    Record,
    iter_heads,
    read_headers,
    read_record,
    read_varint,
)

RUN_MIN = 8
"""Fewer records of one shape are read one by one."""

RUN_PAUSE = 16
"""So many records are read one by one after a run that was none."""

_TIMESTAMP_MAX = 1 << 62
_ONE_BYTE = tuple((byte >> 1) ^ -(byte & 1) for byte in range(128))
# The varints of 0, 1, 2...: of one byte up to 63, the low and the high bytes of those of two from 0 on.
_DELTAS = bytes(delta << 1 for delta in range(64))
_DELTAS_LOW = bytes((delta << 1 & 0x7F) | 0x80 for delta in range(1 << 13))
_DELTAS_HIGH = bytes(delta >> 6 for delta in range(1 << 13))
_new = tuple.__new__


class Columns(NamedTuple):
    """Of all records of a batch; equally long."""

    offsets: list[int]
    timestamps: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    headers: list[Headers]


def read_records(section: bytes, header: BatchHeader) -> list[Record]:
    """All records of a section.

    :raise ProtocolError: as ``records.read_record`` and ``records.iter_heads``.
    """
    return list(map(_new, repeat(Record), zip(*read_columns(section, header), strict=True)))


def read_columns(section: bytes, header: BatchHeader) -> Columns:
    """All records of a section, by columns.

    :raise ProtocolError: as ``records.read_record`` and ``records.iter_heads``.
    """
    if -_TIMESTAMP_MAX < header.base_timestamp < _TIMESTAMP_MAX:
        try:
            return _Section(section, header).read()
        except (IndexError, OverflowError, ProtocolError):
            pass
    found = [read_record(section, head) for head in iter_heads(section, header)]
    return Columns(*([list(column) for column in zip(*found, strict=True)] or [[], [], [], [], []]))


class _Section:
    """A section that is being read.

    :ivar index: how many records were read; the last is from ``start`` to ``end``, and has the offset delta ``delta``.
    :ivar places: where, in the last record, these begin: timestamp, offset delta, key's length, key, value's length,
        value.
    """

    def __init__(self, section: bytes, header: BatchHeader) -> None:
        self.section = section
        self.header = header
        self.columns = Columns([], [], [], [], [])
        self.index = self.start = self.end = 0
        self.delta = -1
        self.places = (0, 0, 0, 0, 0, 0)

    def read(self) -> Columns:
        """:raise OverflowError: something is wrong, as it is with whatever else is raised."""
        header, timestamps = self.header, self.columns.timestamps
        run_from = 0
        while self.index < header.record_count:
            self._read_one_by_one(run_from)
            if self.index < header.record_count and not self._read_run():
                run_from = self.index + RUN_PAUSE
        if self.end != len(self.section) or self.delta > header.last_offset_delta:
            raise OverflowError
        if header.attributes & LOG_APPEND_TIME_BIT:
            timestamps[:] = [header.max_timestamp] * len(timestamps)
        elif timestamps and not -INT64_END <= min(timestamps) <= max(timestamps) < INT64_END:
            raise OverflowError
        return self.columns

    def _read_one_by_one(self, run_from: int) -> None:
        """Read records up to one that may be the first of a run, or to the end."""
        section, header, count = self.section, self.header, self.header.record_count
        base_offset, base_timestamp = header.base_offset, header.base_timestamp
        columns = self.columns
        add_offset, add_timestamp = columns.offsets.append, columns.timestamps.append
        add_key, add_value, add_headers = columns.keys.append, columns.values.append, columns.headers.append
        index, end, previous, section_end = self.index, self.end, self.delta, len(section)
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
            key, key_length_at, key_at = None, position, position + 1
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
            if index >= run_from and end < section_end and section[end] == section[start] and not headers:
                self.places = timestamp_at, delta_at, key_length_at, key_at, value_length_at, value_at
                break
        self.index, self.start, self.end, self.delta = index, start, end, previous

    def _read_run(self) -> int:
        """Read the records that follow with the shape of the last one; how many those are, which may be none.

        They have the same bytes where the last one has lengths, and offsets that follow each other.
        """
        section, start, end, columns = self.section, self.start, self.end, self.columns
        timestamp_at, delta_at, key_length_at, key_at, value_length_at, value_at = self.places
        size = end - start
        count = min(self.header.record_count - self.index, (len(section) - end) // size)
        places = [*range(start, timestamp_at - 1), *range(key_length_at, key_at)]
        places += [*range(value_length_at, value_at), end - 1]
        for place in places:
            count = self._same(place, size, count)
        count = min(count, (1 << (7 * (key_length_at - delta_at) - 1)) - 1 - self.delta)
        if count < RUN_MIN or not self._follow(delta_at, key_length_at - delta_at, size, count):
            return 0
        times = self._times(timestamp_at, delta_at - timestamp_at, size, count)
        if times is None:
            return 0
        behind, first = end + count * size, self.header.base_offset + self.delta + 1
        columns.offsets.extend(range(first, first + count))
        columns.timestamps.extend(times)
        for column, begin, stop in ((columns.keys, key_at, value_length_at), (columns.values, value_at, end - 1)):
            if column[-1] is None:
                column.extend(repeat(None, count))
            else:
                width = stop - begin
                column.extend([section[at : at + width] for at in range(begin + size, behind, size)])
        columns.headers.extend(repeat((), count))
        self.index, self.start, self.end, self.delta = self.index + count, behind - size, behind, self.delta + count
        return count

    def _column(self, place: int, size: int, count: int) -> bytes:
        """The bytes of the records that follow where the last one has that place."""
        return self.section[place + size : place + size * count + 1 : size]

    def _same(self, place: int, size: int, count: int) -> int:
        """How many of the records that follow have the byte that the last one has there."""
        column = self._column(place, size, count)
        return len(column) - len(column.lstrip(self.section[place : place + 1]))

    def _follow(self, place: int, width: int, size: int, count: int) -> bool:
        """Whether the offsets of the records that follow leave no gap."""
        first, stop = self.delta + 1, self.delta + 1 + count
        low = self._column(place, size, count)
        if width == 1:
            return low == _DELTAS[first:stop]
        high = self._column(place + 1, size, count)
        return width == 2 and low == _DELTAS_LOW[first:stop] and high == _DELTAS_HIGH[first:stop]

    def _times(self, place: int, width: int, size: int, count: int) -> list[int] | None:
        """The timestamps of the records that follow, where each takes one byte, or two, as that of the last one."""
        base = self.header.base_timestamp
        low = self._column(place, size, count)
        if width == 1:
            if low.count(low[0]) == count and low.isascii():  # written at once
                return [base + _ONE_BYTE[low[0]]] * count
            return [base + _ONE_BYTE[byte] for byte in low] if low.isascii() else None
        high = self._column(place + 1, size, count)
        if width != 2 or not high.isascii() or min(low) < 0x80:
            return None
        return [base + ((two << 6 | (one & 0x7F) >> 1) ^ -(one & 1)) for one, two in zip(low, high, strict=True)]
