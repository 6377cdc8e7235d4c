"""Headers and CRCs of record batches (magic 2): parses, checks and updates them without reading the records.

A leader handles a produced batch with one unpack and one CRC.  Batches of magic 0 and 1 are detected and rejected.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from struct import Struct
from typing import NamedTuple, TypeAlias

from crc32c import crc32c

from kreplica.errors import ErrorCode, KafkaError, ProtocolError
from kreplica.wire import kernels

Bytes: TypeAlias = bytes | bytearray | memoryview
WritableBytes: TypeAlias = bytearray | memoryview

HEADER = Struct(">qiibIhiqqqhii")
HEADER_SIZE = 61
LENGTH_END = 12
"""Size of ``base_offset`` and ``length``, which ``length`` does not include."""

MAGIC = 2
MAGIC_POSITION = 16
CRC_POSITION = 17
CRC_START = 21
"""The CRC covers the attributes and all later bytes, so setting the offset and the leader epoch does not change it."""
ATTRIBUTES_POSITION = CRC_START + 1
"""Position of the low byte of the attributes, which holds all defined bits."""

CODEC_MASK = 0b0000_0111
LOG_APPEND_TIME_BIT = 0b0000_1000
TRANSACTIONAL_BIT = 0b0001_0000
CONTROL_BIT = 0b0010_0000
DELETE_HORIZON_BIT = 0b0100_0000
"""``base_timestamp`` is the time after which compaction may remove the batch's tombstones (KIP-534)."""

CLIENT_ATTRIBUTES = CODEC_MASK | TRANSACTIONAL_BIT
CODEC_ID_MAX = 4
RECORD_SIZE_MIN = 7

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
SEQUENCE_MASK = 0x7FFF_FFFF

SCAN_SIZE = 1 << 18
"""Number of bytes that ``iter_checked`` checks in one call to the kernel, which takes about 15 us."""

_LENGTH_MIN = HEADER_SIZE - LENGTH_END
_unpack_header = HEADER.unpack_from
_new_tuple = tuple.__new__
_BASE_OFFSET = Struct(">q")
_LENGTH_AND_MAGIC = Struct(">8xi4xb").unpack_from
_LEADER_EPOCH = Struct(">i")
_LEADER_EPOCH_POSITION = 12
_OFFSET_LENGTH_EPOCH = Struct(">qii")
_CRC = Struct(">I")
_ATTRIBUTES = Struct(">h")
_TIMESTAMP = Struct(">q")
_MAX_TIMESTAMP_POSITION = 35
_PRODUCER = Struct(">qhi")
_PRODUCER_POSITION = 43


class TimestampType(IntEnum):
    """Meaning of a batch's timestamps."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class BatchHeader(NamedTuple):
    """Header of a batch, in wire order; timestamps in milliseconds since 1970.

    :param length: bytes after this field; see ``size``.
    :param last_offset_delta: offset delta of the batch's original last record; compaction does not change it.
    """

    base_offset: int
    length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Size of the batch in bytes."""
        return self[1] + LENGTH_END

    @property
    def last_offset(self) -> int:
        """Offset of the last record."""
        return self[0] + self[6]

    @property
    def next_offset(self) -> int:
        """Offset after the last record."""
        return self[0] + self[6] + 1

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record, which wraps from 2**31 - 1 to 0, or ``NO_SEQUENCE``."""
        base_sequence = self.base_sequence
        return base_sequence if base_sequence < 0 else (base_sequence + self.last_offset_delta) & SEQUENCE_MASK

    @property
    def codec(self) -> int:
        """ID of a ``compression.Codec``, or an undefined ID from 5 to 7."""
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> TimestampType:
        """Clock of the timestamps: the producer's or the broker's."""
        return TimestampType((self.attributes & LOG_APPEND_TIME_BIT) >> 3)

    @property
    def has_producer_id(self) -> bool:
        """True if an idempotent producer wrote the batch, or a coordinator on its behalf."""
        return self.producer_id >= 0

    @property
    def is_transactional(self) -> bool:
        """True if the batch belongs to a transaction."""
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        """True if the batch holds control records, which clients hide from applications."""
        return self.attributes & CONTROL_BIT != 0

    @property
    def has_delete_horizon(self) -> bool:
        """True if ``base_timestamp`` is the delete horizon of tombstones (KIP-534)."""
        return self.attributes & DELETE_HORIZON_BIT != 0


def parse_header(buffer: Bytes, position: int = 0) -> BatchHeader:
    """Parse the header at a position; the records may extend past the buffer.

    :raise ProtocolError: the buffer has fewer than ``HEADER_SIZE`` bytes, or the length or the magic is invalid.
    """
    if position + HEADER_SIZE > len(buffer):
        raise ProtocolError("RecordBatch", f"the header has {HEADER_SIZE} bytes, but {len(buffer) - position} remain")
    header = _new_tuple(BatchHeader, _unpack_header(buffer, position))
    if header[3] != MAGIC:
        raise ProtocolError("RecordBatch.magic", f"{header[3]} is not supported, only {MAGIC}")
    if header[1] < _LENGTH_MIN:
        raise ProtocolError("RecordBatch.length", f"{header[1]} is less than the minimum of {_LENGTH_MIN}")
    return header


def iter_checked(buffer: Bytes) -> Iterator[tuple[int, BatchHeader, bool]]:
    """Yield (position, header, True if the CRC is correct) for each batch in the buffer.

    A truncated last batch is ignored, as in fetched records (KIP-74).

    :raise ProtocolError: a header is invalid.
    """
    position = 0
    while kernels.scan_batches is not None:
        headers: list[BatchHeader] = kernels.scan_batches(BatchHeader, buffer, position, SCAN_SIZE)
        if not headers:
            break  # the end, or a batch that the Python code reports
        for header in headers:
            yield position, header, True
            position += header[1] + LENGTH_END
    for at, header in iter_headers(buffer, position, incomplete_last=True):
        yield at, header, verify_crc(buffer, header, at)


def iter_headers(
    buffer: Bytes, position: int = 0, *, incomplete_last: bool = False
) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) for each batch in the buffer, starting at ``position``.

    :param incomplete_last: accept a truncated last batch, as in fetched records (KIP-74).
    :raise ProtocolError: a header is invalid, or the last batch is truncated.
    """
    end = len(buffer)
    while position + HEADER_SIZE <= end:
        header = _new_tuple(BatchHeader, _unpack_header(buffer, position))
        end_of_batch = position + header[1] + LENGTH_END
        if header[3] != MAGIC or header[1] < _LENGTH_MIN:
            parse_header(buffer, position)  # raises the detailed error
        if end_of_batch > end:
            break
        yield position, header
        position = end_of_batch
    if position < end and not incomplete_last:
        header = parse_header(buffer, position)
        raise ProtocolError("RecordBatch.length", f"the batch has {header.size} bytes, but {end - position} remain")


def last_header(buffer: Bytes) -> BatchHeader | None:
    """Return the header of the last complete batch in the buffer; None if no batch is complete.

    This is the last header of ``iter_headers`` with ``incomplete_last``, in a third of the time.

    :raise ProtocolError: a header is invalid.
    """
    position, last, end = 0, -1, len(buffer)
    while position + HEADER_SIZE <= end:
        length, magic = _LENGTH_AND_MAGIC(buffer, position)
        if magic != MAGIC or length < _LENGTH_MIN:
            parse_header(buffer, position)  # raises the detailed error
        end_of_batch = position + length + LENGTH_END
        if end_of_batch > end:
            break
        last, position = position, end_of_batch
    return None if last < 0 else parse_header(buffer, last)


def verify_crc(buffer: Bytes, header: BatchHeader, position: int = 0) -> bool:
    """Return True if the CRC-32C of the batch is correct; False if it is not, or if the batch is truncated."""
    end = position + header[1] + LENGTH_END
    if end > len(buffer):
        return False
    return bool(crc32c(memoryview(buffer)[position + CRC_START : end]) == header[4])


def check_batch(buffer: Bytes) -> BatchHeader:
    """Check the header and the CRC of a batch from a producer; the records are not read.

    Control batches are rejected: clients may not write them.

    The caller checks the limits that depend on settings: size, age of the timestamps, zstd below Produce v7, keys.
    Some clients leave ``max_timestamp`` at ``NO_TIMESTAMP``; then ``records.max_timestamp_record`` finds the value and
    ``stamp_max_timestamp`` sets it.

    :param buffer: the partition's whole ``records`` field.
    :raise KafkaError: INVALID_RECORD (not exactly one batch of magic 2, or fields that contradict each other),
        CORRUPT_MESSAGE (truncated, or wrong CRC), UNSUPPORTED_COMPRESSION_TYPE, INVALID_TIMESTAMP.
    """
    size = len(buffer)
    if size < HEADER_SIZE:
        raise _too_short(buffer)
    header = _new_tuple(BatchHeader, _unpack_header(buffer, 0))
    if header[3] != MAGIC:
        raise _wrong_magic(header[3])
    if header[1] + LENGTH_END != size:
        raise _wrong_length(header[1], size)
    if crc32c(memoryview(buffer)[CRC_START:]) != header[4]:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "the batch's CRC does not match its bytes")
    attributes, last_offset_delta, base_timestamp, max_timestamp, producer_id, epoch, sequence, count = header[5:]
    if attributes & ~CLIENT_ATTRIBUTES or attributes & CODEC_MASK > CODEC_ID_MAX:
        raise _wrong_attributes(header)
    if count <= 0 or last_offset_delta != count - 1:
        raise _invalid(f"{count} records, but the last offset delta is {last_offset_delta}")
    if not attributes & CODEC_MASK and count * RECORD_SIZE_MIN > size - HEADER_SIZE:
        raise _invalid(f"{count} records do not fit into {size - HEADER_SIZE} bytes")
    if base_timestamp < NO_TIMESTAMP or (max_timestamp < base_timestamp and max_timestamp != NO_TIMESTAMP):
        text = f"invalid timestamps: base {base_timestamp}, maximum {max_timestamp}"
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, text)
    if producer_id >= 0:
        if epoch < 0 or sequence < 0:
            raise _invalid(f"producer {producer_id} has a negative epoch or sequence: {epoch}, {sequence}")
    elif producer_id != NO_PRODUCER_ID or attributes & TRANSACTIONAL_BIT:
        raise _invalid(
            "a transactional batch has no producer ID"
            if producer_id == NO_PRODUCER_ID
            else f"invalid producer ID {producer_id}"
        )
    return header


def stamp(buffer: WritableBytes, base_offset: int, leader_epoch: int, position: int = 0) -> None:
    """Set the base offset and the leader epoch; the CRC stays valid."""
    _BASE_OFFSET.pack_into(buffer, position, base_offset)
    _LEADER_EPOCH.pack_into(buffer, position + _LEADER_EPOCH_POSITION, leader_epoch)


def stamp_checked(buffer: WritableBytes, header: BatchHeader, base_offset: int, leader_epoch: int) -> BatchHeader:
    """Set the base offset and the leader epoch of a checked batch, and return its new header.

    :param buffer: starts with the batch.
    :param header: header of the batch.
    """
    length = header[1]
    _OFFSET_LENGTH_EPOCH.pack_into(buffer, 0, base_offset, length, leader_epoch)
    return _new_tuple(BatchHeader, (base_offset, length, leader_epoch, *header[3:]))


def stamp_producer(buffer: WritableBytes, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
    """Set the producer ID, producer epoch and base sequence of a batch, and update the CRC (KIP-98).

    :param buffer: exactly the batch.
    """
    _PRODUCER.pack_into(buffer, _PRODUCER_POSITION, producer_id, producer_epoch, base_sequence)
    _CRC.pack_into(buffer, CRC_POSITION, crc32c(memoryview(buffer)[CRC_START:]))


def stamp_log_append_time(buffer: WritableBytes, timestamp_ms: int) -> None:
    """Set the timestamp type LogAppendTime and the timestamp of a checked batch, and update the CRC (KIP-32).

    :param buffer: exactly the batch.
    """
    (attributes,) = _ATTRIBUTES.unpack_from(buffer, CRC_START)
    _ATTRIBUTES.pack_into(buffer, CRC_START, attributes | LOG_APPEND_TIME_BIT)
    stamp_max_timestamp(buffer, timestamp_ms)


def stamp_max_timestamp(buffer: WritableBytes, timestamp_ms: int) -> None:
    """Set the maximum timestamp of a checked batch, and update the CRC.

    :param buffer: exactly the batch.
    """
    _TIMESTAMP.pack_into(buffer, _MAX_TIMESTAMP_POSITION, timestamp_ms)
    _CRC.pack_into(buffer, CRC_POSITION, crc32c(memoryview(buffer)[CRC_START:]))


def _wrong_attributes(header: BatchHeader) -> KafkaError:
    if header.codec > CODEC_ID_MAX:
        return KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"unknown compression codec {header.codec}")
    if header.is_control:
        return _invalid("clients may not write control batches")
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        return KafkaError(ErrorCode.INVALID_TIMESTAMP, "a producer may not set the timestamp type to LogAppendTime")
    return _invalid(f"attributes {header.attributes & 0xFFFF:#06x} have undefined bits set")


def _too_short(buffer: Bytes) -> KafkaError:
    size = len(buffer)
    if size == 0:
        return _invalid("the records of a partition must be exactly one batch, but are empty")
    if size > MAGIC_POSITION and buffer[MAGIC_POSITION] < MAGIC:
        return _wrong_magic(buffer[MAGIC_POSITION])
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{size} bytes are shorter than a batch header")


def _wrong_magic(magic: int) -> KafkaError:
    if 0 <= magic < MAGIC:
        return _invalid(f"message format {magic} is only allowed in Produce 0 to 2; expected format {MAGIC}")
    return _invalid(f"unknown message format {magic}")


def _wrong_length(length: int, size: int) -> KafkaError:
    if _LENGTH_MIN <= length < size - LENGTH_END:
        return _invalid("the records of a partition must be exactly one batch, but more bytes follow it")
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"the batch length is {length}, but {size} bytes were sent")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, message)
