"""Parquet files of records with the columns of Spark's Kafka source: ``key, value, topic, partition, offset, timestamp,
timestampType, headers``. Requires pyarrow (``pip install 'kreplica[spark]'``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kreplica.blocking.reader import ReadRecord
from kreplica.cli.http.session import CommandFailed
from kreplica.cli.records.record_json import InputRecord
from kreplica.errors import reason_of

ROWS_MAX, ROWS_SIZE_MAX = 50_000, 32 << 20
"""Maximum rows and bytes of a row group."""

READ_ROWS = 2000


def parquet_modules() -> tuple[Any, Any]:
    """Import pyarrow and its Parquet module.

    :raise CommandFailed: they are not installed.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise CommandFailed("Parquet requires pyarrow: pip install 'kreplica[spark]'") from None
    return pyarrow, pyarrow.parquet


class ParquetSink:
    """Writes records to a Parquet file in row groups of bounded size; must be closed."""

    def __init__(self, path: Path) -> None:
        self._arrow, parquet = parquet_modules()
        from kreplica.transfer.record_columns import ARROW_TYPES

        milliseconds = {"timestamp": self._arrow.timestamp("ms", tz="UTC")}
        self._schema = self._arrow.schema(list({**ARROW_TYPES, **milliseconds}.items()))
        self._writer = parquet.ParquetWriter(path, self._schema, compression="zstd", use_dictionary=["topic"])
        self._rows: list[tuple[Any, ...]] = []
        self._size = 0

    def write(self, record: ReadRecord) -> None:
        """Write a record.

        :raise CommandFailed: Parquet cannot represent a record of this row group.
        """
        headers = [{"key": name, "value": data} for name, data in record.headers] or None
        self._rows.append(
            (
                record.key,
                record.value,
                record.topic,
                record.partition,
                record.offset,
                None if record.timestamp_ms < 0 else record.timestamp_ms,
                int(record.timestamp_type),
                headers,
            )
        )
        self._size += len(record.key or b"") + len(record.value or b"")
        if len(self._rows) >= ROWS_MAX or self._size >= ROWS_SIZE_MAX:
            self._write_rows()

    def close(self) -> None:
        """Write the last row group and the footer."""
        try:
            self._write_rows()
        finally:
            self._writer.close()

    def _write_rows(self) -> None:
        if not self._rows:
            return
        columns = list(zip(*self._rows, strict=True))
        self._rows, self._size = [], 0
        try:
            arrays = [
                self._arrow.array(column, type=field.type) for column, field in zip(columns, self._schema, strict=True)
            ]
        except UnicodeEncodeError as error:
            name = error.object
            raise CommandFailed(f"the header name {name!a} is not valid UTF-8: use .jsonl for this topic") from None
        self._writer.write_table(self._arrow.Table.from_arrays(arrays, schema=self._schema))


def read_parquet(path: Path, on_read: Callable[[int], None]) -> Iterator[InputRecord]:
    """Yield the records of a file; only the column ``value`` is required.

    :param on_read: called with the number of rows read so far.
    :raise CommandFailed: the file cannot be read, or has no column ``value``.
    """
    arrow, parquet = parquet_modules()
    try:
        file = parquet.ParquetFile(path)
        existing = set(file.schema_arrow.names)
        if "value" not in existing:
            raise CommandFailed(f"{path}: the column value is missing; the columns are {', '.join(sorted(existing))}")
        names = [name for name in ("key", "value", "partition", "timestamp", "headers") if name in existing]
        rows = 0
        for batch in file.iter_batches(batch_size=READ_ROWS, columns=names):
            columns = {name: _values(arrow, batch.column(name)) for name in names}
            yield from _records(columns, batch.num_rows)
            rows += batch.num_rows
            on_read(rows)
    except (OSError, arrow.ArrowException) as error:
        raise CommandFailed(f"{path}: {reason_of(error)}") from error


def row_count(path: Path) -> int:
    """Return the number of rows of a file.

    :raise CommandFailed: the file cannot be read.
    """
    arrow, parquet = parquet_modules()
    try:
        return int(parquet.ParquetFile(path).metadata.num_rows)
    except (OSError, arrow.ArrowException) as error:
        raise CommandFailed(f"{path}: {reason_of(error)}") from error


def _values(arrow: Any, column: Any) -> list[Any]:
    if arrow.types.is_timestamp(column.type):
        column = column.cast(arrow.timestamp("ms", tz=column.type.tz), safe=False).cast(arrow.int64())
    values: list[Any] = column.to_pylist()
    return values


def _records(columns: dict[str, list[Any]], count: int) -> Iterator[InputRecord]:
    absent: list[Any] = [None] * count
    names = ("key", "value", "headers", "partition", "timestamp")
    rows = zip(*(columns.get(name, absent) for name in names), strict=True)
    for key, value, headers, partition, timestamp_ms in rows:
        pairs = tuple((each["key"], _bytes(each["value"])) for each in headers or ())
        yield InputRecord(_bytes(key), _bytes(value), pairs, partition, -1 if timestamp_ms is None else timestamp_ms)


def _bytes(value: Any) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
