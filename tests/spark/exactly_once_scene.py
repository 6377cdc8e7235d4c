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

REFUSED = (ClientError, TaskTransactionAborted, ConcurrentRun)
"""Errors of a driver that may not decide; lost rows are another error."""


def options(bootstrap: str, topic: str, **more: str) -> SinkOptions:
    given = {"kafka.bootstrap.servers": bootstrap, "topic": topic, "kreplica.exactly.once": "many"}
    return sink_options({**given, **{name.replace("_", "."): value for name, value in more.items()}})


def rows(batch_id: int, lane: int, lanes: int, count: int = 10) -> Iterator[pa.RecordBatch]:
    """Return the rows of one task of a micro-batch."""
    values = [f"{batch_id}/{number}" for number in range(count) if number % lanes == lane]
    yield pa.RecordBatch.from_pydict({"value": pa.array(values, pa.string())})


def prepare(chosen: SinkOptions, batch_id: int, lanes: int, run: str = "a", **about: Any) -> list[PreparedTask]:
    return [prepare_lane(chosen, batch_id, lane, lanes, run, **about) for lane in range(lanes)]


def prepare_lane(
    chosen: SinkOptions, batch_id: int, lane: int, lanes: int, run: str = "a", **about: Any
) -> PreparedTask:
    """Run one task.

    :param about: fields of the ``Task``: ``attempt``, ``query``.
    """
    assert chosen.topic is not None
    return prepare_rows(
        rows(batch_id, lane, lanes), chosen, Task(f"sink-{chosen.topic}", batch_id, lane, run=run, **about)
    )


def visible(bootstrap: str, topic: str) -> list[str]:
    """Return the values that readers of committed records see; no transaction may be open."""
    with Cluster(bootstrap) as cluster:
        partitions = topic_partitions(cluster, topic)

        def ended() -> dict[TopicPartition, int]:
            """Markers arrive after the coordinator's response."""
            committed, ends = (end_offsets(cluster, partitions, each) for each in reversed(Isolation))
            if committed != ends:
                raise LeaderUnknown("a transaction is open")
            return ends

        committed_ends = cluster.retrying(ended, 20.0)
        reader_options = ReaderOptions(isolation=Isolation.READ_COMMITTED)
        starts = dict.fromkeys(partitions, EARLIEST)
        with Reader(cluster, starts, ends=committed_ends, options=reader_options) as reader:
            values = [record.value.decode() for record in reader.records() if record.value is not None]
    return sorted(values)


def whole(*batch_ids: int) -> list[str]:
    return sorted(f"{batch_id}/{number}" for batch_id in batch_ids for number in range(10))


def dies(*_: object) -> None:
    raise KeyboardInterrupt


def dies_after(count: int) -> Callable[..., None]:
    """Replace ``_commit_transaction`` with a function that kills the driver after this number of committed lanes."""
    ended, really = [], exactly_once._commit_transaction

    def end(*given: object) -> None:
        if len(ended) == count:
            raise KeyboardInterrupt
        ended.append(given)
        really(*given)  # type: ignore[arg-type]

    return end


def decide_and_die(prepared: list[PreparedTask], chosen: SinkOptions, ends: int = 0) -> None:
    """Run a driver that is killed between its decision and the end of a commit."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(exactly_once, "_commit_transaction", dies_after(ends))
        with pytest.raises(KeyboardInterrupt):
            commit_prepared(prepared, chosen)


class Driver:
    """One run of a query, which tries consecutive micro-batches with any number of tasks, until it dies."""

    def __init__(self, world: World, run: str, batch_id: int) -> None:
        self.world, self.random, self.run, self.batch_id = world, world.random, run, batch_id
        self._plan()

    def _plan(self) -> None:
        self.lanes = self.random.randint(1, 4) if self.world.mode == "many" else 1
        self.prepared: dict[int, PreparedTask] = {}

    def step(self) -> bool:
        """Run the next step.

        :return: True if the driver is still alive.
        """
        try:
            missing = [lane for lane in range(self.lanes) if lane not in self.prepared]
            if missing:
                self._run_task(self.random.choice(missing))
                return self.random.random() > 0.05
            return self._commit()
        except (KeyboardInterrupt, *REFUSED):
            if self.random.random() < 0.5:
                with suppress(*REFUSED):
                    abort_prepared(list(self.prepared.values()), self.world.chosen)
            return False

    def _run_task(self, lane: int) -> None:
        for attempt in range(self.random.choice((1, 1, 1, 2))):
            self.prepared[lane] = prepare_lane(
                self.world.chosen, self.batch_id, lane, self.lanes, self.run, attempt=attempt
            )

    def _commit(self) -> bool:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(exactly_once, "_commit_transaction", dies_after(self.random.choice((0, 1, 2, 99, 99, 99))))
            commit_prepared(list(self.prepared.values()), self.world.chosen)
        if self.random.random() < 0.2:
            return False  # before the checkpoint is written
        self.world.committed = max(self.world.committed, self.batch_id)
        self.batch_id += 1
        self._plan()
        return True


class World:
    """A checkpoint, and drivers that each act as if they were the only one."""

    def __init__(self, chosen: SinkOptions, mode: str, seed: int) -> None:
        self.chosen, self.mode, self.random = chosen, mode, Random(seed)
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
