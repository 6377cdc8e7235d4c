"""Sources of a replay: an archive, or a directory of Parquet files."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from kreplica.errors import KreplicaError
from kreplica.model import TopicPartition
from kreplica.spark.pipelines.archive.layout import Archive
from kreplica.spark.pipelines.archive.reading import read_rows
from kreplica.spark.pipelines.replay.steps import SourceUnit, Step, assign_tasks
from kreplica.spark.source.ranges import OffsetRange

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

NO_TOPIC = ""
"""Topic of rows without a topic column; all of them have the same target topic."""

LANE, UNIT = "kreplica_lane", "kreplica_unit"
_FIRST, _END, _FILE = "kreplica_first", "kreplica_end", "kreplica_file"
_SINK_COLUMNS = ("key", "value", "topic", "partition", "timestamp", "headers")
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_PUSHED_RANGES_MAX = 64
"""Maximum number of offset ranges in the filter for the Parquet reader; more of them slow down planning."""


class NotReplayable(KreplicaError):
    """The files cannot be replayed."""


@dataclass(frozen=True)
class Source(ABC):
    """Source of a replay.

    :param path: path of the files.
    :param key: identifies the source, unchanged when data is appended; ``identity`` also identifies its state.
    :param partition_counts: number of partitions by topic; 0 if unknown.
    :param oldest_ms: approximate oldest timestamp; None if rows have none.
    """

    path: str
    key: str
    identity: str
    units: tuple[SourceUnit, ...]
    partition_counts: Mapping[str, int]
    oldest_ms: int | None

    @abstractmethod
    def rows(self, spark: SparkSession, step: Step, lane_count: int) -> DataFrame:
        """Return the rows of a step: the sink's columns, ``LANE``, and the columns of ``order``."""

    @property
    def order(self) -> tuple[str, ...]:
        """Columns by which rows are sorted within their partition."""
        return (UNIT, "offset")


@dataclass(frozen=True)
class OffsetSource(Source):
    """Rows with partitions and offsets.

    :param archive: archive of the rows; None: other Parquet files.
    """

    archive: Archive | None = None

    def rows(self, spark: SparkSession, step: Step, lane_count: int) -> DataFrame:
        from pyspark.sql import functions as F

        lane_of = assign_tasks(step.ranges, lane_count)
        table = _table(
            spark,
            ("topic", "partition", _FIRST, _END, LANE),
            [(*each.partition, each.start, each.end, lane_of[each.partition]) for each in step.ranges],
        )
        rows = self._read(spark, step)
        if len(step.ranges) <= _PUSHED_RANGES_MAX:
            rows = rows.where(_in_ranges(step.ranges))
        joined = rows.join(F.broadcast(table), ["topic", "partition"])
        in_range = joined.where((F.col("offset") >= F.col(_FIRST)) & (F.col("offset") < F.col(_END)))
        column_names = [name for name in (*_SINK_COLUMNS, "offset") if name in in_range.columns]
        return in_range.select(*column_names, F.lit(0).alias(UNIT), LANE)

    def _read(self, spark: SparkSession, step: Step) -> DataFrame:
        if self.archive is None:
            return _read_all(spark, self.path)
        batches = [each for each in self.archive.batches if each.number in step.units]
        return read_rows(spark, self.archive, {each.partition.topic for each in step.ranges}, batches)


@dataclass(frozen=True)
class FileSource(Source):
    """Rows without offsets, ordered by file name and by position in the file.

    :param names: file names by unit.
    """

    names: tuple[str, ...] = ()

    def rows(self, spark: SparkSession, step: Step, lane_count: int) -> DataFrame:
        from pyspark.sql import functions as F

        files = [(self.names[each.partition.partition], each.partition.partition, *each[1:]) for each in step.ranges]
        whole = _read_all(spark, self.path)
        rows = whole.select(
            "*", F.col("_metadata.file_path").alias(_FILE), F.col("_metadata.row_index").alias("offset")
        )
        rows = rows.where(F.col(_FILE).isin([name for name, *_ in files]))
        joined = rows.join(F.broadcast(_table(spark, (_FILE, UNIT, _FIRST, _END), files)), _FILE)
        in_range = joined.where((F.col("offset") >= F.col(_FIRST)) & (F.col("offset") < F.col(_END)))
        # One task writes all rows of a partition, or of a key.
        lane_key = next((name for name in ("partition", "key") if name in in_range.columns), "topic")
        lane = F.pmod(F.hash("topic", lane_key), F.lit(lane_count)).cast("int")
        column_names = [name for name in (*_SINK_COLUMNS, UNIT, "offset") if name in in_range.columns]
        return in_range.select(*column_names, lane.alias(LANE))


# --- sources ---


def archive_source(archive: Archive) -> OffsetSource:
    """Return the complete batches of an archive as a source."""
    units = []
    for batch in archive.batches:
        ranges = [
            OffsetRange(TopicPartition(each.topic, each.partition), each.start, each.end) for each in batch.ranges
        ]
        units.append(SourceUnit(batch.number, tuple(ranges), batch.size))
    counts: dict[str, int] = {}
    for topic, partition in archive.spans:
        counts[topic] = max(counts.get(topic, 0), partition + 1)
    identity = f"the archive made at {archive.description.made_ms} ms"
    # The parsed columns duplicate the values.
    plain = replace(archive, description=replace(archive.description, values="binary"))
    days = [each.day for batch in archive.batches for each in batch.files if _DAY.fullmatch(each.day)]
    oldest_ms = int(datetime.fromisoformat(f"{min(days)}T00:00Z").timestamp() * 1000) if days else None
    return OffsetSource(archive.path, identity, identity, tuple(units), counts, oldest_ms, plain)


def directory_source(spark: SparkSession, path: str) -> Source:
    """Return Parquet files as a source; their columns are those of the sink, and ``offset``.

    :raise NotReplayable: a column is missing or has the wrong type.
    """
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as F

    from kreplica.spark.sink.row_columns import check_columns

    try:
        rows = _read_all(spark, path)
        check_columns(rows.schema, NO_TOPIC)
    except (AnalysisException, ValueError) as error:
        raise NotReplayable(f"{path}: {_first_line(error)}") from error
    has_partition = "partition" in rows.columns
    meta = rows.select(F.col("_metadata.file_path").alias("name"), F.col("_metadata.file_size").alias("size"))
    files = meta.groupBy("name").agg(F.first("size").alias("size"), F.count(F.lit(1)).alias("rows")).collect()
    files = sorted(files, key=lambda row: row["name"])
    partition = F.col("partition") if has_partition else F.lit(None).cast("int")
    offset = F.col("offset") if "offset" in rows.columns else F.lit(None).cast("long")
    groups = rows.groupBy("topic", partition.alias("partition"))
    totals = groups.agg(F.min(offset).alias("first"), F.max(offset).alias("last"), F.count(offset).alias("with_offset"),
                        F.count(F.lit(1)).alias("rows"), _oldest(rows).alias("oldest")).collect()  # fmt: skip
    totals.sort(key=lambda row: (row["topic"] or "", -1 if row["partition"] is None else row["partition"]))
    counts: dict[str, int] = {}
    for row in totals:
        if row["topic"] is None:
            raise NotReplayable(f"{path}: {row['rows']:,} rows have no topic")
        needs = 0 if row["partition"] is None else row["partition"] + 1
        counts[row["topic"]] = max(counts.get(row["topic"], 0), needs)
    sums = [(row["name"].rpartition("/")[2], row["rows"]) for row in files]
    identity = f"{path}: {len(files)} files, {sum(row['rows'] for row in files)} rows, {digest(repr(sums))}"
    oldest_ms = min((row["oldest"] for row in totals if row["oldest"] is not None), default=None)
    if all(row["partition"] is not None and row["with_offset"] == row["rows"] for row in totals):
        ranges = [OffsetRange(TopicPartition(row["topic"], row["partition"]), row["first"], row["last"] + 1)
                  for row in totals]  # fmt: skip
        unit = SourceUnit(0, tuple(ranges), sum(row["size"] for row in files))
        return OffsetSource(path, path, identity, (unit,), counts, oldest_ms)
    units = [SourceUnit(number, (OffsetRange(TopicPartition(NO_TOPIC, number), 0, row["rows"]),), row["size"])
            for number, row in enumerate(files)]  # fmt: skip
    return FileSource(path, path, identity, tuple(units), counts, oldest_ms, tuple(row["name"] for row in files))


def _oldest(rows: DataFrame) -> Column:
    from pyspark.sql import functions as F

    return F.min(F.unix_millis("timestamp")) if "timestamp" in rows.columns else F.lit(None).cast("long")


def digest(text: str) -> str:
    """Return a short hash of a text."""
    return sha256(text.encode()).hexdigest()[:12]


def _read_all(spark: SparkSession, path: str) -> DataFrame:
    from pyspark.sql import functions as F

    rows = spark.read.parquet(path)
    return rows if "topic" in rows.columns else rows.withColumn("topic", F.lit(NO_TOPIC))


def _in_ranges(ranges: Iterable[OffsetRange]) -> Column:
    from functools import reduce
    from operator import or_

    from pyspark.sql import functions as F

    each_range = [
        (F.col("topic") == topic) & (F.col("partition") == number) & F.col("offset").between(start, end - 1)
        for (topic, number), start, end in ranges
    ]
    return reduce(or_, each_range)


def _table(spark: SparkSession, columns: Iterable[str], rows: Iterable[tuple[Any, ...]]) -> DataFrame:
    """Return a small table without a Spark job."""
    values = ", ".join(f"({', '.join(_literal(cell) for cell in row)})" for row in rows)
    return spark.sql(f"SELECT * FROM VALUES {values} AS `rows`({', '.join(f'`{each}`' for each in columns)})")


def _literal(cell: str | int) -> str:
    if isinstance(cell, int):
        return f"{cell}L" if abs(cell) >= 1 << 31 else str(cell)
    text = cell.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{text}'"


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]
