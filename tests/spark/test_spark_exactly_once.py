"""One decision for each micro-batch: whoever dies when, each row is visible once.

Tasks and drivers are called as Spark calls them, in any order that crashes can give; Spark's own processes are in
another test.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from random import Random

import pyarrow as pa
import pytest

from kreplica.blocking import Cluster, Isolation
from kreplica.blocking.offsets import end_offsets, topic_partitions
from kreplica.blocking.reader import Reader, ReaderOptions
from kreplica.model import TopicPartition
from kreplica.sansio.errors import ClientError, LeaderUnknown
from kreplica.sansio.lanes import ProducerIdentity
from kreplica.sansio.offsets import EARLIEST, CommittedOffset
from kreplica.spark import exactly_once, range_reading
from kreplica.spark.decisions import Decision, TooManyLanes, decision_offsets, parse_decision
from kreplica.spark.exactly_once import Prepared, Task, abort_prepared, commit_prepared, prepare_rows
from kreplica.spark.row_columns import RowsRefused
from kreplica.spark.sink_options import SinkOptions, sink_options
from kreplica.testing.fixtures.kafka_cluster import KafkaCluster

TOPICS = (
    "redriven",
    "refused",
    "fewer",
    "zombie",
    "aborted",
    "one",
    *(f"matrix-{seed}" for seed in range(6)),
    "timeless",
)


@pytest.fixture(scope="module")
def brokers() -> Iterator[KafkaCluster]:
    settings = {"transaction.two.phase.commit.enable": True}
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


def prepare(chosen: SinkOptions, batch_id: int, lanes: int) -> list[Prepared]:
    return [prepare_lane(chosen, batch_id, lane, lanes) for lane in range(lanes)]


def prepare_lane(chosen: SinkOptions, batch_id: int, lane: int, lanes: int) -> Prepared:
    assert chosen.topic is not None
    return prepare_rows(rows(batch_id, lane, lanes), chosen, Task(f"sink-{chosen.topic}", batch_id, lane))


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


def test_a_driver_dies_between_decision_and_commit(brokers: KafkaCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one finds it decided, has no task write again, and commits what was prepared; so does one after that."""
    chosen = options(brokers, "redriven")
    prepared = prepare(chosen, 0, 3)
    with monkeypatch.context() as patched:
        patched.setattr(exactly_once, "_end", _dies)
        with pytest.raises(KeyboardInterrupt):
            commit_prepared(prepared, chosen)
    for _ in range(2):
        again = prepare(chosen, 0, 2)
        assert [each.was_decided for each in again] == [True, True]
        commit_prepared(again, chosen)
        assert visible(brokers, "redriven") == whole(0)
    commit_prepared(prepare(chosen, 1, 3), chosen)
    assert visible(brokers, "redriven") == whole(0, 1)


def _dies(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_commit_that_told_of_an_error_after_its_effect(brokers: KafkaCluster) -> None:
    """Spark calls abort then: it must not take back what is decided."""
    chosen = options(brokers, "aborted")
    prepared = prepare(chosen, 0, 2)
    commit_prepared(prepared, chosen)
    abort_prepared(prepared, chosen)
    assert visible(brokers, "aborted") == whole(0)
    undecided = prepare(chosen, 1, 2)
    abort_prepared(undecided, chosen)
    assert visible(brokers, "aborted") == whole(0)
    with pytest.raises(ClientError):
        commit_prepared(undecided, chosen)
    commit_prepared(prepare(chosen, 1, 2), chosen)
    assert visible(brokers, "aborted") == whole(0, 1)


def test_fewer_tasks_in_the_next_try(brokers: KafkaCluster) -> None:
    """Lanes that nobody takes over are aborted: they would hold readers back for ever."""
    chosen = options(brokers, "fewer")
    prepare(chosen, 0, 4)
    commit_prepared(prepare(chosen, 0, 2), chosen)
    assert visible(brokers, "fewer") == whole(0)


def test_an_old_driver_decides_no_more(brokers: KafkaCluster) -> None:
    """From the moment when the first task of the next try has begun."""
    chosen = options(brokers, "zombie")
    old = prepare(chosen, 0, 2)
    first = prepare_lane(chosen, 0, 0, 3)
    with pytest.raises(ClientError):
        commit_prepared(old, chosen)
    rest = [prepare_lane(chosen, 0, lane, 3) for lane in (1, 2)]
    commit_prepared([first, *rest], chosen)
    assert visible(brokers, "zombie") == whole(0)


def test_a_task_is_tried_again(brokers: KafkaCluster) -> None:
    """Rows that are refused, or a worker that dies: the next attempt's are the only ones; an old one's commit fails."""
    chosen = options(brokers, "refused")
    bad = pa.RecordBatch.from_pydict({"value": pa.array(["x"]), "partition": pa.array([7], pa.int32())})
    with pytest.raises(RowsRefused):
        prepare_rows(iter([*rows(0, 0, 2), bad]), chosen, Task("sink-refused", 0, 0))
    zombie = prepare_lane(chosen, 0, 0, 2)
    commit_prepared(prepare(chosen, 0, 2), chosen)
    assert visible(brokers, "refused") == whole(0)
    with pytest.raises(ClientError):
        commit_prepared([zombie], chosen)
    assert visible(brokers, "refused") == whole(0)


def test_transactions_outlive_their_time_out(brokers: KafkaCluster) -> None:
    """Where brokers allow it: prepared lanes wait for ever."""
    chosen = options(brokers, "timeless", kafka_transaction_timeout_ms="1", kreplica_two_phase="required")
    prepared = prepare(chosen, 0, 2)
    commit_prepared(prepared, chosen)
    assert visible(brokers, "timeless") == whole(0)


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


@pytest.mark.parametrize("seed", range(6))
def test_crashes_at_random(brokers: KafkaCluster, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Tasks and drivers die at any point, tries have any number of tasks, zombies come back: once each, and all."""
    random, chosen = Random(seed), options(brokers, f"matrix-{seed}")
    zombies: list[list[Prepared]] = []
    for batch_id in range(5):
        is_committed = False
        while not is_committed:
            lanes = random.randint(1, 4)
            prepared = [prepare_lane(chosen, batch_id, lane, lanes) for lane in random.sample(range(lanes), lanes)]
            if zombies and random.random() < 0.5:
                with suppress(ClientError):  # one that finds its micro-batch decided may commit it once more
                    random.choice((commit_prepared, abort_prepared))(random.choice(zombies), chosen)
            fate = random.random()
            if fate < 0.25:
                zombies.append(prepared)
                continue
            with monkeypatch.context() as patched:
                ends_before_death = random.choice((0, 1, 99))
                patched.setattr(exactly_once, "_end", _ends(ends_before_death))
                try:
                    commit_prepared(prepared, chosen)
                    is_committed = True
                except (KeyboardInterrupt, ClientError):
                    zombies.append(prepared)
                    if random.random() < 0.5:
                        abort_prepared(prepared, chosen)
    assert visible(brokers, f"matrix-{seed}") == whole(*range(5))


def _ends(count: int):
    ended, really = [], exactly_once._end

    def end(*given: object) -> None:
        if len(ended) == count:
            raise KeyboardInterrupt
        ended.append(given)
        really(*given)  # type: ignore[arg-type]

    return end


def test_a_decision_is_kept_in_pieces() -> None:
    """As many as it takes; what an earlier, larger one left is not taken for a part."""
    large = Decision(
        7, tuple(ProducerIdentity(10_000_000 + number, 3) if number % 9 else None for number in range(900))
    )
    kept = {key.partition: value for key, value in decision_offsets("d", large).items()}
    assert len(kept) == 3
    assert parse_decision(kept) == large
    small = Decision(8, (ProducerIdentity(5, 1),))
    kept |= {key.partition: value for key, value in decision_offsets("d", small).items()}
    assert parse_decision(kept) == small
    assert parse_decision({}) is None
    assert decision_offsets("d", Decision(3, ())) == {TopicPartition("d", 0): CommittedOffset(4)}
    with pytest.raises(TooManyLanes):
        decision_offsets("d", Decision(1, (ProducerIdentity(1 << 40, 32_000),) * 10_000))
