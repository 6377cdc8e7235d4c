"""Tasks and drivers of an exactly-once sink, called in any order that is possible with Spark and crashes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from kreplica.blocking import Cluster, Isolation
from kreplica.blocking.offsets import end_offsets, topic_partitions
from kreplica.blocking.reader import Reader, ReaderOptions
from kreplica.client_core.errors import ClientError, LeaderUnknown
from kreplica.client_core.offsets import EARLIEST
from kreplica.model import TopicPartition
from kreplica.spark.sink import exactly_once
from kreplica.spark.sink.exactly_once import TaskTransactionAborted, abort_prepared, commit_prepared
from kreplica.spark.sink.options import SinkOptions, sink_options
from kreplica.spark.sink.task_transactions import PreparedTask, prepare_rows
from kreplica.spark.sink.write_decision import ConcurrentRun, Task

DRIVER_ERRORS = (ClientError, TaskTransactionAborted, ConcurrentRun)
"""Errors of a driver that is not allowed to decide; the error for lost rows is not one of them."""


def options(bootstrap: str, topic: str, **more: str) -> SinkOptions:
    required = {"kafka.bootstrap.servers": bootstrap, "topic": topic, "kreplica.exactly.once": "many"}
    return sink_options({**required, **{name.replace("_", "."): value for name, value in more.items()}})


def rows(batch_id: int, lane: int, lanes: int, count: int = 10) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one task of a micro-batch."""
    values = [f"{batch_id}/{number}" for number in range(count) if number % lanes == lane]
    yield pa.RecordBatch.from_pydict({"value": pa.array(values, pa.string())})


def prepare(sink: SinkOptions, batch_id: int, lanes: int, run: str = "a", **task_fields: Any) -> list[PreparedTask]:
    return [prepare_lane(sink, batch_id, lane, lanes, run, **task_fields) for lane in range(lanes)]


def prepare_lane(
    sink: SinkOptions, batch_id: int, lane: int, lanes: int, run: str = "a", **task_fields: Any
) -> PreparedTask:
    """Run one task, which prepares its rows.

    :param task_fields: other fields of the ``Task``, such as ``attempt`` and ``query``.
    """
    assert sink.topic is not None
    return prepare_rows(
        rows(batch_id, lane, lanes), sink, Task(f"sink-{sink.topic}", batch_id, lane, run=run, **task_fields)
    )


def visible_values(bootstrap: str, topic: str) -> list[str]:
    """Return the sorted values that read_committed consumers see once no transaction is open."""
    with Cluster(bootstrap) as cluster:
        partitions = topic_partitions(cluster, topic)

        def ends_without_open_transactions() -> dict[TopicPartition, int]:
            """Return the log end offsets; markers may be written only after the coordinator's response."""
            committed, ends = (end_offsets(cluster, partitions, each) for each in reversed(Isolation))
            if committed != ends:
                raise LeaderUnknown("a transaction is open")
            return ends

        committed_ends = cluster.retrying(ends_without_open_transactions, 20.0)
        reader_options = ReaderOptions(isolation=Isolation.READ_COMMITTED)
        starts = dict.fromkeys(partitions, EARLIEST)
        with Reader(cluster, starts, ends=committed_ends, options=reader_options) as reader:
            values = [record.value.decode() for record in reader.records() if record.value is not None]
    return sorted(values)


def all_values(*batch_ids: int) -> list[str]:
    return sorted(f"{batch_id}/{number}" for batch_id in batch_ids for number in range(10))


def kill_driver(*_: object) -> None:
    raise KeyboardInterrupt


def make_crashing_commit(count: int) -> Callable[..., None]:
    """Return a replacement of ``_commit_transaction`` that kills the driver after ``count`` committed lanes."""
    committed_lanes, commit_transaction = [], exactly_once._commit_transaction

    def commit_or_die(*arguments: object) -> None:
        if len(committed_lanes) == count:
            raise KeyboardInterrupt
        committed_lanes.append(arguments)
        commit_transaction(*arguments)  # type: ignore[arg-type]

    return commit_or_die


def decide_and_die(prepared: list[PreparedTask], sink: SinkOptions, commits: int = 0) -> None:
    """Run a driver that is killed after its decision and ``commits`` committed lanes."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(exactly_once, "_commit_transaction", make_crashing_commit(commits))
        with pytest.raises(KeyboardInterrupt):
            commit_prepared(prepared, sink)


class Driver:
    """One run of a query, which writes consecutive micro-batches with varying numbers of tasks until it dies."""

    def __init__(self, simulation: CrashSimulation, run: str, batch_id: int) -> None:
        self.simulation, self.random, self.run, self.batch_id = simulation, simulation.random, run, batch_id
        self._plan()

    def _plan(self) -> None:
        self.lanes = self.random.randint(1, 4) if self.simulation.mode == "many" else 1
        self.prepared: dict[int, PreparedTask] = {}

    def step(self) -> bool:
        """Run the next task, or commit.

        :return: True if the driver is still alive.
        """
        try:
            missing = [lane for lane in range(self.lanes) if lane not in self.prepared]
            if missing:
                self._run_task(self.random.choice(missing))
                return self.random.random() > 0.05
            return self._commit()
        except (KeyboardInterrupt, *DRIVER_ERRORS):
            if self.random.random() < 0.5:
                with suppress(*DRIVER_ERRORS):
                    abort_prepared(list(self.prepared.values()), self.simulation.sink)
            return False

    def _run_task(self, lane: int) -> None:
        for attempt in range(self.random.choice((1, 1, 1, 2))):
            self.prepared[lane] = prepare_lane(
                self.simulation.sink, self.batch_id, lane, self.lanes, self.run, attempt=attempt
            )

    def _commit(self) -> bool:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(
                exactly_once, "_commit_transaction", make_crashing_commit(self.random.choice((0, 1, 2, 99, 99, 99)))
            )
            commit_prepared(list(self.prepared.values()), self.simulation.sink)
        if self.random.random() < 0.2:
            return False  # the driver dies before it writes the checkpoint
        self.simulation.committed = max(self.simulation.committed, self.batch_id)
        self.batch_id += 1
        self._plan()
        return True


class CrashSimulation:
    """A checkpoint, and concurrent drivers; each acts as if it were the only one."""

    def __init__(self, sink: SinkOptions, mode: str, seed: int) -> None:
        self.sink, self.mode, self.random = sink, mode, Random(seed)
        self.committed = -1
        self.drivers: list[Driver] = []
        self.runs = 0

    def step(self) -> None:
        """Run the next step of a random driver."""
        if not self.drivers or (len(self.drivers) < 3 and self.random.random() < 0.1):
            self.runs += 1
            self.drivers.append(Driver(self, f"{self.runs:x}", self.committed + 1))
        driver = self.random.choice(self.drivers)
        if not driver.step():
            self.drivers.remove(driver)
