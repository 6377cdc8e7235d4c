"""``df.write.format("kreplica")`` and ``df.writeStream.format("kreplica")``: rows at least once, or exactly once."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from hashlib import sha256
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from kreplica.spark.sink.exactly_once import abort_prepared, commit_prepared
from kreplica.spark.sink.options import SinkOptions
from kreplica.spark.sink.task_transactions import Prepared, prepare_rows
from kreplica.spark.sink.write_decision import Task
from kreplica.spark.sink.writing import Written, write_rows

log = logging.getLogger(__name__)

QUERY_ID, BATCH_ID, RUN_ID = "sql.streaming.queryId", "streaming.sql.batchId", "spark.jobGroup.id"
"""What Spark tells the tasks of a streaming query: its id, which is its checkpoint's, the micro-batch's number, and the
id of this run of the query."""

_run_of_process: dict[int, str] = {}
"""By process, of which others are forked: it plans batches again and again."""


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


class ExactlyOnceBatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame that has a name and a number, as if it were a micro-batch."""

    def __init__(self, options: SinkOptions) -> None:
        assert options.sink_id is not None
        assert options.batch_id is not None
        self._options = options
        self._sink_id, self._batch_id = options.sink_id, options.batch_id
        # Spark's tasks have copies of this object, which is made where their job is planned.
        self._planned_by = _run_of_process.setdefault(os.getpid(), uuid4().hex)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """One task's rows, prepared."""
        return prepare_rows(iterator, self._options, self._task())

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Decide, and commit."""
        commit_prepared(_prepared(messages), self._options)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Abort, unless it is decided."""
        abort_prepared(_prepared(messages), self._options)

    def _task(self) -> Task:
        context = TaskContext.get()
        if context is None:
            raise RuntimeError("only Spark's tasks write")
        query = context.getLocalProperty(QUERY_ID) or ""  # that of the stream in whose foreachBatch this is
        run = context.getLocalProperty(RUN_ID) if query else None
        return Task(
            self._sink_id,
            self._batch_id,
            context.partitionId(),
            query=query,
            run=_short(run or self._planned_by),
            attempt=context.attemptNumber(),
        )


def _count(messages: list[WriterCommitMessage | None]) -> int:
    return sum(message.records for message in messages if isinstance(message, Written))


class ExactlyOnceWriter(DataSourceStreamArrowWriter):
    """Writes micro-batches, each visible once to readers of committed records (``exactly_once``)."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """One task's rows, prepared."""
        return prepare_rows(iterator, self._options, self._task())

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Decide, and commit."""
        prepared = _prepared(messages)
        commit_prepared(prepared, self._options)
        log.info("micro-batch %d: %d records are committed", batchId, sum(each.records for each in prepared))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Abort, unless it is decided."""
        abort_prepared(_prepared(messages), self._options)

    def _task(self) -> Task:
        context = TaskContext.get()
        query = context and context.getLocalProperty(QUERY_ID)
        batch_id = context and context.getLocalProperty(BATCH_ID)
        run = context and context.getLocalProperty(RUN_ID)
        if context is None or not query or not batch_id or not run:
            raise RuntimeError("Spark does not say which query, which run of it and which micro-batch this is")
        return Task(
            self._options.sink_id or query,
            int(batch_id),
            context.partitionId(),
            query=query,
            run=_short(run),
            attempt=context.attemptNumber(),
            of_stream=True,
        )


def _short(run: str) -> str:
    return sha256(run.encode()).hexdigest()[:8]


def _prepared(messages: list[WriterCommitMessage | None]) -> list[Prepared]:
    return [message for message in messages if isinstance(message, Prepared)]
