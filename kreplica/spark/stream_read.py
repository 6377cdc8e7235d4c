"""``spark.readStream.format("kreplica")``: micro-batches, their offsets kept in Spark's checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from kreplica.model import TopicPartition
from kreplica.spark.batch_read import RangePartition
from kreplica.spark.offset_lookup import OffsetLookup
from kreplica.spark.options import SourceOptions
from kreplica.spark.positions import as_json, from_json
from kreplica.spark.range_reading import DataLoss, log, read_range, worker_cluster
from kreplica.spark.ranges import OffsetRange, limited, split

IDLE_S_MAX = 0.2
"""So long the source waits for something new before it says that there is nothing: Spark asks every 10 ms."""

IDLE_STEP_S = 0.02
DISCOVERY_S = 1.0
"""So often it looks for partitions that were added."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One query's source.  The object that ``read`` is called on is another one, in another process.

    Offsets are those of the JVM's source, as it writes them.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._initial: dict[TopicPartition, int] | None = None
        self._known: list[TopicPartition] = []
        self._discovered_s = -DISCOVERY_S
        self._last: dict[TopicPartition, int] | None = None
        self._frozen: dict[TopicPartition, int] | None = None
        self._triggered_s: float | None = None

    # --- what there is ---

    def initialOffset(self) -> dict[str, Any]:
        """Where the first micro-batch begins; asked for more than once, it is the same."""
        if self._initial is None:
            partitions = self._discover()
            self._initial = self._lookup().offsets(self._options.starting, partitions, "startingOffsets")
        return as_json(self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:
        """``maxOffsetsPerTrigger``, where it is given."""
        count_max = self._options.offsets_per_trigger_max
        return ReadAllAvailable() if count_max is None else ReadMaxRows(count_max)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the next micro-batch ends: ``start`` where it is not time for one."""
        begun = from_json(start)
        available = self._frozen if self._frozen is not None else self._something_new(begun)
        self._last = available
        self._check(begun, available)
        if self._holds_back(begun, available):
            return start
        count_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        first = {each: begun.get(each, 0) for each in available}
        unknown = [each for each in available if each not in begun]
        first.update(self._lookup().earliest(unknown))
        whole = sum(max(0, end - first[each]) for each, end in available.items())
        ends = limited(first, available, whole if count_max is None else count_max)
        self._triggered_s = self._clock()
        return as_json({each: max(end, first[each]) for each, end in ends.items()})

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """What there was when it was last asked, for the query's progress."""
        return None if self._last is None else as_json(self._last)

    def prepareForTriggerAvailableNow(self) -> None:
        """Nothing that comes later is read."""
        self._frozen = self._ends()

    def _something_new(self, begun: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Where partitions end now, or a moment later where that is where they were."""
        deadline_s = self._clock() + IDLE_S_MAX
        ends = self._ends()
        while not self._is_more(begun, ends) and self._clock() < deadline_s:
            self._cluster().surroundings.sleep(IDLE_STEP_S)
            ends = self._ends()
        return ends

    @staticmethod
    def _is_more(begun: dict[TopicPartition, int], ends: dict[TopicPartition, int]) -> bool:
        return ends.keys() != begun.keys() or any(end != begun[each] for each, end in ends.items())

    def _holds_back(self, begun: dict[TopicPartition, int], available: dict[TopicPartition, int]) -> bool:
        """Whether there are too few offsets, and the last micro-batch was not long ago."""
        count_min = self._options.offsets_per_trigger_min
        if count_min is None or self._frozen is not None:
            return False
        if self._triggered_s is None:
            self._triggered_s = self._clock()
        waited_s = self._clock() - self._triggered_s
        count = sum(max(0, end - begun.get(each, 0)) for each, end in available.items())
        return count < count_min and waited_s < self._options.trigger_delay_s_max

    def _check(self, begun: dict[TopicPartition, int], available: dict[TopicPartition, int]) -> None:
        """:raise DataLoss: partitions are gone, or ends went back, and ``failOnDataLoss`` is true."""
        gone = sorted(begun.keys() - available.keys())
        if gone:
            self._lost(f"{', '.join(map(str, gone[:3]))}: there is no such partition any more")
        for each, end in available.items():
            if end < begun.get(each, 0):
                self._lost(f"{each} ends at {end}, before {begun[each]}, up to which it was read")

    def _lost(self, what: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLoss(f"{what}. To go on in spite of that, set the option failOnDataLoss to false.")
        log.warning("%s; failOnDataLoss is false, so the query goes on", what)

    # --- one micro-batch ---

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of one micro-batch; a partition that was added since the last one begins at its earliest."""
        starts, ends = from_json(start), from_json(end)
        added = sorted(ends.keys() - starts.keys())
        starts.update(self._lookup().earliest(added) if added else {})
        ranges = [OffsetRange(each, starts[each], ends[each]) for each in sorted(ends)]
        options = self._options
        tasks = split(ranges, min_partitions=options.min_partitions, records_max=options.records_per_partition_max)
        return [RangePartition(each) for each in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One task's rows."""
        if isinstance(partition, RangePartition):  # where there are no tasks Spark makes one of its own
            yield from read_range(partition.value, self._options)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: offsets are in the checkpoint."""

    # --- asking ---

    def _cluster(self) -> Any:
        return worker_cluster(self._options.bootstrap, self._options.settings)

    def _clock(self) -> float:
        now_s: float = self._cluster().surroundings.clock()
        return now_s

    def _lookup(self) -> OffsetLookup:
        return OffsetLookup(self._cluster(), self._options)

    def _discover(self) -> list[TopicPartition]:
        if self._clock() - self._discovered_s >= DISCOVERY_S:
            self._known = self._lookup().partitions()
            self._discovered_s = self._clock()
        return self._known

    def _ends(self) -> dict[TopicPartition, int]:
        return self._lookup().latest(self._discover())
