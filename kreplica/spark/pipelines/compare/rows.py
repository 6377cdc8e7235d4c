"""Two sides of a comparison as rows of digests, and sums of many of them."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

BUCKET_OFFSETS = 1 << 16
BUCKETS_MAX = 100_000
"""Of one topic, about: their sums are what comes to the driver."""


def digest(*, with_timestamps: bool) -> Column:
    """64 bits of what a record is: equal where key, value, headers and, if they count, milliseconds are."""
    key, value, headers = sql.col("key"), sql.col("value"), sql.col("headers")
    pairs = sql.transform(headers, lambda each: sql.struct(each["key"], each["value"].isNull(), each["value"]))
    # Nulls leave the sum as it is, so what is null is told too.
    parts = [key.isNull(), key, value.isNull(), value, sql.when(sql.size(headers) > 0, pairs)]
    if with_timestamps:
        parts.append(sql.unix_millis("timestamp"))
    return sql.xxhash64(*parts)


def digests(rows: DataFrame, *, with_timestamps: bool) -> DataFrame:
    """``partition``, ``offset``, ``digest``."""
    return rows.select("partition", "offset", digest(with_timestamps=with_timestamps).alias("digest"))


def sides(archive: DataFrame, topic: DataFrame) -> DataFrame:
    """Both in one table: ``is_archive`` says which."""
    return archive.withColumn("is_archive", sql.lit(True)).unionByName(topic.withColumn("is_archive", sql.lit(False)))


def side_count(is_archive: bool) -> Column:
    """How many rows of a group are of one side."""
    return sql.count_if(sql.col("is_archive") == sql.lit(is_archive))


def side_sum(is_archive: bool, column: Column) -> Column:
    """One number of all rows of a group that are of one side; no order matters."""
    return sql.bit_xor(sql.when(sql.col("is_archive") == sql.lit(is_archive), column))


def bucket_width(offsets: int) -> int:
    """Of how many offsets one sum is made.

    :param offsets: that are compared.
    """
    return max(BUCKET_OFFSETS, -(-offsets // BUCKETS_MAX))
