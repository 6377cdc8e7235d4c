"""``df.write.format("kreplica")`` and ``df.writeStream.format("kreplica")``: each row at least once."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from kreplica.spark.sink_options import SinkOptions
from kreplica.spark.writing import Written, write_rows

log = logging.getLogger(__name__)


class BatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame; what tasks wrote stays, also where the job fails."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """One task's rows."""
        return write_rows(iterator, self._options)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Everything is written already."""
        log.info("%d records were written", _count(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """What is written stays."""
        log.warning("the job failed; %d records of tasks that went well are written", _count(messages))


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes micro-batches; one that is tried again is written again."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """One task's rows."""
        return write_rows(iterator, self._options)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Everything is written already."""
        log.info("micro-batch %d: %d records were written", batchId, _count(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """What is written stays, and is written again when the micro-batch is tried again."""
        log.warning("micro-batch %d failed; %d records are written", batchId, _count(messages))


def _count(messages: list[WriterCommitMessage | None]) -> int:
    return sum(message.records for message in messages if isinstance(message, Written))
