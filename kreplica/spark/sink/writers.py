"""Writers of DataFrames and streams in the format ``kreplica``: at least once, or exactly once."""

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
from kreplica.spark.sink.task_transactions import PreparedTask, prepare_rows
from kreplica.spark.sink.task_writing import WrittenRows, write_rows
from kreplica.spark.sink.write_decision import Task
from kreplica.spark.worker_processes import exempt_from_collection

log = logging.getLogger(__name__)

QUERY_ID, BATCH_ID, RUN_ID = "sql.streaming.queryId", "streaming.sql.batchId", "spark.jobGroup.id"
"""Local properties of a streaming query's tasks: the query ID, stored in its checkpoint; the micro-batch's number;
the ID of this run of the query.
"""

_run_of_process: dict[int, str] = {}
"""Run ID by process ID: a process that Spark forks from the process that plans batches needs its own run ID."""


class BatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame at least once; if the job fails, rows written by finished tasks remain."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task."""
        exempt_from_collection()
        return write_rows(iterator, self._options)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log the number of records; all rows are already written."""
        log.info("%d records were written", _count(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log the number of records that stay written."""
        log.warning("the job failed; %d records of successful tasks are written", _count(messages))


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes micro-batches at least once; a retried micro-batch is written again."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task."""
        exempt_from_collection()
        return write_rows(iterator, self._options)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Log the number of records; all rows are already written."""
        log.info("micro-batch %d: %d records were written", batchId, _count(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Log the number of records that stay written; a retry writes them again."""
        log.warning("micro-batch %d failed; %d records are written", batchId, _count(messages))


class ExactlyOnceBatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame exactly once; the sink ID and the batch ID identify it when it is retried."""

    def __init__(self, options: SinkOptions) -> None:
        assert options.sink_id is not None
        assert options.batch_id is not None
        self._options = options
        self._sink_id, self._batch_id = options.sink_id, options.batch_id
        # Tasks get copies of this object, and thus the run ID of the process that planned the job.
        self._run = _run_of_process.setdefault(os.getpid(), uuid4().hex)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task in an open transaction."""
        exempt_from_collection()
        return prepare_rows(iterator, self._options, self._task())

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Decide the batch and commit its transactions."""
        commit_prepared(_prepared_tasks(messages), self._options)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Abort the transactions, unless the batch is decided."""
        abort_prepared(_prepared_tasks(messages), self._options)

    def _task(self) -> Task:
        context = TaskContext.get()
        if context is None:
            raise RuntimeError("write() must run in a Spark task")
        query = context.getLocalProperty(QUERY_ID) or ""  # set in foreachBatch
        run = context.getLocalProperty(RUN_ID) if query else None
        return Task(
            self._sink_id,
            self._batch_id,
            context.partitionId(),
            query=query,
            run=_short_id(run or self._run),
            attempt=context.attemptNumber(),
        )


def _count(messages: list[WriterCommitMessage | None]) -> int:
    return sum(message.records for message in messages if isinstance(message, WrittenRows))


class ExactlyOnceWriter(DataSourceStreamArrowWriter):
    """Writes micro-batches exactly once (``exactly_once``)."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task in an open transaction."""
        exempt_from_collection()
        return prepare_rows(iterator, self._options, self._task())

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Decide the micro-batch and commit its transactions."""
        prepared = _prepared_tasks(messages)
        commit_prepared(prepared, self._options)
        log.info("micro-batch %d: %d records are committed", batchId, sum(each.records for each in prepared))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Abort the transactions, unless the micro-batch is decided."""
        abort_prepared(_prepared_tasks(messages), self._options)

    def _task(self) -> Task:
        context = TaskContext.get()
        query = context and context.getLocalProperty(QUERY_ID)
        batch_id = context and context.getLocalProperty(BATCH_ID)
        run = context and context.getLocalProperty(RUN_ID)
        if context is None or not query or not batch_id or not run:
            raise RuntimeError("Spark did not set the IDs of query, run and micro-batch for this task")
        return Task(
            self._options.sink_id or query,
            int(batch_id),
            context.partitionId(),
            query=query,
            run=_short_id(run),
            attempt=context.attemptNumber(),
            is_stream=True,
        )


def _short_id(run: str) -> str:
    return sha256(run.encode()).hexdigest()[:8]


def _prepared_tasks(messages: list[WriterCommitMessage | None]) -> list[PreparedTask]:
    return [message for message in messages if isinstance(message, PreparedTask)]
