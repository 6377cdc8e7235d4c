"""A consumer with assigned partitions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from client_consumer_scene import Scene, partition_keys, take, values
from twisted.internet.defer import CancelledError, Deferred

from kreplica.client.consumer import Consumer, OffsetReset
from kreplica.client_core.errors import ConsumerClosed, OffsetOutOfRange
from kreplica.client_core.offsets import EARLIEST, LATEST
from kreplica.model import TopicPartition

T0, T1 = partition_keys("t", 2)


@pytest.fixture
def scene() -> Iterator[Scene]:
    """A broker, and the topic t with two partitions of fifty records each."""
    consumer_scene = Scene(seed=11)
    consumer_scene.create("t", 2)
    for partition in (0, 1):
        consumer_scene.write("t", partition, [f"{partition}.{number}" for number in range(50)], batch=7)
    yield consumer_scene
    consumer_scene.close()


def assigned_consumer(scene: Scene, **options: object) -> Consumer:
    """Return a consumer to which all partitions are assigned."""
    consumer = scene.consumer(**options)
    scene.run_until(consumer.assign([T0, T1]))
    return consumer


def test_records_arrive_in_order_from_all_partitions(scene: Scene) -> None:
    """Records arrive with key, value, headers and position."""
    consumer = scene.consumer()
    scene.run_until(consumer.assign({T0: EARLIEST, T1: 3}))
    records = scene.read(consumer, 97)
    for partition, first in ((0, 0), (1, 3)):
        own = [record for record in records if record.partition == partition]
        assert [record.offset for record in own] == list(range(first, 50))
        assert values(own) == [f"{partition}.{number}" for number in range(first, 50)]
    first_one = records[0]
    assert first_one.topic == "t"
    assert first_one.topic_partition == TopicPartition("t", first_one.partition)
    assert first_one.key == b"k"
    assert first_one.headers == (("h", b"v"),)
    assert first_one.leader_epoch >= 0
    assert consumer.positions == {T0: 50, T1: 50}
    assert scene.run_until(consumer.lag()) == {T0: 0, T1: 0}


def test_iteration_and_polls_may_be_mixed(scene: Scene) -> None:
    """A consumer iterates over records, over batches and polls in turn: no record is missing or repeated."""
    consumer = assigned_consumer(scene)
    seen = scene.read(consumer, 10)

    async def one_batch() -> list[object]:
        async for batch in consumer.batches():
            return list(batch)
        return []

    while len(seen) < 100:
        seen += scene.read(consumer, 1)
        seen += scene.run_until(one_batch())
        for batch in scene.poll(consumer, records_max=5, timeout_s=0.0):
            assert batch.next_offset == batch.records[-1].offset + 1
            seen += batch
        if len(seen) < 100:
            assert consumer.position(seen[-1].topic_partition) == seen[-1].offset + 1
    assert sorted(seen) == sorted(scene.read(assigned_consumer(scene), 100))


def test_buffered_records_are_read_without_waiting(scene: Scene) -> None:
    consumer = assigned_consumer(scene)
    scene.read(consumer, 1)
    scene.run(1)
    started_s = scene.brokers.simulation.now_s
    scene.read(consumer, 99)
    assert scene.brokers.simulation.now_s == started_s


def test_waiting_for_records(scene: Scene) -> None:
    """A poll waits until its timeout or the arrival of records."""
    consumer = assigned_consumer(scene)
    scene.read(consumer, 100)
    started_s = scene.brokers.simulation.now_s
    assert scene.poll(consumer, timeout_s=3.0) == []
    assert 3.0 <= scene.brokers.simulation.now_s - started_s < 3.1
    polling = Deferred.fromCoroutine(consumer.poll(timeout_s=60.0))
    scene.write("t", 0, ["late"])
    (batch,) = scene.run_until(polling, 2.0)
    assert values(batch) == ["late"]


def test_latest_is_the_log_end_at_the_assignment(scene: Scene) -> None:
    """Records written after ``assign`` are read, even if the first fetch is later."""
    consumer = scene.consumer()
    scene.run_until(consumer.assign({T0: LATEST}))
    scene.write("t", 0, ["new"])
    scene.run(5)
    assert values(scene.read(consumer, 1)) == ["new"]


def test_second_assignment(scene: Scene) -> None:
    """Remaining partitions keep their position, unless an offset is given."""
    consumer = assigned_consumer(scene)
    scene.read(consumer, 100)
    scene.run_until(consumer.assign([T1]))
    assert consumer.assignment == {T1}
    assert consumer.positions == {T1: 50}
    scene.run_until(consumer.assign({T0: 45, T1: 48}))
    assert len(scene.read(consumer, 7)) == 7
    scene.run_until(consumer.assign([]))
    assert scene.poll(consumer, timeout_s=1.0) == []


def test_seek_during_a_fetch(scene: Scene) -> None:
    """After a seek, the response to an earlier fetch is discarded."""
    consumer = assigned_consumer(scene)
    records = scene.read(consumer, 1)
    key = records[0].topic_partition
    scene.run_until(consumer.seek(key, 49))
    consumer.pause([T0 if key == T1 else T1])
    assert [record.offset for record in scene.read(consumer, 1)] == [49]
    scene.run_until(consumer.seek(key, EARLIEST))
    assert [record.offset for record in scene.read(consumer, 50)] == list(range(50))
    scene.run_until(consumer.seek(key, LATEST))
    assert scene.poll(consumer, timeout_s=1.0) == []
    with pytest.raises(ValueError, match="nope-0"):
        scene.run_until(consumer.seek(TopicPartition("nope", 0), 1))


def test_pause_with_buffered_records(scene: Scene) -> None:
    """Buffered records, including the rest of a partly delivered batch, are kept until the resume."""
    consumer = assigned_consumer(scene)
    (first,) = scene.read(consumer, 1)
    key = first.topic_partition
    other = T0 if key == T1 else T1
    consumer.pause([key])
    assert consumer.paused == {key}
    rest = scene.read(consumer, 50)
    assert {record.topic_partition for record in rest} == {other}
    assert scene.poll(consumer, timeout_s=1.0) == []
    consumer.resume([key])
    assert [record.offset for record in scene.read(consumer, 49)] == list(range(1, 50))


def test_pause_within_a_loop(scene: Scene) -> None:
    """Pausing a partition within the loop takes effect at once."""
    consumer = assigned_consumer(scene)

    async def loop() -> list[TopicPartition]:
        seen: list[TopicPartition] = []
        async for record in consumer:
            seen.append(record.topic_partition)
            if len(seen) == 3:
                consumer.pause([record.topic_partition])
            if len(seen) == 53:
                break
        return seen

    seen = scene.run_until(loop())
    assert len(set(seen[:3])) == 1
    assert set(seen[3:]) == {T0, T1} - {seen[0]}


@pytest.mark.parametrize(("reset", "expected"), [(OffsetReset.EARLIEST, 0), (OffsetReset.LATEST, 50)])
def test_offset_out_of_range(scene: Scene, reset: OffsetReset, expected: int) -> None:
    """The position is reset according to ``offset_reset``."""
    consumer = scene.consumer(offset_reset=reset)
    scene.run_until(consumer.assign({T0: 1000}))
    scene.run(2)
    scene.write("t", 0, ["more"])
    assert [record.offset for record in scene.read(consumer, 51 - expected)] == list(range(expected, 51))


def test_offset_out_of_range_with_fail(scene: Scene) -> None:
    """Each read raises an error that names the offset, until a seek sets a valid position."""
    consumer = scene.consumer(offset_reset="fail")
    scene.run_until(consumer.assign({T0: 1000, T1: 0}))
    with pytest.raises(OffsetOutOfRange, match="1000 of t-0"):
        scene.read(consumer, 51)
    with pytest.raises(OffsetOutOfRange):
        scene.read(consumer, 51)
    scene.run_until(consumer.seek(T0, 49))
    consumer.pause([T1])
    assert values(scene.read(consumer, 1)) == ["0.49"]


def test_offsets_by_time_and_ends(scene: Scene) -> None:
    """Offsets by time, beginning offsets and end offsets match the log."""
    scene.write("t", 0, ["a"], timestamp_ms=1000)
    scene.write("t", 0, ["b"], timestamp_ms=2000)
    consumer = scene.consumer()
    offsets = scene.run_until(consumer.offsets_for_times({T0: 1001, T1: 1001}))
    assert offsets[T1] is None
    assert (offsets[T0].offset, offsets[T0].timestamp_ms) == (51, 2000)
    assert scene.run_until(consumer.beginning_offsets([T0, T1])) == {T0: 0, T1: 0}
    assert scene.run_until(consumer.end_offsets([T0, T1])) == {T0: 52, T1: 50}


def test_processed_records_are_committed(scene: Scene) -> None:
    """The record still being processed is not committed, and the next consumer starts with it."""
    consumer = assigned_consumer(scene, group_id="g")
    scene.run_until(consumer.assign({T0: 0}))
    scene.read(consumer, 10)
    scene.run(6)
    assert scene.run_until(consumer.committed([T0]))[T0].offset == 9
    scene.read(consumer, 1)
    scene.run_until(consumer.close())
    again = scene.consumer(group_id="g")
    scene.run_until(again.assign([T0]))
    assert again.position(T0) == 10
    scene.read(again, 3)
    scene.run_until(again.commit())
    assert scene.run_until(again.committed([T0, T1]))[T0].offset == 13
    scene.run_until(again.commit({T0: 5}))
    assert scene.run_until(again.committed([T0]))[T0].offset == 5
    assert again.identity.group_id == "g"


def test_cancelled_poll_loses_no_record(scene: Scene) -> None:
    consumer = assigned_consumer(scene)
    scene.read(consumer, 100)
    polling = Deferred.fromCoroutine(consumer.poll(timeout_s=1000.0))
    left: list[object] = []
    polling.addErrback(lambda failure: left.append(failure.trap(CancelledError)))
    scene.run(1)
    polling.cancel()
    assert left == [CancelledError]
    scene.write("t", 1, ["next"])
    assert values(scene.read(consumer, 1)) == ["next"]


def test_close_during_a_fetch(scene: Scene) -> None:
    """Closing ends iteration, makes later calls fail, and leaves no timer."""
    consumer = assigned_consumer(scene)
    scene.read(consumer, 100)
    loop = Deferred.fromCoroutine(take(consumer, 1))
    scene.run(0.7)
    scene.run_until(consumer.close(), 1.0)
    assert scene.run_until(loop) == []
    with pytest.raises(ConsumerClosed):
        scene.poll(consumer)
    with pytest.raises(ConsumerClosed):
        scene.run_until(consumer.assign([T0]))
    scene.run_until(consumer.close())
    scene.run(2)
    assert scene.brokers.host("application").reactor.getDelayedCalls() == []


def test_topics_without_a_group(scene: Scene) -> None:
    """A consumer with topics but without a group reads all partitions of the topics."""

    async def read_all() -> int:
        async with scene.consumer(topics=["t"]) as consumer:
            return len(await take(consumer, 100))

    assert scene.run_until(read_all()) == 100


def test_invalid_calls_are_refused(scene: Scene) -> None:
    consumer = scene.consumer()
    with pytest.raises(ValueError, match="group_id"):
        scene.run_until(consumer.subscribe(["t"]))
    with pytest.raises(ValueError, match="not assigned"):
        consumer.pause([T0])
    with pytest.raises(ValueError, match="group_id"):
        _ = consumer.identity
    with pytest.raises(ValueError, match="offset"):
        scene.run_until(consumer.seek(T0, -7))
    with pytest.raises(ValueError, match="auto_commit_s"):
        scene.consumer(auto_commit_s=0)
