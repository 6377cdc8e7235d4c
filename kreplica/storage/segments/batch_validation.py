"""Validation of batches, including their CRC, before a leader or follower appends them (KIP-32, KIP-98).

The header and CRC of a produced batch are checked by ``wire/batches.py`` (``check_batch``). Validation does not change
the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kreplica.errors import ErrorCode, KafkaError, ProtocolError, RecordsRejected
from kreplica.storage.log_config import NO_LIMIT, LogConfig
from kreplica.storage.producers.producer_state import Origin
from kreplica.wire.batch_building import seal
from kreplica.wire.batches import (
    CODEC_MASK,
    CONTROL_BIT,
    HEADER_SIZE,
    LENGTH_END,
    LOG_APPEND_TIME_BIT,
    NO_TIMESTAMP,
    RECORD_SIZE_MIN,
    BatchHeader,
    Bytes,
    WritableBytes,
    check_batch,
    iter_checked,
    parse_header,
    stamp_log_append_time,
    stamp_max_timestamp,
    verify_crc,
)
from kreplica.wire.compression import (
    Codec,
    DecompressedTooLarge,
    check_readable_by_java,
    compress,
    decompress_to_buffer,
)
from kreplica.wire.control_records import EndMarker, parse_end_marker
from kreplica.wire.message_sets import convert, is_message_set
from kreplica.wire.record_validation import ANY_TIMESTAMP, RecordFacts, TimestampRange, check_records
from kreplica.wire.records import DECOMPRESSED_SIZE_MAX, iter_records

Checked = tuple[WritableBytes, BatchHeader, EndMarker | None]
"""A valid batch: writable bytes, header, and the end marker if it ends a transaction."""


class ValidatedBatch(bytearray):
    """Batch of a client after ``validate``, or one that this broker has built.

    Under the same topic settings, ``check_as_leader`` uses the result and does not check the batch again.

    :ivar header: header of the batch; None if it was rejected.
    :ivar config: the topic settings used for validation.
    :ivar rejection: the error for a rejected batch, or None.
    :ivar decompressed_size: decompressed size of its records in bytes; 0 if they were not read.
    """

    __slots__ = ("config", "decompressed_size", "header", "rejection")

    header: BatchHeader | None
    config: LogConfig
    rejection: KafkaError | None
    decompressed_size: int

    @classmethod
    def rejected(cls, records: Bytes, config: LogConfig, rejection: KafkaError) -> ValidatedBatch:
        """Return a batch that ``check_as_leader`` rejects with this error."""
        batch = cls(records)
        batch.header, batch.config, batch.rejection, batch.decompressed_size = None, config, rejection, 0
        return batch

    @classmethod
    def built(cls, records: Bytes, config: LogConfig) -> Bytes:
        """Mark a batch that this broker has built as valid: uncompressed, with a key in every record.

        Validation would take 3 us per record. If the topic's settings require it, ``records`` is returned unchanged.
        """
        needs_codec = config.codec not in (None, Codec.NONE)
        if needs_codec or _accepted_timestamps(config, 0) is not ANY_TIMESTAMP:
            return records
        batch = cls(records)
        batch.header, batch.config, batch.rejection, batch.decompressed_size = parse_header(batch), config, None, 0
        return batch

    def accepted(self) -> BatchHeader:
        """Return the header of an accepted batch.

        :raise KafkaError: the batch was rejected.
        """
        if self.rejection is not None:
            raise self.rejection
        assert self.header is not None
        return self.header


def validate(
    records: Bytes, config: LogConfig, now_ms: int, size_max: int, pause: Callable[[], object] | None = None
) -> ValidatedBatch:
    """Check all rules for a client's batch that do not depend on the log; may run in another thread.

    A message set of formats 0 and 1 is converted to one batch of format 2.

    :param size_max: maximum decompressed size of the records in bytes.
    :param pause: called regularly during long work.
    :raise DecompressedTooLarge: the records exceed ``size_max``; other errors are in the result's ``rejection``.
    """
    try:
        batch = ValidatedBatch(convert(records, size_max, pause) if is_message_set(records) else records)
        header = check_batch(batch)
        data, header, size = _check_contents(batch, header, config, now_ms, size_max, pause)
    except KafkaError as error:
        return ValidatedBatch.rejected(records, config, error)
    if data is not batch:
        batch = ValidatedBatch(data)
    batch.header, batch.config, batch.rejection, batch.decompressed_size = header, config, None, size
    return batch


def check_as_leader(records: bytes | bytearray | memoryview, config: LogConfig, origin: Origin, now_ms: int) -> Checked:
    """Check that a leader may append one batch, and apply topic settings to it.

    :param records: changed in place, or copied once if the memory is read-only.
    :raise KafkaError: MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, CORRUPT_MESSAGE, INVALID_RECORD, INVALID_TIMESTAMP or
        UNSUPPORTED_COMPRESSION_TYPE.
    """
    if len(records) > config.append_size_max:
        raise _too_large(len(records), config)
    data = records if type(records) is memoryview and not records.readonly else _writable(records)
    if type(records) is ValidatedBatch and records.config is config:
        header = records.accepted()
    elif origin is Origin.CLIENT:
        header = check_batch(data)
        if header.attributes & CODEC_MASK or config.checks_contents or header.max_timestamp == NO_TIMESTAMP:
            data, header, _ = _check_contents_now(data, header, config, now_ms)
    else:
        header = _check_own_batch(data)
        if header.is_control:
            return data, header, read_marker(data)
        if config.checks_contents or header.max_timestamp == NO_TIMESTAMP:
            data, header, _ = _check_contents_now(data, header, config, now_ms)
    if config.checks_contents and config.log_append_time:
        stamp_log_append_time(data, now_ms)
        header = parse_header(data)
    return data, header, None


def _check_contents_now(
    data: WritableBytes, header: BatchHeader, config: LogConfig, now_ms: int
) -> tuple[WritableBytes, BatchHeader, int]:
    try:
        return _check_contents(data, header, config, now_ms, DECOMPRESSED_SIZE_MAX, None)
    except DecompressedTooLarge as error:
        raise _invalid(error) from error


def _check_contents(
    data: WritableBytes,
    header: BatchHeader,
    config: LogConfig,
    now_ms: int,
    size_max: int,
    pause: Callable[[], object] | None,
) -> tuple[WritableBytes, BatchHeader, int]:
    """Apply the rules that need the records, if any apply to this batch.

    :return: the batch, its header, and the decompressed size of its records (0 if they were not read).
    :raise DecompressedTooLarge: the records exceed ``size_max``.
    :raise KafkaError: the batch is rejected.
    """
    accepted = _accepted_timestamps(config, now_ms)
    if not (
        header.codec
        or config.reads_all_records
        or (header.max_timestamp == NO_TIMESTAMP and header.base_timestamp != NO_TIMESTAMP)
        or header.max_timestamp > accepted.latest_ms
    ):
        return data, header, 0
    if not header.record_count:  # an interceptor removed all records
        return data, header, 0
    try:
        packed = memoryview(data)[HEADER_SIZE : header.size]
        check_readable_by_java(header.codec, packed)
        section = decompress_to_buffer(header.codec, packed, size_max)
        if header.record_count * RECORD_SIZE_MIN > len(section):
            raise ProtocolError("RecordBatch.record_count", f"{header.record_count} in {len(section)} bytes")
        facts = check_records(section, header, accepted, pause)
    except DecompressedTooLarge:
        raise
    except ProtocolError as error:
        raise _invalid(error) from error
    _check_records(facts, config, accepted)
    if config.codec is not None and config.codec != header.codec:
        header = header._replace(attributes=header.attributes & ~CODEC_MASK | config.codec)
        data = bytearray(seal(header, compress(config.codec, section)))
        header = parse_header(data)
    if header.max_timestamp != facts.max_timestamp_ms and not header.attributes & LOG_APPEND_TIME_BIT:
        stamp_max_timestamp(data, facts.max_timestamp_ms)
        header = parse_header(data)
    return data, header, len(section)


def _accepted_timestamps(config: LogConfig, now_ms: int) -> TimestampRange:
    """Return the timestamps within ``message.timestamp.before|after.max.ms`` of the broker's clock (KIP-937)."""
    before_ms, after_ms = config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms
    if config.log_append_time or before_ms == after_ms == NO_LIMIT:
        return ANY_TIMESTAMP
    return TimestampRange(now_ms - before_ms, now_ms + after_ms)


def _check_records(facts: RecordFacts, config: LogConfig, accepted: TimestampRange) -> None:
    """Reject records without a key or with a timestamp out of range, each by its index (KIP-467)."""
    rejected: dict[int, str] = {}
    if config.compacted:
        rejected = dict.fromkeys(facts.without_key, "A compacted topic does not accept a record without a key.")
    if facts.out_of_range:
        for index, timestamp_ms in facts.out_of_range:
            rejected.setdefault(
                index,
                f"Timestamp {timestamp_ms} is out of range: it must be between {accepted.earliest_ms} "
                f"and {accepted.latest_ms}.",
            )
        raise RecordsRejected("some timestamps are out of range", rejected, ErrorCode.INVALID_TIMESTAMP)
    if rejected:
        raise RecordsRejected("the topic is compacted, and some records have no key", rejected)


def check_as_follower(
    data: memoryview, log_end_offset: int, leader_epoch: int | None = None, *, gaps_expected: bool = True
) -> list[BatchHeader]:
    """Return the headers of the valid batches in a leader's response; an incomplete last batch is ignored.

    Batches before a damaged one are valid; the next fetch starts with the damaged one.

    :param leader_epoch: epoch of the leader that received the fetch, or None. Batches of later epochs and all after
        them are ignored: the leader's log was truncated and rewritten while the response was pending (KAFKA-18723).
    :param gaps_expected: True if compaction may have left gaps. Otherwise a batch after a gap is ignored, because its
        offset, which its checksum does not cover, may be damaged. The next fetch starts at the gap, and the leader then
        checks the batch. A gap before the first batch is accepted.
    :raise KafkaError: CORRUPT_MESSAGE, or OFFSET_OUT_OF_RANGE if a batch starts before the end of its predecessor.
    """
    headers: list[BatchHeader] = []
    try:
        for _, header, is_intact in iter_checked(data):
            if not is_intact:
                if headers:
                    break
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"wrong CRC in the batch of offset {header.base_offset}")
            if leader_epoch is not None and header.partition_leader_epoch > leader_epoch:
                break
            if headers and not gaps_expected and header.base_offset != log_end_offset:
                break
            if not may_follow(header.base_offset, log_end_offset) or header.last_offset_delta < 0:
                raise KafkaError(
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                    f"offsets {header.base_offset} to {header.last_offset} do not follow log end {log_end_offset}",
                )
            log_end_offset = header.base_offset + header.last_offset_delta + 1
            headers.append(header)
    except ProtocolError as error:
        if not headers:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    return headers


def may_follow(base_offset: int, log_end_offset: int) -> bool:
    """True if a leader's batch may be appended; compaction leaves gaps, but offsets never overlap."""
    return base_offset >= log_end_offset


def _too_large(size: int, config: LogConfig) -> KafkaError:
    if size > config.max_message_bytes:
        return KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch has {size} bytes, but max.message.bytes is {config.max_message_bytes}",
        )
    return KafkaError(
        ErrorCode.RECORD_LIST_TOO_LARGE, f"the batch has {size} bytes, but segment.bytes is {config.segment_bytes}"
    )


def _writable(records: bytes | bytearray | memoryview) -> bytearray | memoryview:
    return records if isinstance(records, bytearray) else bytearray(records)


def _check_own_batch(records: bytes | bytearray | memoryview) -> BatchHeader:
    """Parse a batch that this broker built; it may be an end marker or have a producer ID without a sequence number."""
    try:
        header = parse_header(records)
    except ProtocolError as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    if header.size != len(records) or not verify_crc(records, header):
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "the records are not exactly one valid batch")
    return header


def _invalid(error: ProtocolError) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, str(error))


def read_marker(records: Bytes) -> EndMarker | None:
    """Return a control batch's end marker, or None for other control records, which are ignored as in Kafka.

    :raise KafkaError: CORRUPT_MESSAGE if the record is incomplete.
    """
    try:
        record = next(iter_records(records), None)
        # Compaction keeps an empty batch to preserve its producer's epoch.
        return parse_end_marker(record) if record is not None else None
    except ProtocolError as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error


def read_markers(data: memoryview, headers: list[BatchHeader]) -> list[EndMarker | None]:
    """Return the end marker of each of these adjacent batches, or None."""
    markers: list[EndMarker | None] = []
    position = 0
    for header in headers:
        end = position + header.length + LENGTH_END
        markers.append(read_marker(data[position:end]) if header.attributes & CONTROL_BIT else None)
        position = end
    return markers


def split_runs(headers: list[BatchHeader], size_max: int) -> Iterator[tuple[int, int, int]]:
    """Yield first index, end index and size of each run of batches that fit into one segment.

    A run has at least one batch, even if that is larger than ``size_max``.
    """
    first = size = 0
    for index, header in enumerate(headers):
        batch_size = header.length + LENGTH_END
        if size and size + batch_size > size_max:
            yield first, index, size
            first, size = index, 0
        size += batch_size
    if size:
        yield first, len(headers), size
