"""One decision per micro-batch: after any crash, each row becomes visible exactly once.

Tasks and drivers are called as Spark calls them, in any order that crashes can cause; another test uses Spark's own
processes.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest
from exactly_once_scene import (
    DRIVER_ERRORS,
    CrashSimulation,
    all_values,
    decide_and_die,
    kill_driver,
    options,
    prepare,
    prepare_lane,
    rows,
    visible_values,
)

from kreplica.client_core.cluster import ClusterCore
from kreplica.client_core.errors import ClientError, LeaderUnknown
from kreplica.client_core.metadata import ClusterView
from kreplica.spark.sink import exactly_once
from kreplica.spark.sink.abandoned_transactions import open_producer
from kreplica.spark.sink.decision_store import lane_id
from kreplica.spark.sink.exactly_once import RowsLost, TaskTransactionAborted, abort_prepared, commit_prepared
from kreplica.spark.sink.options import SinkOptions
from kreplica.spark.sink.row_columns import InvalidRows
from kreplica.spark.sink.task_transactions import prepare_rows
from kreplica.spark.sink.write_decision import ConcurrentRun, SinkOfOtherQuery, Task
from kreplica.spark.source import range_reading
from kreplica.testing.fixtures.kafka_cluster import KafkaCluster

SEEDS = range(5)
TOPICS = (
    *("redriven", "refused", "fewer", "zombie", "late", "aborted", "one", "switched", "timeless", "timed", "lost"),
    *("settled", "restarted", "empty", "unmarked", "failover", "cached"),
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
    range_reading.close_clusters()
    cluster.close()


@pytest.fixture(scope="module")
def bootstrap(brokers: KafkaCluster) -> str:
    return brokers.bootstrap_servers


@pytest.mark.parametrize("commits", [0, 1])
def test_driver_dies_between_decision_and_commit(bootstrap: str, commits: int) -> None:
    """The next driver finds the decision, and commits the prepared lanes without running tasks; so does a third one."""
    sink = options(bootstrap, "redriven")
    before = [0, 1][: 2 * commits]
    decide_and_die(prepare(sink, 2 * commits, 3), sink, commits)
    for run in ("b", "c"):
        again = prepare(sink, 2 * commits, 2, run)
        assert [each.was_decided for each in again] == [True, True]
        commit_prepared(again, sink)
        assert visible_values(bootstrap, "redriven") == all_values(*before, 2 * commits)
    commit_prepared(prepare(sink, 2 * commits + 1, 3, "c"), sink)
    assert visible_values(bootstrap, "redriven") == all_values(*before, 2 * commits, 2 * commits + 1)


def test_abort_after_the_decision(bootstrap: str) -> None:
    """After a commit that fails, Spark calls abort, which must not undo a decision that has taken effect."""
    sink = options(bootstrap, "aborted")
    prepared = prepare(sink, 0, 2)
    decide_and_die(prepared, sink)
    abort_prepared(prepared, sink)
    commit_prepared(prepare(sink, 0, 1, "b"), sink)
    assert visible_values(bootstrap, "aborted") == all_values(0)
    undecided = prepare(sink, 1, 2)
    abort_prepared(undecided, sink)
    assert visible_values(bootstrap, "aborted") == all_values(0)
    with pytest.raises(DRIVER_ERRORS):
        commit_prepared(undecided, sink)
    commit_prepared(prepare(sink, 1, 2), sink)
    assert visible_values(bootstrap, "aborted") == all_values(0, 1)


def test_fewer_tasks_in_the_next_attempt(bootstrap: str) -> None:
    """Lanes left by the first attempt are aborted, because they would block readers forever."""
    sink = options(bootstrap, "fewer")
    prepare(sink, 0, 4)
    commit_prepared(prepare(sink, 0, 2, "b"), sink)
    assert visible_values(bootstrap, "fewer") == all_values(0)


def test_old_driver_cannot_decide(bootstrap: str) -> None:
    """After the next attempt's first task has started, the old driver can neither commit nor abort."""
    sink = options(bootstrap, "zombie")
    old = prepare(sink, 0, 2)
    first = prepare_lane(sink, 0, 0, 3, "b")
    with pytest.raises(DRIVER_ERRORS):
        commit_prepared(old, sink)
    remaining = [prepare_lane(sink, 0, lane, 3, "b") for lane in (1, 2)]
    abort_prepared(old, sink)
    commit_prepared([first, *remaining], sink)
    assert visible_values(bootstrap, "zombie") == all_values(0)


def test_old_driver_with_a_late_last_task(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An old driver that still owns all its lanes may decide; the rows of the new driver's tasks are then discarded."""
    sink = options(bootstrap, "late")
    commit_prepared(prepare(sink, 0, 2, "b"), sink)
    old = [prepare_lane(sink, 1, 0, 2)]
    new = [prepare_lane(sink, 1, 0, 3, "b"), prepare_lane(sink, 1, 1, 3, "b")]
    old.append(prepare_lane(sink, 1, 1, 2))
    with monkeypatch.context() as patched:
        patched.setattr(exactly_once, "abort_abandoned", kill_driver)
        with pytest.raises(KeyboardInterrupt):
            commit_prepared(old, sink)
    new.append(prepare_lane(sink, 1, 2, 3, "b"))
    assert [each.was_decided for each in new] == [False, False, True]
    commit_prepared(new, sink)
    assert visible_values(bootstrap, "late") == all_values(0, 1)
    commit_prepared(prepare(sink, 2, 1, "b"), sink)
    with pytest.raises(ConcurrentRun):
        prepare(sink, 1, 2)


def test_retried_task(bootstrap: str) -> None:
    """After rejected rows or a dead worker, only the next attempt's rows become visible."""
    sink = options(bootstrap, "refused")
    bad = pa.RecordBatch.from_pydict({"value": pa.array(["x"]), "partition": pa.array([7], pa.int32())})
    with pytest.raises(InvalidRows):
        prepare_rows(iter([*rows(0, 0, 2), bad]), sink, Task("sink-refused", 0, 0, run="a"))
    commit_prepared(prepare(sink, 0, 2), sink)
    zombie = prepare_lane(sink, 1, 0, 2)
    commit_prepared([prepare_lane(sink, 1, 0, 2, attempt=1), prepare_lane(sink, 1, 1, 2)], sink)
    assert visible_values(bootstrap, "refused") == all_values(0, 1)
    with pytest.raises(DRIVER_ERRORS):
        commit_prepared([zombie], sink)
    assert visible_values(bootstrap, "refused") == all_values(0, 1)


def test_micro_batches_without_rows(bootstrap: str) -> None:
    """A micro-batch without rows is decided like others; an attempt without tasks decides nothing."""
    sink = options(bootstrap, "empty")
    for batch_id in range(2):
        commit_prepared([prepare_rows(iter([]), sink, Task("sink-empty", batch_id, 0))], sink)
    assert prepare_rows(iter([]), sink, Task("sink-empty", 1, 0)).was_decided
    commit_prepared([], sink)
    abort_prepared([], sink)
    commit_prepared(prepare(sink, 3, 2), sink)
    assert visible_values(bootstrap, "empty") == all_values(3)


def test_settled_decisions_are_not_checked_again(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers forget transactional IDs after a week, and a replay of a settled batch must not report a loss then."""
    sink = options(bootstrap, "settled")
    commit_prepared(prepare(sink, 0, 2), sink)
    monkeypatch.setattr(exactly_once, "_commit_transaction", kill_driver)
    commit_prepared(prepare(sink, 0, 2, "b"), sink)
    assert visible_values(bootstrap, "settled") == all_values(0)


def test_metadata_is_requested_once(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Later micro-batches use the metadata that the worker already has, including that of the decisions topic."""
    sink = options(bootstrap, "cached")
    commit_prepared(prepare(sink, 0, 2), sink)
    requested: list[object] = []
    request_metadata = ClusterCore._request_metadata

    def record(core: ClusterCore[Any], names: frozenset[str] | None) -> Coroutine[Any, Any, ClusterView]:
        requested.append(names)
        return request_metadata(core, names)

    monkeypatch.setattr(ClusterCore, "_request_metadata", record)
    commit_prepared(prepare(sink, 1, 2), sink)
    assert requested == []
    assert visible_values(bootstrap, "cached") == all_values(0, 1)


def test_settled_mark_that_cannot_be_written(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows are still committed, and the next driver repeats the commit."""

    def raise_error(*_: object) -> None:
        raise LeaderUnknown("no leader")

    sink = options(bootstrap, "unmarked")
    with monkeypatch.context() as patched:
        patched.setattr(exactly_once, "mark_settled", raise_error)
        commit_prepared(prepare(sink, 0, 2), sink)
    commit_prepared(prepare(sink, 0, 2, "b"), sink)
    commit_prepared(prepare(sink, 1, 2, "b"), sink)
    assert visible_values(bootstrap, "unmarked") == all_values(0, 1)


def test_decisions_topic_with_too_few_partitions(bootstrap: str) -> None:
    """The topic is rejected before anything is written."""
    sink = options(bootstrap, "empty", kreplica_decisions_topic="settled")
    with pytest.raises(ValueError, match="topic settled has 2 partitions, but decisions need 20"):
        prepare(sink, 0, 1)


def test_new_checkpoint_with_the_name_of_an_old_sink(bootstrap: str) -> None:
    """The task fails and writes nothing, instead of skipping batches."""
    sink = options(bootstrap, "restarted")
    commit_prepared(prepare(sink, 0, 2, query="old", is_stream=True), sink)
    with pytest.raises(SinkOfOtherQuery, match="is used by query old"):
        prepare(sink, 0, 2, "b", query="new", is_stream=True)
    assert visible_values(bootstrap, "restarted") == all_values(0)


def test_each_broker_is_killed_between_prepare_and_commit(brokers: KafkaCluster, bootstrap: str) -> None:
    """Whichever coordinator is killed, of a transaction or of the sink's group, its successor completes the commit."""
    sink = options(bootstrap, "failover")
    for batch_id, broker in enumerate(brokers.brokers):
        prepared = prepare(sink, batch_id, 3)
        brokers.kill(broker)
        commit_prepared(prepared, sink)
        brokers.start(broker)
        brokers.wait_until_in_sync()
    assert visible_values(bootstrap, "failover") == all_values(*range(len(brokers.brokers)))


# --- timeouts ---


TIMEOUTS_MS = (300, 1_000, 4_000, 16_000)
"""Timeouts to try in turn, because a slow machine may need a longer one to prepare the rows."""


def wait_for_timeout(bootstrap: KafkaCluster, timeout_ms: int) -> None:
    """Wait until a transaction that starts now is aborted by its timeout."""
    witness = options(bootstrap, "timed", kafka_transaction_timeout_ms=str(timeout_ms), kreplica_two_phase="off")
    with suppress(ClientError):  # the transaction may be aborted during the write
        prepare_rows(rows(0, 0, 1), witness, Task("witness", 0, 0))
    cluster = range_reading.worker_cluster(witness.bootstrap, witness.settings)

    def check_aborted() -> None:
        if open_producer(cluster, lane_id("witness", "0", 0, 0)) is not None:
            raise LeaderUnknown("the transaction is still open")

    cluster.retrying(check_aborted, 60.0)


def options_with_timeout(bootstrap: KafkaCluster, topic: str, timeout_ms: int) -> SinkOptions:
    return options(bootstrap, topic, kafka_transaction_timeout_ms=str(timeout_ms), kreplica_two_phase="off")


def test_two_phase_transactions_have_no_timeout(bootstrap: str) -> None:
    """If brokers support it, prepared lanes do not time out, whether decided or not."""
    sink = options(bootstrap, "timeless", kafka_transaction_timeout_ms="300", kreplica_two_phase="required")
    prepared = prepare(sink, 0, 2)
    wait_for_timeout(bootstrap, 300)
    decide_and_die(prepared, sink, 1)
    wait_for_timeout(bootstrap, 300)
    commit_prepared(prepare(sink, 0, 3, "b"), sink)
    assert visible_values(bootstrap, "timeless") == all_values(0)


def test_timeout_before_the_decision(bootstrap: str) -> None:
    """The commit fails without a decision, and the next attempt writes all rows."""
    for timeout_ms in TIMEOUTS_MS:
        sink = options_with_timeout(bootstrap, "timed", timeout_ms)
        with suppress(ClientError):
            prepared = prepare(sink, 0, 2)
            break
    wait_for_timeout(bootstrap, timeout_ms)
    with pytest.raises(TaskTransactionAborted, match=r"task 0 was aborted .* s \(kafka\.transaction\.timeout\.ms\)"):
        commit_prepared(prepared, sink)
    abort_prepared(prepared, sink)
    sink = options(bootstrap, "timed", kreplica_two_phase="off")
    commit_prepared(prepare(sink, 0, 2, "b"), sink)
    assert visible_values(bootstrap, "timed") == all_values(0)


def test_timeout_after_the_decision(bootstrap: str) -> None:
    """Rows are lost: each attempt raises an error that names the batch and tasks, and the batch is never skipped."""
    for timeout_ms in TIMEOUTS_MS:
        sink = options_with_timeout(bootstrap, "lost", timeout_ms)
        with suppress(*DRIVER_ERRORS):
            prepared = [prepare_lane(options(bootstrap, "lost"), 0, 0, 2), prepare_lane(sink, 0, 1, 2)]
            decide_and_die(prepared, sink)
            break
    wait_for_timeout(bootstrap, timeout_ms)
    lost_rows = r"micro-batch 0 of sink-lost .* tasks 1 .of 2. .*kreplica\.two\.phase.* delete the group sink-lost"
    for run in ("b", "c"):
        with pytest.raises(RowsLost, match=lost_rows):
            commit_prepared(prepare(sink, 0, 2, run), sink)
    assert visible_values(bootstrap, "lost") == sorted(f"0/{number}" for number in range(0, 10, 2))


# --- one lane ---


def test_one_lane(bootstrap: str) -> None:
    """The decision is part of the transaction, and only one task may have rows."""
    sink = options(bootstrap, "one", kreplica_exactly_once="one")
    task = Task("sink-one", 0, 0)
    first = prepare_rows(rows(0, 0, 1), sink, task)
    empty = prepare_rows(rows(0, 0, 1, 0), sink, Task("sink-one", 0, 1))
    with pytest.raises(InvalidRows, match="coalesce"):
        prepare_rows(rows(0, 0, 1), sink, Task("sink-one", 0, 1))
    commit_prepared([first, empty], sink)
    abort_prepared([first], sink)
    again = prepare_rows(rows(0, 0, 1), sink, task)
    assert again.was_decided
    commit_prepared([again], sink)
    assert visible_values(bootstrap, "one") == all_values(0)
    lost = prepare_rows(rows(1, 0, 1), sink, Task("sink-one", 1, 0))
    commit_prepared([prepare_rows(rows(1, 0, 1), sink, Task("sink-one", 1, 0))], sink)
    with pytest.raises(ClientError):
        commit_prepared([lost], sink)
    assert visible_values(bootstrap, "one") == all_values(0, 1)


def test_from_one_lane_to_many_and_back(bootstrap: str) -> None:
    """A driver in the other mode fences the previous driver, and finds its decision."""
    one = options(bootstrap, "switched", kreplica_exactly_once="one")
    many = options(bootstrap, "switched")
    commit_prepared(prepare(one, 0, 1), one)
    assert all(each.was_decided for each in prepare(many, 0, 2))
    old = prepare(one, 1, 1)
    commit_prepared(prepare(many, 1, 2, "b"), many)
    with pytest.raises(DRIVER_ERRORS):
        commit_prepared(old, one)
    old = prepare(many, 2, 2, "b")
    commit_prepared(prepare(one, 2, 1, "c"), one)
    with pytest.raises(DRIVER_ERRORS):
        commit_prepared(old, many)
    abort_prepared(old, many)
    assert visible_values(bootstrap, "switched") == all_values(0, 1, 2)


# --- random crashes ---


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("mode", ["one", "many"])
def test_random_crashes(bootstrap: str, mode: str, seed: int) -> None:
    """However tasks and several drivers die, all rows become visible exactly once."""
    sink = options(bootstrap, f"{mode}-{seed}", kreplica_exactly_once=mode)
    simulation = CrashSimulation(sink, mode, seed)
    while simulation.committed < 4:
        simulation.step()
    last = simulation.committed + 1
    commit_prepared(prepare(sink, last, 1, "f"), sink)
    assert visible_values(bootstrap, f"{mode}-{seed}") == all_values(*range(last + 1))
