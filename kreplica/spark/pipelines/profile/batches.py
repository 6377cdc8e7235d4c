"""Batches of a slice as stored in the log, read from a broker's files or fetched from brokers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, NamedTuple, TypeAlias

from kreplica.blocking import Isolation, Reader, ReaderOptions
from kreplica.blocking.offsets import end_offsets
from kreplica.blocking.reader import OutOfRange
from kreplica.client_core.errors import CorruptBatch
from kreplica.client_core.fetched_batches import FetchedRecords
from kreplica.errors import ProtocolError
from kreplica.spark.source.options import SourceOptions
from kreplica.spark.source.range_reading import worker_cluster
from kreplica.spark.source.ranges import OffsetRange
from kreplica.spark.source.segment_files import ReplicaFiles, find_replicas
from kreplica.storage.formats.batch_scanning import scan_batches, scan_headers
from kreplica.wire.batches import BatchHeader, iter_headers

log = logging.getLogger(__name__)

BatchFilter: TypeAlias = Callable[[BatchHeader], bool]
"""Returns True if the bytes of a batch are needed, not just its header."""

RawBatch: TypeAlias = tuple[BatchHeader, memoryview | None]


class _RawBatches(NamedTuple):
    """All batches of one response."""

    batches: list[RawBatch]
    next_offset: int


class _RawReader(Reader):
    """A reader that returns all batches of the log, including control batches and aborted transactions."""

    def open_fetched(self, fetched: FetchedRecords, end: int | None) -> list[Any]:
        """Return a list with one ``_RawBatches``; empty if there is no batch."""
        try:
            headers = list(iter_headers(fetched.data, incomplete_last=True))
        except ProtocolError as error:
            raise CorruptBatch(f"{fetched.partition} from offset {fetched.position}: {error}") from error
        batches: list[RawBatch] = [
            (header, fetched.data[position : position + header.size]) for position, header in headers
        ]
        next_offset = fetched.next_offset if end is None else min(fetched.next_offset, end)
        return [_RawBatches(batches, next_offset)] if batches else []


def read_batches(offset_range: OffsetRange, options: SourceOptions, needs_bytes: BatchFilter) -> Iterator[RawBatch]:
    """Yield the batches whose last offset is in a range, so that each belongs to one slice.

    The bytes of a batch are None unless ``needs_bytes`` selects it. Batches that retention deletes in the meantime are
    omitted.

    :raise KreplicaError: the batches cannot be read.
    """
    if options.log_dirs:
        found = _from_files(offset_range, options, needs_bytes)
    else:
        found = _from_brokers(offset_range, options)
    for header, batch in found:
        if header.last_offset >= offset_range.end:
            return
        if header.last_offset >= offset_range.start:
            yield header, batch if needs_bytes(header) else None


def _from_files(offset_range: OffsetRange, options: SourceOptions, needs_bytes: BatchFilter) -> Iterator[RawBatch]:
    replica = find_replicas(options.log_dirs).get(offset_range.partition)
    if replica is None:
        log.warning("%s is not in %s", offset_range.partition, ", ".join(options.log_dirs))
        return
    for base in replica.bases_from(offset_range.start):
        if base >= offset_range.end:
            return
        try:
            yield from _segment(replica, base, offset_range.start, needs_bytes)
        except FileNotFoundError:
            log.warning("%s: segment %d was deleted", offset_range.partition, base)


def _segment(replica: ReplicaFiles, base: int, start: int, needs_bytes: BatchFilter) -> Iterator[RawBatch]:
    with closing(replica.open(base)) as file:
        position = replica.position(base, start)
        if needs_bytes is all_batches:
            for _, header, batch in scan_batches(file, position, file.size()):
                yield header, batch
            return
        for batch_position, header in scan_headers(file, position, file.size()):
            yield header, memoryview(file.read_at(batch_position, header.size)) if needs_bytes(header) else None


def _from_brokers(offset_range: OffsetRange, options: SourceOptions) -> Iterator[RawBatch]:
    cluster = worker_cluster(options.bootstrap, options.settings)
    partition, start, end = offset_range
    reader_options = ReaderOptions(
        isolation=Isolation.READ_UNCOMMITTED,
        fetch_size_max=options.settings.fetch_size_max,
        partition_size_max=options.settings.partition_size_max,
        out_of_range=OutOfRange.EARLIEST,
        patience_s=options.poll_timeout_s,
    )
    with _RawReader(cluster, {partition: start}, ends={partition: end}, options=reader_options) as reader:
        while not reader.is_done:
            responses: list[Any] = reader.read(options.poll_timeout_s)
            if not responses and not reader.is_done and end_offsets(cluster, [partition])[partition] < end:
                log.warning("%s ends before %d", partition, end)
                return
            for response in responses:
                yield from response.batches


def all_batches(_: BatchHeader) -> bool:
    """Select all batches."""
    return True


def sample_filter(share: float) -> BatchFilter:
    """Return a filter that selects all control batches and about ``share`` of the others, always the same ones."""
    if share >= 1:
        return all_batches
    limit = int(share * (1 << 32))
    return lambda header: header.is_control or (header.base_offset * 2_654_435_761) % (1 << 32) < limit
