"""Reads the offset range of a task from brokers, as Arrow batches."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple

import pyarrow as pa

from kreplica.blocking import Cluster, Reader, ReaderOptions
from kreplica.blocking.offsets import end_offsets, offsets_by_time
from kreplica.client_core.errors import BrokerRefused, ClientError, CorruptBatch, GaveUp, OffsetOutOfRange
from kreplica.client_core.fetched_batches import FetchedRecords, visible_batches
from kreplica.client_core.offsets import EARLIEST
from kreplica.errors import ErrorCode, ProtocolError
from kreplica.model import TopicPartition
from kreplica.spark.client_settings import ClientSettings
from kreplica.spark.source.decoding import Section, decode, open_section
from kreplica.spark.source.options import HEADERS_COLUMN, SourceOptions
from kreplica.spark.source.ranges import OffsetRange
from kreplica.spark.source.rows import arrow_rows
from kreplica.wire.batches import BatchHeader

log = logging.getLogger(__name__)

CHUNK_SIZE = 1 << 20
"""Approximate bytes of decompressed records per Arrow batch. Small enough to fit in a core's cache, and for the C
library to keep freed memory; otherwise the kernel would have to map it again page by page.
"""

_TOPIC_DELETED_CODES = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
_clusters: dict[tuple[Any, ...], Cluster] = {}
# A forked process must not share connections with its parent.
os.register_at_fork(after_in_child=_clusters.clear)


class DataLoss(Exception):
    """Requested records have been deleted."""


class CompressedBatches(NamedTuple):
    """Compressed batches of one response, and the offset at which the next fetch starts."""

    batches: list[tuple[BatchHeader, memoryview]]
    next_offset: int


class CompressedReader(Reader):
    """A reader that does not decompress batches, since a decompressed response may be many times larger."""

    def open_fetched(self, fetched: FetchedRecords, end: int | None) -> list[Any]:
        """Return a list with one ``CompressedBatches``; empty if there is no batch."""
        try:
            batches = [each for each in visible_batches(fetched) if end is None or each[0].base_offset < end]
        except ProtocolError as error:
            raise CorruptBatch(f"{fetched.partition} from offset {fetched.position}: {error}") from error
        next_offset = fetched.next_offset if end is None else min(fetched.next_offset, end)
        return [CompressedBatches(batches, next_offset)] if batches else []


def worker_cluster(bootstrap: str, settings: ClientSettings) -> Cluster:
    """Return the cluster client of this process, which successive tasks of a worker share."""
    key = (bootstrap, settings.client, settings.security)
    cluster = _clusters.get(key)
    if cluster is None:
        cluster = _clusters[key] = settings.security.open_cluster(bootstrap, settings.client)
    return cluster


def read_range(offset_range: OffsetRange, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """Yield the rows of an offset range; not every offset has a record.

    :raise DataLoss: records were deleted, and ``failOnDataLoss`` is true; otherwise they are skipped with a warning.
    :raise ClientError: the records cannot be read.
    """
    cluster = worker_cluster(options.bootstrap, options.settings)
    start = offset_range.start
    while start < offset_range.end:
        try:
            for next_start, rows in _read(cluster, offset_range._replace(start=start), options):
                if rows is not None:
                    yield rows
                start = next_start
        except ClientError as error:
            next_start = _offset_after_loss(cluster, offset_range, start, error)
            end = min(next_start, offset_range.end)
            report_loss(options, f"{offset_range.partition}: offsets {start} to {end} were deleted: {error}")
            start = next_start


def _read(
    cluster: Cluster, offset_range: OffsetRange, options: SourceOptions
) -> Iterator[tuple[int, pa.RecordBatch | None]]:
    """Yield batches of rows, each with the offset after its last row."""
    settings = options.settings
    reader_options = ReaderOptions(
        isolation=settings.isolation,
        fetch_wait_s=settings.fetch_wait_s,
        fetch_size_min=settings.fetch_size_min,
        fetch_size_max=settings.fetch_size_max,
        partition_size_max=settings.partition_size_max,
        patience_s=options.poll_timeout_s,
    )
    partition, start, end = offset_range
    sections: list[Section] = []
    size, next_offset = 0, start
    with CompressedReader(cluster, {partition: start}, ends={partition: end}, options=reader_options) as reader:
        progress_s = cluster.runtime.clock()
        try:
            while not reader.is_done:
                responses: list[Any] = reader.read(options.poll_timeout_s)
                if responses or reader.positions[partition] > next_offset:
                    progress_s = cluster.runtime.clock()
                elif cluster.runtime.clock() - progress_s >= options.poll_timeout_s:
                    _raise_no_records(cluster, partition, next_offset, options)
                for header, batch in chain.from_iterable(response.batches for response in responses):
                    sections.append(_open_section(partition, header, batch))
                    size, next_offset = size + len(sections[-1].records), min(header.next_offset, end)
                    if size >= CHUNK_SIZE:
                        yield next_offset, _rows(sections, offset_range, options)
                        sections, size = [], 0
                next_offset = reader.positions[partition]
        except ClientError:
            # The records before the error are valid.
            yield next_offset, _rows(sections, offset_range, options) if sections else None
            raise
        yield end, _rows(sections, offset_range, options) if sections else None


def _open_section(partition: TopicPartition, header: BatchHeader, batch: memoryview) -> Section:
    try:
        return open_section(header, batch)
    except ProtocolError as error:
        raise CorruptBatch(f"{partition}: the batch at offset {header.base_offset}: {error}") from error


def _raise_no_records(cluster: Cluster, partition: TopicPartition, position: int, options: SourceOptions) -> None:
    """Raise the error that explains why no record arrived.

    :raise OffsetOutOfRange: the partition ends before the requested range.
    :raise GaveUp: the partition has more offsets: a broker is slow, or a transaction is open.
    """
    end = end_offsets(cluster, [partition])[partition]
    if position >= end:
        raise OffsetOutOfRange(partition, position, high_watermark=end)
    raise GaveUp(
        f"{partition}: no records from offset {position} were received in {options.poll_timeout_s:g} s "
        f"(option kafkaConsumer.pollTimeoutMs), although the partition ends at {end}"
    )


def _rows(sections: list[Section], offset_range: OffsetRange, options: SourceOptions) -> pa.RecordBatch:
    records = decode(sections, with_headers=HEADERS_COLUMN in options.columns)
    return arrow_rows(offset_range.partition, records.between(offset_range.start, offset_range.end), options.columns)


def _offset_after_loss(cluster: Cluster, offset_range: OffsetRange, start: int, error: ClientError) -> int:
    """Return the first readable offset after deleted records; the end of the range if there is none.

    :raise ClientError: the error is not a data loss.
    """
    if isinstance(error, OffsetOutOfRange):
        try:
            first = offsets_by_time(cluster, {offset_range.partition: EARLIEST})[offset_range.partition].offset
        except ClientError:
            return offset_range.end
        return first if start < first < offset_range.end else offset_range.end
    cause = error.__cause__ if isinstance(error, GaveUp) else error
    if isinstance(cause, BrokerRefused) and cause.code in _TOPIC_DELETED_CODES:
        return offset_range.end
    raise error


def report_loss(options: SourceOptions, description: str) -> None:
    """Report deleted records.

    :raise DataLoss: ``failOnDataLoss`` is true.
    """
    if options.fail_on_data_loss:
        raise DataLoss(
            f"{description}. Some data may have been lost; to continue anyway, set the option failOnDataLoss to false."
        )
    log.warning("%s; failOnDataLoss is false, so they are skipped", description)


def close_clusters() -> None:
    """Close the cluster clients of this process."""
    clusters: Mapping[tuple[Any, ...], Cluster] = dict(_clusters)
    _clusters.clear()
    for cluster in clusters.values():
        cluster.close()
