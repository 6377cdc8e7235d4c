"""Reads the records of a batch (magic 2) one by one, by key or by timestamp.

A valid CRC does not prove that the producer encoded the batch correctly: every length is checked against the remaining
bytes, and the decompressed size is limited.  ``batches`` checks the CRC.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from kreplica.errors import ProtocolError
from kreplica.wire.batches import HEADER_SIZE, LOG_APPEND_TIME_BIT, RECORD_SIZE_MIN, BatchHeader, Bytes, parse_header
from kreplica.wire.compression import decompress

DECOMPRESSED_SIZE_MAX = 100 * 1024 * 1024
"""Default limit on the decompressed size of a batch: the maximum request size."""

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]

INT64_END = 1 << 63
_LENGTHS_SIZE_MIN = 3
"""Minimum size of the key length, the value length and the header count together."""

_VARINT_SIZE_MAX = 10


class Record(NamedTuple):
    """One record of a log.

    :param timestamp_ms: creation or append time; -1 if the producer did not set it.
    :param key: None if absent; compacted topics reject such records.
    :param value: None deletes the key from a compacted topic.
    :param headers: in order; names may repeat, and invalid UTF-8 in a name is decoded to lone surrogates.
    """

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class RecordTime(NamedTuple):
    """Offset and timestamp of a record, for ListOffsets."""

    offset: int
    timestamp_ms: int


RecordHead: TypeAlias = tuple[int, int, int, int, int]
"""Start of a record, position of the key length, end, timestamp and offset."""


def iter_records(batch: Bytes, *, decompressed_size_max: int = DECOMPRESSED_SIZE_MAX) -> Iterator[Record]:
    """Yield the records of the batch at the start of a buffer, including control records.

    :param decompressed_size_max: maximum total size of the records.
    :raise ProtocolError: a record is malformed; the records before it are yielded first.
    """
    header = parse_header(batch)
    section = open_records(batch, header, decompressed_size_max)
    for head in iter_heads(section, header):
        yield read_record(section, head)


def iter_keys(
    batch: Bytes, *, decompressed_size_max: int = DECOMPRESSED_SIZE_MAX
) -> Iterator[tuple[int, bytes | None]]:
    """Yield (offset, key) of each record, for compaction; values and headers are not read.

    :raise ProtocolError: as in ``iter_records``, but values and headers are not checked.
    """
    header = parse_header(batch)
    section = open_records(batch, header, decompressed_size_max)
    for _, position, end, _, offset in iter_heads(section, header):
        key, _ = _read_bytes(section, position, end, offset, "key")
        yield offset, key


def find_timestamp(
    batch: Bytes, timestamp_ms: int, start_offset: int = 0, *, decompressed_size_max: int = DECOMPRESSED_SIZE_MAX
) -> RecordTime | None:
    """Return the offset and timestamp of the first record whose timestamp is at least the given one, or None.

    :param start_offset: records before it are ignored, because the log may start inside the batch.
    :raise ProtocolError: as in ``iter_records``, up to the returned record.
    """
    header = parse_header(batch)
    section = open_records(batch, header, decompressed_size_max)
    for _, _, _, timestamp, offset in iter_heads(section, header):
        if timestamp >= timestamp_ms and offset >= start_offset:
            return RecordTime(offset, timestamp)
    return None


def max_timestamp_record(
    batch: Bytes, start_offset: int = 0, *, decompressed_size_max: int = DECOMPRESSED_SIZE_MAX
) -> RecordTime | None:
    """Return the offset and timestamp of the first record with the highest timestamp, or None (KIP-734).

    :param start_offset: records before it are ignored.
    :raise ProtocolError: as in ``iter_records``.
    """
    header = parse_header(batch)
    section = open_records(batch, header, decompressed_size_max)
    best: RecordTime | None = None
    for _, _, _, timestamp, offset in iter_heads(section, header):
        if offset >= start_offset and (best is None or timestamp > best.timestamp_ms):
            best = RecordTime(offset, timestamp)
    return best


def open_records(batch: Bytes, header: BatchHeader, decompressed_size_max: int) -> bytes:
    """Return the decompressed records of a batch.

    :raise ProtocolError: the batch is truncated, or its records are corrupt, too large, or fewer than the header says.
    """
    if header.size > len(batch):
        raise ProtocolError("RecordBatch.length", f"the batch has {header.size} bytes, but {len(batch)} remain")
    section = decompress(header.codec, memoryview(batch)[HEADER_SIZE : header.size], decompressed_size_max)
    if not 0 <= header.record_count * RECORD_SIZE_MIN <= len(section):
        raise ProtocolError("RecordBatch.record_count", f"{header.record_count} do not fit into {len(section)} bytes")
    return section


def iter_heads(section: bytes, header: BatchHeader) -> Iterator[RecordHead]:
    """Yield the ``RecordHead`` of each record; keys, values and headers are not read.

    One-byte varints, which are the most frequent, are read inline: this loop determines the speed of compaction.

    :raise ProtocolError: a record exceeds the section, offsets do not increase, or bytes follow the last record.
    """
    base_offset, base_timestamp, last_delta = header.base_offset, header.base_timestamp, header.last_offset_delta
    append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME_BIT else None
    position, section_end, previous = 0, len(section), -1
    for index in range(header.record_count):
        start = position
        try:
            length, position = read_varint(section, position)
            end = position + length
            position += 1  # the attributes, which are unused
            byte = section[position]
            if byte < 0x80:
                timestamp_delta, position = (byte >> 1) ^ -(byte & 1), position + 1
            else:
                timestamp_delta, position = read_varint(section, position)
            byte = section[position]
            if byte < 0x80:
                delta, position = (byte >> 1) ^ -(byte & 1), position + 1
            else:
                delta, position = read_varint(section, position)
        except (IndexError, OverflowError) as error:
            raise _malformed(index, "length", "truncated, or an overlong varint") from error
        if not position + _LENGTHS_SIZE_MIN <= end <= section_end:
            raise _malformed(index, "length", f"{length}, but {section_end - start} bytes remain")
        if not previous < delta <= last_delta:
            raise _malformed(index, "offset_delta", f"{delta} is not between {previous + 1} and {last_delta}")
        timestamp = base_timestamp + timestamp_delta if append_time is None else append_time
        if not -INT64_END <= timestamp < INT64_END:
            raise _malformed(index, "timestamp_delta", f"{base_timestamp} + {timestamp_delta} exceeds 64 bits")
        yield start, position, end, timestamp, base_offset + delta
        previous, position = delta, end
    if position != section_end:
        raise ProtocolError("RecordBatch.records", f"{section_end - position} bytes after the last record")


def read_record(section: bytes, head: RecordHead) -> Record:
    """Read the record that a ``RecordHead`` describes.

    :raise ProtocolError: the record is malformed.
    """
    _, position, end, timestamp_ms, offset = head
    key, position = _read_bytes(section, position, end, offset, "key")
    value, position = _read_bytes(section, position, end, offset, "value")
    headers: Headers = ()
    if position < end and section[position] == 0:
        position += 1
    else:
        headers, position = read_headers(section, position, end, offset)
    if position != end:
        raise _malformed_at(offset, "length", f"{end - position} bytes after its last field")
    return Record(offset, timestamp_ms, key, value, headers)


def read_headers(section: bytes, position: int, end: int, offset: int) -> tuple[Headers, int]:
    """Read the headers of a record, and return them with the position after them.

    :raise ProtocolError: the headers are malformed.
    """
    count, position = _read_number(section, position, end, offset, "headers")
    if not 0 <= count <= (end - position) // 2:
        raise _malformed_at(offset, "headers", f"{count} headers do not fit into {end - position} bytes")
    headers = []
    for _ in range(count):
        name, position = _read_bytes(section, position, end, offset, "headers.key")
        if name is None:
            raise _malformed_at(offset, "headers.key", "null is not allowed")
        value, position = _read_bytes(section, position, end, offset, "headers.value")
        headers.append((name.decode(errors="surrogateescape"), value))
    return tuple(headers), position


def _read_bytes(section: bytes, position: int, end: int, offset: int, field: str) -> tuple[bytes | None, int]:
    if position < end and (byte := section[position]) < 0x80:  # most lengths take one byte
        length, position = (byte >> 1) ^ -(byte & 1), position + 1
    else:
        length, position = _read_number(section, position, end, offset, field)
    stop = position + length
    if length >= 0 and stop <= end:
        return section[position:stop], stop
    if length == -1 and position <= end:
        return None, position
    raise _malformed_at(offset, field, f"length is {length}, but {end - position} bytes remain")


def _read_number(section: bytes, position: int, end: int, offset: int, field: str) -> tuple[int, int]:
    try:
        return read_varint(section, position)
    except (IndexError, OverflowError) as error:
        raise _malformed_at(offset, field, "truncated, or an overlong varint") from error


def read_varint(data: bytes | bytearray, position: int) -> tuple[int, int]:
    """Read a zigzag varint of up to 64 bits, and return it with the position after it.

    :raise IndexError: the data ends within the varint.
    :raise OverflowError: the varint is longer than 64 bits.
    """
    byte = data[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    second = data[position + 1]
    if second < 0x80:
        return (second << 6 | (byte & 0x7F) >> 1) ^ -(byte & 1), position + 2
    number, shift = byte & 0x7F | (second & 0x7F) << 7, 14
    for at in range(position + 2, position + _VARINT_SIZE_MAX):
        byte = data[at]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            if number >> 64:
                break
            return (number >> 1) ^ -(number & 1), at + 1
        shift += 7
    raise OverflowError


def _malformed(index: int, field: str, reason: str) -> ProtocolError:
    return ProtocolError(f"RecordBatch.records[{index}].{field}", reason)


def _malformed_at(offset: int, field: str, reason: str) -> ProtocolError:
    return ProtocolError(f"Record(offset={offset}).{field}", reason)
