"""Arrow types of records in tables and Parquet files: the columns of Spark's Kafka source."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

TIMESTAMP = pa.timestamp("us", tz="UTC")
HEADERS_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

ARROW_TYPES: Mapping[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": TIMESTAMP,
    "timestampType": pa.int32(),
    "headers": HEADERS_TYPE,
}
"""Type by column name, in the order of the columns."""
