"""Parsing of JSON object values into a column of their fields."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.types import StringType, StructField, StructType

from kreplica.spark.pipelines.archive.file_stores import Store
from kreplica.spark.pipelines.json_schema import read_history, write_history

_MALFORMED = "__malformed"
_OBJECT = r"^\s*\{"


def with_json(rows: DataFrame, path: str, batch: int, store: Store) -> DataFrame:
    """Add the parsed values to the rows of a micro-batch; no column is added before the first value that is an
    object.

    New fields are stored first, for readers of the archive and for the next batch. Reads the rows one additional time.
    """
    history = read_history(path, store)
    grown = history.grown(found_schema(rows), batch)
    if grown != history:
        write_history(path, grown, store)
    return rows.withColumn(grown.column, parsed(grown.schema)) if grown.schema.fields else rows


def found_schema(rows: DataFrame) -> StructType:
    """Infer the fields of all values that are objects."""
    texts = rows.select(_text().alias("text")).where(sql.col("text").rlike(_OBJECT))
    read = rows.sparkSession.read.json(
        texts, dropFieldIfAllNull=True, mode="PERMISSIVE", columnNameOfCorruptRecord=_MALFORMED
    )
    return StructType([field for field in read.schema.fields if field.name != _MALFORMED])


def parsed(schema: StructType) -> Column:
    """Return the parsed column; null if a value is not an object or does not match the schema. The column ``value``
    keeps the original.
    """
    asked = StructType([*schema.fields, StructField(_MALFORMED, StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _MALFORMED}
    found = sql.when(_text().rlike(_OBJECT), sql.from_json(_text(), asked, options))
    return sql.when(found[_MALFORMED].isNull() & found.isNotNull(), found.dropFields(_MALFORMED))


def _text() -> Column:
    return sql.col("value").cast("string")
