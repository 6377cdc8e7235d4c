"""Records of one partition in a Fetch response."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from kreplica.errors import ErrorCode, KafkaError
from kreplica.wire.batches import BatchHeader, iter_headers, verify_crc
from kreplica.wire.control_records import parse_end_marker
from kreplica.wire.records import Record, iter_records


class VisibleRecords(NamedTuple):
    """Visible records of one partition in a Fetch response.

    :param position: the next fetch offset, after all records, visible or hidden.
    """

    records: list[Record]
    position: int


def visible_records(row: dict[str, Any], position: int) -> VisibleRecords:
    """Return a Fetch response's records without control batches and aborted records.

    :param row: response for one partition; only read_committed responses list aborted transactions.
    :raise KafkaError: the response contains an error, or the records are damaged.
    """
    if row["error_code"]:
        raise KafkaError(ErrorCode.of(row["error_code"]))
    data = memoryview(bytes(row["records"] or b""))
    start = position
    remaining = sorted(row.get("aborted_transactions") or (), key=lambda transaction: -transaction["first_offset"])
    aborted: set[int] = set()
    records: list[Record] = []
    for batch_position, header in iter_headers(data, incomplete_last=True):
        check_batch(row, data, header, batch_position, start)
        while remaining and remaining[-1]["first_offset"] <= header.last_offset:
            aborted.add(remaining.pop()["producer_id"])
        batch = list(iter_records(data[batch_position : batch_position + header.size]))
        if header.is_control:
            _apply_end_marker(batch, header.producer_id, aborted)
        elif not (header.is_transactional and header.producer_id in aborted):
            records += [record for record in batch if record.offset >= position]
        position = max(position, header.next_offset)
    return VisibleRecords(records, position)


def _apply_end_marker(markers: Sequence[Record], producer_id: int, aborted: set[int]) -> None:
    """Remove a producer from ``aborted`` at its abort marker, since its later batches belong to another transaction."""
    marker = parse_end_marker(markers[0])
    if marker is not None and not marker.committed:
        aborted.discard(producer_id)


def records_of(row: dict[str, Any], offset: int) -> list[Record]:
    """Return the records of one partition in a Fetch response from ``offset`` on.

    The first batch may start before the offset, and the last batch may be incomplete.

    :raise KafkaError: the response contains an error, or the records are damaged.
    """
    if row["error_code"]:
        raise KafkaError(ErrorCode.of(row["error_code"]))
    data = memoryview(bytes(row["records"] or b""))
    records: list[Record] = []
    for position, header in iter_headers(data, incomplete_last=True):
        check_batch(row, data, header, position, offset)
        batch = data[position : position + header.size]
        records += [record for record in iter_records(batch) if record.offset >= offset]
    return records


def check_batch(row: dict[str, Any], data: memoryview, header: BatchHeader, position: int, offset: int) -> None:
    """Check a batch's CRC and offsets.

    The CRC does not cover offsets, but they cannot be below the fetch offset or above the response's high watermark.

    :param offset: the fetch offset.
    :raise KafkaError: CORRUPT_MESSAGE.
    """
    if not offset <= header.last_offset < row["high_watermark"] or not verify_crc(data, header, position):
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"the batch at offset {header.base_offset} is damaged")
