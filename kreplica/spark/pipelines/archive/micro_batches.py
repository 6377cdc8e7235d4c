"""Writes micro-batches to an archive, each exactly once despite retries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from time import time
from typing import TYPE_CHECKING

from kreplica.errors import KreplicaError
from kreplica.model import TopicPartition
from kreplica.spark.pipelines.archive.file_stores import FileEntry, Store
from kreplica.spark.pipelines.archive.layout import (
    ArchivedFile,
    ArchivedRange,
    Batch,
    checkpoint,
    read_batch,
    write_batch,
)
from kreplica.spark.pipelines.archive.stream_checkpoint import batch_ends

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TASK_RECORDS_MIN = 500_000
"""Minimum records per task, and thus per file."""

SETTINGS = {
    "spark.sql.sources.partitionOverwriteMode": "dynamic",
    # Rows are ordered by partition and offset; one open writer per day avoids sorting them by day.
    "spark.sql.maxConcurrentOutputFileWriters": "16",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # The driver lists the few directories of a batch faster than a Spark job would.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "1024",
    # Streams have no adaptive execution, and counts by partition have few rows.
    "spark.sql.shuffle.partitions": "4",
}
"""Settings of the stream's own session."""

_DAY_MS = 86_400_000
_DAYS = (-719_162, 2_932_896)  # 0001-01-01 to 9999-12-31: producers may send any timestamp

Positions = Mapping[TopicPartition, int]


class BatchMismatch(KreplicaError):
    """The archive contains another batch with the same number."""


class BatchWriter:
    """Writes micro-batches. Spark calls it serially, and again if the outcome of a call is unknown.

    An interrupted batch leaves files without a batch entry, which the retry deletes. A batch that has an entry is
    skipped.

    :param codec: compression codec of the files.
    :param file_records_max: maximum records per file.
    :param earliest: log start offsets, for partitions that are new in the archive.
    :param add_columns: returns the rows of a batch with additional columns.
    :param on_batch: called with each complete batch.
    """

    def __init__(
        self,
        path: str,
        store: Store,
        *,
        codec: str,
        file_records_max: int,
        earliest: Callable[[list[TopicPartition]], Positions],
        add_columns: Callable[[DataFrame, int], DataFrame],
        on_batch: Callable[[Batch], None],
    ) -> None:
        self._path = path
        self._store = store
        self._codec = codec
        self._file_records_max = file_records_max
        self._earliest = earliest
        self._add_columns = add_columns
        self._on_batch = on_batch
        self._is_first = True

    def __call__(self, rows: DataFrame, number: int) -> None:
        """Write a micro-batch.

        :raise BatchMismatch: the archive has another batch with that number.
        """
        ends = batch_ends(checkpoint(self._path), number, self._store)
        if ends is None:
            raise BatchMismatch(f"{checkpoint(self._path)} has no end offsets for batch {number}")
        complete = read_batch(self._path, number, self._store)
        if complete is not None:
            if complete.ends() != ends:
                raise BatchMismatch(f"batch {number} of {self._path} has offsets that differ from its checkpoint")
            return
        if self._is_first:
            self._delete_interrupted_attempt(number)
            self._is_first = False
        starts = self._starts(number, ends)
        for name, value in SETTINGS.items():
            rows.sparkSession.conf.set(name, value)
        self._write(rows, number, sum(ends[each] - starts[each] for each in ends))
        batch = self._batch_entry(rows, number, starts, ends)
        write_batch(self._path, batch, self._store)
        self._on_batch(batch)

    def _delete_interrupted_attempt(self, number: int) -> None:
        """Delete an interrupted attempt to write this batch, since the retry may use other file names."""
        for each in self._store.find(self._path, f"topic=*/day=*/batch={number}"):
            self._store.delete(each.path)
        for name in self._store.names(self._path):
            if name.startswith(".spark-staging-"):
                self._store.delete(f"{self._path}/{name}")

    def _starts(self, number: int, ends: Positions) -> dict[TopicPartition, int]:
        previous_ends = (batch_ends(checkpoint(self._path), number - 1, self._store) if number else None) or {}
        added = [each for each in ends if each not in previous_ends]
        starts = {**previous_ends, **self._earliest(added)}
        return {each: min(starts[each], end) for each, end in ends.items()}

    def _write(self, rows: DataFrame, number: int, offsets: int) -> None:
        from pyspark.sql import functions as sql

        days = sql.floor(sql.unix_millis("timestamp") / _DAY_MS)
        first, last = (sql.lit(each) for each in _DAYS)
        day = sql.date_from_unix_date(sql.greatest(first, sql.least(last, days)).cast("int"))
        rows = self._add_columns(rows, number).withColumns({"day": day, "batch": sql.lit(number)})
        names = [each for each in rows.columns if each not in ("topic", "day", "batch")]
        rows = rows.coalesce(max(1, -(-offsets // TASK_RECORDS_MIN)))
        writer = rows.select(*names, "topic", "day", "batch").write.mode("overwrite")
        writer = writer.option("compression", self._codec).option("maxRecordsPerFile", self._file_records_max)
        # Dictionary encoding of mostly distinct keys and values more than halves the throughput.
        writer = writer.option("parquet.enable.dictionary", "false")
        writer.partitionBy("topic", "day", "batch").parquet(self._path)

    def _batch_entry(self, rows: DataFrame, number: int, starts: Positions, ends: Positions) -> Batch:
        """Return the batch entry, with the files found in the store."""
        topics = sorted({each.topic for each in ends if ends[each] > starts[each]})
        found: list[FileEntry] = []
        for topic in topics:
            found += self._store.find(self._path, f"topic={topic}/day=*/batch={number}/*.parquet")
        files = tuple(ArchivedFile(each.path[each.path.rindex("topic=") :], each.size) for each in found)
        counts_by_partition = self._count_records(rows, files) if files else {}
        ranges = []
        for each, end in sorted(ends.items()):
            records, first = counts_by_partition.get(each, (0, starts[each]))
            ranges.append(ArchivedRange(*each, min(starts[each], first), end, records))
        return Batch(number, tuple(ranges), files, int(time() * 1000))

    def _count_records(self, rows: DataFrame, files: Iterable[ArchivedFile]) -> dict[TopicPartition, tuple[int, int]]:
        """Return the number of records of each partition, and the first offset."""
        from pyspark.sql import functions as sql

        folders = sorted({f"{self._path}/{each.path.rpartition('/')[0]}" for each in files})
        reader = rows.sparkSession.read.schema("partition int, offset long, topic string, day string, batch long")
        counts = (
            reader.option("basePath", self._path)
            .parquet(*folders)
            .groupBy("topic", "partition")
            .agg(sql.count("*").alias("records"), sql.min("offset").alias("first"))
        )
        return {TopicPartition(row.topic, row.partition): (row.records, row.first) for row in counts.collect()}
