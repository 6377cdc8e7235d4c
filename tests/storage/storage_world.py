"""Helpers of the storage tests: batches, logs, and reading everything back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import TopicPartition
from kreplica.runtime.disk import Disk, is_out_of_descriptors
from kreplica.runtime.os_disk import OsDisk
from kreplica.storage import Log, LogConfig
from kreplica.storage.directories.opening import LogToOpen
from kreplica.storage.log.appending import append_as_leader
from kreplica.wire.batch_building import NEXT_OFFSET, build_batch
from kreplica.wire.batches import iter_headers
from kreplica.wire.control_records import EndMarker, build_end_marker
from kreplica.wire.records import Record, iter_records

KEY = TopicPartition("orders", 0)
SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=150)


def batch(*values: str | tuple[str | None, str | None], timestamp_ms: int = 1000, **options: Any) -> bytearray:
    """Return a producer's batch.

    A plain value has no key; timestamps increase by one.
    """
    pairs = [value if isinstance(value, tuple) else (None, value) for value in values]
    records = [
        Record(NEXT_OFFSET, timestamp_ms + index, key and key.encode(), None if value is None else value.encode())
        for index, (key, value) in enumerate(pairs)
    ]
    return bytearray(build_batch(records, **options))


def idempotent(sequence: int, count: int = 1, *, producer_id: int = 7, epoch: int = 0, **options: Any) -> bytearray:
    """Return a batch of an idempotent producer."""
    values = [f"{producer_id}/{epoch}/{sequence + index}" for index in range(count)]
    return batch(*values, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, **options)


def marker(producer_id: int, *, committed: bool, epoch: int = 0, coordinator_epoch: int = 0) -> bytearray:
    """Return the marker that ends a transaction."""
    return bytearray(build_end_marker(EndMarker(committed, coordinator_epoch), producer_id, epoch, 1000))


def open_log(directory: object, config: LogConfig = SMALL, disk: Disk | None = None, **state: Any) -> Log:
    """Open the log in this directory, with the wall clock at 5000."""
    return LogToOpen(str(directory), KEY, config, disk or OsDisk(), lambda: 5000, **state).open()[0]


def fill(log: Log, count: int, *, epoch: int = 0, size: int = 100, first: int = 0) -> None:
    """Append this number of batches with one record each."""
    for index in range(first, first + count):
        append_as_leader(log, batch(f"value {index}".ljust(size), timestamp_ms=1000 + index), epoch, now_ms=2000)


def flush(log: Log) -> None:
    """Sync all records now, as the log directory does."""
    unsynced = log.unsynced()
    try:
        unsynced.sync()
    except OSError as error:
        if not is_out_of_descriptors(error):
            log.fail(error)
        raise
    log.mark_synced(unsynced)


def read_bytes(log: Log, offset: int | None = None, offset_max: int | None = None, size_max: int = 2**20) -> bytes:
    """Return the bytes of all whole batches from an offset on, read in slices as by a consumer."""
    offset = log.log_start_offset if offset is None else offset
    end = log.log_end_offset if offset_max is None else offset_max
    pieces = []
    while offset < end:
        part = log.read(offset, size_max=size_max, offset_max=end)
        data = b"".join(piece.read() for piece in part.ranges)
        whole = 0
        for position, header in iter_headers(data, incomplete_last=True):
            whole = position + header.size
            offset = header.next_offset
        if not whole:
            break
        pieces.append(data[:whole])
    return b"".join(pieces)


def records_of(data: bytes) -> list[Record]:
    """Return the records of consecutive batches."""
    return [record for at, header in iter_headers(data) for record in iter_records(data[at : at + header.size])]


def values_of(log: Log, **bounds: Any) -> list[tuple[int, str]]:
    """Return (offset, value) of every record in the log."""
    found = records_of(read_bytes(log, **bounds))
    return [(record.offset, (record.value or b"").decode().rstrip()) for record in found]


def offsets_of(log: Log) -> list[int]:
    """Return the offsets of all records in the log."""
    return [record.offset for record in records_of(read_bytes(log))]


def bases_of(log: Log) -> list[int]:
    """Return the base offsets of the log's segments."""
    return [segment.base_offset for segment in log.segments]


def refused(code: ErrorCode, error: KafkaError) -> None:
    """Assert that an operation was rejected with this error code."""
    assert error.code is code, error


def names(directory: Iterable[Any]) -> list[str]:
    """Return the names of paths."""
    return sorted(path.name for path in directory)
