"""Columns of the rows to write: validates them, and sorts rows by partition."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from kreplica.model import TopicPartition
from kreplica.spark.sink.encoding import Rows, headers_column
from kreplica.spark.sink.partitioning import partitions_of_keys

Numbers: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
PartitionCount: TypeAlias = Callable[[str], int]

_TEXT_OR_BINARY = (StringType, BinaryType)
_INTEGER = (IntegerType, LongType)


class InvalidRows(ValueError):
    """The rows cannot be written."""


def check_columns(schema: StructType, topic: str | None) -> None:
    """Check that rows with this schema can be written.

    :param topic: the topic given by the options, if any.
    :raise ValueError: a column is missing or has the wrong type; the message names it.
    """
    types = {field.name: field.dataType for field in schema.fields}
    if "value" not in types:
        raise ValueError("the column 'value' is missing")
    if topic is None and "topic" not in types:
        raise ValueError("no topic is given: set the option 'topic' or add a column 'topic'")
    for name, kinds in (
        ("key", _TEXT_OR_BINARY),
        ("value", _TEXT_OR_BINARY),
        ("topic", (StringType,)),
        ("partition", _INTEGER),
        ("timestamp", (TimestampType,)),
    ):
        if name in types and not isinstance(types[name], kinds):
            expected_types = " or ".join(kind.typeName() for kind in kinds)
            raise ValueError(f"the column {name!r} has type {types[name].simpleString()}, but must be {expected_types}")
    if "headers" in types and not _is_headers(types["headers"]):
        raise ValueError(
            f"the column 'headers' has type {types['headers'].simpleString()}, "
            "but must be array<struct<key:string,value:binary>>"
        )


def _is_headers(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    fields = [(each.name, type(each.dataType)) for each in kind.elementType.fields]
    return fields == [("key", StringType), ("value", BinaryType)]


@dataclass(slots=True)
class RowSorter:
    """Sorts the rows of Arrow batches by partition; the order within a partition is kept.

    :param topic: topic of all rows; None if a column contains it.
    :param partition_count: returns the number of partitions of a topic.
    :param now_ms: returns the timestamp for rows without one.
    :param round_robin: counter; all rows of a batch that have neither key nor partition go to one partition, those of
        the next batch to the next partition.
    """

    topic: str | None
    partition_count: PartitionCount
    now_ms: Callable[[], int]
    round_robin: int = 0

    def sort(self, batch: pa.RecordBatch) -> Iterator[tuple[TopicPartition, Rows]]:
        """Yield the rows of each partition.

        :raise InvalidRows: a topic is null, or a partition does not exist.
        """
        if not batch.num_rows:
            return
        columns = {name: batch.column(index) for index, name in enumerate(batch.schema.names)}
        keys = _binary(columns.get("key"), batch.num_rows)
        values = _binary(columns["value"], batch.num_rows)
        headers = headers_column(columns["headers"]) if "headers" in columns else None
        rows = Rows(self._times(columns.get("timestamp"), batch.num_rows), keys, values, headers)
        for topic, chosen in self._topics(columns.get("topic")):
            topic_rows = rows if chosen is None else _take(rows, chosen)
            partition_column = columns.get("partition")
            if partition_column is not None and chosen is not None:
                partition_column = partition_column.take(pa.array(chosen))
            yield from self._partitions(topic, topic_rows, partition_column)

    def _topics(self, column: pa.Array | None) -> Iterator[tuple[str, Numbers | None]]:
        if self.topic is not None:
            yield self.topic, None
            return
        if column is None or column.null_count:
            raise InvalidRows("a row has no topic: the column 'topic' is null, and the option 'topic' is not set")
        encoded = column.dictionary_encode()
        names = encoded.dictionary.to_pylist()
        if len(names) == 1:
            yield names[0], None
            return
        index = encoded.indices.to_numpy(zero_copy_only=False)
        for number, name in enumerate(names):
            yield name, np.flatnonzero(index == number)

    def _partitions(
        self, topic: str, rows: Rows, partition_column: pa.Array | None
    ) -> Iterator[tuple[TopicPartition, Rows]]:
        count = self.partition_count(topic)
        chosen = partitions_of_keys(rows.keys, count)
        without_key = chosen < 0
        if without_key.any():
            chosen[without_key] = self.round_robin % count
            self.round_robin += 1
        if partition_column is not None:
            has_partition = ~partition_column.is_null().to_numpy(zero_copy_only=False)
            chosen[has_partition] = pc.fill_null(partition_column, 0).to_numpy(zero_copy_only=False)[has_partition]
            is_invalid = (chosen < 0) | (chosen >= count)
            if is_invalid.any():
                raise InvalidRows(f"partition {int(chosen[is_invalid][0])} of topic {topic!r} does not exist")
        first = int(chosen[0])
        if (chosen == first).all():
            yield TopicPartition(topic, first), rows
            return
        order = np.argsort(chosen, kind="stable")
        bounds = np.flatnonzero(np.diff(chosen[order])) + 1
        for part in np.split(order, bounds):
            yield TopicPartition(topic, int(chosen[part[0]])), _take(rows, part)

    def _times(self, column: pa.Array | None, count: int) -> Numbers:
        if column is None or column.null_count == count:
            return np.full(count, self.now_ms(), dtype=np.int64)
        times = column.cast(pa.timestamp("ms", tz="UTC"), safe=False).cast(pa.int64())
        found: Numbers = pc.fill_null(times, self.now_ms()).to_numpy(zero_copy_only=False)
        return found


def _binary(column: pa.Array | None, count: int) -> pa.Array:
    if column is None:
        return pa.nulls(count, pa.binary())
    if column.type in (pa.large_string(), pa.large_binary(), pa.string_view(), pa.binary_view()):
        return column.cast(pa.binary())
    return column.view(pa.binary()) if column.type == pa.string() else column


def _take(rows: Rows, chosen: Numbers) -> Rows:
    index = pa.array(chosen)
    headers = None if rows.headers is None else rows.headers.take(index)
    return Rows(rows.timestamps_ms[chosen], rows.keys.take(index), rows.values.take(index), headers)
