"""Parses record values that are JSON objects into a column with their fields."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.types import StringType, StructField, StructType

from kreplica.spark.pipelines.archive.file_stores import Store
from kreplica.spark.pipelines.json_schema import read_history, write_history

_MALFORMED = "__malformed"
_OBJECT = r"^\s*\{"


def add_json_column(rows: DataFrame, path: str, batch: int, store: Store) -> DataFrame:
    """Add a column of parsed values to the rows of a micro-batch; this reads the rows one additional time.

    New fields are stored first, for readers of the archive and for later batches. No column is added until some value
    is an object.
    """
    history = read_history(path, store)
    updated = history.with_batch(infer_schema(rows), batch)
    if updated != history:
        write_history(path, updated, store)
    return rows.withColumn(updated.column, parsed_column(updated.schema)) if updated.schema.fields else rows


def infer_schema(rows: DataFrame) -> StructType:
    """Infer the fields of all values that are objects."""
    texts = rows.select(_text().alias("text")).where(sql.col("text").rlike(_OBJECT))
    read = rows.sparkSession.read.json(
        texts, dropFieldIfAllNull=True, mode="PERMISSIVE", columnNameOfCorruptRecord=_MALFORMED
    )
    return StructType([field for field in read.schema.fields if field.name != _MALFORMED])


def parsed_column(schema: StructType) -> Column:
    """Return the parsed column; null if a value is not an object or does not match the schema. The column ``value``
    keeps the original.
    """
    schema_with_flag = StructType([*schema.fields, StructField(_MALFORMED, StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _MALFORMED}
    found = sql.when(_text().rlike(_OBJECT), sql.from_json(_text(), schema_with_flag, options))
    return sql.when(found[_MALFORMED].isNull() & found.isNotNull(), found.dropFields(_MALFORMED))


def _text() -> Column:
    return sql.col("value").cast("string")
