"""Builds record batches (magic 2) from records, and filters the records of a batch for compaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import TypedDict, Unpack

from crc32c import crc32c

from kreplica.wire.batches import (
    CODEC_MASK,
    CONTROL_BIT,
    CRC_START,
    DELETE_HORIZON_BIT,
    HEADER,
    HEADER_SIZE,
    LENGTH_END,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Bytes,
    TimestampType,
    parse_header,
)
from kreplica.wire.compression import Codec, compress
from kreplica.wire.records import DECOMPRESSED_SIZE_MAX, Headers, Record, iter_heads, open_records, read_record

NEXT_OFFSET = -1
"""Value of ``offset`` that means the offset after the previous record."""

NO_LEADER_EPOCH = -1

_CRC_COVERED = Struct(">hiqqqhii")
_TWO_BYTES = Struct("BB")
_ZIGZAG_BYTES = [bytes((number,)) for number in range(128)]
NULL = _ZIGZAG_BYTES[1]
NO_HEADERS = _ZIGZAG_BYTES[0]


class BatchOptions(TypedDict, total=False):
    """Keyword arguments of ``build_batch``: the fields of ``BatchBuilder``."""

    codec: int
    base_offset: int
    leader_epoch: int
    timestamp_type: TimestampType
    producer_id: int
    producer_epoch: int
    base_sequence: int
    transactional: bool
    control: bool
    delete_horizon_ms: int | None


@dataclass(slots=True, kw_only=True)
class BatchBuilder:
    """Accumulates the records of one batch; must not be used after ``build``.

    :param codec: a ``compression.Codec``.
    :param base_offset: 0 in producers' batches; the leader sets it.
    :param timestamp_type: with LOG_APPEND_TIME, every record has the highest of the timestamps.
    :param base_sequence: sequence of the first record, if there is a producer ID.
    :param delete_horizon_ms: time after which the batch's tombstones may be removed, or None (KIP-534).
    """

    codec: int = Codec.NONE
    base_offset: int = 0
    leader_epoch: int = NO_LEADER_EPOCH
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    base_sequence: int = NO_SEQUENCE
    transactional: bool = False
    control: bool = False
    delete_horizon_ms: int | None = None
    record_count: int = field(default=0, init=False)
    size: int = field(default=HEADER_SIZE, init=False)
    """Bytes of the batch so far, before compression."""
    _encoded: list[bytes] = field(default_factory=list, init=False)
    _base_timestamp: int = field(default=NO_TIMESTAMP, init=False)
    _max_timestamp: int = field(default=NO_TIMESTAMP, init=False)
    _last_delta: int = field(default=-1, init=False)

    def append(
        self,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        *,
        offset: int = NEXT_OFFSET,
    ) -> int:
        """Add a record.

        :param offset: larger than the previous offset; ``NEXT_OFFSET`` for the previous offset plus one.
        :return: its offset.
        :raise ValueError: the offset is not larger than the previous one; the record is not added.
        """
        delta = self._last_delta + 1 if offset == NEXT_OFFSET else offset - self.base_offset
        if delta <= self._last_delta:
            raise ValueError(f"offset {offset} is not larger than {self.base_offset + self._last_delta}")
        if not self._encoded:
            self._base_timestamp = timestamp_ms if self.delete_horizon_ms is None else self.delete_horizon_ms
        record = encode_record(timestamp_ms - self._base_timestamp, delta, key, value, headers)
        self._encoded.append(record)
        self.record_count += 1
        self.size += len(record)
        self._max_timestamp = max(self._max_timestamp, timestamp_ms)
        self._last_delta = delta
        return self.base_offset + delta

    def build(self) -> bytes:
        """Return the batch.

        :raise ValueError: no record was added.
        """
        if not self._encoded:
            raise ValueError("the batch has no records")
        header = BatchHeader(
            base_offset=self.base_offset,
            length=0,
            partition_leader_epoch=self.leader_epoch,
            magic=MAGIC,
            crc=0,
            attributes=self._attributes(),
            last_offset_delta=self._last_delta,
            base_timestamp=self._base_timestamp,
            max_timestamp=self._max_timestamp,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=self.base_sequence,
            record_count=self.record_count,
        )
        return seal(header, compress(self.codec, b"".join(self._encoded)))

    def _attributes(self) -> int:
        attributes = int(self.codec)
        if self.timestamp_type is TimestampType.LOG_APPEND_TIME:
            attributes |= LOG_APPEND_TIME_BIT
        if self.transactional:
            attributes |= TRANSACTIONAL_BIT
        if self.control:
            attributes |= CONTROL_BIT
        if self.delete_horizon_ms is not None:
            attributes |= DELETE_HORIZON_BIT
        return attributes


def build_batch(records: Iterable[Record], **options: Unpack[BatchOptions]) -> bytes:
    """Return a batch of records; an offset of ``NEXT_OFFSET`` means the offset after the previous record.

    :param options: fields of ``BatchBuilder``.
    :raise ValueError: there are no records, or their offsets are below ``base_offset`` or do not increase.
    """
    builder = BatchBuilder(**options)
    for offset, timestamp_ms, key, value, headers in records:
        builder.append(timestamp_ms, key, value, headers, offset=offset)
    return builder.build()


def filter_batch(
    batch: Bytes,
    keep: Callable[[Record], bool],
    *,
    delete_horizon_ms: int | None = None,
    keep_empty: bool = False,
    decompressed_size_max: int = DECOMPRESSED_SIZE_MAX,
) -> bytes | None:
    """Return the batch without the records that ``keep`` rejects, for log compaction; None if no record is left.

    Offsets, leader epoch, producer, sequence and ``last_offset_delta`` are unchanged, so the offset ranges of
    consecutive batches have no gap and the producer's last sequence remains known.

    :param delete_horizon_ms: time after which the kept tombstones and markers may be removed, unless the batch already
        has such a time.
    :param keep_empty: if no record is left, return a batch without records, which keeps the sequence (KIP-98),
        instead of None.
    :raise ProtocolError: a record is malformed.
    """
    header = parse_header(batch)
    section = open_records(batch, header, decompressed_size_max)
    kept = [(head, record) for head in iter_heads(section, header) if keep(record := read_record(section, head))]
    if not kept:
        return _empty(header) if keep_empty else None
    if delete_horizon_ms is not None and not header.has_delete_horizon:
        # The horizon replaces the base timestamp, so every timestamp delta changes.
        parts = [_encode(record, header.base_offset, delete_horizon_ms) for _, record in kept]
        header = header._replace(attributes=header.attributes | DELETE_HORIZON_BIT, base_timestamp=delete_horizon_ms)
    elif len(kept) == header.record_count:
        return bytes(memoryview(batch)[: header.size])
    else:
        parts = [section[head[0] : head[2]] for head, _ in kept]
    header = header._replace(record_count=len(kept), max_timestamp=max(record.timestamp_ms for _, record in kept))
    return seal(header, compress(header.codec, b"".join(parts)))


def with_records(header: BatchHeader, records: Sequence[Record]) -> bytes:
    """Return a batch with the same header fields but other records; see ``filter_batch``.

    :param records: offsets must increase within the range of the header; may be empty.
    :raise ValueError: an offset is out of range or out of order.
    """
    if not records:
        return _empty(header)
    offsets = [record.offset for record in records]
    if offsets != sorted(set(offsets)) or offsets[0] < header.base_offset or offsets[-1] > header.last_offset:
        raise ValueError(f"offsets {offsets} do not increase from {header.base_offset} to {header.last_offset}")
    base_timestamp = records[0].timestamp_ms
    parts = [_encode(record, header.base_offset, base_timestamp) for record in records]
    header = header._replace(
        base_timestamp=base_timestamp,
        max_timestamp=max(record.timestamp_ms for record in records),
        record_count=len(records),
    )
    return seal(header, compress(header.codec, b"".join(parts)))


def seal(header: BatchHeader, records: bytes) -> bytes:
    """Return the batch of a header and its (compressed) records, with the length and the CRC set."""
    header_fields = _CRC_COVERED.pack(*header[5:])
    crc = crc32c(records, crc32c(header_fields))
    length = HEADER_SIZE - LENGTH_END + len(records)
    return HEADER.pack(header[0], length, header[2], MAGIC, crc, *header[5:]) + records


def seal_in_place(batch: bytearray, header: BatchHeader) -> None:
    """Write the header of a batch, with its length and CRC, into the first ``HEADER_SIZE`` bytes."""
    _CRC_COVERED.pack_into(batch, CRC_START, *header[5:])
    crc = crc32c(memoryview(batch)[CRC_START:])
    HEADER.pack_into(batch, 0, header[0], len(batch) - LENGTH_END, header[2], MAGIC, crc, *header[5:])


def encode_record(
    timestamp_delta: int, offset_delta: int, key: bytes | None, value: bytes | None, headers: Headers = ()
) -> bytes:
    """Return a record in its batch encoding, with its length."""
    return encode_fields(varint(timestamp_delta), varint(offset_delta), key, value, headers)


def encode_fields(
    timestamp_delta: bytes, offset_delta: bytes, key: bytes | None, value: bytes | None, headers: Headers
) -> bytes:
    parts = [b"\x00", timestamp_delta, offset_delta]
    parts += (NULL,) if key is None else (varint(len(key)), key)
    parts += (NULL,) if value is None else (varint(len(value)), value)
    if headers:
        parts.append(varint(len(headers)))
        for name, content in headers:
            name_bytes = name.encode(errors="surrogateescape")
            parts += (varint(len(name_bytes)), name_bytes)
            parts += (NULL,) if content is None else (varint(len(content)), content)
    else:
        parts.append(NO_HEADERS)
    body = b"".join(parts)
    return varint(len(body)) + body


def _encode(record: Record, base_offset: int, base_timestamp: int) -> bytes:
    offset, timestamp_ms, key, value, headers = record
    return encode_record(timestamp_ms - base_timestamp, offset - base_offset, key, value, headers)


def _empty(header: BatchHeader) -> bytes:
    """Return a batch without records; its base timestamp is the maximum timestamp."""
    attributes = header.attributes & ~CODEC_MASK & ~DELETE_HORIZON_BIT
    return seal(header._replace(attributes=attributes, base_timestamp=header.max_timestamp, record_count=0), b"")


def varint(number: int) -> bytes:
    """Encode a zigzag varint of up to 64 bits."""
    zigzag = (number << 1) ^ (number >> 63)
    if zigzag < 0x80:
        return _ZIGZAG_BYTES[zigzag]
    if zigzag < 0x4000:
        return _TWO_BYTES.pack(zigzag & 0x7F | 0x80, zigzag >> 7)
    out = bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)
