"""Message sets of formats 0 and 1, which clients before Apache Kafka 0.11 produce, converted to one batch of format 2.

Keys, values and timestamps are kept; offsets start at 0, as in producers' batches of format 2.  A compressed set is one
message whose value contains the other messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import Struct
from struct import error as StructError
from typing import NamedTuple
from zlib import crc32

from kreplica.errors import ErrorCode, KafkaError, ProtocolError
from kreplica.wire.batch_building import BatchBuilder
from kreplica.wire.batches import CODEC_MASK, LOG_APPEND_TIME_BIT, MAGIC_POSITION, NO_TIMESTAMP, Bytes
from kreplica.wire.compression import Codec, DecompressedTooLarge, decompress

PATH = "MessageSet"
MESSAGES_PER_SLICE = 256
"""Number of messages converted between calls to ``pause``."""

_OFFSET_AND_SIZE = Struct(">qi")
_HEAD = Struct(">IBB")
_TIMESTAMP = Struct(">q")
_LENGTH = Struct(">i")
_CRC_SIZE = 4
_ATTRIBUTES_POSITION = MAGIC_POSITION + 1


class Message(NamedTuple):
    """Message of format 0 or 1; ``timestamp_ms`` is -1 in format 0."""

    attributes: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


def is_message_set(records: Bytes) -> bool:
    """Return True if the bytes start with a message of format 0 or 1."""
    return len(records) > MAGIC_POSITION and records[MAGIC_POSITION] < 2


def convert(records: Bytes, size_max: int, pause: Callable[[], object] | None = None) -> bytes:
    """Convert the messages of one partition in a Produce request to one batch of format 2, with the same codec.

    :param size_max: maximum decompressed size in bytes.
    :param pause: called periodically during a long conversion.
    :raise KafkaError: CORRUPT_MESSAGE, INVALID_RECORD, INVALID_TIMESTAMP, UNSUPPORTED_COMPRESSION_TYPE.
    :raise DecompressedTooLarge: the messages exceed ``size_max``.
    """
    messages = iter_messages(records)
    codec = records[_ATTRIBUTES_POSITION] & CODEC_MASK if len(records) > _ATTRIBUTES_POSITION else 0
    if codec:
        messages = _decompress_set(messages, codec, size_max)
    builder = BatchBuilder(codec=codec)
    for number, message in enumerate(messages):
        if message.attributes & CODEC_MASK:
            text = f"message {number} is compressed, but only a single outer message may be"
            raise KafkaError(ErrorCode.INVALID_RECORD, text)
        if message.attributes & LOG_APPEND_TIME_BIT:
            raise KafkaError(ErrorCode.INVALID_TIMESTAMP, "a producer may not set the timestamp type to LogAppendTime")
        builder.append(message.timestamp_ms, message.key, message.value)
        if pause is not None and number % MESSAGES_PER_SLICE == MESSAGES_PER_SLICE - 1:
            pause()
    if not builder.record_count:
        raise KafkaError(ErrorCode.INVALID_RECORD, "the message set has no messages")
    return builder.build()


def _decompress_set(messages: Iterator[Message], codec: int, size_max: int) -> Iterator[Message]:
    """Return the messages inside the single compressed message of a set."""
    (outer, *more) = messages
    if more:
        raise KafkaError(ErrorCode.INVALID_RECORD, "a compressed message must be the only one of its set")
    if codec not in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4):
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"message formats 0 and 1 do not support compression codec {codec}"
        )
    if outer.value is None:
        raise KafkaError(ErrorCode.INVALID_RECORD, "the compressed message has no value")
    try:
        return iter_messages(decompress(codec, outer.value, size_max))
    except DecompressedTooLarge:
        raise
    except ProtocolError as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from error


def iter_messages(records: Bytes) -> Iterator[Message]:
    """Yield the messages of a set without decompressing them.

    :raise KafkaError: CORRUPT_MESSAGE (wrong CRC or length), INVALID_RECORD (another format).
    """
    view = memoryview(records)
    position = 0
    while position < len(view):
        try:
            _, size = _OFFSET_AND_SIZE.unpack_from(view, position)
            start = position + _OFFSET_AND_SIZE.size
            position = start + size
            if size < _HEAD.size or position > len(view):
                raise _corrupt(f"a message has {size} bytes, but {len(view) - start} remain")
            yield _message(view[start:position])
        except StructError as error:
            raise _corrupt("a message is truncated") from error


def _message(message: memoryview) -> Message:
    crc, magic, attributes = _HEAD.unpack_from(message)
    if magic > 1:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"message format {magic} in a set of formats 0 and 1")
    if crc32(message[_CRC_SIZE:]) != crc:
        raise _corrupt("the CRC of a message does not match its bytes")
    position = _HEAD.size
    timestamp_ms = NO_TIMESTAMP
    if magic == 1:
        (timestamp_ms,) = _TIMESTAMP.unpack_from(message, position)
        position += _TIMESTAMP.size
    key, position = _bytes(message, position)
    value, position = _bytes(message, position)
    if position != len(message):
        raise _corrupt(f"{len(message) - position} bytes after the value of a message")
    return Message(attributes, timestamp_ms, key, value)


def _bytes(message: memoryview, position: int) -> tuple[bytes | None, int]:
    (length,) = _LENGTH.unpack_from(message, position)
    position += _LENGTH.size
    if length == -1:
        return None, position
    if not 0 <= length <= len(message) - position:
        raise _corrupt(f"a length is {length}, but {len(message) - position} bytes remain")
    return bytes(message[position : position + length]), position + length


def _corrupt(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, str(ProtocolError(PATH, reason)))
