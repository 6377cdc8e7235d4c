"""Visible records of a Fetch response: batches are verified, and aborted transactions and markers are skipped.

Readers that decode records themselves, such as Spark's workers, use ``visible_batches``.
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
    iter_checked,
    last_header,
)
from kreplica.wire.control_records import parse_end_marker
from kreplica.wire.record_columns import RECORD_ROWS, open_rows
from kreplica.wire.records import DECOMPRESSED_SIZE_MAX, Record, iter_records


class Isolation(IntEnum):
    """Isolation level of a consumer."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class ReadBatch(NamedTuple):
    """Records of one batch.

    :param records: in ascending order of offset, possibly with gaps.
    :param next_offset: the offset after the batch, including skipped records at its end.
    """

    partition: TopicPartition
    timestamp_type: TimestampType
    records: list[Record]
    next_offset: int


class FetchedRecords(NamedTuple):
    """One partition's part of a Fetch response.

    :param data: the batches, as stored in the log.
    :param position: the requested offset; the first batch may start before it.
    :param next_offset: offset of the next fetch: the offset after the last complete batch.
    :param aborted: aborted transactions in the data as (producer id, first offset), sorted by offset.
    :param preferred_replica: broker to fetch from if the leader named one (KIP-392), otherwise -1.
    """

    partition: TopicPartition
    data: memoryview
    position: int
    next_offset: int
    aborted: tuple[tuple[int, int], ...] = ()
    preferred_replica: int = -1


def next_offset_after(data: memoryview, position: int, partition: TopicPartition) -> int:
    """Return the offset after the last complete batch.

    :param position: the requested offset; returned if there is no complete batch.
    :raise CorruptBatch: the bytes are not batches, or end before the position.
    """
    try:
        last = last_header(data)
    except ProtocolError as error:
        raise CorruptBatch(f"{partition} at offset {position}: {error}") from error
    if last is None:
        return position
    if last.next_offset <= position:
        raise CorruptBatch(f"{partition}: requested from offset {position}, but the batches end at {last.next_offset}")
    return last.next_offset


def visible_batches(fetched: FetchedRecords) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield the complete batches of visible records, verified, without aborted transactions and markers.

    :raise CorruptBatch: a batch is damaged.
    """
    data, partition = fetched.data, fetched.partition
    upcoming = deque(fetched.aborted)
    aborted: set[int] = set()
    for position, header, is_intact in iter_checked(data):
        if not is_intact:
            raise CorruptBatch(f"{partition}: the batch at offset {header.base_offset} is damaged")
        while upcoming and upcoming[0][1] <= header.last_offset:
            aborted.add(upcoming.popleft()[0])
        batch = data[position : position + header.size]
        if not header.attributes & (CONTROL_BIT | TRANSACTIONAL_BIT):
            yield header, batch
        elif header.is_control:
            if header.producer_id in aborted and _is_abort_marker(batch):
                aborted.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborted):
            yield header, batch


def _is_abort_marker(batch: memoryview) -> bool:
    for record in iter_records(batch):
        marker = parse_end_marker(record)
        if marker is not None:
            return not marker.committed
    return False


def open_batches(
    fetched: FetchedRecords, end: int | None = None, *, decompressed_size_max: int = DECOMPRESSED_SIZE_MAX
) -> list[ReadBatch]:
    """Return the requested records, by batch; batches without requested records are skipped.

    :param end: exclusive end of the requested offsets; None returns all fetched records.
    :raise CorruptBatch: a batch is damaged.
    """
    found = []
    position, partition = fetched.position, fetched.partition
    try:
        for header, batch in visible_batches(fetched):
            records, _ = open_rows(batch, header, decompressed_size_max, RECORD_ROWS)
            if header.base_offset < position or (end is not None and header.last_offset >= end):
                records = [each for each in records if position <= each.offset and (end is None or each.offset < end)]
            if records:
                next_offset = header.next_offset if end is None else min(header.next_offset, end)
                found.append(ReadBatch(partition, header.timestamp_type, records, next_offset))
    except ProtocolError as error:
        raise CorruptBatch(f"{partition} from offset {position}: {error}") from error
    return found


def aborted_transactions_of(row: dict[str, Any]) -> tuple[tuple[int, int], ...]:
    """Return the aborted transactions in a partition's row of a response, sorted by first offset."""
    rows: Iterable[dict[str, Any]] = row.get("aborted_transactions") or ()
    return tuple(sorted(((each["producer_id"], each["first_offset"]) for each in rows), key=lambda pair: pair[1]))
