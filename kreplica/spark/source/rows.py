"""Conversion of records to rows: Arrow batches with exactly the columns and types of the schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kreplica.model import TopicPartition
from kreplica.spark.source.decoding import DecodedRecords
from kreplica.spark.source.options import HEADERS_COLUMN
from kreplica.transfer.record_columns import ARROW_TYPES, TIMESTAMP

_US_PER_MS = 1000

SPARK_TYPES: Mapping[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    HEADERS_COLUMN: ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
}


@lru_cache(maxsize=8)
def arrow_schema(columns: tuple[str, ...]) -> pa.Schema:
    """Return the Arrow schema of the batches that ``arrow_rows`` creates."""
    return pa.schema([(name, ARROW_TYPES[name]) for name in columns])


def spark_schema(columns: Sequence[str]) -> StructType:
    """Return the Spark schema of the batches that ``arrow_rows`` creates."""
    return StructType([StructField(name, SPARK_TYPES[name]) for name in columns])


def arrow_rows(partition: TopicPartition, records: DecodedRecords, columns: tuple[str, ...]) -> pa.RecordBatch:
    """Convert records of one partition to rows."""
    return pa.RecordBatch.from_arrays(
        [_COLUMNS[name](partition, records) for name in columns], schema=arrow_schema(columns)
    )


def _constant(value: Any, kind: pa.DataType, count: int) -> pa.Array:
    return _constant_column(value, kind, 1 << count.bit_length()).slice(0, count)


@lru_cache(maxsize=2)
def _constant_column(value: Any, kind: pa.DataType, count: int) -> pa.Array:
    """Return a constant column; cached for the columns topic and partition of a task."""
    return pa.repeat(pa.scalar(value, kind), count)


def _timestamps(_: TopicPartition, records: DecodedRecords) -> pa.Array:
    return pa.array(records.timestamps_ms * _US_PER_MS, pa.int64()).view(TIMESTAMP)


def _types(_: TopicPartition, records: DecodedRecords) -> pa.Array:
    return pa.array(records.timestamp_types.astype(np.int32, copy=False))


_COLUMNS: Mapping[str, Callable[[TopicPartition, DecodedRecords], pa.Array]] = {
    "key": lambda _, records: records.keys,
    "value": lambda _, records: records.values,
    "topic": lambda partition, records: _constant(partition.topic, pa.string(), len(records.offsets)),
    "partition": lambda partition, records: _constant(partition.partition, pa.int32(), len(records.offsets)),
    "offset": lambda _, records: pa.array(records.offsets),
    "timestamp": _timestamps,
    "timestampType": _types,
    HEADERS_COLUMN: lambda _, records: records.headers,
}
