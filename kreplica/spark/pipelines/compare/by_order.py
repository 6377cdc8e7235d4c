"""An archive against a topic to which it was replayed: offsets are others, so content and order count.

The original is the archive, the copy the topic.  Records have ranks in their partitions; first sums by rank are
compared.  Where those differ, the records from there on are matched by content, the n-th of a content with the n-th.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as sql
from pyspark.storagelevel import StorageLevel

from kreplica.spark.pipelines.compare.findings import Difference, Found, Kind, PartitionResult
from kreplica.spark.pipelines.compare.rows import bucket_width, side_count, side_sum, sides

_OFFSETS = 1 << 16


class Names(NamedTuple):
    """The topic in the archive, and that with which it is compared."""

    topic: str
    other: str


def compare_order(
    names: Names, archive: DataFrame, topic: DataFrame, shortened: Collection[int], *, records: int, shown_max: int
) -> Found:
    """Compare digests in their order.

    :param archive: ``partition``, ``offset``, ``digest``; so is ``topic``.
    :param shortened: partitions whose beginning retention took from the topic.
    :param records: that there are, about.
    :param shown_max: so many differences are named.
    """
    width = bucket_width(records)
    both = sides(archive, topic).persist(StorageLevel.DISK_ONLY)
    try:
        ranked = _ranked(both)
        summed = (
            ranked.withColumn("bucket", sql.expr(f"rank div {width}"))
            .groupBy("partition", "bucket")
            .agg(
                side_count(True).alias("archived"),
                side_count(False).alias("held"),
                side_sum(True, sql.xxhash64("digest", "rank")).alias("archive_sum"),
                side_sum(False, sql.xxhash64("digest", "rank")).alias("topic_sum"),
            )
            .collect()
        )
        partitions = sorted({row.partition for row in summed})
        since: dict[int, int] = {}
        for row in summed:
            if (row.archived, row.archive_sum) != (row.held, row.topic_sum):
                since[row.partition] = min(since.get(row.partition, row.bucket), row.bucket)
        counts = {partition: dict.fromkeys(Kind, 0) for partition in partitions}
        deleted = dict.fromkeys(partitions, 0)
        first: list[Difference] = []
        if since:
            begins = {partition: bucket * width for partition, bucket in since.items()}
            cut = {partition for partition in shortened if begins.get(partition) == 0}
            first = _examined(names, ranked, begins, cut, counts, deleted, shown_max)
    finally:
        both.unpersist()
    results = []
    for partition in partitions:
        archived = sum(row.archived for row in summed if row.partition == partition)
        gone = deleted[partition]
        results.append(PartitionResult(*names, partition, archived - gone, gone, counts[partition]))
    return Found(results, first)


def _ranked(both: DataFrame) -> DataFrame:
    """With ``rank``: how many records of its side are before a record.

    Found by parts of the offsets, so that no task sorts a whole partition.
    """
    both = both.withColumn("part", sql.expr(f"offset div {_OFFSETS}"))
    side = ["is_archive", "partition"]
    before = Window.partitionBy(*side).orderBy("part").rowsBetween(Window.unboundedPreceding, -1)
    parts = both.groupBy(*side, "part").agg(sql.count("*").alias("size"))
    parts = parts.withColumn("begin", sql.coalesce(sql.sum("size").over(before), sql.lit(0))).drop("size")
    within = sql.row_number().over(Window.partitionBy(*side, "part").orderBy("offset"))
    return (
        both.withColumn("within", within)
        .join(sql.broadcast(parts), [*side, "part"])
        .select(*side, "offset", "digest", (sql.col("begin") + sql.col("within") - 1).alias("rank"))
    )


def _examined(
    names: Names,
    ranked: DataFrame,
    begins: Mapping[int, int],
    shortened: Collection[int],
    counts: dict[int, dict[Kind, int]],
    deleted: dict[int, int],
    shown_max: int,
) -> list[Difference]:
    """Count the differences from some ranks on, and name the first ones."""
    spark = ranked.sparkSession
    rows = [(partition, rank, partition in shortened) for partition, rank in begins.items()]
    chosen = spark.createDataFrame(rows, "partition int, since long, is_shortened boolean")
    rest = ranked.join(sql.broadcast(chosen), "partition").where("rank >= since")
    found = _differences(_matched(rest)).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        for row in found.groupBy("partition", "kind").count().collect():
            if row.kind is None:
                deleted[row.partition] = row["count"]
            else:
                counts[row.partition][Kind(row.kind)] = row["count"]
        shown = found.where("kind is not null").orderBy("partition", "place", "kind").limit(shown_max)
        return [_difference(names, row) for row in shown.collect()]
    finally:
        found.unpersist()


def _matched(rest: DataFrame) -> DataFrame:
    """A row for each record of the archive and its copy, or of the one that has no other.

    The n-th record of a content is matched with the n-th of the other side.
    """
    content = ["partition", "digest"]
    turn = sql.row_number().over(Window.partitionBy("is_archive", *content).orderBy("rank"))
    rest = rest.withColumn("turn", turn)
    matched = rest.groupBy(*content, "turn", "is_shortened").agg(
        *(
            sql.max(sql.when(sql.col("is_archive") == sql.lit(is_archive), sql.col(column))).alias(f"{side}_{column}")
            for side, is_archive in (("archive", True), ("topic", False))
            for column in ("offset", "rank")
        )
    )
    is_archived = sql.max("archive_rank").over(Window.partitionBy(*content)).isNotNull()
    return matched.withColumn("is_archived", is_archived)


def _differences(matched: DataFrame) -> DataFrame:
    """``partition``, ``kind`` (null: retention took it), both offsets, and ``place``, by which they are sorted."""
    return _order(matched).unionByName(_singles(matched))


def _order(matched: DataFrame) -> DataFrame:
    """Those whose copies stand before the copy of the record before them."""
    pairs = matched.where("archive_rank is not null and topic_rank is not null")
    before = sql.lag("topic_rank").over(Window.partitionBy("partition").orderBy("archive_rank"))
    late = pairs.withColumn("before", before).where("topic_rank < before")
    return _told(late, sql.lit(Kind.OUT_OF_ORDER.value), sql.col("archive_rank"))


def _singles(matched: DataFrame) -> DataFrame:
    """Those that one side alone has: between the same pairs, one of each is one record that is different."""
    missing, more = (_alone(matched, side) for side in ("archive", "topic"))
    doubled = _told(more.where("is_archived"), sql.lit(Kind.DOUBLED.value), sql.col("topic_rank"))
    keys = ["partition", "gap", "number"]
    own = missing.select(*keys, "is_shortened", "archive_offset", "archive_rank")
    others = more.where("not is_archived").select(*keys, "topic_offset", "topic_rank")
    kind = (
        sql.when(sql.expr("topic_rank is null and is_shortened and gap = 0"), sql.lit(None))
        .when(sql.col("topic_rank").isNull(), Kind.MISSING.value)
        .when(sql.col("archive_rank").isNull(), Kind.EXTRA.value)
        .otherwise(Kind.DIFFERENT.value)
    )
    both = own.join(others, keys, "full_outer")
    return doubled.unionByName(_told(both, kind, sql.coalesce("archive_rank", "topic_rank")))


def _alone(matched: DataFrame, side: str) -> DataFrame:
    """What one side alone has, with the ``gap`` between pairs in which it stands, and its ``number`` there."""
    rank = f"{side}_rank"
    is_pair = sql.expr("archive_rank is not null and topic_rank is not null")
    until = Window.partitionBy("partition").orderBy(rank).rowsBetween(Window.unboundedPreceding, 0)
    own = matched.where(f"{rank} is not null").withColumn("gap", sql.count_if(is_pair).over(until)).where(~is_pair)
    kind = sql.lit(True) if side == "archive" else sql.col("is_archived")
    number = sql.row_number().over(Window.partitionBy("partition", "gap", kind).orderBy(rank))
    return own.withColumn("number", number)


def _told(rows: DataFrame, kind: Column, place: Column) -> DataFrame:
    return rows.select("partition", kind.alias("kind"), "archive_offset", "topic_offset", place.alias("place"))


def _difference(names: Names, row: Row) -> Difference:
    return Difference(Kind(row.kind), names.topic, row.partition, row.archive_offset, row.topic_offset)
