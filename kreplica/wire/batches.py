"""Record batches (magic 2) by their 61-byte headers: read, checked, stamped in place; the records stay closed.

What a leader needs for a produce is here, and costs one unpack and one CRC.  ``records`` opens batches,
``batch_building`` makes them.  Batches of the older magics 0 and 1 are told apart and refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from struct import Struct
from typing import NamedTuple, TypeAlias

from crc32c import crc32c

from kreplica.errors import ErrorCode, KafkaError, ProtocolError

Bytes: TypeAlias = bytes | bytearray | memoryview
WritableBytes: TypeAlias = bytearray | memoryview

HEADER = Struct(">qiibIhiqqqhii")
HEADER_SIZE = 61
LENGTH_END = 12
"""``length`` counts the bytes after itself: a batch takes these more."""

MAGIC = 2
MAGIC_POSITION = 16
CRC_POSITION = 17
CRC_START = 21
"""The CRC covers from the attributes on: neither offset nor leader epoch, so stamping those keeps it valid."""
ATTRIBUTES_POSITION = CRC_START + 1
"""Of the lower half of the attributes, in which all of them are."""

CODEC_MASK = 0b0000_0111
LOG_APPEND_TIME_BIT = 0b0000_1000
TRANSACTIONAL_BIT = 0b0001_0000
CONTROL_BIT = 0b0010_0000
DELETE_HORIZON_BIT = 0b0100_0000
"""``base_timestamp`` is the time from which a cleaner may drop the batch's tombstones (KIP-534)."""

CLIENT_ATTRIBUTES = CODEC_MASK | TRANSACTIONAL_BIT
CODEC_ID_MAX = 4
RECORD_SIZE_MIN = 7

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
SEQUENCE_MASK = 0x7FFF_FFFF

_LENGTH_MIN = HEADER_SIZE - LENGTH_END
_unpack_header = HEADER.unpack_from
_new_tuple = tuple.__new__
_BASE_OFFSET = Struct(">q")
_LEADER_EPOCH = Struct(">i")
_LEADER_EPOCH_POSITION = 12
_PLACE = Struct(">qii")
_CRC = Struct(">I")
_ATTRIBUTES = Struct(">h")
_TIMESTAMP = Struct(">q")
_MAX_TIMESTAMP_POSITION = 35
_PRODUCER = Struct(">qhi")
_PRODUCER_POSITION = 43


class TimestampType(IntEnum):
    """What a batch's timestamps mean."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class BatchHeader(NamedTuple):
    """The fixed part of a batch, field by field as it lies there; timestamps in milliseconds since 1970.

    :param length: bytes after this field; ``size`` is the whole.
    :param last_offset_delta: of the last record the batch was made with; compaction keeps it when that record goes.
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
        """Bytes of the whole batch."""
        return self[1] + LENGTH_END

    @property
    def last_offset(self) -> int:
        """The offset of the last record."""
        return self[0] + self[6]

    @property
    def next_offset(self) -> int:
        """The offset after the last record: where the next batch starts."""
        return self[0] + self[6] + 1

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record, which wraps from 2**31 - 1 to 0; ``NO_SEQUENCE`` where there is none."""
        base_sequence = self.base_sequence
        return base_sequence if base_sequence < 0 else (base_sequence + self.last_offset_delta) & SEQUENCE_MASK

    @property
    def codec(self) -> int:
        """A ``compression.Codec`` id, or 5 to 7, which nobody has defined."""
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> TimestampType:
        """Whose clock the timestamps come from."""
        return TimestampType((self.attributes & LOG_APPEND_TIME_BIT) >> 3)

    @property
    def has_producer_id(self) -> bool:
        """Whether an idempotent producer wrote it (or a coordinator, in its name)."""
        return self.producer_id >= 0

    @property
    def is_transactional(self) -> bool:
        """Whether it belongs to a transaction."""
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        """Whether it holds a marker for consumers' libraries and not records of users."""
        return self.attributes & CONTROL_BIT != 0

    @property
    def has_delete_horizon(self) -> bool:
        """Whether ``base_timestamp`` says when its tombstones may go (KIP-534)."""
        return self.attributes & DELETE_HORIZON_BIT != 0


def parse_header(buffer: Bytes, position: int = 0) -> BatchHeader:
    """The header of the batch that starts there; its records may lie beyond the buffer.

    :raise ProtocolError: fewer than ``HEADER_SIZE`` bytes, a length that no batch has, or another magic.
    """
    if position + HEADER_SIZE > len(buffer):
        raise ProtocolError("RecordBatch", f"{len(buffer) - position} bytes, the header alone has {HEADER_SIZE}")
    header = _new_tuple(BatchHeader, _unpack_header(buffer, position))
    if header[3] != MAGIC:
        raise ProtocolError("RecordBatch.magic", f"{header[3]}, only {MAGIC} is supported")
    if header[1] < _LENGTH_MIN:
        raise ProtocolError("RecordBatch.length", f"{header[1]}, the header alone takes {_LENGTH_MIN}")
    return header


def iter_headers(buffer: Bytes, *, incomplete_last: bool = False) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of batch after batch, to the end of the buffer.

    :param incomplete_last: end quietly at a last batch that is cut short, as fetched records may be (KIP-74).
    :raise ProtocolError: bytes that are no batch, or a last one that is cut short.
    """
    position, end = 0, len(buffer)
    while position + HEADER_SIZE <= end:
        header = _new_tuple(BatchHeader, _unpack_header(buffer, position))
        behind = position + header[1] + LENGTH_END
        if header[3] != MAGIC or header[1] < _LENGTH_MIN:
            parse_header(buffer, position)  # says what is wrong
        if behind > end:
            break
        yield position, header
        position = behind
    if position < end and not incomplete_last:
        header = parse_header(buffer, position)
        raise ProtocolError("RecordBatch.length", f"{header.size} bytes of batch, {end - position} are left")


def verify_crc(buffer: Bytes, header: BatchHeader, position: int = 0) -> bool:
    """Whether the batch's bytes are those that its CRC-32C was taken of; False also where some are missing."""
    end = position + header[1] + LENGTH_END
    if end > len(buffer):
        return False
    return bool(crc32c(memoryview(buffer)[position + CRC_START : end]) == header[4])


def check_batch(buffer: Bytes) -> BatchHeader:
    """Check what a client sent for one partition: one batch, by header and CRC, its records unopened.

    A coordinator's own batches are not for here: markers are control batches, and none has a sequence.

    What depends on settings is the caller's: size, age of the timestamps, zstd below Produce v7, keys.
    ``max_timestamp`` may be ``NO_TIMESTAMP`` (clients exist that leave it so): ``records.max_timestamp_record`` finds
    it and ``stamp_max_timestamp`` sets it.

    :param buffer: the partition's whole ``records`` field.
    :raise KafkaError: INVALID_RECORD (not exactly one batch, or fields that contradict each other), CORRUPT_MESSAGE
        (cut short, or CRC), UNSUPPORTED_FOR_MESSAGE_FORMAT (magic 0 and 1), UNSUPPORTED_COMPRESSION_TYPE,
        INVALID_TIMESTAMP.
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
        raise _invalid(f"{count} records whose last offset delta is {last_offset_delta}")
    if not attributes & CODEC_MASK and count * RECORD_SIZE_MIN > size - HEADER_SIZE:
        raise _invalid(f"{count} records do not fit into {size - HEADER_SIZE} bytes")
    if base_timestamp < NO_TIMESTAMP or (max_timestamp < base_timestamp and max_timestamp != NO_TIMESTAMP):
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, f"timestamps from {base_timestamp} to {max_timestamp}")
    if producer_id >= 0:
        if epoch < 0 or sequence < 0:
            raise _invalid(f"producer {producer_id} has epoch {epoch} and sequence {sequence}")
    elif producer_id != NO_PRODUCER_ID or attributes & TRANSACTIONAL_BIT:
        raise _invalid(f"producer id {producer_id}" + (" in a transaction" if producer_id == NO_PRODUCER_ID else ""))
    return header


def stamp(buffer: WritableBytes, base_offset: int, leader_epoch: int, position: int = 0) -> None:
    """Give the batch its place in the log; the CRC stays valid."""
    _BASE_OFFSET.pack_into(buffer, position, base_offset)
    _LEADER_EPOCH.pack_into(buffer, position + _LEADER_EPOCH_POSITION, leader_epoch)


def stamped(buffer: WritableBytes, header: BatchHeader, base_offset: int, leader_epoch: int) -> BatchHeader:
    """Give a batch that was checked its place, as ``stamp`` does, in one step.

    :param buffer: begins with the batch.
    :param header: the batch's.
    :return: its header as it is now.
    """
    length = header[1]
    _PLACE.pack_into(buffer, 0, base_offset, length, leader_epoch)
    return _new_tuple(BatchHeader, (base_offset, length, leader_epoch, *header[3:]))


def stamp_producer(buffer: WritableBytes, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
    """Give a batch the numbers by which its leader recognizes it, and take the CRC anew (KIP-98).

    :param buffer: exactly the batch.
    """
    _PRODUCER.pack_into(buffer, _PRODUCER_POSITION, producer_id, producer_epoch, base_sequence)
    _CRC.pack_into(buffer, CRC_POSITION, crc32c(memoryview(buffer)[CRC_START:]))


def stamp_log_append_time(buffer: WritableBytes, timestamp_ms: int) -> None:
    """Let the time of the append be that of every record of a checked batch, and take the CRC anew (KIP-32).

    :param buffer: exactly the batch.
    """
    (attributes,) = _ATTRIBUTES.unpack_from(buffer, CRC_START)
    _ATTRIBUTES.pack_into(buffer, CRC_START, attributes | LOG_APPEND_TIME_BIT)
    stamp_max_timestamp(buffer, timestamp_ms)


def stamp_max_timestamp(buffer: WritableBytes, timestamp_ms: int) -> None:
    """Set the highest timestamp of a checked batch, and take the CRC anew.

    :param buffer: exactly the batch.
    """
    _TIMESTAMP.pack_into(buffer, _MAX_TIMESTAMP_POSITION, timestamp_ms)
    _CRC.pack_into(buffer, CRC_POSITION, crc32c(memoryview(buffer)[CRC_START:]))


def _wrong_attributes(header: BatchHeader) -> KafkaError:
    if header.codec > CODEC_ID_MAX:
        return KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"compression codec {header.codec} is not known")
    if header.is_control:
        return _invalid("clients may not write control batches")
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        return KafkaError(ErrorCode.INVALID_TIMESTAMP, "a producer may not set the timestamp type to LogAppendTime")
    return _invalid(f"attributes {header.attributes & 0xFFFF:#06x} set bits that have no meaning")


def _too_short(buffer: Bytes) -> KafkaError:
    size = len(buffer)
    if size == 0:
        return _invalid("a partition needs exactly one batch, there is none")
    if size > MAGIC_POSITION and buffer[MAGIC_POSITION] < MAGIC:
        return _wrong_magic(buffer[MAGIC_POSITION])
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{size} bytes are less than a batch's header")


def _wrong_magic(magic: int) -> KafkaError:
    if 0 <= magic < MAGIC:
        return KafkaError(
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, f"message format {magic} is not supported, only {MAGIC} is"
        )
    return _invalid(f"message format {magic} is not known")


def _wrong_length(length: int, size: int) -> KafkaError:
    if _LENGTH_MIN <= length < size - LENGTH_END:
        return _invalid("a partition needs exactly one batch, there are more bytes after it")
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"a batch of length {length} in {size} bytes")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, message)
