"""Reads an archive as a table."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from kreplica.spark.pipelines.archive.file_stores import LocalStore, store_of
from kreplica.spark.pipelines.archive.layout import COLUMNS, Archive, Batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kreplica.spark.pipelines.json_schema import History

SETTING = ("spark.sql.sources.parallelPartitionDiscovery.threshold", "10000")
"""Make the driver list local files itself, which is fast; a Spark job takes seconds."""


def read_rows(
    spark: SparkSession, archive: Archive, topics: Collection[str] | None = None, batches: Iterable[Batch] | None = None
) -> DataFrame:
    """Read the records of complete batches, unordered; the columns are the original ones, ``day`` and ``batch``.

    If the archive's values are JSON, there is also a column ``json``, with the latest schema for all files.

    :param topics: only these topics.
    :param batches: only these batches.
    """
    from kreplica.spark.pipelines.json_schema import COLUMN, History, read_history

    chosen = list(archive.batches if batches is None else batches)
    history = History()
    if archive.description.values == "json":
        history = read_history(archive.path, store_of(archive.path, spark))
    first_batch = history.readable_from
    old = archive.files(topics, (each for each in chosen if each.number < first_batch))
    new = archive.files(topics, (each for each in chosen if each.number >= first_batch))
    rows = _read(spark, archive.path, new, history)
    if not old:
        return rows
    from kreplica.spark.pipelines.json_values import parsed_column

    # The column json of these files has outdated types: parse the original values again.
    reparsed = _read(spark, archive.path, old, History()).withColumn(COLUMN, parsed_column(history.schema))
    return reparsed.unionByName(rows) if new else reparsed


def _read(spark: SparkSession, path: str, files: list[str], history: History) -> DataFrame:
    from kreplica.spark.pipelines.json_schema import COLUMN
    from kreplica.spark.source.rows import spark_schema

    schema = spark_schema(COLUMNS)
    if history.versions:
        schema = schema.add(history.column, history.schema)
    schema = schema.add("topic", "string").add("day", "string").add("batch", "long")
    name, value = SETTING
    if isinstance(store_of(path, spark), LocalStore) and spark.conf.get(name) != value:
        spark.conf.set(name, value)
    reader = spark.read.schema(schema).option("basePath", path)
    rows = reader.parquet(*files) if files else spark.createDataFrame([], schema)
    return rows.withColumnRenamed(history.column, COLUMN)
