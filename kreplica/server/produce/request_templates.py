"""Templates of Produce requests: those that differ only in correlation ID, partition and records are not parsed again.

All partitions of a topic share a template, so that a broker with many partitions needs few.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Any

from kreplica.cluster.topic_names import INTERNAL_TOPICS
from kreplica.server.produce.response_templates import ResponseTemplate
from kreplica.server.produce.results import ZSTD_FROM
from kreplica.storage.log.results import AppendResult
from kreplica.wire.batches import ATTRIBUTES_POSITION, CODEC_MASK, HEADER_SIZE, TRANSACTIONAL_BIT
from kreplica.wire.compression import Codec
from kreplica.wire.headers import RequestHeader
from kreplica.wire.messages import PRODUCE
from kreplica.wire.template_cache import RECORDS_LENGTH, TEMPLATE_BYTES_MAX, TemplateCache

_NUMBERS_SIZE = 12
"""API key and version, correlation ID and number of the partition."""

_EMPTY_TAGS = b"\x00\x00\x00"
"""Tag sections of the partition, its topic and the request, in flexible versions."""


class ProduceTemplate:
    """Non-transactional request with one batch for one partition, without its correlation ID, partition and records.

    :param head_size: size of the request up to the number of the partition.
    :param tail: bytes after the records.
    :ivar forbidden_attributes: attributes that a batch of such a request must not have.
    """

    __slots__ = (
        "_response", "acks", "client_id", "forbidden_attributes", "head_size", "is_compact", "tail", "timeout_ms",
        "topic", "version",
    )  # fmt: skip

    def __init__(self, header: RequestHeader, body: dict[str, Any], head_size: int, tail: bytes) -> None:
        (topic,) = body["topic_data"]
        self.version = header.api_version
        self.client_id = header.client_id
        self.acks: int = body["acks"]
        self.timeout_ms: int = body["timeout_ms"]
        self.topic: str = topic["name"]
        self.forbidden_attributes = TRANSACTIONAL_BIT | (Codec.ZSTD if self.version < ZSTD_FROM else 0)
        self.head_size = head_size
        self.tail = tail
        self.is_compact = PRODUCE.request.is_flexible(header.api_version)
        self._response: ResponseTemplate | None = None

    def responses(
        self, partition: int, correlation_ids: Sequence[int], results: Sequence[AppendResult], log_start_offset: int
    ) -> bytes:
        """Return the response frames of requests whose batches were appended to a partition."""
        if self._response is None:
            self._response = ResponseTemplate(self.version, self.topic)
        return self._response.fill(partition, correlation_ids, results, log_start_offset)


Match = tuple[int, ProduceTemplate, int, memoryview, int]
"""Correlation ID of a request, its template, number of its partition, a view of its records, and their codec."""


class ProduceTemplates(TemplateCache[ProduceTemplate, Match]):
    """Templates of all Produce requests that one dispatcher receives."""

    def __init__(self) -> None:
        super().__init__(_match)

    def learn(self, frame: memoryview, header: RequestHeader, body: dict[str, Any]) -> None:
        """Add the template of a parsed request with one batch, unless it is transactional or for an internal topic."""
        topics = body["topic_data"]
        if len(topics) != 1:
            return
        (topic,) = topics
        if topic["name"] in INTERNAL_TOPICS or len(topic["partition_data"]) != 1:
            return
        records = topic["partition_data"][0]["records"]
        if not records or body.get("transactional_id") is not None:
            return
        compact = PRODUCE.request.is_flexible(header.api_version)
        tail = _EMPTY_TAGS if compact else b""
        length_size = _uvarint_size(len(records) + 1) if compact else RECORDS_LENGTH.size
        end = len(frame) - len(tail)
        size = end - len(records) - length_size
        if not _NUMBERS_SIZE < size <= TEMPLATE_BYTES_MAX or frame[end:] != tail or not self.can_add():
            return
        struct = Struct(f">4si{size - _NUMBERS_SIZE}si")  # the number of the partition precedes its records
        constants = struct.unpack_from(frame)[::2]
        self.add(ProduceTemplate(header, body, size, tail), struct, constants, tail, compact=compact)


def _uvarint_size(value: int) -> int:
    return max(1, -(-value.bit_length() // 7))


def _match(template: ProduceTemplate, values: tuple[Any, ...], records: memoryview | None) -> Match | None:
    """Return the match if the batch's length and attributes are acceptable; None if the request must be parsed."""
    if records is None or len(records) < HEADER_SIZE:
        return None
    attributes = records[ATTRIBUTES_POSITION]
    if attributes & template.forbidden_attributes:
        return None
    return values[1], template, values[3], records, attributes & CODEC_MASK
