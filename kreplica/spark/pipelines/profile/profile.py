"""Profile of topics: sizes, rates, keys, codecs and producers; each slice of a partition is read once, by one task.

All batch headers are read; records are decoded in all batches or in a sample. Task results are small (``measures``) and
are merged on the driver.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from kreplica.client_core.errors import CorruptBatch
from kreplica.errors import ProtocolError
from kreplica.model import TopicPartition
from kreplica.spark.pipelines.jobs import map_in_jobs
from kreplica.spark.pipelines.profile.batches import read_batches, sample_filter
from kreplica.spark.pipelines.profile.measures import Measures
from kreplica.spark.pipelines.profile.report import ProfileReport, profile_report
from kreplica.spark.pipelines.progress import Progress, Report, ignore_progress
from kreplica.spark.source.decoding import Section, open_section
from kreplica.spark.source.offset_lookup import OffsetLookup
from kreplica.spark.source.options import SourceOptions, source_options
from kreplica.spark.source.range_reading import CHUNK_SIZE, worker_cluster
from kreplica.spark.source.ranges import OffsetRange, split
from kreplica.spark.source.segment_reading import SegmentLookup
from kreplica.wire.batches import BatchHeader, verify_crc

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SLICE_OFFSETS_MAX = 1_000_000
"""Maximum number of offsets per task; short tasks make retries cheap."""

HEADERS_AT_ONCE = 10_000


class Slice(NamedTuple):
    """Offsets of one partition that one task reads.

    :param first_offset: first profiled offset of the partition.
    """

    offsets: OffsetRange
    first_offset: int


class SliceMeasures(NamedTuple):
    """Result of a task."""

    slice: Slice
    measures: Measures


def profile(
    spark: SparkSession,
    options: Mapping[str, str],
    *,
    sample: float = 1.0,
    top: int = 10,
    report: Report = ignore_progress,
) -> ProfileReport:
    """Profile the current records of topics, up to their high watermarks.

    :param options: options of the source ``kreplica``: cluster or files, and topics.
    :param sample: share of batches whose records are decoded, in (0, 1].
    :param top: number of keys and producers listed per topic.
    :raise ValueError: an option is invalid, or no partition is selected.
    :raise KreplicaError: brokers or files cannot be read.
    """
    if not 0 < sample <= 1:
        raise ValueError(f"the sample {sample:g} is not a fraction above 0 and up to 1")
    if any(name.lower() == "kafka.isolation.level" for name in options):
        raise ValueError("option 'kafka.isolation.level' is not supported: all transactions are profiled")
    source = source_options(options, is_streaming=False)
    slices = plan_slices(source)
    if not slices:
        raise ValueError("no partition matches the selected topics")
    total = sum(each.offsets.size for each in slices)
    report(Progress("profile", 0, total))
    readable = [each for each in slices if each.offsets.size]
    found: list[SliceMeasures] = []
    done = records = size_bytes = 0
    for measured in map_in_jobs(spark, lambda each: measure(each, source, sample), readable):
        found.append(measured)
        tally = measured.measures.total
        done += measured.slice.offsets.size
        records += tally.records
        size_bytes += tally.size_bytes
        report(Progress("profile", done, total, records, size_bytes))
    return profile_report(_merge_by_partition(slices, found), sample=sample, top=top)


def plan_slices(options: SourceOptions) -> list[Slice]:
    """Return one slice per task; an empty partition has one empty slice."""
    lookup: OffsetLookup | SegmentLookup
    if options.log_dirs:
        lookup = SegmentLookup(options)
    else:
        lookup = OffsetLookup(worker_cluster(options.bootstrap, options.settings), options)
    partitions = lookup.partitions()
    starts = lookup.offsets(options.starting, partitions, "startingOffsets")
    ends = lookup.offsets(options.ending, partitions, "endingOffsets")
    slices = []
    for each in partitions:
        whole = OffsetRange(each, starts[each], max(starts[each], ends[each]))
        parts = split([whole], records_max=options.records_per_partition_max or SLICE_OFFSETS_MAX)
        slices += [Slice(part, starts[each]) for part in parts or [whole]]
    return slices


def measure(task: Slice, options: SourceOptions, sample: float) -> SliceMeasures:
    """Measure one slice.

    :raise CorruptBatch: the checksum of a batch does not match, or a record is malformed.
    """
    measures = Measures()
    headers: list[BatchHeader] = []
    decompressed_sizes: list[int | None] = []
    sections: list[Section] = []
    size = 0
    for header, batch in read_batches(task.offsets, options, sample_filter(sample)):
        if batch is not None and not verify_crc(batch, header):
            raise CorruptBatch(f"{task.offsets.partition}: the batch at offset {header.base_offset} is damaged")
        if header.is_control:
            if batch is not None:
                _flush_headers(measures, headers, decompressed_sizes)
                measures.add_marker(header, batch)
            continue
        headers.append(header)
        decompressed_sizes.append(None)
        if batch is not None:
            sections.append(_open_section(task.offsets.partition, header, batch))
            decompressed_sizes[-1] = len(sections[-1].records)
            size += len(sections[-1].records)
        if size >= CHUNK_SIZE:
            measures.add_records(sections, task.first_offset)
            sections, size = [], 0
        if len(headers) >= HEADERS_AT_ONCE:
            _flush_headers(measures, headers, decompressed_sizes)
    _flush_headers(measures, headers, decompressed_sizes)
    if sections:
        measures.add_records(sections, task.first_offset)
    return SliceMeasures(task, measures.compact_keys())


def _flush_headers(measures: Measures, headers: list[BatchHeader], decompressed_sizes: list[int | None]) -> None:
    """Add the collected headers to the measures; called before a marker is added, to keep batches in order."""
    if headers:
        measures.add_headers(headers, decompressed_sizes)
        headers.clear()
        decompressed_sizes.clear()


def _open_section(partition: TopicPartition, header: BatchHeader, batch: memoryview) -> Section:
    try:
        return open_section(header, batch)
    except ProtocolError as error:
        raise CorruptBatch(f"{partition}: the batch at offset {header.base_offset}: {error}") from error


def _merge_by_partition(
    slices: Iterable[Slice], found: Iterable[SliceMeasures]
) -> dict[TopicPartition, tuple[OffsetRange, Measures]]:
    """Merge results by partition: the covered offsets, and their measures."""
    by_slice = {each.slice: each.measures for each in found}
    result: dict[TopicPartition, tuple[OffsetRange, Measures]] = {}
    for partition, group in groupby(sorted(slices), key=lambda each: each.offsets.partition):
        parts: Sequence[Slice] = list(group)
        total = Measures()
        for part in parts:
            if part in by_slice:
                total.merge(by_slice[part])
        result[partition] = (OffsetRange(partition, parts[0].offsets.start, parts[-1].offsets.end), total)
    return result
