"""Filters a fetched chunk and converts records to JSON values; pure functions for a worker thread."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kreplica.admin.messages.searching import Search
from kreplica.errors import ProtocolError
from kreplica.formats.filters import FilterFailed
from kreplica.formats.messages import RecordView
from kreplica.formats.record_data import RecordData
from kreplica.interfaces.formats import SchemaNotLoaded
from kreplica.runtime.offload import release_gil
from kreplica.wire.batches import BatchHeader, iter_headers
from kreplica.wire.control_records import parse_end_marker
from kreplica.wire.records import Record, iter_records

DECOMPRESSED_BYTES_MAX = 32 * 1024 * 1024
"""Maximum decompressed size of a batch; a larger batch is skipped and reported."""

RECORDS_PER_TIME_CHECK = 10
"""Number of records between two checks of the time limit; searching them takes 1 to 2 ms with a regular expression."""

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Selection:
    """Selects records of a chunk and converts them to documents.

    :param search: None to find all records.
    :param with_control_records: True to find transaction markers as well.
    """

    view: RecordView
    search: Search | None = None
    with_control_records: bool = False

    @property
    def is_selective(self) -> bool:
        """True if some records may not be found."""
        return self.search is not None or self.view.record_filter is not None


@dataclass(frozen=True, slots=True)
class Chunk:
    """A fetched chunk of one partition.

    :param data: batches; the last one may be incomplete.
    :param start_offset: first requested offset; the first batch may start before it.
    :param end_offset: exclusive end of the requested offsets.
    :param aborted: producer ID and first offset of each aborted transaction; empty for read uncommitted.
    """

    partition: int
    data: bytes
    start_offset: int
    end_offset: int
    aborted: Sequence[tuple[int, int]] = ()


@dataclass(frozen=True, slots=True)
class ScanLimits:
    """Limits of a scan.

    :param matches: maximum number of matching records.
    :param records: maximum number of scanned records.
    :param match_bytes: maximum size of matching records; one record is returned whatever its size.
    :param is_late: returns True after the time limit; called in the worker thread.
    """

    matches: int
    records: int
    match_bytes: int
    is_late: Callable[[], bool] = lambda: False


@dataclass(slots=True)
class Scanned:
    """The result of a scan.

    :ivar found: the matching records in order.
    :ivar next_offset: the first offset that was not scanned.
    :ivar offsets: the offsets of the scanned records.
    :ivar found_bytes: the size of the matching records.
    :ivar undecodable: base offsets of the batches that cannot be decoded.
    :ivar oldest_ms: the lowest timestamp of the scanned records; None if there are none.
    :ivar filter_errors: the number of records for which the filter failed.
    :ivar filter_error: the first failure.
    :ivar missing_schema: ID of a schema that must be loaded before the chunk is scanned again; the other results are
        then incomplete.
    """

    next_offset: int
    found: list[Document] = field(default_factory=list)
    offsets: array[int] = field(default_factory=lambda: array("q"))
    found_bytes: int = 0
    undecodable: list[int] = field(default_factory=list)
    oldest_ms: int | None = None
    filter_errors: int = 0
    filter_error: str | None = None
    missing_schema: int | None = None

    @property
    def count(self) -> int:
        """Number of scanned records."""
        return len(self.offsets)


def scan(chunk: Chunk, selection: Selection, limits: ScanLimits) -> Scanned:
    """Scan a chunk until a limit or its end is reached.

    Each call scans at least one record if the chunk has a complete batch.
    """
    scanned = Scanned(chunk.start_offset)
    aborted = _AbortedTransactions(chunk.aborted)
    for position, header in iter_headers(chunk.data, incomplete_last=True):
        if header.next_offset <= chunk.start_offset:
            continue
        if header.base_offset >= chunk.end_offset:
            scanned.next_offset = max(scanned.next_offset, chunk.end_offset)
            break
        batch = memoryview(chunk.data)[position : position + header.size]
        is_selected = aborted.is_committed_data(header, batch) or (header.is_control and selection.with_control_records)
        if is_selected and not _scan_batch(chunk, header, batch, selection, limits, scanned):
            break
        scanned.next_offset = min(header.next_offset, chunk.end_offset)
    return scanned


def _scan_batch(
    chunk: Chunk,
    header: BatchHeader,
    batch: memoryview,
    selection: Selection,
    limits: ScanLimits,
    scanned: Scanned,
) -> bool:
    """Scan a batch.

    :return: False if a limit was reached within the batch, or a schema is missing.
    """
    try:
        for record in iter_records(batch, decompressed_size_max=DECOMPRESSED_BYTES_MAX):
            if not chunk.start_offset <= record.offset < chunk.end_offset:
                continue
            if _limit_reached(scanned, limits):
                return False
            scanned.offsets.append(record.offset)
            scanned.next_offset = record.offset + 1
            if scanned.oldest_ms is None or record.timestamp_ms < scanned.oldest_ms:
                scanned.oldest_ms = record.timestamp_ms
            if selection.search is None or selection.search(record):
                _add(chunk.partition, header, record, selection.view, scanned)
    except ProtocolError:
        scanned.undecodable.append(header.base_offset)
    except SchemaNotLoaded as error:
        scanned.missing_schema = error.schema_id
        return False
    return True


def _add(partition: int, header: BatchHeader, record: Record, view: RecordView, scanned: Scanned) -> None:
    """Add a record if the filter matches."""
    data = RecordData(
        partition,
        record.offset,
        record.timestamp_ms,
        header.timestamp_type.name.lower(),
        record.key,
        record.value,
        record.headers,
        _control(header, record) if header.is_control else None,
    )
    try:
        document = view.document(data)
    except FilterFailed as error:
        scanned.filter_errors += 1
        if scanned.filter_error is None:
            scanned.filter_error = f"partition {partition}, offset {record.offset}: {error}"
        return
    if document is not None:
        scanned.found.append(document)
        scanned.found_bytes += document["size_bytes"]


def _control(header: BatchHeader, record: Record) -> Document:
    """Return the fields of a control record.

    :raise ProtocolError: the record is truncated.
    """
    marker = parse_end_marker(record)
    return {
        "type": "other" if marker is None else "commit" if marker.committed else "abort",
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "coordinator_epoch": None if marker is None else marker.coordinator_epoch,
    }


def _limit_reached(scanned: Scanned, limits: ScanLimits) -> bool:
    return (
        len(scanned.found) >= limits.matches
        or scanned.count >= limits.records
        or (bool(scanned.found) and scanned.found_bytes >= limits.match_bytes)
        or (scanned.count % RECORDS_PER_TIME_CHECK == RECORDS_PER_TIME_CHECK - 1 and _is_late(limits))
    )


def _is_late(limits: ScanLimits) -> bool:
    release_gil()
    return limits.is_late()


class _AbortedTransactions:
    """Finds batches of aborted transactions from the fetch response (KIP-98)."""

    def __init__(self, aborted: Sequence[tuple[int, int]]) -> None:
        self._pending = sorted(((first_offset, producer_id) for producer_id, first_offset in aborted), reverse=True)
        self._producers: dict[int, None] = {}

    def is_committed_data(self, header: BatchHeader, batch: memoryview) -> bool:
        while self._pending and self._pending[-1][0] <= header.last_offset:
            self._producers[self._pending.pop()[1]] = None
        if header.is_control:
            if header.producer_id in self._producers and _is_abort(batch):
                del self._producers[header.producer_id]
            return False
        return not (header.is_transactional and header.producer_id in self._producers)


def _is_abort(batch: memoryview) -> bool:
    for record in iter_records(batch):
        marker = parse_end_marker(record)
        return marker is not None and not marker.committed
    return False
