"""Digests of the records of both sides (archive and topic) of a comparison, and sums of digests."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

BUCKET_OFFSETS = 1 << 16
BUCKETS_MAX = 100_000
"""Approximate maximum number of sums per topic; the driver collects all of them."""


def digest(*, with_timestamps: bool) -> Column:
    """Return a 64-bit digest of key, value, headers and optionally the timestamp in milliseconds."""
    key, value, headers = sql.col("key"), sql.col("value"), sql.col("headers")
    pairs = sql.transform(headers, lambda each: sql.struct(each["key"], each["value"].isNull(), each["value"]))
    # Nulls do not change the hash, so null flags are hashed too.
    parts = [key.isNull(), key, value.isNull(), value, sql.when(sql.size(headers) > 0, pairs)]
    if with_timestamps:
        parts.append(sql.unix_millis("timestamp"))
    return sql.xxhash64(*parts)


def digests(rows: DataFrame, *, with_timestamps: bool) -> DataFrame:
    """Return the columns ``partition``, ``offset``, ``digest``."""
    return rows.select("partition", "offset", digest(with_timestamps=with_timestamps).alias("digest"))


def sides(archive: DataFrame, topic: DataFrame) -> DataFrame:
    """Return both sides as one table with the column ``is_archive``."""
    return archive.withColumn("is_archive", sql.lit(True)).unionByName(topic.withColumn("is_archive", sql.lit(False)))


def side_count(is_archive: bool) -> Column:
    """Count the rows of one side in a group."""
    return sql.count_if(sql.col("is_archive") == sql.lit(is_archive))


def side_sum(is_archive: bool, column: Column) -> Column:
    """Sum a column over the rows of one side in a group, independent of order."""
    return sql.bit_xor(sql.when(sql.col("is_archive") == sql.lit(is_archive), column))


def bucket_width(offsets: int) -> int:
    """Return the number of offsets per sum.

    :param offsets: number of offsets to compare.
    """
    return max(BUCKET_OFFSETS, -(-offsets // BUCKETS_MAX))
