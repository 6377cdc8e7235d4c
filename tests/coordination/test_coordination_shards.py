"""State stored in a partition: acknowledged changes survive a change of leader."""

from __future__ import annotations

import pytest
from coordination_scene import KEY, POISON, TOPIC, on_result, scene

from kreplica.errors import ErrorCode, KafkaError
from kreplica.testing.cluster.state import active_replicas
from kreplica.wire.batch_building import build_batch
from kreplica.wire.control_records import EndMarker, build_end_marker
from kreplica.wire.records import Record

NONE = ErrorCode.NONE
Answers = list[tuple[bytes, ErrorCode]]


def test_callbacks_follow_the_commit() -> None:
    """The callbacks are called once all in-sync replicas have the records, and never synchronously."""
    with scene() as run:
        notes = run.notes()
        answers: Answers = []
        notes.put(b"a", b"1", answers)
        assert not answers
        assert not notes.values
        run.cluster.run_until(lambda: answers)
        assert answers == [(b"a", NONE)]
        assert notes.values == {b"a": b"1"}
        assert all(partition.log.log_end_offset == 1 for _, partition in active_replicas(run.cluster, KEY))


def test_appends_of_one_iteration_share_a_batch() -> None:
    """Their callbacks are called in log order."""
    with scene(brokers=1) as run:
        notes = run.notes()
        partition = run.cluster.brokers[1].program.partitions.led_partition(KEY)
        answers: Answers = []
        keys = [b"%d" % number for number in range(20)]
        for key in keys:
            notes.put(key, b"x", answers)
        run.cluster.run_until(lambda: len(answers) == len(keys))
        assert answers == [(key, NONE) for key in keys]
        read = partition.log.read(0, size_max=10_000, offset_max=20)
        assert partition.log.log_end_offset == 20
        assert partition.log.read(19, size_max=10_000, offset_max=20).first_offset == read.first_offset == 0


def test_oversized_append_fails_alone() -> None:
    """If a batch is too large, appends are written one by one, and only the large one is rejected."""
    with scene(brokers=1) as run:
        notes = run.notes()
        answers: Answers = []
        notes.put(b"a", b"x" * 1500, answers)
        notes.put(b"b", b"x" * 3000, answers)
        notes.put(b"c", b"x" * 1500, answers)
        run.cluster.run_until(lambda: len(answers) == 3)
        assert dict(answers) == {b"a": NONE, b"b": ErrorCode.MESSAGE_TOO_LARGE, b"c": NONE}
        assert sorted(notes.values) == [b"a", b"c"]


def test_next_leader_has_all_acknowledged_changes() -> None:
    with scene() as run:
        notes = run.notes()
        answers: Answers = []
        for number in range(5):
            notes.put(b"k%d" % number, b"v%d" % number, answers)
            run.cluster.run_until(lambda number=number: len(answers) == number + 1)
        first = run.leader
        run.cluster.brokers[first].kill()
        run.cluster.run_until(lambda: run.leader not in (first, -1))
        assert run.notes().values == notes.values
        others = [number for number in run.cluster.brokers if number not in (first, run.leader)]
        assert [run.error_of(number) for number in others] == [ErrorCode.NOT_COORDINATOR]


def test_pending_appends_fail_on_a_leader_change() -> None:
    """The callbacks are called when leadership is lost."""
    with scene() as run:
        notes = run.notes()
        leader = run.leader
        answers: Answers = []
        run.cut_followers()
        notes.put(b"a", b"1", answers)
        run.cluster.run(1.0)
        assert not answers
        run.cluster.expire_session(leader)
        run.cluster.run_until(lambda: answers)
        assert answers == [(b"a", ErrorCode.NOT_COORDINATOR)]
        assert notes.is_unloaded
        assert not notes.values
        notes.put(b"b", b"1", answers)
        run.cluster.run_until(lambda: len(answers) == 2)
        assert answers[1] == (b"b", ErrorCode.NOT_COORDINATOR)


def test_append_times_out() -> None:
    """Without follower fetches, the callback gets an error, but a later commit takes effect."""
    with scene(timeout_s=2.0) as run:
        notes = run.notes()
        run.cut_followers()
        answers: Answers = []
        notes.put(b"a", b"1", answers)
        run.cluster.run_until(lambda: answers)
        assert answers == [(b"a", ErrorCode.COORDINATOR_NOT_AVAILABLE)]
        assert not notes.values
        run.cluster.simulation.network.heal()
        run.cluster.run_until(lambda: notes.values)
        assert len(answers) == 1


def test_leader_in_a_new_epoch_keeps_its_state() -> None:
    """The leader neither reloads its state nor fails requests."""
    with scene() as run:
        notes = run.notes()
        epoch = notes.log.epoch
        follower = next(number for number in run.cluster.brokers if number != run.leader)
        run.cluster.brokers[follower].kill()
        run.cluster.run_until(lambda: notes.log.epoch > epoch)
        assert run.notes() is notes
        assert not notes.is_unloaded


def test_transactions_take_effect_at_their_markers() -> None:
    """This holds during loading and at run time."""
    with scene() as run:
        notes = run.notes()
        answers: Answers = []
        partition = run.cluster.brokers[run.leader].program.partitions.led_partition(KEY)
        for producer_id in (7, 8, 9):
            key = b"p%d" % producer_id
            partition.log.producers.verifications.begin(producer_id, 0, starts_at_zero=True).is_verified = True
            notes.log.append_batch(
                notes.log.new_batch((producer_id, 0)), lambda: None, on_result(key, answers), [(key, b"x")]
            )
        run.cluster.run_until(lambda: len(answers) == 3)
        for producer_id, committed in ((7, True), (8, False)):
            partition.append_own(build_end_marker(EndMarker(committed, 0), producer_id, 0, 1), 1)
        run.cluster.run_until(lambda: partition.high_watermark == partition.log.log_end_offset)
        run.cluster.brokers[run.leader].kill()
        later = run.notes()
        assert later.values == {b"p7": b"x"}
        assert sorted(later.pending) == [9]
        run.shards(run.leader).marker_written(0, 9, committed=True)
        assert later.values == {b"p7": b"x", b"p9": b"x"}


def test_unverified_records_open_no_transaction() -> None:
    """Records that arrive after the end of their transaction are rejected (KIP-890)."""
    with scene(brokers=1) as run:
        notes = run.notes()
        answers: Answers = []
        partition = run.cluster.brokers[1].program.partitions.led_partition(KEY)
        verification = partition.log.producers.verifications.begin(7, 0, starts_at_zero=False)
        partition.append_marker(7, 0, EndMarker(False, 0), 1, bumps_epoch=False)
        verification.is_verified = True
        assert not notes.log.append_batch(
            notes.log.new_batch((7, 0)), lambda: None, on_result(b"p7", answers), [(b"p7", b"x")]
        )
        run.cluster.run_until(lambda: bool(answers))
        assert answers == [(b"p7", ErrorCode.INVALID_TXN_STATE)]


def test_failed_load_is_retried() -> None:
    """Loading is retried after an unknown record until it succeeds."""
    with scene(brokers=1) as run:
        run.notes()
        machine = run.cluster.brokers[1]
        batch = build_batch([Record(0, 1, POISON, b"")])
        machine.program.partitions.led_partition(KEY).append_own(batch, 1)
        run.cluster.run_until(machine.stop())
        started = machine.start()
        run.cluster.run_until(lambda: run.error_of(1) is ErrorCode.COORDINATOR_NOT_AVAILABLE)
        run.cluster.run_until(started)
        client = run.cluster.client()
        machine.program.partitions.led_partition(KEY).delete_records(1)
        run.cluster.run_until(lambda: run.error_of(1) is NONE)
        run.cluster.run_until(client.close())


def test_missing_topic_has_no_coordinator() -> None:
    """Clients get a retriable error until the internal topic exists."""
    with scene(brokers=1) as run:
        run.notes()
        run.cluster.run_until(run.cluster.client().delete_topic(TOPIC))
        run.cluster.run_until(lambda: run.error_of(1) is ErrorCode.COORDINATOR_NOT_AVAILABLE)


def test_no_response_without_zookeeper() -> None:
    """Without ZooKeeper, the coordinator's state may be outdated."""
    with scene() as run:
        run.notes()
        leader = run.leader
        shards = run.shards(leader)
        run.cluster.simulation.network.cut(f"broker-{leader}", "coordinator")
        run.cluster.run_until(lambda: run.leader not in (leader, -1), timeout_s=60)
        assert run.error_of(leader) in (NONE, ErrorCode.NOT_COORDINATOR)
        with pytest.raises(KafkaError) as refused:
            shards.current_shard_of("any")
        assert refused.value.code is ErrorCode.NOT_COORDINATOR
