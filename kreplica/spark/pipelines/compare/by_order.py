"""Comparison of an archive with a topic to which it was replayed: offsets differ, so content and order are compared.

The archive is the original, the topic the copy. Records are numbered within their partitions (their rank), and sums
over ranges of ranks are compared. From the first range that differs, records are matched by content: of several
records with equal content, the n-th in the archive corresponds to the n-th in the topic.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as sql
from pyspark.storagelevel import StorageLevel

from kreplica.spark.pipelines.compare.findings import Difference, Kind, PartitionResult, TopicResult
from kreplica.spark.pipelines.compare.rows import bucket_width, side_count, side_sum, sides

_OFFSETS = 1 << 16


class Names(NamedTuple):
    """Names of the topic in the archive, and of the topic compared with it."""

    topic: str
    other: str


def compare_order(
    names: Names, archive: DataFrame, topic: DataFrame, shortened: Collection[int], *, records: int, shown_max: int
) -> TopicResult:
    """Compare the records of an archive and a topic by their digests, in order.

    :param archive: columns ``partition``, ``offset``, ``digest``; ``topic`` has the same.
    :param shortened: partitions of the topic whose oldest records were deleted by retention.
    :param records: approximate number of records.
    :param shown_max: maximum number of differences listed.
    """
    width = bucket_width(records)
    side_rows = sides(archive, topic).persist(StorageLevel.DISK_ONLY)
    try:
        ranked = _add_ranks(side_rows)
        summed = (
            ranked.withColumn("bucket", sql.expr(f"rank div {width}"))
            .groupBy("partition", "bucket")
            .agg(
                side_count(True).alias("archive_count"),
                side_count(False).alias("topic_count"),
                side_sum(True, sql.xxhash64("digest", "rank")).alias("archive_sum"),
                side_sum(False, sql.xxhash64("digest", "rank")).alias("topic_sum"),
            )
            .collect()
        )
        partitions = sorted({row.partition for row in summed})
        first_buckets: dict[int, int] = {}
        for row in summed:
            if (row.archive_count, row.archive_sum) != (row.topic_count, row.topic_sum):
                first_buckets[row.partition] = min(first_buckets.get(row.partition, row.bucket), row.bucket)
        counts = {partition: dict.fromkeys(Kind, 0) for partition in partitions}
        deleted = dict.fromkeys(partitions, 0)
        first: list[Difference] = []
        if first_buckets:
            first_ranks = {partition: bucket * width for partition, bucket in first_buckets.items()}
            shortened_from_start = {partition for partition in shortened if first_ranks.get(partition) == 0}
            first = _count_and_list(names, ranked, first_ranks, shortened_from_start, counts, deleted, shown_max)
    finally:
        side_rows.unpersist()
    results = []
    for partition in partitions:
        archived = sum(row.archive_count for row in summed if row.partition == partition)
        deleted_count = deleted[partition]
        results.append(PartitionResult(*names, partition, archived - deleted_count, deleted_count, counts[partition]))
    return TopicResult(results, first)


def _add_ranks(side_rows: DataFrame) -> DataFrame:
    """Add ``rank``, the number of earlier records of the same side and partition.

    Computed by offset ranges, so that no task sorts a whole partition.
    """
    side_rows = side_rows.withColumn("part", sql.expr(f"offset div {_OFFSETS}"))
    side = ["is_archive", "partition"]
    previous_parts = Window.partitionBy(*side).orderBy("part").rowsBetween(Window.unboundedPreceding, -1)
    parts = side_rows.groupBy(*side, "part").agg(sql.count("*").alias("size"))
    parts = parts.withColumn("begin", sql.coalesce(sql.sum("size").over(previous_parts), sql.lit(0))).drop("size")
    position = sql.row_number().over(Window.partitionBy(*side, "part").orderBy("offset"))
    return (
        side_rows.withColumn("position", position)
        .join(sql.broadcast(parts), [*side, "part"])
        .select(*side, "offset", "digest", (sql.col("begin") + sql.col("position") - 1).alias("rank"))
    )


def _count_and_list(
    names: Names,
    ranked: DataFrame,
    first_ranks: Mapping[int, int],
    shortened: Collection[int],
    counts: dict[int, dict[Kind, int]],
    deleted: dict[int, int],
    shown_max: int,
) -> list[Difference]:
    """Count the differences at or after the given ranks, and list the first ones."""
    spark = ranked.sparkSession
    rows = [(partition, rank, partition in shortened) for partition, rank in first_ranks.items()]
    first_rank_rows = spark.createDataFrame(rows, "partition int, first_rank long, is_shortened boolean")
    remaining_rows = ranked.join(sql.broadcast(first_rank_rows), "partition").where("rank >= first_rank")
    found = _differences(_match_records(remaining_rows)).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        for row in found.groupBy("partition", "kind").count().collect():
            if row.kind is None:
                deleted[row.partition] = row["count"]
            else:
                counts[row.partition][Kind(row.kind)] = row["count"]
        listed = found.where("kind is not null").orderBy("partition", "place", "kind").limit(shown_max)
        return [_difference(names, row) for row in listed.collect()]
    finally:
        found.unpersist()


def _match_records(remaining_rows: DataFrame) -> DataFrame:
    """Return one row per record of the archive with its copy, and one per record without a counterpart.

    Of several records with equal content, the n-th in the archive is matched with the n-th in the topic.
    """
    content = ["partition", "digest"]
    occurrence = sql.row_number().over(Window.partitionBy("is_archive", *content).orderBy("rank"))
    remaining_rows = remaining_rows.withColumn("occurrence", occurrence)
    matched = remaining_rows.groupBy(*content, "occurrence", "is_shortened").agg(
        *(
            sql.max(sql.when(sql.col("is_archive") == sql.lit(is_archive), sql.col(column))).alias(f"{side}_{column}")
            for side, is_archive in (("archive", True), ("topic", False))
            for column in ("offset", "rank")
        )
    )
    is_archived = sql.max("archive_rank").over(Window.partitionBy(*content)).isNotNull()
    return matched.withColumn("is_archived", is_archived)


def _differences(matched: DataFrame) -> DataFrame:
    """Return ``partition``, ``kind`` (null if retention deleted the record), both offsets, and the sort key ``place``.
    """
    return _out_of_order(matched).unionByName(_unmatched_records(matched))


def _out_of_order(matched: DataFrame) -> DataFrame:
    """Return the records whose copy precedes the copy of the previous record."""
    pairs = matched.where("archive_rank is not null and topic_rank is not null")
    previous_rank = sql.lag("topic_rank").over(Window.partitionBy("partition").orderBy("archive_rank"))
    misplaced = pairs.withColumn("previous_rank", previous_rank).where("topic_rank < previous_rank")
    return _findings(misplaced, sql.lit(Kind.OUT_OF_ORDER.value), sql.col("archive_rank"))


def _unmatched_records(matched: DataFrame) -> DataFrame:
    """Return the unmatched records.

    Between two matched pairs, the n-th unmatched record of the archive and the n-th of the topic are counted as a
    single different record.
    """
    archive_only, topic_only = (_one_side(matched, side) for side in ("archive", "topic"))
    duplicates = _findings(topic_only.where("is_archived"), sql.lit(Kind.DUPLICATE.value), sql.col("topic_rank"))
    keys = ["partition", "gap", "number"]
    own = archive_only.select(*keys, "is_shortened", "archive_offset", "archive_rank")
    others = topic_only.where("not is_archived").select(*keys, "topic_offset", "topic_rank")
    kind = (
        sql.when(sql.expr("topic_rank is null and is_shortened and gap = 0"), sql.lit(None))
        .when(sql.col("topic_rank").isNull(), Kind.MISSING.value)
        .when(sql.col("archive_rank").isNull(), Kind.EXTRA.value)
        .otherwise(Kind.DIFFERENT.value)
    )
    side_rows = own.join(others, keys, "full_outer")
    return duplicates.unionByName(_findings(side_rows, kind, sql.coalesce("archive_rank", "topic_rank")))


def _one_side(matched: DataFrame, side: str) -> DataFrame:
    """Return the unmatched records of one side, with the ``gap`` between matched pairs and the ``number`` within it."""
    rank = f"{side}_rank"
    is_pair = sql.expr("archive_rank is not null and topic_rank is not null")
    window = Window.partitionBy("partition").orderBy(rank).rowsBetween(Window.unboundedPreceding, 0)
    own = matched.where(f"{rank} is not null").withColumn("gap", sql.count_if(is_pair).over(window)).where(~is_pair)
    kind = sql.lit(True) if side == "archive" else sql.col("is_archived")
    number = sql.row_number().over(Window.partitionBy("partition", "gap", kind).orderBy(rank))
    return own.withColumn("number", number)


def _findings(rows: DataFrame, kind: Column, place: Column) -> DataFrame:
    return rows.select("partition", kind.alias("kind"), "archive_offset", "topic_offset", place.alias("place"))


def _difference(names: Names, row: Row) -> Difference:
    return Difference(Kind(row.kind), names.topic, row.partition, row.archive_offset, row.topic_offset)
