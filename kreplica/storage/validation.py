"""What a leader checks before it appends, and what it changes in a batch: the rules of Produce (KIP-32, KIP-98).

Nothing here changes a log: a refused batch leaves no trace.
"""

from __future__ import annotations

from collections.abc import Iterator

from kreplica.errors import ErrorCode, KafkaError, ProtocolError
from kreplica.storage.config import NO_LIMIT, LogConfig
from kreplica.storage.producers import Origin
from kreplica.wire.batch_building import seal
from kreplica.wire.batches import (
    CODEC_MASK,
    HEADER_SIZE,
    NO_TIMESTAMP,
    BatchHeader,
    Bytes,
    check_batch,
    iter_headers,
    parse_header,
    stamp_log_append_time,
    stamp_max_timestamp,
    verify_crc,
)
from kreplica.wire.compression import compress, decompress
from kreplica.wire.control_records import EndMarker, parse_end_marker
from kreplica.wire.records import DECOMPRESSED_SIZE_MAX, iter_keys, iter_records, max_timestamp_record

Checked = tuple[bytearray | memoryview, BatchHeader, EndMarker | None]
"""A batch that may be appended: its bytes, writable, its header, and what it says where it ends a transaction."""


def check_as_leader(records: bytes | bytearray | memoryview, config: LogConfig, origin: Origin, now_ms: int) -> Checked:
    """See that one batch may be appended by a leader, and make of it what the topic wants.

    :param records: changed in place, or copied once where the memory is read-only.
    :raise KafkaError: MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, CORRUPT_MESSAGE, INVALID_RECORD, INVALID_TIMESTAMP,
        UNSUPPORTED_FOR_MESSAGE_FORMAT, UNSUPPORTED_COMPRESSION_TYPE.
    """
    if len(records) > config.append_size_max:
        raise _too_large(len(records), config)
    data = records if type(records) is memoryview and not records.readonly else _writable(records)
    if origin is Origin.CLIENT:
        header = check_batch(data)
    else:
        header = _check_own_batch(data)
        if header.is_control:
            return data, header, read_marker(data)
    if config.looks_into_batches or header.max_timestamp == NO_TIMESTAMP:
        data, header = _look_into(data, header, config, now_ms)
    return data, header, None


def _look_into(
    data: bytearray | memoryview, header: BatchHeader, config: LogConfig, now_ms: int
) -> tuple[bytearray | memoryview, BatchHeader]:
    """The rules of topics that ask for more than a batch's header; opens records only for those that need it."""
    if config.compacted:
        _check_keys(data)
    if config.codec is not None and config.codec != header.codec:
        data = _recompress(data, header, config.codec)
        if len(data) > config.append_size_max:
            raise _too_large(len(data), config)
    if config.log_append_time:
        stamp_log_append_time(data, now_ms)
        return data, parse_header(data)
    if header.max_timestamp == NO_TIMESTAMP and header.base_timestamp != NO_TIMESTAMP:
        _set_max_timestamp(data)
    header = parse_header(data)
    _check_timestamps(data, header, config, now_ms)
    return data, header


def _recompress(data: bytearray | memoryview, header: BatchHeader, codec: int) -> bytearray:
    """The same records with the topic's ``compression.type``."""
    try:
        section = decompress(header.codec, data[HEADER_SIZE:], DECOMPRESSED_SIZE_MAX)
    except ProtocolError as error:
        raise _invalid(error) from error
    attributes = header.attributes & ~CODEC_MASK | codec
    return bytearray(seal(header._replace(attributes=attributes), compress(codec, section)))


def check_as_follower(
    data: memoryview, log_end_offset: int, leader_epoch: int | None = None, *, gaps_expected: bool = True
) -> list[BatchHeader]:
    """The headers of the whole batches that a leader sent; a last one that is cut short is left out.

    Of those before a damaged one nothing is wrong: they are taken, and the next fetch begins with the damaged one.

    :param leader_epoch: of the leader that was asked, or None.  What a later epoch wrote is left out with all that
        follows: the leader's log was truncated and written anew while its answer was on the way (KAFKA-18723).
    :param gaps_expected: as compaction leaves them.  Else a batch after a gap is left out, unless it is the first: its
        checksum does not cover its offset, and the leader looks twice at what it sends from there.
    :raise KafkaError: CORRUPT_MESSAGE, OFFSET_OUT_OF_RANGE (a batch starts before the end of the one before it).
    """
    headers: list[BatchHeader] = []
    try:
        for position, header in iter_headers(data, incomplete_last=True):
            if not verify_crc(data, header, position):
                if headers:
                    break
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"wrong CRC in the batch of offset {header.base_offset}")
            if leader_epoch is not None and header.partition_leader_epoch > leader_epoch:
                break
            if headers and not gaps_expected and header.base_offset != log_end_offset:
                break
            if not may_follow(header.base_offset, log_end_offset) or header.last_offset_delta < 0:
                raise KafkaError(
                    ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {header.base_offset} where {log_end_offset} follows"
                )
            log_end_offset = header.next_offset
            headers.append(header)
    except ProtocolError as error:
        if not headers:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    return headers


def may_follow(base_offset: int, log_end_offset: int) -> bool:
    """Whether a batch of a leader may come next: compaction leaves gaps, and nothing is there twice."""
    return base_offset >= log_end_offset


def _too_large(size: int, config: LogConfig) -> KafkaError:
    if size > config.max_message_bytes:
        return KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE, f"a batch of {size} bytes, max.message.bytes is {config.max_message_bytes}"
        )
    return KafkaError(
        ErrorCode.RECORD_LIST_TOO_LARGE, f"a batch of {size} bytes, segment.bytes is {config.segment_bytes}"
    )


def _writable(records: bytes | bytearray | memoryview) -> bytearray | memoryview:
    return records if isinstance(records, bytearray) else bytearray(records)


def _check_own_batch(records: bytes | bytearray | memoryview) -> BatchHeader:
    """A coordinator's batch may be a marker, or have a producer id without a sequence."""
    try:
        header = parse_header(records)
    except ProtocolError as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    if header.size != len(records) or not verify_crc(records, header):
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "exactly one whole batch is appended at a time")
    return header


def _set_max_timestamp(data: bytearray | memoryview) -> None:
    """Some producers leave the highest timestamp out, which a search by timestamp needs."""
    try:
        found = max_timestamp_record(data)
    except ProtocolError as error:
        raise _invalid(error) from error
    if found is not None:
        stamp_max_timestamp(data, found[1])


def _check_timestamps(records: Bytes, header: BatchHeader, config: LogConfig, now_ms: int) -> None:
    """Every record within ``message.timestamp.before|after.max.ms`` of the broker's clock (KIP-937)."""
    earliest_ms = now_ms - config.message_timestamp_before_max_ms
    latest_ms = now_ms + config.message_timestamp_after_max_ms
    if header.max_timestamp > latest_ms:
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, f"timestamp {header.max_timestamp} is too far in the future")
    if config.message_timestamp_before_max_ms == NO_LIMIT:
        return
    try:
        for record in iter_records(records):
            if not earliest_ms <= record.timestamp_ms <= latest_ms:
                raise KafkaError(
                    ErrorCode.INVALID_TIMESTAMP,
                    f"timestamp {record.timestamp_ms} of record {record.offset} of the batch is too far from now",
                )
    except ProtocolError as error:
        raise _invalid(error) from error


def _check_keys(records: Bytes) -> None:
    try:
        for index, (_, key) in enumerate(iter_keys(records)):
            if key is None:
                raise KafkaError(ErrorCode.INVALID_RECORD, f"record {index} has no key, and the topic is compacted")
    except ProtocolError as error:
        raise _invalid(error) from error


def _invalid(error: ProtocolError) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, str(error))


def read_marker(records: Bytes) -> EndMarker | None:
    """What a control batch says, where it ends a transaction; None for other control records (ignored, as in Kafka).

    :raise KafkaError: CORRUPT_MESSAGE, it is cut short.
    """
    try:
        record = next(iter_records(records), None)
        # Compaction keeps an emptied batch for the sake of its producer's epoch.
        return parse_end_marker(record) if record is not None else None
    except ProtocolError as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error


def read_markers(data: memoryview, headers: list[BatchHeader]) -> list[EndMarker | None]:
    """The transaction markers among batches that lie one after the other; None for the others."""
    markers: list[EndMarker | None] = []
    position = 0
    for header in headers:
        marker = read_marker(data[position : position + header.size]) if header.is_control else None
        markers.append(marker)
        position += header.size
    return markers


def split_runs(headers: list[BatchHeader], size_max: int) -> Iterator[tuple[int, int, int]]:
    """(first index, index after the last, bytes) of runs of batches that fit into one segment; at least one each."""
    first = size = 0
    for index, header in enumerate(headers):
        if size and size + header.size > size_max:
            yield first, index, size
            first, size = index, 0
        size += header.size
    if size:
        yield first, len(headers), size
