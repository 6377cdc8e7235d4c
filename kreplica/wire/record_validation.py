"""Checks the structure of all records of a batch, before a broker appends the batch.

Lengths, offsets and the number of records are checked; keys, values and headers are skipped, not copied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from kreplica.errors import ProtocolError
from kreplica.wire import kernels
from kreplica.wire.batches import NO_TIMESTAMP, BatchHeader
from kreplica.wire.compression import PATH
from kreplica.wire.records import INT64_END, read_varint

RECORDS_PER_SLICE = 512
"""Number of records checked between calls to ``pause``, in about 0.4 ms."""

REPORTED_MAX = 1000
"""Maximum number of records that are reported individually."""


class TimestampRange(NamedTuple):
    """Inclusive range of timestamps that a topic accepts, in milliseconds."""

    earliest_ms: int
    latest_ms: int


ANY_TIMESTAMP = TimestampRange(-INT64_END, INT64_END - 1)


class RecordFacts(NamedTuple):
    """Results of the check of one valid batch.

    :param max_timestamp_ms: the highest timestamp of all records.
    :param without_key: indexes of the first ``REPORTED_MAX`` records without a key.
    :param out_of_range: (index, timestamp) of the first ``REPORTED_MAX`` records outside the accepted range.
    """

    max_timestamp_ms: int
    without_key: Sequence[int]
    out_of_range: Sequence[tuple[int, int]]


def check_records(
    section: bytes | bytearray,
    header: BatchHeader,
    accepted: TimestampRange = ANY_TIMESTAMP,
    pause: Callable[[], object] | None = None,
) -> RecordFacts:
    """Check all records of a decompressed section.

    :param header: checked header of the batch, with at least one record.
    :param accepted: accepted timestamps; a record without a timestamp (-1) is always accepted.
    :param pause: called after every ``RECORDS_PER_SLICE`` records.
    :raise ProtocolError: a record does not fit into its length or into the section, offsets do not increase within the
        batch, or bytes are left after the last record.
    """
    if kernels.check_records is not None:
        low, high = max(accepted.earliest_ms, -INT64_END), min(accepted.latest_ms, INT64_END - 1)
        facts = kernels.check_records(section, header[7], header[6], header[12], low, high)
        if facts is not None:
            return RecordFacts(*facts)
    check = _RecordCheck(section, header, accepted)
    for first in range(0, header.record_count, RECORDS_PER_SLICE):
        if first and pause is not None:
            pause()
        try:
            check.advance(first, min(first + RECORDS_PER_SLICE, header.record_count))
        except (IndexError, OverflowError) as error:
            raise ProtocolError(PATH, "a record is truncated, or has an overlong varint") from error
    if check.position != len(section):
        raise ProtocolError(PATH, f"{len(section) - check.position} bytes after the last record")
    return RecordFacts(check.highest + header.base_timestamp, check.without_key, check.out_of_range)


class _RecordCheck:
    """Checks one batch in slices; positions and counts are kept between slices."""

    def __init__(self, section: bytes | bytearray, header: BatchHeader, accepted: TimestampRange) -> None:
        self.section = section
        self.position = 0
        self.previous = -1
        self.base = header.base_timestamp
        self.last = 2 * header.last_offset_delta
        self.low, self.high = accepted.earliest_ms - self.base, accepted.latest_ms - self.base
        self.highest = -INT64_END - self.base
        self.without_key: list[int] = []
        self.out_of_range: list[tuple[int, int]] = []

    def advance(self, first: int, end_index: int) -> None:
        """Check the records with these indexes: the hot loop when compressed batches are produced.

        Varints of one and two bytes are read inline, and lengths without zigzag decoding (negative lengths are odd).
        """
        section, position, previous, last = self.section, self.position, self.previous, self.last
        low, high, highest = self.low, self.high, self.highest
        for index in range(first, end_index):
            length, position = section[position], position + 1
            if length > 127:
                byte, position = section[position], position + 1
                length += (byte << 7) - 128
                if byte > 127:
                    length, position = _zigzag(section, position - 2)
            end = position + (length >> 1)
            position += 1  # the attributes, which are unused
            number, position = section[position], position + 1
            if number > 127:
                byte, position = section[position], position + 1
                number += (byte << 7) - 128
                if byte > 127:
                    number, position = _zigzag(section, position - 2)
            delta = (number >> 1) ^ -(number & 1)
            if delta > highest:
                highest = delta
            if not low <= delta <= high:
                self._report_timestamp(index, delta)
            number, position = section[position], position + 1
            if number > 127:
                byte, position = section[position], position + 1
                number += (byte << 7) - 128
                if byte > 127:
                    number, position = _zigzag(section, position - 2)
            if number & 1 or not previous < number <= last:
                delta = _decode_zigzag(number)
                raise _malformed(
                    index, "offset_delta", f"{delta} is not between {previous // 2 + 1} and {last // 2}"
                )
            previous = number
            number, position = section[position], position + 1
            if number == 1:
                self._report_without_key(index)
            elif number < 128 and not number & 1:
                position += number >> 1
            else:
                if read_varint(section, position - 1)[0] == -1:  # an overlong varint
                    self._report_without_key(index)
                position = _skip_bytes(section, position - 1, index, "key")
            number, position = section[position], position + 1
            if number > 127 and (byte := section[position]) < 128:
                number, position = number + (byte << 7) - 128, position + 1
                position += number >> 1
                if number & 1:
                    raise _malformed(index, "value", f"length {_decode_zigzag(number)}")
            elif number < 128 and not number & 1:
                position += number >> 1
            else:
                position = _skip_bytes(section, position - 1, index, "value")
            number, position = section[position], position + 1
            if number:
                position = _skip_headers(section, position - 1, end, index)
            if position != end or length & 1:
                fields_size = position - end + (length >> 1)
                raise _malformed(index, "length", f"{_decode_zigzag(length)}, but the fields take {fields_size} bytes")
        self.position, self.previous, self.highest = position, previous, highest

    def _report_without_key(self, index: int) -> None:
        if len(self.without_key) < REPORTED_MAX:
            self.without_key.append(index)

    def _report_timestamp(self, index: int, delta: int) -> None:
        timestamp_ms = self.base + delta
        if timestamp_ms != NO_TIMESTAMP and len(self.out_of_range) < REPORTED_MAX:
            self.out_of_range.append((index, timestamp_ms))


def _decode_zigzag(zigzag: int) -> int:
    return (zigzag >> 1) ^ -(zigzag & 1)


def _zigzag(section: bytes | bytearray, position: int) -> tuple[int, int]:
    """Read a varint without decoding zigzag (negative numbers are odd), and return it with the position after it.

    :raise IndexError: the data ends within the varint.
    :raise OverflowError: the varint is longer than 64 bits.
    """
    second = section[position + 1]
    if second < 128:
        return section[position] + (second << 7) - 128, position + 2
    number, position = read_varint(section, position)
    return (number << 1) ^ (number >> 63), position


def _skip_bytes(section: bytes | bytearray, position: int, index: int, field: str) -> int:
    """Skip a length and its bytes (-1 is null), and return the position after them."""
    length, position = read_varint(section, position)
    if length < -1:
        raise _malformed(index, field, f"length {length}")
    return position + max(length, 0)


def _skip_headers(section: bytes | bytearray, position: int, end: int, index: int) -> int:
    count, position = read_varint(section, position)
    if not 0 <= count <= (end - position) // 2:
        raise _malformed(index, "headers", f"{count} headers do not fit into {end - position} bytes")
    for _ in range(count):
        length, position = read_varint(section, position)
        if length < 0:
            raise _malformed(index, "headers.key", f"length {length}")
        position = _skip_bytes(section, position + length, index, "headers.value")
    return position


def _malformed(index: int, field: str, reason: str) -> ProtocolError:
    return ProtocolError(f"{PATH}[{index}].{field}", reason)
