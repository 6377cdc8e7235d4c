"""Filters a fetched chunk and converts records to JSON values; pure functions for a worker thread."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kreplica.admin.messages.searching import Search
from kreplica.errors import ProtocolError
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
    :ivar count: the number of scanned records.
    :ivar found_bytes: the size of the matching records.
    :ivar undecodable: base offsets of the batches that cannot be decoded.
    """

    next_offset: int
    found: list[Document] = field(default_factory=list)
    count: int = 0
    found_bytes: int = 0
    undecodable: list[int] = field(default_factory=list)


def scan(chunk: Chunk, search: Search | None, limits: ScanLimits) -> Scanned:
    """Scan a chunk until a limit or its end is reached.

    Transaction markers are skipped. Each call scans at least one record if the chunk has a complete batch.
    """
    scanned = Scanned(chunk.start_offset)
    aborted = _Aborted(chunk.aborted)
    for position, header in iter_headers(chunk.data, incomplete_last=True):
        if header.next_offset <= chunk.start_offset:
            continue
        if header.base_offset >= chunk.end_offset:
            scanned.next_offset = max(scanned.next_offset, chunk.end_offset)
            break
        batch = memoryview(chunk.data)[position : position + header.size]
        is_wanted = aborted.is_wanted(header, batch)
        if is_wanted and not _scan_batch(chunk, header, batch, search, limits, scanned):
            break
        scanned.next_offset = min(header.next_offset, chunk.end_offset)
    return scanned


def _scan_batch(
    chunk: Chunk,
    header: BatchHeader,
    batch: memoryview,
    search: Search | None,
    limits: ScanLimits,
    scanned: Scanned,
) -> bool:
    """Scan a batch.

    :return: False if a limit was reached within the batch.
    """
    try:
        for record in iter_records(batch, decompressed_size_max=DECOMPRESSED_BYTES_MAX):
            if not chunk.start_offset <= record.offset < chunk.end_offset:
                continue
            if _limit_reached(scanned, limits):
                return False
            scanned.count += 1
            scanned.next_offset = record.offset + 1
            if search is None or search(record):
                document = document_of(chunk.partition, header, record)
                scanned.found.append(document)
                scanned.found_bytes += document["size_bytes"]
    except ProtocolError:
        scanned.undecodable.append(header.base_offset)
    return True


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


class _Aborted:
    """Finds batches of aborted transactions from the fetch response (KIP-98)."""

    def __init__(self, aborted: Sequence[tuple[int, int]]) -> None:
        self._pending = sorted(((first_offset, producer_id) for producer_id, first_offset in aborted), reverse=True)
        self._producers: dict[int, None] = {}

    def is_wanted(self, header: BatchHeader, batch: memoryview) -> bool:
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


# --- conversion to JSON ----------------------------------------------------------------------------------------------


def document_of(partition: int, header: BatchHeader, record: Record) -> Document:
    """Return the JSON value of a record: text for UTF-8 bytes, otherwise base64."""
    key, key_encoding = encoded(record.key)
    value, value_encoding = encoded(record.value)
    return {
        "partition": partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms if record.timestamp_ms >= 0 else None,
        "timestamp_type": header.timestamp_type.name.lower(),
        "key": key,
        "value": value,
        "key_encoding": key_encoding,
        "value_encoding": value_encoding,
        "headers": [_header(name, content) for name, content in record.headers],
        "size_bytes": _size(record),
    }


def encoded(data: bytes | None) -> tuple[str | None, str | None]:
    """Return bytes as text, and the encoding of the text: ``utf8`` or ``base64``; None and None for null."""
    if data is None:
        return None, None
    try:
        return data.decode(), "utf8"
    except UnicodeDecodeError:
        return base64.b64encode(data).decode(), "base64"


def _header(name: str, content: bytes | None) -> Mapping[str, Any]:
    value, encoding = encoded(content)
    return {
        "key": name.encode(errors="surrogateescape").decode(errors="replace"),
        "value": value,
        "encoding": encoding,
    }


def _size(record: Record) -> int:
    return (
        len(record.key or b"")
        + len(record.value or b"")
        + sum(len(name.encode(errors="surrogateescape")) + len(value or b"") for name, value in record.headers)
    )
