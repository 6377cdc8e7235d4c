"""One task's offsets, read from brokers as Arrow batches."""

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

CHUNK_SIZE = 2 << 20
"""Bytes of opened records that become one Arrow batch, about: what a core's cache holds, and what the C library keeps
when it is freed, rather than give it back and have it mapped, page by page, for the next one."""

_GONE = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
_clusters: dict[tuple[Any, ...], Cluster] = {}
# Spark forks its workers from a process that has no connections; should another one ever be forked, it has its own.
os.register_at_fork(after_in_child=_clusters.clear)


class DataLoss(Exception):
    """Records that were to be read are not there any more."""


class Batches(NamedTuple):
    """Of one answer: batches that are to be opened, and where the next answer begins."""

    batches: list[tuple[BatchHeader, memoryview]]
    next_offset: int


class BatchesReader(Reader):
    """A reader that checks batches, and leaves them closed: opened, an answer may be many times as large."""

    def open_fetched(self, fetched: FetchedRecords, end: int | None) -> list[Any]:
        """As ``Reader.open_fetched``; one ``Batches``, or none."""
        try:
            batches = [each for each in visible_batches(fetched) if end is None or each[0].base_offset < end]
        except ProtocolError as error:
            raise CorruptBatch(f"{fetched.partition} from offset {fetched.position} on: {error}") from error
        next_offset = fetched.next_offset if end is None else min(fetched.next_offset, end)
        return [Batches(batches, next_offset)] if batches else []


def worker_cluster(bootstrap: str, settings: ClientSettings) -> Cluster:
    """A process's own client of a cluster: workers are used again, for task after task."""
    key = (bootstrap, settings.client)
    cluster = _clusters.get(key)
    if cluster is None:
        cluster = _clusters[key] = Cluster(bootstrap, options=settings.client)
    return cluster


def read_range(wanted: OffsetRange, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """The rows of some offsets, of which some may hold none.

    :raise DataLoss: some are not there any more, and ``failOnDataLoss`` is true; else they are skipped with a warning.
    :raise ClientError: they cannot be read.
    """
    cluster = worker_cluster(options.bootstrap, options.settings)
    start = wanted.start
    while start < wanted.end:
        try:
            for following, rows in _read(cluster, wanted._replace(start=start), options):
                if rows is not None:
                    yield rows
                start = following
        except ClientError as error:
            following = _behind_the_loss(cluster, wanted, start, error)
            lost(options, f"{wanted.partition}: offsets {start} to {min(following, wanted.end)} are gone: {error}")
            start = following


def _read(cluster: Cluster, wanted: OffsetRange, options: SourceOptions) -> Iterator[tuple[int, pa.RecordBatch | None]]:
    """Rows, and the offset behind each lot of them."""
    settings = options.settings
    reader_options = ReaderOptions(
        isolation=settings.isolation,
        fetch_wait_s=settings.fetch_wait_s,
        fetch_size_min=settings.fetch_size_min,
        fetch_size_max=settings.fetch_size_max,
        partition_size_max=settings.partition_size_max,
        patience_s=options.poll_timeout_s,
    )
    partition, start, end = wanted
    gathered: list[Section] = []
    size, behind = 0, start
    with BatchesReader(cluster, {partition: start}, ends={partition: end}, options=reader_options) as reader:
        since = cluster.runtime.clock()
        try:
            while not reader.is_done:
                answers: list[Any] = reader.read(options.poll_timeout_s)
                if answers or reader.positions[partition] > behind:
                    since = cluster.runtime.clock()
                elif cluster.runtime.clock() - since >= options.poll_timeout_s:
                    _explain_silence(cluster, partition, behind, options)
                for header, batch in chain.from_iterable(answer.batches for answer in answers):
                    gathered.append(_opened(partition, header, batch))
                    size, behind = size + len(gathered[-1].records), min(header.next_offset, end)
                    if size >= CHUNK_SIZE:
                        yield behind, _rows(gathered, wanted, options)
                        gathered, size = [], 0
                behind = reader.positions[partition]
        except ClientError:
            yield behind, _rows(gathered, wanted, options) if gathered else None  # what came before is not lost
            raise
        yield end, _rows(gathered, wanted, options) if gathered else None


def _opened(partition: TopicPartition, header: BatchHeader, batch: memoryview) -> Section:
    try:
        return open_section(header, batch)
    except ProtocolError as error:
        raise CorruptBatch(f"{partition}: the batch at offset {header.base_offset}: {error}") from error


def _explain_silence(cluster: Cluster, partition: TopicPartition, position: int, options: SourceOptions) -> None:
    """Say why nothing came.

    :raise OffsetOutOfRange: the partition ends before what is to be read.
    :raise GaveUp: it goes on, so nothing is lost: a broker is slow, or a transaction is open.
    """
    end = end_offsets(cluster, [partition])[partition]
    if position >= end:
        raise OffsetOutOfRange(partition, position, high_watermark=end)
    raise GaveUp(
        f"{partition}: nothing came from offset {position} on in {options.poll_timeout_s:g} s "
        f"(option kafkaConsumer.pollTimeoutMs), and it goes on to {end}"
    )


def _rows(sections: list[Section], wanted: OffsetRange, options: SourceOptions) -> pa.RecordBatch:
    records = decode(sections, with_headers=HEADERS_COLUMN in options.columns)
    return arrow_rows(wanted.partition, records.between(wanted.start, wanted.end), options.columns)


def _behind_the_loss(cluster: Cluster, wanted: OffsetRange, start: int, error: ClientError) -> int:
    """Where records are again; the range's end where there are none.

    :raise ClientError: what went wrong is no loss.
    """
    if isinstance(error, OffsetOutOfRange):
        try:
            first = offsets_by_time(cluster, {wanted.partition: EARLIEST})[wanted.partition].offset
        except ClientError:
            return wanted.end
        return first if start < first < wanted.end else wanted.end
    cause = error.__cause__ if isinstance(error, GaveUp) else error
    if isinstance(cause, BrokerRefused) and cause.code in _GONE:
        return wanted.end
    raise error


def lost(options: SourceOptions, what: str) -> None:
    """Tell of records that are not there any more.

    :raise DataLoss: unless ``failOnDataLoss`` is false.
    """
    if options.fail_on_data_loss:
        raise DataLoss(
            f"{what}. Some data may have been lost because it is not there any more; to go on in spite of that, "
            "set the option failOnDataLoss to false."
        )
    log.warning("%s; failOnDataLoss is false, so they are skipped", what)


def forget_clusters() -> None:
    """Close what this process has of clusters."""
    clusters: Mapping[tuple[Any, ...], Cluster] = dict(_clusters)
    _clusters.clear()
    for cluster in clusters.values():
        cluster.close()
