"""One decision for each micro-batch: whoever dies when, each row is visible once.

Tasks and drivers are called as Spark calls them, in any order that crashes can give; Spark's own processes are in
another test.
"""

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
from kreplica.model import TopicPartition
from kreplica.sansio.errors import ClientError, LeaderUnknown
from kreplica.sansio.offsets import EARLIEST
from kreplica.spark import exactly_once, range_reading
from kreplica.spark.decisions import lane_id
from kreplica.spark.exactly_once import LaneGone, RowsLost, abort_prepared, commit_prepared
from kreplica.spark.leftovers import open_identity
from kreplica.spark.preparing import Prepared, prepare_rows
from kreplica.spark.row_columns import RowsRefused
from kreplica.spark.sink_options import SinkOptions, sink_options
from kreplica.spark.turns import AnotherAtWork, OtherQuery, Task
from kreplica.testing.fixtures.kafka_cluster import KafkaCluster

REFUSED = (ClientError, LaneGone, AnotherAtWork)
"""What a driver is told that may not decide; that rows are lost is something else."""

SEEDS = range(5)
TOPICS = (
    *("redriven", "refused", "fewer", "zombie", "late", "aborted", "one", "switched", "timeless", "timed", "lost"),
    *("settled", "begun-anew", "empty", "moved"),
    *(f"{mode}-{seed}" for mode in ("one", "many") for seed in SEEDS),
)


@pytest.fixture(scope="module")
def brokers() -> Iterator[KafkaCluster]:
    settings = {
        "transaction.two.phase.commit.enable": True,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 100,
    }
    cluster = KafkaCluster(3, topics=dict.fromkeys(TOPICS, 2), settings=settings, session_timeout_ms=5000)
    yield cluster
    range_reading.forget_clusters()
    cluster.close()


def options(brokers: KafkaCluster, topic: str, **more: str) -> SinkOptions:
    given = {"kafka.bootstrap.servers": brokers.bootstrap_servers, "topic": topic, "kreplica.exactly.once": "many"}
    return sink_options({**given, **{name.replace("_", "."): value for name, value in more.items()}})


def rows(batch_id: int, lane: int, lanes: int, count: int = 10) -> Iterator[pa.RecordBatch]:
    """A micro-batch's rows, spread over its tasks."""
    values = [f"{batch_id}/{number}" for number in range(count) if number % lanes == lane]
    yield pa.RecordBatch.from_pydict({"value": pa.array(values, pa.string())})


def prepare(chosen: SinkOptions, batch_id: int, lanes: int, run: str = "a", **about: Any) -> list[Prepared]:
    return [prepare_lane(chosen, batch_id, lane, lanes, run, **about) for lane in range(lanes)]


def prepare_lane(chosen: SinkOptions, batch_id: int, lane: int, lanes: int, run: str = "a", **about: Any) -> Prepared:
    """As a task does.

    :param about: of the ``Task``: ``attempt``, ``query``.
    """
    assert chosen.topic is not None
    return prepare_rows(
        rows(batch_id, lane, lanes), chosen, Task(f"sink-{chosen.topic}", batch_id, lane, run=run, **about)
    )


def visible(brokers: KafkaCluster, topic: str) -> list[str]:
    """What readers of committed records see now; nothing may hold them back."""
    with Cluster(brokers.bootstrap_servers) as cluster:
        partitions = topic_partitions(cluster, topic)

        def ended() -> dict[TopicPartition, int]:
            """Markers come a moment after the coordinator's answer."""
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
    """Instead of ``_end``: the driver is killed when it has committed so many lanes."""
    ended, really = [], exactly_once._end

    def end(*given: object) -> None:
        if len(ended) == count:
            raise KeyboardInterrupt
        ended.append(given)
        really(*given)  # type: ignore[arg-type]

    return end


def decide_and_die(prepared: list[Prepared], chosen: SinkOptions, ends: int = 0) -> None:
    """A driver that is killed between its decision and the end of a commit."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(exactly_once, "_end", dies_after(ends))
        with pytest.raises(KeyboardInterrupt):
            commit_prepared(prepared, chosen)


@pytest.mark.parametrize("ends", [0, 1])
def test_a_driver_dies_between_decision_and_commit(brokers: KafkaCluster, ends: int) -> None:
    """The next one finds it decided, has no task write again, and commits what was prepared; so does one after that."""
    chosen = options(brokers, "redriven")
    before = [0, 1][: 2 * ends]
    decide_and_die(prepare(chosen, 2 * ends, 3), chosen, ends)
    for run in ("b", "c"):
        again = prepare(chosen, 2 * ends, 2, run)
        assert [each.was_decided for each in again] == [True, True]
        commit_prepared(again, chosen)
        assert visible(brokers, "redriven") == whole(*before, 2 * ends)
    commit_prepared(prepare(chosen, 2 * ends + 1, 3, "c"), chosen)
    assert visible(brokers, "redriven") == whole(*before, 2 * ends, 2 * ends + 1)


def test_a_commit_that_told_of_an_error_after_its_effect(brokers: KafkaCluster) -> None:
    """Spark calls abort then: it must not take back what is decided."""
    chosen = options(brokers, "aborted")
    prepared = prepare(chosen, 0, 2)
    decide_and_die(prepared, chosen)
    abort_prepared(prepared, chosen)
    commit_prepared(prepare(chosen, 0, 1, "b"), chosen)
    assert visible(brokers, "aborted") == whole(0)
    undecided = prepare(chosen, 1, 2)
    abort_prepared(undecided, chosen)
    assert visible(brokers, "aborted") == whole(0)
    with pytest.raises(REFUSED):
        commit_prepared(undecided, chosen)
    commit_prepared(prepare(chosen, 1, 2), chosen)
    assert visible(brokers, "aborted") == whole(0, 1)


def test_fewer_tasks_in_the_next_try(brokers: KafkaCluster) -> None:
    """What the first try left is aborted: it would hold readers back for ever."""
    chosen = options(brokers, "fewer")
    prepare(chosen, 0, 4)
    commit_prepared(prepare(chosen, 0, 2, "b"), chosen)
    assert visible(brokers, "fewer") == whole(0)


def test_an_old_driver_decides_no_more(brokers: KafkaCluster) -> None:
    """From the moment when the first task of the next try has begun; and its abort hinders nobody."""
    chosen = options(brokers, "zombie")
    old = prepare(chosen, 0, 2)
    first = prepare_lane(chosen, 0, 0, 3, "b")
    with pytest.raises(REFUSED):
        commit_prepared(old, chosen)
    rest = [prepare_lane(chosen, 0, lane, 3, "b") for lane in (1, 2)]
    abort_prepared(old, chosen)
    commit_prepared([first, *rest], chosen)
    assert visible(brokers, "zombie") == whole(0)


def test_an_old_driver_whose_last_task_begins_late(brokers: KafkaCluster) -> None:
    """Its tasks' lanes are its own, so it may decide, whole; the new driver's tasks have written for nothing."""
    chosen = options(brokers, "late")
    old = [prepare_lane(chosen, 0, 0, 2)]
    new = [prepare_lane(chosen, 0, 0, 3, "b"), prepare_lane(chosen, 0, 1, 3, "b")]
    old.append(prepare_lane(chosen, 0, 1, 2))
    decide_and_die(old, chosen, 1)
    new.append(prepare_lane(chosen, 0, 2, 3, "b"))
    assert [each.was_decided for each in new] == [False, False, True]
    commit_prepared(new, chosen)
    assert visible(brokers, "late") == whole(0)
    commit_prepared(prepare(chosen, 1, 1, "b"), chosen)
    with pytest.raises(AnotherAtWork):
        prepare(chosen, 0, 2)


def test_a_task_is_tried_again(brokers: KafkaCluster) -> None:
    """Rows that are refused, or a worker that dies: the next attempt's are the only ones, an old one's are aborted."""
    chosen = options(brokers, "refused")
    bad = pa.RecordBatch.from_pydict({"value": pa.array(["x"]), "partition": pa.array([7], pa.int32())})
    with pytest.raises(RowsRefused):
        prepare_rows(iter([*rows(0, 0, 2), bad]), chosen, Task("sink-refused", 0, 0, run="a"))
    commit_prepared(prepare(chosen, 0, 2), chosen)
    zombie = prepare_lane(chosen, 1, 0, 2)
    commit_prepared([prepare_lane(chosen, 1, 0, 2, attempt=1), prepare_lane(chosen, 1, 1, 2)], chosen)
    assert visible(brokers, "refused") == whole(0, 1)
    with pytest.raises(REFUSED):
        commit_prepared([zombie], chosen)
    assert visible(brokers, "refused") == whole(0, 1)


def test_micro_batches_without_rows(brokers: KafkaCluster) -> None:
    """They are decided like others, and a try without any task decides nothing."""
    chosen = options(brokers, "empty")
    for batch_id in range(2):
        commit_prepared([prepare_rows(iter([]), chosen, Task("sink-empty", batch_id, 0))], chosen)
    assert prepare_rows(iter([]), chosen, Task("sink-empty", 1, 0)).was_decided
    commit_prepared([], chosen)
    abort_prepared([], chosen)
    commit_prepared(prepare(chosen, 3, 2), chosen)
    assert visible(brokers, "empty") == whole(3)


def test_what_is_settled_is_not_asked_for_again(brokers: KafkaCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers forget transactional ids after a week: a replay then is told of no loss."""
    chosen = options(brokers, "settled")
    commit_prepared(prepare(chosen, 0, 2), chosen)
    monkeypatch.setattr(exactly_once, "_end", dies)
    commit_prepared(prepare(chosen, 0, 2, "b"), chosen)
    assert visible(brokers, "settled") == whole(0)


def test_a_new_checkpoint_with_an_old_sinks_name(brokers: KafkaCluster) -> None:
    """Nothing is skipped: the task fails, and nothing is written."""
    chosen = options(brokers, "begun-anew")
    commit_prepared(prepare(chosen, 0, 2, query="old", of_stream=True), chosen)
    with pytest.raises(OtherQuery, match="belongs to query old"):
        prepare(chosen, 0, 2, "b", query="new", of_stream=True)
    assert visible(brokers, "begun-anew") == whole(0)


# --- time-outs ---


TIMEOUTS_MS = (300, 1_000, 4_000, 16_000)
"""A slow machine needs a longer one to come as far as the test wants to."""


def outlive(brokers: KafkaCluster, timeout_ms: int) -> None:
    """Return when a transaction that is begun now has been aborted for its age."""
    witness = options(brokers, "timed", kafka_transaction_timeout_ms=str(timeout_ms), kreplica_two_phase="off")
    with suppress(ClientError):  # it may be aborted while it writes
        prepare_rows(rows(0, 0, 1), witness, Task("witness", 0, 0))
    cluster = range_reading.worker_cluster(witness.bootstrap, witness.settings)

    def aborted() -> None:
        if open_identity(cluster, lane_id("witness", "0", 0, 0)) is not None:
            raise LeaderUnknown("the transaction is still open")

    cluster.retrying(aborted, 60.0)


def timed(brokers: KafkaCluster, topic: str, timeout_ms: int) -> SinkOptions:
    return options(brokers, topic, kafka_transaction_timeout_ms=str(timeout_ms), kreplica_two_phase="off")


def test_transactions_outlive_their_time_out(brokers: KafkaCluster) -> None:
    """Where brokers allow it: lanes that are prepared wait for ever, and so do those that are decided."""
    chosen = options(brokers, "timeless", kafka_transaction_timeout_ms="300", kreplica_two_phase="required")
    prepared = prepare(chosen, 0, 2)
    outlive(brokers, 300)
    decide_and_die(prepared, chosen, 1)
    outlive(brokers, 300)
    commit_prepared(prepare(chosen, 0, 3, "b"), chosen)
    assert visible(brokers, "timeless") == whole(0)


def test_a_time_out_before_the_decision(brokers: KafkaCluster) -> None:
    """Nothing is decided: the next try writes all of it."""
    for timeout_ms in TIMEOUTS_MS:
        chosen = timed(brokers, "timed", timeout_ms)
        with suppress(ClientError):
            prepared = prepare(chosen, 0, 2)
            break
    outlive(brokers, timeout_ms)
    with pytest.raises(LaneGone, match=r"task 0 was aborted .* s \(kafka\.transaction\.timeout\.ms\)"):
        commit_prepared(prepared, chosen)
    abort_prepared(prepared, chosen)
    patient = options(brokers, "timed", kreplica_two_phase="off")
    commit_prepared(prepare(patient, 0, 2, "b"), patient)
    assert visible(brokers, "timed") == whole(0)


def test_a_time_out_behind_the_decision(brokers: KafkaCluster) -> None:
    """Rows are lost: that is said, by name, as often as somebody tries, and never passed over."""
    for timeout_ms in TIMEOUTS_MS:
        chosen = timed(brokers, "lost", timeout_ms)
        with suppress(*REFUSED):
            prepared = [prepare_lane(options(brokers, "lost"), 0, 0, 2), prepare_lane(chosen, 0, 1, 2)]
            decide_and_die(prepared, chosen)
            break
    outlive(brokers, timeout_ms)
    told = r"micro-batch 0 of sink-lost .* tasks 1 of 2 .*kreplica\.two\.phase.* Delete the group sink-lost"
    for run in ("b", "c"):
        with pytest.raises(RowsLost, match=told):
            commit_prepared(prepare(chosen, 0, 2, run), chosen)
    assert visible(brokers, "lost") == sorted(f"0/{number}" for number in range(0, 10, 2))


# --- one lane ---


def test_one_lane(brokers: KafkaCluster) -> None:
    """The decision is in the transaction itself; other tasks may have no rows."""
    chosen = options(brokers, "one", kreplica_exactly_once="one")
    task = Task("sink-one", 0, 0)
    first = prepare_rows(rows(0, 0, 1), chosen, task)
    empty = prepare_rows(rows(0, 0, 1, 0), chosen, Task("sink-one", 0, 1))
    with pytest.raises(RowsRefused, match="coalesce"):
        prepare_rows(rows(0, 0, 1), chosen, Task("sink-one", 0, 1))
    commit_prepared([first, empty], chosen)
    abort_prepared([first], chosen)
    again = prepare_rows(rows(0, 0, 1), chosen, task)
    assert again.was_decided
    commit_prepared([again], chosen)
    assert visible(brokers, "one") == whole(0)
    lost = prepare_rows(rows(1, 0, 1), chosen, Task("sink-one", 1, 0))
    commit_prepared([prepare_rows(rows(1, 0, 1), chosen, Task("sink-one", 1, 0))], chosen)
    with pytest.raises(ClientError):
        commit_prepared([lost], chosen)
    assert visible(brokers, "one") == whole(0, 1)


def test_from_one_lane_to_many_and_back(brokers: KafkaCluster) -> None:
    """A driver that writes the other way fences the one before, and finds what it decided."""
    one = options(brokers, "switched", kreplica_exactly_once="one")
    many = options(brokers, "switched")
    commit_prepared(prepare(one, 0, 1), one)
    assert all(each.was_decided for each in prepare(many, 0, 2))
    old = prepare(one, 1, 1)
    commit_prepared(prepare(many, 1, 2, "b"), many)
    with pytest.raises(REFUSED):
        commit_prepared(old, one)
    old = prepare(many, 2, 2, "b")
    commit_prepared(prepare(one, 2, 1, "c"), one)
    with pytest.raises(REFUSED):
        commit_prepared(old, many)
    abort_prepared(old, many)
    assert visible(brokers, "switched") == whole(0, 1, 2)


# --- at random ---


class Driver:
    """One run of a query, which tries one micro-batch after the other, with any number of tasks, until it dies."""

    def __init__(self, world: World, run: str, batch_id: int) -> None:
        self.world, self.random, self.run, self.batch_id = world, world.random, run, batch_id
        self._plan()

    def _plan(self) -> None:
        self.lanes = self.random.randint(1, 4) if self.world.mode == "many" else 1
        self.prepared: dict[int, Prepared] = {}

    def step(self) -> bool:
        """Do the next thing.

        :return: whether it is still alive.
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
            patched.setattr(exactly_once, "_end", dies_after(self.random.choice((0, 1, 2, 99, 99, 99))))
            commit_prepared(list(self.prepared.values()), self.world.chosen)
        if self.random.random() < 0.2:
            return False  # before its checkpoint says so
        self.world.committed = max(self.world.committed, self.batch_id)
        self.batch_id += 1
        self._plan()
        return True


class World:
    """A checkpoint, and drivers of which each believes that it is the only one."""

    def __init__(self, chosen: SinkOptions, mode: str, seed: int) -> None:
        self.chosen, self.mode, self.random = chosen, mode, Random(seed)
        self.committed = -1
        self.drivers: list[Driver] = []
        self.runs = 0

    def step(self) -> None:
        """Some driver does the next thing."""
        if not self.drivers or (len(self.drivers) < 3 and self.random.random() < 0.1):
            self.runs += 1
            self.drivers.append(Driver(self, f"{self.runs:x}", self.committed + 1))
        driver = self.random.choice(self.drivers)
        if not driver.step():
            self.drivers.remove(driver)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("mode", ["one", "many"])
def test_crashes_at_random(brokers: KafkaCluster, mode: str, seed: int) -> None:
    """Tasks and drivers die at any point, tries have any number of tasks, several drivers are alive: once, and all."""
    chosen = options(brokers, f"{mode}-{seed}", kreplica_exactly_once=mode)
    world = World(chosen, mode, seed)
    while world.committed < 4:
        world.step()
    last = world.committed + 1
    commit_prepared(prepare(chosen, last, 1, "f"), chosen)
    assert visible(brokers, f"{mode}-{seed}") == whole(*range(last + 1))
