"""What of a fetched answer a reader may see: batches checked, transactions that were aborted and markers left out.

Pure: bytes in, values out.  Who has another way to open records, as Spark's workers do, takes ``visible_batches``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import Any, NamedTuple

from kreplica.client_core.errors import CorruptBatch
from kreplica.errors import ProtocolError
from kreplica.model import TopicPartition
from kreplica.wire.batches import (
    CONTROL_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    TimestampType,
    iter_headers,
    verify_crc,
)
from kreplica.wire.control_records import parse_end_marker
from kreplica.wire.record_columns import read_records
from kreplica.wire.records import DECOMPRESSED_SIZE_MAX, Record, iter_records, open_records


class Isolation(IntEnum):
    """What a reader wants to see of transactions."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class ReadBatch(NamedTuple):
    """Records of one partition that were written together.

    :param records: in the order of their offsets, which may have gaps.
    :param next_offset: right behind them, and what was left out behind them within the batch.
    """

    partition: TopicPartition
    timestamp_type: TimestampType
    records: list[Record]
    next_offset: int


class FetchedRecords(NamedTuple):
    """What one answer has for one partition.

    :param data: the batches, as they lie in the log.
    :param position: from where on records are wanted; the first batch may begin before it.
    :param next_offset: where the next fetch begins: right behind the last batch, its gaps and markers included.
    :param aborted: transactions that were aborted there: (producer id, first offset), by offset.
    :param preferred_replica: the broker to read from, where the leader names one (KIP-392); else -1.
    """

    partition: TopicPartition
    data: memoryview
    position: int
    next_offset: int
    aborted: tuple[tuple[int, int], ...] = ()
    preferred_replica: int = -1


def next_offset_behind(data: memoryview, position: int, partition: TopicPartition) -> int:
    """Where the next fetch begins: right behind the last batch that is there as a whole.

    :param position: where this one began; it is the answer where there is no whole batch.
    :raise CorruptBatch: the bytes are not batches, or do not reach as far as the position.
    """
    last: BatchHeader | None = None
    try:
        for _, header in iter_headers(data, incomplete_last=True):
            last = header
    except ProtocolError as error:
        raise CorruptBatch(f"{partition} at offset {position}: {error}") from error
    if last is None:
        return position
    if last.next_offset <= position:
        raise CorruptBatch(f"{partition}: asked from offset {position} on, the batches end at {last.next_offset}")
    return last.next_offset


def visible_batches(fetched: FetchedRecords) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Whole batches that hold records for users: checked, none of an aborted transaction, no markers.

    :raise CorruptBatch: one is not what was written.
    """
    data, partition = fetched.data, fetched.partition
    coming = deque(fetched.aborted)
    aborted: set[int] = set()
    for position, header in iter_headers(data, incomplete_last=True):
        if not verify_crc(data, header, position):
            raise CorruptBatch(f"{partition}: the batch at offset {header.base_offset} is damaged")
        while coming and coming[0][1] <= header.last_offset:
            aborted.add(coming.popleft()[0])
        batch = data[position : position + header.size]
        if not header.attributes & (CONTROL_BIT | TRANSACTIONAL_BIT):
            yield header, batch
        elif header.is_control:
            if header.producer_id in aborted and _ends_abort(batch):
                aborted.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborted):
            yield header, batch


def _ends_abort(batch: memoryview) -> bool:
    for record in iter_records(batch):
        marker = parse_end_marker(record)
        if marker is not None:
            return not marker.committed
    return False


def open_batches(
    fetched: FetchedRecords, end: int | None = None, *, decompressed_size_max: int = DECOMPRESSED_SIZE_MAX
) -> list[ReadBatch]:
    """The records that are wanted, batch by batch; none without records.

    :param end: records from this offset on are not wanted.
    :raise CorruptBatch: something is not what was written.
    """
    found = []
    position, partition = fetched.position, fetched.partition
    try:
        for header, batch in visible_batches(fetched):
            section = open_records(batch, header, decompressed_size_max)
            records = read_records(section, header)
            if header.base_offset < position or (end is not None and header.last_offset >= end):
                records = [each for each in records if position <= each.offset and (end is None or each.offset < end)]
            if records:
                behind = header.next_offset if end is None else min(header.next_offset, end)
                found.append(ReadBatch(partition, header.timestamp_type, records, behind))
    except ProtocolError as error:
        raise CorruptBatch(f"{partition} from offset {position} on: {error}") from error
    return found


def aborted_of(row: dict[str, Any]) -> tuple[tuple[int, int], ...]:
    """The aborted transactions of an answer's row, by first offset."""
    rows: Iterable[dict[str, Any]] = row.get("aborted_transactions") or ()
    return tuple(sorted(((each["producer_id"], each["first_offset"]) for each in rows), key=lambda pair: pair[1]))
