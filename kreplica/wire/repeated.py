"""Produce requests that repeat themselves: a producer's are alike but for their records, and are known again.

What comes before the length of the records is compared with what was parsed before: where it is the same, byte for
byte, it means the same, and nothing of it is looked at again.
"""

from __future__ import annotations

from struct import Struct
from typing import Any

from kreplica.model import TopicPartition
from kreplica.wire.batches import ATTRIBUTES_POSITION, CODEC_MASK, HEADER_SIZE, TRANSACTIONAL_BIT
from kreplica.wire.compression import Codec
from kreplica.wire.headers import RequestHeader
from kreplica.wire.messages import PRODUCE
from kreplica.wire.parsing import INPUT_ERRORS
from kreplica.wire.primitives import read_uvarint

ZSTD_FROM = 7
"""Clients that speak only older versions cannot read zstd (KIP-110)."""

KNOWN_MAX = 1000
SIZES_MAX = 4
SIZE_MAX = 512
"""Bytes before the records that are worth to be kept."""

_START = Struct(">hhi")
_LENGTH = Struct(">i")
_BEHIND_CORRELATION_ID = 8
_NO_TAGS = b"\x00\x00\x00"
"""What comes behind the records, of the partition, of its topic, and of the request, where there may be tags."""


class KnownProduce:
    """A request for one batch of one partition, outside of transactions: all of it but its number and its records.

    :ivar behind: the bytes after the records.
    :ivar unlike: attributes of a batch that such a request may not have, or not in its version.
    """

    __slots__ = ("acks", "behind", "client_id", "timeout_ms", "topic_partition", "unlike", "version")

    def __init__(self, header: RequestHeader, body: dict[str, Any]) -> None:
        (topic,) = body["topic_data"]
        (data,) = topic["partition_data"]
        self.version = header.api_version
        self.client_id = header.client_id
        self.acks: int = body["acks"]
        self.timeout_ms: int = body["timeout_ms"]
        self.topic_partition = TopicPartition(topic["name"], data["index"])
        self.behind = _NO_TAGS if PRODUCE.request.flexible(self.version) else b""
        self.unlike = TRANSACTIONAL_BIT | (Codec.ZSTD if self.version < ZSTD_FROM else 0)


class RepeatedProduces:
    """Of all connections; no other requests are frequent."""

    def __init__(self) -> None:
        self._known: dict[bytes, KnownProduce] = {}
        self._sizes: tuple[int, ...] = ()

    def find(self, frame: memoryview) -> tuple[int, KnownProduce, memoryview, int] | None:
        """The correlation id, the known request, the records as a view and their codec; None if it must be parsed.

        The records are not looked at, but for having room for a batch with attributes as the request may have them.
        """
        try:
            key, version, correlation_id = _START.unpack_from(frame)
            if key != PRODUCE.key:
                return None
            for size in self._sizes:
                known = self._known.get(bytes(frame[_BEHIND_CORRELATION_ID:size]))
                if known is not None and known.version == version:
                    behind = known.behind
                    if behind:
                        length, start = read_uvarint(frame, size)
                        length -= 1
                    else:
                        length, start = _LENGTH.unpack_from(frame, size)[0], size + 4
                    end = start + length
                    if length < HEADER_SIZE or end + len(behind) != len(frame) or frame[end:] != behind:
                        return None
                    attributes = frame[start + ATTRIBUTES_POSITION]
                    if attributes & known.unlike:
                        return None
                    return correlation_id, known, frame[start:end], attributes & CODEC_MASK
        except INPUT_ERRORS:
            pass  # the parser says what is wrong
        return None

    def learn(self, frame: memoryview, header: RequestHeader, body: dict[str, Any]) -> None:
        """Know a frame again that was parsed, where it is one that repeats itself."""
        topics = body["topic_data"]
        if len(topics) != 1 or len(topics[0]["partition_data"]) != 1 or body.get("transactional_id") is not None:
            return
        records = topics[0]["partition_data"][0]["records"]
        if not records:
            return
        known = KnownProduce(header, body)
        length_size = _size_of_uvarint(len(records) + 1) if known.behind else _LENGTH.size
        end = len(frame) - len(known.behind)
        size = end - len(records) - length_size
        if not _BEHIND_CORRELATION_ID < size <= SIZE_MAX or frame[end:] != known.behind:
            return
        if size not in self._sizes:
            self._sizes = (size, *self._sizes[: SIZES_MAX - 1])
        if len(self._known) >= KNOWN_MAX:
            self._known.clear()
        self._known[bytes(frame[_BEHIND_CORRELATION_ID:size])] = known


def _size_of_uvarint(value: int) -> int:
    return max(1, -(-value.bit_length() // 7))
