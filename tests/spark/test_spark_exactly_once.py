"""One decision per micro-batch: after any crash, each row is visible once.

Tasks and drivers are called as Spark calls them, in any order that crashes can cause; another test uses Spark's own
processes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pyarrow as pa
import pytest
from exactly_once_scene import (
    REFUSED,
    World,
    decide_and_die,
    dies,
    options,
    prepare,
    prepare_lane,
    rows,
    visible,
    whole,
)

from kreplica.client_core.errors import ClientError, LeaderUnknown
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
    *("settled", "begun-anew", "empty", "unmarked", "failover"),
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


@pytest.mark.parametrize("ends", [0, 1])
def test_a_driver_dies_between_decision_and_commit(bootstrap: str, ends: int) -> None:
    """The next driver finds the decision, runs no task again, and commits the prepared lanes; so does a third one."""
    chosen = options(bootstrap, "redriven")
    before = [0, 1][: 2 * ends]
    decide_and_die(prepare(chosen, 2 * ends, 3), chosen, ends)
    for run in ("b", "c"):
        again = prepare(chosen, 2 * ends, 2, run)
        assert [each.was_decided for each in again] == [True, True]
        commit_prepared(again, chosen)
        assert visible(bootstrap, "redriven") == whole(*before, 2 * ends)
    commit_prepared(prepare(chosen, 2 * ends + 1, 3, "c"), chosen)
    assert visible(bootstrap, "redriven") == whole(*before, 2 * ends, 2 * ends + 1)


def test_a_commit_that_takes_effect_and_then_fails(bootstrap: str) -> None:
    """Spark then calls abort, which must not undo the decision."""
    chosen = options(bootstrap, "aborted")
    prepared = prepare(chosen, 0, 2)
    decide_and_die(prepared, chosen)
    abort_prepared(prepared, chosen)
    commit_prepared(prepare(chosen, 0, 1, "b"), chosen)
    assert visible(bootstrap, "aborted") == whole(0)
    undecided = prepare(chosen, 1, 2)
    abort_prepared(undecided, chosen)
    assert visible(bootstrap, "aborted") == whole(0)
    with pytest.raises(REFUSED):
        commit_prepared(undecided, chosen)
    commit_prepared(prepare(chosen, 1, 2), chosen)
    assert visible(bootstrap, "aborted") == whole(0, 1)


def test_fewer_tasks_in_the_next_attempt(bootstrap: str) -> None:
    """Lanes left by the first attempt are aborted: otherwise they would block readers forever."""
    chosen = options(bootstrap, "fewer")
    prepare(chosen, 0, 4)
    commit_prepared(prepare(chosen, 0, 2, "b"), chosen)
    assert visible(bootstrap, "fewer") == whole(0)


def test_an_old_driver_no_longer_decides(bootstrap: str) -> None:
    """From the first task of the next attempt on; its abort has no effect."""
    chosen = options(bootstrap, "zombie")
    old = prepare(chosen, 0, 2)
    first = prepare_lane(chosen, 0, 0, 3, "b")
    with pytest.raises(REFUSED):
        commit_prepared(old, chosen)
    rest = [prepare_lane(chosen, 0, lane, 3, "b") for lane in (1, 2)]
    abort_prepared(old, chosen)
    commit_prepared([first, *rest], chosen)
    assert visible(bootstrap, "zombie") == whole(0)


def test_an_old_driver_with_a_late_last_task(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tasks' lanes are its own, so it may decide; rows of the new driver's tasks are aborted."""
    chosen = options(bootstrap, "late")
    commit_prepared(prepare(chosen, 0, 2, "b"), chosen)
    old = [prepare_lane(chosen, 1, 0, 2)]
    new = [prepare_lane(chosen, 1, 0, 3, "b"), prepare_lane(chosen, 1, 1, 3, "b")]
    old.append(prepare_lane(chosen, 1, 1, 2))
    with monkeypatch.context() as patched:
        patched.setattr(exactly_once, "abort_abandoned", dies)
        with pytest.raises(KeyboardInterrupt):
            commit_prepared(old, chosen)
    new.append(prepare_lane(chosen, 1, 2, 3, "b"))
    assert [each.was_decided for each in new] == [False, False, True]
    commit_prepared(new, chosen)
    assert visible(bootstrap, "late") == whole(0, 1)
    commit_prepared(prepare(chosen, 2, 1, "b"), chosen)
    with pytest.raises(ConcurrentRun):
        prepare(chosen, 1, 2)


def test_a_task_is_retried(bootstrap: str) -> None:
    """After rejected rows or a dead worker, only the next attempt's rows are committed; the old ones are aborted."""
    chosen = options(bootstrap, "refused")
    bad = pa.RecordBatch.from_pydict({"value": pa.array(["x"]), "partition": pa.array([7], pa.int32())})
    with pytest.raises(InvalidRows):
        prepare_rows(iter([*rows(0, 0, 2), bad]), chosen, Task("sink-refused", 0, 0, run="a"))
    commit_prepared(prepare(chosen, 0, 2), chosen)
    zombie = prepare_lane(chosen, 1, 0, 2)
    commit_prepared([prepare_lane(chosen, 1, 0, 2, attempt=1), prepare_lane(chosen, 1, 1, 2)], chosen)
    assert visible(bootstrap, "refused") == whole(0, 1)
    with pytest.raises(REFUSED):
        commit_prepared([zombie], chosen)
    assert visible(bootstrap, "refused") == whole(0, 1)


def test_micro_batches_without_rows(bootstrap: str) -> None:
    """They are decided like others, and an attempt without tasks decides nothing."""
    chosen = options(bootstrap, "empty")
    for batch_id in range(2):
        commit_prepared([prepare_rows(iter([]), chosen, Task("sink-empty", batch_id, 0))], chosen)
    assert prepare_rows(iter([]), chosen, Task("sink-empty", 1, 0)).was_decided
    commit_prepared([], chosen)
    abort_prepared([], chosen)
    commit_prepared(prepare(chosen, 3, 2), chosen)
    assert visible(bootstrap, "empty") == whole(3)


def test_settled_decisions_are_not_checked_again(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers forget transactional IDs after a week: a replay then must not report a loss."""
    chosen = options(bootstrap, "settled")
    commit_prepared(prepare(chosen, 0, 2), chosen)
    monkeypatch.setattr(exactly_once, "_commit_transaction", dies)
    commit_prepared(prepare(chosen, 0, 2, "b"), chosen)
    assert visible(bootstrap, "settled") == whole(0)


def test_a_mark_that_fails_to_be_written(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows are still committed; the next driver commits again."""

    def fails(*_: object) -> None:
        raise LeaderUnknown("nobody leads")

    chosen = options(bootstrap, "unmarked")
    with monkeypatch.context() as patched:
        patched.setattr(exactly_once, "mark_settled", fails)
        commit_prepared(prepare(chosen, 0, 2), chosen)
    commit_prepared(prepare(chosen, 0, 2, "b"), chosen)
    commit_prepared(prepare(chosen, 1, 2, "b"), chosen)
    assert visible(bootstrap, "unmarked") == whole(0, 1)


def test_a_topic_with_too_few_partitions_for_decisions(bootstrap: str) -> None:
    """It is rejected before anything is written."""
    chosen = options(bootstrap, "empty", kreplica_decisions_topic="settled")
    with pytest.raises(ValueError, match="topic settled has 2 partitions, but decisions need 20"):
        prepare(chosen, 0, 1)


def test_a_new_checkpoint_with_the_name_of_an_old_sink(bootstrap: str) -> None:
    """No batch is skipped: the task fails, and nothing is written."""
    chosen = options(bootstrap, "begun-anew")
    commit_prepared(prepare(chosen, 0, 2, query="old", is_stream=True), chosen)
    with pytest.raises(SinkOfOtherQuery, match="is used by query old"):
        prepare(chosen, 0, 2, "b", query="new", is_stream=True)
    assert visible(bootstrap, "begun-anew") == whole(0)


def test_each_broker_is_killed_between_prepare_and_commit(brokers: KafkaCluster, bootstrap: str) -> None:
    """The coordinator of the decider, of the lanes or of the sink's group: the next one continues."""
    chosen = options(bootstrap, "failover")
    for batch_id, broker in enumerate(brokers.brokers):
        prepared = prepare(chosen, batch_id, 3)
        brokers.kill(broker)
        commit_prepared(prepared, chosen)
        brokers.start(broker)
        brokers.wait_until_in_sync()
    assert visible(bootstrap, "failover") == whole(*range(len(brokers.brokers)))


# --- timeouts ---


TIMEOUTS_MS = (300, 1_000, 4_000, 16_000)
"""A slow machine needs a longer timeout to get as far as the test requires."""


def outlive(bootstrap: KafkaCluster, timeout_ms: int) -> None:
    """Return when a transaction that starts now has been aborted by its timeout."""
    witness = options(bootstrap, "timed", kafka_transaction_timeout_ms=str(timeout_ms), kreplica_two_phase="off")
    with suppress(ClientError):  # it may be aborted during the write
        prepare_rows(rows(0, 0, 1), witness, Task("witness", 0, 0))
    cluster = range_reading.worker_cluster(witness.bootstrap, witness.settings)

    def aborted() -> None:
        if open_producer(cluster, lane_id("witness", "0", 0, 0)) is not None:
            raise LeaderUnknown("the transaction is still open")

    cluster.retrying(aborted, 60.0)


def timed(bootstrap: KafkaCluster, topic: str, timeout_ms: int) -> SinkOptions:
    return options(bootstrap, topic, kafka_transaction_timeout_ms=str(timeout_ms), kreplica_two_phase="off")


def test_two_phase_transactions_have_no_timeout(bootstrap: str) -> None:
    """If brokers allow it, prepared lanes have no timeout, decided or not."""
    chosen = options(bootstrap, "timeless", kafka_transaction_timeout_ms="300", kreplica_two_phase="required")
    prepared = prepare(chosen, 0, 2)
    outlive(bootstrap, 300)
    decide_and_die(prepared, chosen, 1)
    outlive(bootstrap, 300)
    commit_prepared(prepare(chosen, 0, 3, "b"), chosen)
    assert visible(bootstrap, "timeless") == whole(0)


def test_a_timeout_before_the_decision(bootstrap: str) -> None:
    """Nothing is decided: the next attempt writes everything."""
    for timeout_ms in TIMEOUTS_MS:
        chosen = timed(bootstrap, "timed", timeout_ms)
        with suppress(ClientError):
            prepared = prepare(chosen, 0, 2)
            break
    outlive(bootstrap, timeout_ms)
    with pytest.raises(TaskTransactionAborted, match=r"task 0 was aborted .* s \(kafka\.transaction\.timeout\.ms\)"):
        commit_prepared(prepared, chosen)
    abort_prepared(prepared, chosen)
    patient = options(bootstrap, "timed", kreplica_two_phase="off")
    commit_prepared(prepare(patient, 0, 2, "b"), patient)
    assert visible(bootstrap, "timed") == whole(0)


def test_a_timeout_after_the_decision(bootstrap: str) -> None:
    """Rows are lost: every attempt raises an error that names them, and the batch is never skipped."""
    for timeout_ms in TIMEOUTS_MS:
        chosen = timed(bootstrap, "lost", timeout_ms)
        with suppress(*REFUSED):
            prepared = [prepare_lane(options(bootstrap, "lost"), 0, 0, 2), prepare_lane(chosen, 0, 1, 2)]
            decide_and_die(prepared, chosen)
            break
    outlive(bootstrap, timeout_ms)
    lost_rows = r"micro-batch 0 of sink-lost .* tasks 1 .of 2. .*kreplica\.two\.phase.* delete the group sink-lost"
    for run in ("b", "c"):
        with pytest.raises(RowsLost, match=lost_rows):
            commit_prepared(prepare(chosen, 0, 2, run), chosen)
    assert visible(bootstrap, "lost") == sorted(f"0/{number}" for number in range(0, 10, 2))


# --- one lane ---


def test_one_lane(bootstrap: str) -> None:
    """The decision is in the transaction itself; other tasks may have no rows."""
    chosen = options(bootstrap, "one", kreplica_exactly_once="one")
    task = Task("sink-one", 0, 0)
    first = prepare_rows(rows(0, 0, 1), chosen, task)
    empty = prepare_rows(rows(0, 0, 1, 0), chosen, Task("sink-one", 0, 1))
    with pytest.raises(InvalidRows, match="coalesce"):
        prepare_rows(rows(0, 0, 1), chosen, Task("sink-one", 0, 1))
    commit_prepared([first, empty], chosen)
    abort_prepared([first], chosen)
    again = prepare_rows(rows(0, 0, 1), chosen, task)
    assert again.was_decided
    commit_prepared([again], chosen)
    assert visible(bootstrap, "one") == whole(0)
    lost = prepare_rows(rows(1, 0, 1), chosen, Task("sink-one", 1, 0))
    commit_prepared([prepare_rows(rows(1, 0, 1), chosen, Task("sink-one", 1, 0))], chosen)
    with pytest.raises(ClientError):
        commit_prepared([lost], chosen)
    assert visible(bootstrap, "one") == whole(0, 1)


def test_from_one_lane_to_many_and_back(bootstrap: str) -> None:
    """A driver in the other mode fences the previous one, and finds its decision."""
    one = options(bootstrap, "switched", kreplica_exactly_once="one")
    many = options(bootstrap, "switched")
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
    assert visible(bootstrap, "switched") == whole(0, 1, 2)


# --- at random ---


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("mode", ["one", "many"])
def test_crashes_at_random(bootstrap: str, mode: str, seed: int) -> None:
    """Tasks and drivers die at any point, with any number of tasks and several drivers: all rows are visible once."""
    chosen = options(bootstrap, f"{mode}-{seed}", kreplica_exactly_once=mode)
    world = World(chosen, mode, seed)
    while world.committed < 4:
        world.step()
    last = world.committed + 1
    commit_prepared(prepare(chosen, last, 1, "f"), chosen)
    assert visible(bootstrap, f"{mode}-{seed}") == whole(*range(last + 1))
