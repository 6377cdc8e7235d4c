"""Reader of ``spark.readStream.format("kreplica")``: micro-batches whose offsets Spark stores in its checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from kreplica.blocking import Cluster
from kreplica.blocking.offsets import offsets_by_time
from kreplica.client_core.errors import GaveUp
from kreplica.client_core.offsets import LATEST
from kreplica.model import TopicPartition
from kreplica.spark.source.batch_read import RangePartition
from kreplica.spark.source.offset_lookup import OffsetLookup
from kreplica.spark.source.options import SourceOptions
from kreplica.spark.source.positions import as_json, from_json
from kreplica.spark.source.range_reading import close_clusters, read_range, report_loss, worker_cluster
from kreplica.spark.source.ranges import OffsetRange, limit_ends, split
from kreplica.spark.worker_processes import exempt_from_collection

IDLE_S_MAX = 0.2
"""Time that the source waits for new records before it reports none; otherwise Spark would poll every 10 ms."""

IDLE_STEP_S = 0.02
DISCOVERY_S = 1.0
"""Interval at which the source looks for new partitions."""

LEADERS_TIMEOUT_S = 3.0
"""Time to wait for partition leaders before checking that the partitions exist."""

LOSS_CHECK_S = 10.0
"""Time during which a missing or truncated partition is rechecked before data loss is reported.

A new controller or leader may have older metadata.
"""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reader of one query. ``read`` is called on a copy in another process.

    Offsets have the JSON format of Spark's Kafka source.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._initial_offsets: dict[TopicPartition, int] | None = None
        self._known_partitions: list[TopicPartition] = []
        self._discovered_s = -DISCOVERY_S
        self._latest: dict[TopicPartition, int] | None = None
        self._final_ends: dict[TopicPartition, int] | None = None
        self._triggered_s = float("-inf")

    # --- available offsets ---

    def initialOffset(self) -> dict[str, Any]:
        """Return the start of the first micro-batch; repeated calls return the same offsets.

        :raise ValueError: options contain partitions that do not exist, or timestamps after the last record.
        """
        if self._initial_offsets is None:
            partitions = self._lookup().named_partitions()
            self._initial_offsets = self._lookup().offsets(self._options.starting, partitions, "startingOffsets")
        return as_json(self._initial_offsets)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the read limit set by ``maxOffsetsPerTrigger``."""
        count_max = self._options.offsets_per_trigger_max
        return ReadAllAvailable() if count_max is None else ReadMaxRows(count_max)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next micro-batch; ``start`` if there is none yet.

        :raise DataLoss: partitions were deleted, or end before offsets already read, and ``failOnDataLoss`` is true.
        """
        read_offsets = from_json(start)
        available = self._final_ends if self._final_ends is not None else self._wait_for_records(read_offsets)
        if _describe_loss(read_offsets, available):
            available = self._recheck_loss(read_offsets)
        self._latest = available
        added = self._lookup().earliest([each for each in available if each not in read_offsets])
        # If the log end offset decreased and failOnDataLoss is false, the query continues from the new log end offset.
        first = {
            each: min(read_offsets[each], end) if each in read_offsets else added[each]
            for each, end in available.items()
        }
        if self._should_wait(sum(end - first[each] for each, end in available.items())):
            return start
        ends = limit_ends(first, available, limit.max_rows) if isinstance(limit, ReadMaxRows) else available
        self._triggered_s = self._clock()
        return as_json({each: max(end, first[each]) for each, end in ends.items()})

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the latest known offsets, for the query's progress."""
        return None if self._latest is None else as_json(self._latest)

    def prepareForTriggerAvailableNow(self) -> None:
        """Make the query end at the current offsets."""
        self._final_ends = self._ends()

    def _wait_for_records(self, read_offsets: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the current end offsets; waits briefly if they have not changed."""
        deadline_s = self._clock() + IDLE_S_MAX
        ends = self._ends()
        while not self._has_changed(read_offsets, ends) and self._clock() < deadline_s:
            self._cluster().runtime.sleep(IDLE_STEP_S)
            ends = self._ends()
        return ends

    @staticmethod
    def _has_changed(read_offsets: dict[TopicPartition, int], ends: dict[TopicPartition, int]) -> bool:
        return ends.keys() != read_offsets.keys() or any(end != read_offsets[each] for each, end in ends.items())

    def _recheck_loss(self, read_offsets: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Recheck apparent data loss, and return the end offsets.

        :raise DataLoss: see ``latestOffset``.
        """
        deadline_s = self._clock() + LOSS_CHECK_S
        while True:
            self._discovered_s = -DISCOVERY_S
            ends = self._ends()
            loss = _describe_loss(read_offsets, ends)
            if not loss:
                return ends
            if self._clock() >= deadline_s:
                report_loss(self._options, loss)
                return ends
            self._cluster().runtime.sleep(IDLE_S_MAX)

    def _should_wait(self, count: int) -> bool:
        """Return True if there are fewer offsets than the minimum and the last micro-batch was recent."""
        count_min = self._options.offsets_per_trigger_min
        if count_min is None or self._final_ends is not None:
            return False
        waited_s = self._clock() - self._triggered_s
        return count < count_min and waited_s < self._options.trigger_delay_s_max

    # --- one micro-batch ---

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Plan the tasks of one micro-batch; a partition added since the previous one starts at its earliest offset."""
        starts, ends = from_json(start), from_json(end)
        added = sorted(ends.keys() - starts.keys())
        starts.update(self._lookup().earliest(added) if added else {})
        ranges = [OffsetRange(each, starts[each], ends[each]) for each in sorted(ends)]
        options = self._options
        tasks = split(ranges, min_partitions=options.min_partitions, records_max=options.records_per_partition_max)
        return [RangePartition(each) for each in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the rows of one task."""
        exempt_from_collection()
        if isinstance(partition, RangePartition):  # Spark creates an empty task if the plan has none
            yield from read_range(partition.value, self._options)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: Spark stores the offsets in its checkpoint."""

    def stop(self) -> None:
        """Close the connections."""
        close_clusters()

    # --- cluster queries ---

    def _cluster(self) -> Cluster:
        return worker_cluster(self._options.bootstrap, self._options.settings)

    def _clock(self) -> float:
        return self._cluster().runtime.clock()

    def _lookup(self) -> OffsetLookup:
        return OffsetLookup(self._cluster(), self._options)

    def _discover(self) -> list[TopicPartition]:
        if self._clock() - self._discovered_s >= DISCOVERY_S:
            self._known_partitions = self._lookup().partitions()
            self._discovered_s = self._clock()
        return self._known_partitions

    def _ends(self) -> dict[TopicPartition, int]:
        """Return the end offset of each existing partition."""
        cluster = self._cluster()
        deadline_s = self._clock() + cluster.options.operation_timeout_s
        while True:
            latest = dict.fromkeys(self._discover(), LATEST)
            try:
                found = offsets_by_time(cluster, latest, self._options.settings.isolation, timeout_s=LEADERS_TIMEOUT_S)
                return {each: timed.offset for each, timed in found.items()}
            except GaveUp:
                if self._clock() >= deadline_s:
                    raise
                self._discovered_s = -DISCOVERY_S


def _describe_loss(read_offsets: dict[TopicPartition, int], ends: dict[TopicPartition, int]) -> str:
    """Describe the partitions that were deleted or end before offsets already read; empty if there are none."""
    deleted = sorted(read_offsets.keys() - ends.keys())
    if deleted:
        return f"{', '.join(map(str, deleted[:3]))}: the partition was deleted"
    for each, end in ends.items():
        if end < read_offsets.get(each, 0):
            return f"{each} ends at {end}, before offset {read_offsets[each]}, which was already read"
    return ""
