"""State stored in a partition: acknowledged changes survive leader changes."""

from __future__ import annotations

import pytest
from coordination_scene import KEY, POISON, TOPIC, on_result, running_scene

from kreplica.errors import ErrorCode, KafkaError
from kreplica.testing.cluster.state import active_replicas
from kreplica.wire.batch_building import build_batch
from kreplica.wire.control_records import EndMarker, build_end_marker
from kreplica.wire.records import Record

NONE = ErrorCode.NONE
Answers = list[tuple[bytes, ErrorCode]]


def test_callbacks_follow_the_commit() -> None:
    """Callbacks are called once all in-sync replicas have the append, and never synchronously."""
    with running_scene() as scene:
        shard = scene.loaded_shard()
        answers: Answers = []
        shard.put(b"a", b"1", answers)
        assert not answers
        assert not shard.values
        scene.cluster.run_until(lambda: answers)
        assert answers == [(b"a", NONE)]
        assert shard.values == {b"a": b"1"}
        assert all(partition.log.log_end_offset == 1 for _, partition in active_replicas(scene.cluster, KEY))


def test_appends_of_one_iteration_share_a_batch() -> None:
    """Appends of one reactor iteration are answered in log order."""
    with running_scene(brokers=1) as scene:
        shard = scene.loaded_shard()
        partition = scene.cluster.brokers[1].program.partitions.led_partition(KEY)
        answers: Answers = []
        keys = [b"%d" % number for number in range(20)]
        for key in keys:
            shard.put(key, b"x", answers)
        scene.cluster.run_until(lambda: len(answers) == len(keys))
        assert answers == [(key, NONE) for key in keys]
        read = partition.log.read(0, size_max=10_000, offset_max=20)
        assert partition.log.log_end_offset == 20
        assert partition.log.read(19, size_max=10_000, offset_max=20).first_offset == read.first_offset == 0


def test_oversized_append_fails_alone() -> None:
    """If a batch is too large, appends are written one by one and only the large one is refused."""
    with running_scene(brokers=1) as scene:
        shard = scene.loaded_shard()
        answers: Answers = []
        shard.put(b"a", b"x" * 1500, answers)
        shard.put(b"b", b"x" * 3000, answers)
        shard.put(b"c", b"x" * 1500, answers)
        scene.cluster.run_until(lambda: len(answers) == 3)
        assert dict(answers) == {b"a": NONE, b"b": ErrorCode.MESSAGE_TOO_LARGE, b"c": NONE}
        assert sorted(shard.values) == [b"a", b"c"]


def test_next_leader_has_all_acknowledged_changes() -> None:
    with running_scene() as scene:
        shard = scene.loaded_shard()
        answers: Answers = []
        for number in range(5):
            shard.put(b"k%d" % number, b"v%d" % number, answers)
            scene.cluster.run_until(lambda number=number: len(answers) == number + 1)
        first = scene.leader
        scene.cluster.brokers[first].kill()
        scene.cluster.run_until(lambda: scene.leader not in (first, -1))
        assert scene.loaded_shard().values == shard.values
        others = [number for number in scene.cluster.brokers if number not in (first, scene.leader)]
        assert [scene.error_of(number) for number in others] == [ErrorCode.NOT_COORDINATOR]


def test_pending_appends_fail_on_a_leader_change() -> None:
    """Pending appends get NOT_COORDINATOR when leadership is lost."""
    with running_scene() as scene:
        shard = scene.loaded_shard()
        leader = scene.leader
        answers: Answers = []
        scene.cut_followers()
        shard.put(b"a", b"1", answers)
        scene.cluster.run(1.0)
        assert not answers
        scene.cluster.expire_session(leader)
        scene.cluster.run_until(lambda: answers)
        assert answers == [(b"a", ErrorCode.NOT_COORDINATOR)]
        assert shard.is_unloaded
        assert not shard.values
        shard.put(b"b", b"1", answers)
        scene.cluster.run_until(lambda: len(answers) == 2)
        assert answers[1] == (b"b", ErrorCode.NOT_COORDINATOR)


def test_append_times_out() -> None:
    """If followers do not fetch, the callback gets an error, but a later commit still takes effect."""
    with running_scene(timeout_s=2.0) as scene:
        shard = scene.loaded_shard()
        scene.cut_followers()
        answers: Answers = []
        shard.put(b"a", b"1", answers)
        scene.cluster.run_until(lambda: answers)
        assert answers == [(b"a", ErrorCode.COORDINATOR_NOT_AVAILABLE)]
        assert not shard.values
        scene.cluster.simulation.network.heal()
        scene.cluster.run_until(lambda: shard.values)
        assert len(answers) == 1


def test_leader_in_a_new_epoch_keeps_its_state() -> None:
    """A broker that remains leader in a new epoch neither reloads its state nor fails requests."""
    with running_scene() as scene:
        shard = scene.loaded_shard()
        epoch = shard.log.epoch
        follower = next(number for number in scene.cluster.brokers if number != scene.leader)
        scene.cluster.brokers[follower].kill()
        scene.cluster.run_until(lambda: shard.log.epoch > epoch)
        assert scene.loaded_shard() is shard
        assert not shard.is_unloaded


def test_transactions_take_effect_at_their_markers() -> None:
    """Markers take effect both while loading and at run time."""
    with running_scene() as scene:
        shard = scene.loaded_shard()
        answers: Answers = []
        partition = scene.cluster.brokers[scene.leader].program.partitions.led_partition(KEY)
        for producer_id in (7, 8, 9):
            key = b"p%d" % producer_id
            partition.log.producers.verifications.begin(producer_id, 0, starts_at_zero=True).is_verified = True
            shard.log.append_batch(
                shard.log.new_batch((producer_id, 0)), lambda: None, on_result(key, answers), [(key, b"x")]
            )
        scene.cluster.run_until(lambda: len(answers) == 3)
        for producer_id, committed in ((7, True), (8, False)):
            partition.append_own(build_end_marker(EndMarker(committed, 0), producer_id, 0, 1), 1)
        scene.cluster.run_until(lambda: partition.high_watermark == partition.log.log_end_offset)
        scene.cluster.brokers[scene.leader].kill()
        later = scene.loaded_shard()
        assert later.values == {b"p7": b"x"}
        assert sorted(later.pending) == [9]
        scene.shards(scene.leader).marker_written(0, 9, committed=True)
        assert later.values == {b"p7": b"x", b"p9": b"x"}


def test_unverified_records_open_no_transaction() -> None:
    """Records after the end of their transaction are refused (KIP-890)."""
    with running_scene(brokers=1) as scene:
        shard = scene.loaded_shard()
        answers: Answers = []
        partition = scene.cluster.brokers[1].program.partitions.led_partition(KEY)
        verification = partition.log.producers.verifications.begin(7, 0, starts_at_zero=False)
        partition.append_marker(7, 0, EndMarker(False, 0), 1, bumps_epoch=False)
        verification.is_verified = True
        assert not shard.log.append_batch(
            shard.log.new_batch((7, 0)), lambda: None, on_result(b"p7", answers), [(b"p7", b"x")]
        )
        scene.cluster.run_until(lambda: bool(answers))
        assert answers == [(b"p7", ErrorCode.INVALID_TXN_STATE)]


def test_failed_load_is_retried() -> None:
    """Loading is retried after an unknown record until it succeeds."""
    with running_scene(brokers=1) as scene:
        scene.loaded_shard()
        machine = scene.cluster.brokers[1]
        batch = build_batch([Record(0, 1, POISON, b"")])
        machine.program.partitions.led_partition(KEY).append_own(batch, 1)
        scene.cluster.run_until(machine.stop())
        started = machine.start()
        scene.cluster.run_until(lambda: scene.error_of(1) is ErrorCode.COORDINATOR_NOT_AVAILABLE)
        scene.cluster.run_until(started)
        client = scene.cluster.client()
        machine.program.partitions.led_partition(KEY).delete_records(1)
        scene.cluster.run_until(lambda: scene.error_of(1) is NONE)
        scene.cluster.run_until(client.close())


def test_missing_topic_has_no_coordinator() -> None:
    """Clients get a retriable error until the internal topic exists."""
    with running_scene(brokers=1) as scene:
        scene.loaded_shard()
        scene.cluster.run_until(scene.cluster.client().delete_topic(TOPIC))
        scene.cluster.run_until(lambda: scene.error_of(1) is ErrorCode.COORDINATOR_NOT_AVAILABLE)


def test_no_response_without_zookeeper() -> None:
    """Without ZooKeeper a coordinator does not respond, because its state may be outdated."""
    with running_scene() as scene:
        scene.loaded_shard()
        leader = scene.leader
        shards = scene.shards(leader)
        scene.cluster.simulation.network.cut(f"broker-{leader}", "coordinator")
        scene.cluster.run_until(lambda: scene.leader not in (leader, -1), timeout_s=60)
        assert scene.error_of(leader) in (NONE, ErrorCode.NOT_COORDINATOR)
        with pytest.raises(KafkaError) as refused:
            shards.current_shard_of("any")
        assert refused.value.code is ErrorCode.NOT_COORDINATOR
