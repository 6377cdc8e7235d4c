"""Handlers: order, concurrency, commits and errors."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from client_consumer_scene import Scene, partition_keys
from twisted.internet.defer import CancelledError, Deferred

from kreplica.client.consumer import Concurrency, ConsumedBatch, ConsumedRecord, Consumer
from kreplica.runtime.pause import pause


@pytest.fixture
def scene() -> Iterator[Scene]:
    """A broker, and the topic t with three partitions of twenty records each."""
    consumer_scene = Scene(seed=12)
    consumer_scene.create("t", 3)
    for partition in range(3):
        consumer_scene.write("t", partition, [f"{partition}.{number}" for number in range(20)], batch=8)
    yield consumer_scene
    consumer_scene.close()


class Worker:
    """A handler that takes time, and notes the records that it has started, completed and cancelled."""

    def __init__(self, scene: Scene, consumer: Consumer, seconds: float = 0.1) -> None:
        self.seconds = seconds
        self.started: list[ConsumedRecord] = []
        self.done: list[ConsumedRecord] = []
        self.cancelled: list[ConsumedRecord] = []
        self.concurrency_max = 0
        self.fails_at = ("", 0)
        self._scene = scene
        self._consumer = consumer
        self._concurrency = 0

    async def __call__(self, record: ConsumedRecord) -> None:
        self.started.append(record)
        self._concurrency += 1
        self.concurrency_max = max(self.concurrency_max, self._concurrency)
        try:
            await pause(self._scene.brokers.host("application").reactor, self.seconds)
            if record.value == self.fails_at[0].encode():
                raise ValueError(self.fails_at[0])
        except CancelledError:
            self.cancelled.append(record)
            raise
        finally:
            self._concurrency -= 1
        self.done.append(record)

    def done_offsets(self, partition: int) -> list[int]:
        return [record.offset for record in self.done if record.partition == partition]

    def run(self, **options: object) -> Deferred[None]:
        return Deferred.fromCoroutine(self._consumer.run(self, **options))


@pytest.mark.parametrize(("concurrency", "expected"), [(Concurrency.PARTITION, 3), (Concurrency.SERIAL, 1), (2, 2)])
def test_partitions_are_processed_concurrently(scene: Scene, concurrency: Concurrency | int, expected: int) -> None:
    """The records of each partition are processed in order."""
    consumer = scene.consumer()
    scene.run_until(consumer.assign(partition_keys("t", 3)))
    worker = Worker(scene, consumer)
    running = worker.run(concurrency=concurrency)
    scene.run_until(lambda: len(worker.done) == 60)
    assert worker.concurrency_max == expected
    for partition in range(3):
        assert worker.done_offsets(partition) == list(range(20))
    consumer.stop()
    scene.run_until(running)


def test_batch_handlers(scene: Scene) -> None:
    """Batch handlers get whole batches, which are committed after they are processed."""
    consumer = scene.consumer(group_id="g")
    scene.run_until(consumer.assign(partition_keys("t", 3)))
    seen: list[ConsumedBatch] = []

    async def handle(batch: ConsumedBatch) -> None:
        seen.append(batch)
        if sum(len(each) for each in seen) == 60:
            consumer.stop()

    scene.run_until(consumer.run(handle, by="batch"))
    assert [len(batch) for batch in seen] == [20, 20, 20]
    scene.run_until(consumer.close())
    again = scene.consumer(group_id="g")
    committed = scene.run_until(again.committed(partition_keys("t", 3)))
    assert {key: offset.offset for key, offset in committed.items()} == dict.fromkeys(partition_keys("t", 3), 20)


def test_failing_handler_ends_the_run(scene: Scene) -> None:
    """When a handler fails, the others complete; its record is not committed, and the next run delivers it again."""
    consumer = scene.consumer(group_id="g")
    scene.run_until(consumer.assign(partition_keys("t", 3)))
    worker = Worker(scene, consumer)
    worker.fails_at = ("1.5", 5)
    with pytest.raises(ValueError, match=r"1\.5"):
        scene.run_until(worker.run())
    assert worker.done_offsets(1) == list(range(5))
    assert not worker.cancelled
    assert len(worker.done) == len(worker.started) - 1
    positions = {key: len(worker.done_offsets(key.partition)) for key in partition_keys("t", 3)}
    assert consumer.positions == positions
    worker.fails_at = ("", 0)
    running = worker.run()
    scene.run_until(lambda: len(worker.done) == 60)
    assert worker.done_offsets(1) == list(range(20))
    scene.run(6)  # longer than the auto-commit interval
    committed = scene.run_until(consumer.committed(partition_keys("t", 3)))
    assert {key: offset.offset for key, offset in committed.items()} == dict.fromkeys(partition_keys("t", 3), 20)
    consumer.stop()
    scene.run_until(running)


def test_close_lets_handlers_finish(scene: Scene) -> None:
    """On close, handlers complete their current records, which are then committed."""
    consumer = scene.consumer(group_id="g")
    scene.run_until(consumer.assign(partition_keys("t", 3)))
    worker = Worker(scene, consumer, seconds=2.0)
    running = worker.run()
    scene.run_until(lambda: len(worker.started) == 6)
    scene.run_until(consumer.close())
    scene.run_until(running)
    assert len(worker.done) == len(worker.started) == 6
    assert not worker.cancelled
    again = scene.consumer(group_id="g")
    committed = scene.run_until(again.committed(partition_keys("t", 3)))
    assert {key: offset.offset for key, offset in committed.items()} == dict.fromkeys(partition_keys("t", 3), 2)


def test_close_timeout(scene: Scene) -> None:
    """A handler that exceeds the close timeout is cancelled."""
    consumer = scene.consumer(close_timeout_s=5.0)
    scene.run_until(consumer.assign(partition_keys("t", 1)))
    worker = Worker(scene, consumer, seconds=1000.0)
    running = worker.run()
    scene.run_until(lambda: worker.started)
    started_s = scene.brokers.simulation.now_s
    scene.run_until(consumer.close())
    scene.run_until(running)
    assert 4.9 < scene.brokers.simulation.now_s - started_s < 7
    assert worker.cancelled == worker.started


def test_cancelled_run_returns_its_records(scene: Scene) -> None:
    """Cancelling a run cancels its handlers; the next run starts with their records."""
    consumer = scene.consumer()
    scene.run_until(consumer.assign(partition_keys("t", 3)))
    worker = Worker(scene, consumer, seconds=1.0)
    running = worker.run()
    scene.run_until(lambda: len(worker.started) == 6)
    left: list[object] = []
    running.addErrback(left.append)
    running.cancel()
    assert len(left) == 1
    assert len(worker.cancelled) == 3
    assert consumer.positions == dict.fromkeys(partition_keys("t", 3), 1)
    worker.seconds = 0.01
    again = worker.run()
    scene.run_until(lambda: len(worker.done) == 60)
    for partition in range(3):
        assert worker.done_offsets(partition) == list(range(20))
    consumer.stop()
    scene.run_until(again)


def test_pause_and_seek_during_a_handler(scene: Scene) -> None:
    """The handler completes its current record; then the pause or seek takes effect."""
    consumer = scene.consumer()
    (key,) = partition_keys("t", 1)
    scene.run_until(consumer.assign([key]))
    worker = Worker(scene, consumer, seconds=1.0)
    running = worker.run()
    scene.run_until(lambda: len(worker.started) == 3)
    consumer.pause([key])
    scene.run(10)
    assert worker.done_offsets(0) == [0, 1, 2]
    assert consumer.position(key) == 3
    consumer.resume([key])
    scene.run_until(lambda: len(worker.started) == 5)
    scene.run_until(consumer.seek(key, 18))
    scene.run(10)
    assert worker.done_offsets(0) == [0, 1, 2, 3, 4, 18, 19]
    consumer.stop()
    scene.run_until(running)
