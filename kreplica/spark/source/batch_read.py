"""``spark.read.format("kreplica")``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from kreplica.spark.source.offset_lookup import OffsetLookup
from kreplica.spark.source.options import SourceOptions
from kreplica.spark.source.range_reading import DataLoss, log, read_range, worker_cluster
from kreplica.spark.source.ranges import OffsetRange, split
from kreplica.spark.source.segment_reading import SegmentLookup, read_segments


class RangePartition(InputPartition):
    """A task: some offsets of one partition.

    :ivar value: the ``OffsetRange``.
    """


class BatchReader(DataSourceReader):
    """Reads from one offset of each partition to another, both found when the read is planned."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """The tasks.

        :raise ValueError: options name partitions that are not there, or times that no record has.
        :raise DataLoss: a range has lost its beginning, and ``failOnDataLoss`` is true.
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
            text = f"{backward.partition}: the end, {backward.end}, is before the start, {backward.start}"
            if options.fail_on_data_loss:
                raise DataLoss(text)
            log.warning("%s; nothing is read of it", text)
        tasks = split(ranges, min_partitions=options.min_partitions, records_max=options.records_per_partition_max)
        return [RangePartition(each) for each in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One task's rows."""
        if isinstance(partition, RangePartition):  # where there are no tasks Spark makes one of its own
            read = read_segments if self._options.log_dirs else read_range
            yield from read(partition.value, self._options)
