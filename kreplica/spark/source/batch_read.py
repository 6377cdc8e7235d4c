"""Reader of ``spark.read.format("kreplica")``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from kreplica.spark.source.offset_lookup import OffsetLookup
from kreplica.spark.source.options import SourceOptions
from kreplica.spark.source.range_reading import DataLoss, log, read_range, worker_cluster
from kreplica.spark.source.ranges import OffsetRange, split
from kreplica.spark.source.segment_reading import SegmentLookup, read_segments
from kreplica.spark.worker_processes import exempt_from_collection


class RangePartition(InputPartition):
    """A task: an offset range of one partition.

    :ivar value: the ``OffsetRange``.
    """


class BatchReader(DataSourceReader):
    """Reads the offsets of each partition between a start and an end, both resolved when the read is planned."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Plan the tasks.

        :raise ValueError: options contain partitions that do not exist, or timestamps after the last record.
        :raise DataLoss: the end of a range is before its start, and ``failOnDataLoss`` is true.
        """
        options = self._options
        lookup: OffsetLookup | SegmentLookup
        if options.log_dirs:
            lookup = SegmentLookup(options)
        else:
            lookup = OffsetLookup(worker_cluster(options.bootstrap, options.settings), options)
        partitions = lookup.named_partitions()
        starts = lookup.offsets(options.starting, partitions, "startingOffsets")
        ends = lookup.offsets(options.ending, partitions, "endingOffsets")
        ranges = [OffsetRange(each, starts[each], ends[each]) for each in partitions]
        backward = next((each for each in ranges if each.size < 0), None)
        if backward is not None:
            text = f"{backward.partition}: the end offset {backward.end} is before the start offset {backward.start}"
            if options.fail_on_data_loss:
                raise DataLoss(text)
            log.warning("%s; the partition is skipped", text)
        tasks = split(ranges, min_partitions=options.min_partitions, records_max=options.records_per_partition_max)
        return [RangePartition(each) for each in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the rows of one task."""
        exempt_from_collection()
        if isinstance(partition, RangePartition):  # Spark creates an empty task if the plan has none
            read = read_segments if self._options.log_dirs else read_range
            yield from read(partition.value, self._options)
