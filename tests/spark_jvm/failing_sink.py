"""A sink whose tasks and drivers fail as planned; a directory contains a file for each failure, which happens once.

A file's name consists of the micro-batch, the place and the kind of the failure: ``3.decided.error``.  Workers import
this module.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from signal import SIGKILL
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from kreplica.spark.data_source import KreplicaDataSource
from kreplica.spark.sink import exactly_once
from kreplica.spark.sink.options import SinkOptions
from kreplica.spark.sink.writers import ExactlyOnceWriter

TASK = "task"
"""A task fails after it has prepared its rows; with ``half``, after it has written half of them."""

HALF = "half"
BEFORE, DECIDED, BETWEEN, AFTER = "before", "decided", "between", "after"
"""The driver fails before its decision, after it, after one committed lane, or after all of them."""

ERROR, KILL = "error", "kill"
PLAN = "failing.plan"


class Failed(Exception):
    """A planned failure."""


def plan_failure(plan: Path, batch_id: int, place: str, kind: str) -> None:
    """Plan one failure."""
    plan.mkdir(exist_ok=True)
    (plan / f"{batch_id}.{place}.{kind}").touch()


def pending_failures(plan: Path) -> list[str]:
    """Return the failures that have not happened yet."""
    return sorted(each.name for each in plan.glob("*.*.*") if each.suffix != ".done")


class FailingSource(KreplicaDataSource):
    """``format("kreplica_failing")``."""

    @classmethod
    def name(cls) -> str:
        return "kreplica_failing"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        options = {name: value for name, value in self.options.items() if name.lower() != PLAN}
        sink = KreplicaDataSource(options)
        sink.streamWriter(schema, overwrite)
        return FailingWriter(sink._sink_options(schema), Path(self.options[PLAN]))


class FailingWriter(ExactlyOnceWriter):
    """Exactly-once writer that fails as planned."""

    def __init__(self, options: SinkOptions, plan: Path) -> None:
        super().__init__(options)
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        batch_id = self._task().batch_id

        def rows() -> Iterator[pa.RecordBatch]:
            for batch in iterator:
                yield batch.slice(0, batch.num_rows // 2)
                self._fail(batch_id, HALF, _kill_worker)
                yield batch.slice(batch.num_rows // 2)

        message = super().write(rows())
        self._fail(batch_id, TASK, _kill_worker)
        return message

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._fail(batchId, BEFORE, _kill_driver)
        commit_transaction, commit_count = exactly_once._commit_transaction, 0

        def fail_or_commit(*arguments: Any) -> None:
            nonlocal commit_count
            self._fail(batchId, BETWEEN if commit_count else DECIDED, _kill_driver)
            commit_transaction(*arguments)
            commit_count += 1

        exactly_once._commit_transaction = fail_or_commit
        try:
            super().commit(messages, batchId)
        finally:
            exactly_once._commit_transaction = commit_transaction
        self._fail(batchId, AFTER, _kill_driver)

    def _fail(self, batch_id: int, place: str, kill: Callable[[], None]) -> None:
        for kind in (ERROR, KILL):
            file = self._plan / f"{batch_id}.{place}.{kind}"
            try:
                file.rename(file.with_suffix(f".{kind}.done"))
            except FileNotFoundError:
                continue
            if kind == KILL:
                kill()
            raise Failed(f"batch {batch_id}: {place}")


def _kill_worker() -> None:
    os.kill(os.getpid(), SIGKILL)


def _kill_driver() -> None:
    """Kill the JVM, which is an ancestor of this worker, and then this worker."""
    pid = os.getpid()
    while "java" not in Path(f"/proc/{pid}/comm").read_text():
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        assert pid > 1, "no JVM is an ancestor of this worker"
    os.kill(pid, SIGKILL)
    _kill_worker()
