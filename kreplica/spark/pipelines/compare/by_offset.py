"""Comparison of an archive with its own topic: records correspond by offset.

The topic is the original, the archive the copy. First, sums over ranges of offsets are compared, then the records of
the ranges whose sums differ. If archive and topic are equal, each is read once, and no join is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as sql
from pyspark.storagelevel import StorageLevel

from kreplica.spark.pipelines.compare.findings import Bounds, Difference, Kind, PartitionResult, TopicResult
from kreplica.spark.pipelines.compare.rows import bucket_width, side_count, side_sum, sides


class Bucket(NamedTuple):
    """An offset range whose sums differ."""

    partition: int
    bucket: int


def compare_offsets(
    topic: str,
    archive: DataFrame,
    read_topic: Callable[[Mapping[int, Bounds]], DataFrame],
    bounds: Mapping[int, Bounds],
    *,
    is_compacted: bool,
    shown_max: int,
) -> TopicResult:
    """Compare the digests of the archive with those of the topic.

    :param read_topic: reads the digests of the given offsets.
    :param bounds: offset range by partition.
    :param is_compacted: True if the topic is compacted; records that compaction deleted are not differences.
    :param shown_max: maximum number of differences listed.
    """
    width = bucket_width(sum(each.end - each.start for each in bounds.values()))
    starts = _value_of_partition({partition: each.start for partition, each in bounds.items()})
    is_deleted = sql.col("offset") < starts
    summed = (
        sides(archive, read_topic(bounds))
        .withColumn("bucket", sql.when(is_deleted, sql.lit(-1)).otherwise(_bucket(width)))
        .groupBy("partition", "bucket")
        .agg(
            side_count(True).alias("archive_count"),
            side_count(False).alias("topic_count"),
            side_sum(True, sql.xxhash64("digest", "offset")).alias("archive_sum"),
            side_sum(False, sql.xxhash64("digest", "offset")).alias("topic_sum"),
        )
        .collect()
    )
    differing = [
        Bucket(row.partition, row.bucket)
        for row in summed
        if row.bucket >= 0 and (row.archive_count, row.archive_sum) != (row.topic_count, row.topic_sum)
    ]
    counts: dict[int, dict[Kind, int]] = {partition: dict.fromkeys(Kind, 0) for partition in bounds}
    first: list[Difference] = []
    if differing:
        unwanted = Kind.EXTRA if is_compacted else None
        records = _Records(topic, archive.where(~is_deleted), read_topic, bounds, width)
        first = records.examine(differing, counts, shown_max, unwanted)
    results = []
    for partition in sorted(bounds):
        own = [row for row in summed if row.partition == partition]
        deleted = sum(row.archive_count for row in own if row.bucket < 0)
        if is_compacted:
            deleted += counts[partition][Kind.EXTRA]
            counts[partition][Kind.EXTRA] = 0
        records = sum(row.topic_count for row in own)
        results.append(PartitionResult(topic, topic, partition, records, deleted, counts[partition]))
    return TopicResult(results, first)


class _Records:
    """The records of ranges whose sums differ."""

    def __init__(
        self,
        topic: str,
        archive: DataFrame,
        read_topic: Callable[[Mapping[int, Bounds]], DataFrame],
        bounds: Mapping[int, Bounds],
        width: int,
    ) -> None:
        self._topic = topic
        self._archive = archive
        self._read_topic = read_topic
        self._bounds = bounds
        self._width = width

    def examine(
        self, differing: list[Bucket], counts: dict[int, dict[Kind, int]], shown_max: int, unlisted: Kind | None
    ) -> list[Difference]:
        """Count the differences, and list the first ones.

        :param unlisted: kind that is counted but not listed.
        """
        found = self._find_differences(self._sides(differing)).persist(StorageLevel.MEMORY_AND_DISK)
        try:
            for row in found.groupBy("partition", "kind").agg(sql.sum("count").alias("count")).collect():
                counts[row.partition][Kind(row.kind)] = row["count"]
            listed = found if unlisted is None else found.where(sql.col("kind") != unlisted.value)
            rows = listed.orderBy("partition", "offset", "kind").limit(shown_max).collect()
            return [_difference(self._topic, row) for row in rows]
        finally:
            found.unpersist()

    def _sides(self, differing: list[Bucket]) -> DataFrame:
        """Return the records of both sides in the given buckets; only these are read again from the topic."""
        parts = {}
        for partition in {each.partition for each in differing}:
            buckets = [each.bucket for each in differing if each.partition == partition]
            whole = self._bounds[partition]
            start = max(whole.start, min(buckets) * self._width)
            end = min(whole.end, (max(buckets) + 1) * self._width)
            if start < end:
                parts[partition] = Bounds(start, end)
        archive = self._archive
        without_topic = archive.withColumn("is_archive", sql.lit(True))
        side_rows = sides(archive, self._read_topic(parts)) if parts else without_topic
        selected_buckets = archive.sparkSession.createDataFrame(differing, "partition int, bucket long")
        side_rows = side_rows.withColumn("bucket", _bucket(self._width))
        return side_rows.join(sql.broadcast(selected_buckets), ["partition", "bucket"], "left_semi")

    def _find_differences(self, side_rows: DataFrame) -> DataFrame:
        """Return a row per kind of difference and offset: ``partition``, ``offset``, ``kind``, ``count``."""
        archive_digest = sql.when(sql.col("is_archive"), sql.col("digest"))
        topic_digest = sql.when(~sql.col("is_archive"), sql.col("digest"))
        offsets = side_rows.groupBy("partition", "offset").agg(
            side_count(True).alias("archive_count"),
            side_count(False).alias("topic_count"),
            sql.min(archive_digest).alias("low"),
            sql.max(archive_digest).alias("high"),
            sql.min(topic_digest).alias("original"),
        )
        is_different = sql.expr("archive_count > 0 and topic_count > 0 and (low != original or high != original)")
        kinds = (
            (Kind.MISSING, sql.when(sql.col("archive_count") == 0, sql.col("topic_count"))),
            (Kind.EXTRA, sql.when(sql.col("topic_count") == 0, sql.col("archive_count"))),
            (Kind.DUPLICATE, sql.when(sql.col("topic_count") > 0, sql.col("archive_count") - sql.col("topic_count"))),
            (Kind.DIFFERENT, sql.when(is_different, sql.lit(1))),
        )
        findings = sql.array(
            *(sql.struct(sql.lit(kind.value).alias("kind"), count.cast("long").alias("count")) for kind, count in kinds)
        )
        found = offsets.select("partition", "offset", sql.explode(findings).alias("found")).where("found.count > 0")
        return found.select("partition", "offset", "found.kind", "found.count")


def _difference(topic: str, row: Row) -> Difference:
    kind = Kind(row.kind)
    return Difference(
        kind,
        topic,
        row.partition,
        None if kind is Kind.MISSING else row.offset,
        None if kind is Kind.EXTRA else row.offset,
    )


def _bucket(width: int) -> Column:
    return sql.expr(f"offset div {width}")


def _value_of_partition(values: Mapping[int, int]) -> Column:
    """Return a column with the value for the partition of each row; 0 for partitions without a value."""
    columns = [sql.lit(values.get(partition, 0)).cast("long") for partition in range(max(values) + 1)]
    return sql.get(sql.array(*columns), sql.col("partition"))
