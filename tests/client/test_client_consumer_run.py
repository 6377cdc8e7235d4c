"""Handlers: order, concurrency, commits and errors."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from client_consumer_scene import Scene, keys
from twisted.internet.defer import CancelledError, Deferred

from kreplica.client.consumer import Concurrency, ConsumedBatch, ConsumedRecord, Consumer
from kreplica.runtime.pause import pause


@pytest.fixture
def scene() -> Iterator[Scene]:
    """A broker and the topic t with three partitions of twenty records."""
    made = Scene(seed=12)
    made.create("t", 3)
    for partition in range(3):
        made.write("t", partition, [f"{partition}.{number}" for number in range(20)], batch=8)
    yield made
    made.close()


class Worker:
    """A handler that waits, and records its calls."""

    def __init__(self, scene: Scene, consumer: Consumer, seconds: float = 0.1) -> None:
        self.seconds = seconds
        self.begun: list[ConsumedRecord] = []
        self.done: list[ConsumedRecord] = []
        self.cancelled: list[ConsumedRecord] = []
        self.at_once_max = 0
        self.fails_at = ("", 0)
        self._scene = scene
        self._consumer = consumer
        self._at_once = 0

    async def __call__(self, record: ConsumedRecord) -> None:
        self.begun.append(record)
        self._at_once += 1
        self.at_once_max = max(self.at_once_max, self._at_once)
        try:
            await pause(self._scene.simulated.host("application").reactor, self.seconds)
            if record.value == self.fails_at[0].encode():
                raise ValueError(self.fails_at[0])
        except CancelledError:
            self.cancelled.append(record)
            raise
        finally:
            self._at_once -= 1
        self.done.append(record)

    def done_of(self, partition: int) -> list[int]:
        return [record.offset for record in self.done if record.partition == partition]

    def run(self, **options: object) -> Deferred[None]:
        return Deferred.fromCoroutine(self._consumer.run(self, **options))


@pytest.mark.parametrize(("concurrency", "expected"), [(Concurrency.PARTITION, 3), (Concurrency.SERIAL, 1), (2, 2)])
def test_partitions_are_processed_concurrently(scene: Scene, concurrency: Concurrency | int, expected: int) -> None:
    """The records of each partition are processed in order."""
    consumer = scene.consumer()
    scene.run_until(consumer.assign(keys("t", 3)))
    worker = Worker(scene, consumer)
    running = worker.run(concurrency=concurrency)
    scene.run_until(lambda: len(worker.done) == 60)
    assert worker.at_once_max == expected
    for partition in range(3):
        assert worker.done_of(partition) == list(range(20))
    consumer.stop()
    scene.run_until(running)


def test_batch_handlers(scene: Scene) -> None:
    """Batch handlers get whole batches; processed ones are committed."""
    consumer = scene.consumer(group_id="g")
    scene.run_until(consumer.assign(keys("t", 3)))
    seen: list[ConsumedBatch] = []

    async def handle(batch: ConsumedBatch) -> None:
        seen.append(batch)
        if sum(len(each) for each in seen) == 60:
            consumer.stop()

    scene.run_until(consumer.run(handle, by="batch"))
    assert [len(batch) for batch in seen] == [20, 20, 20]
    scene.run_until(consumer.close())
    again = scene.consumer(group_id="g")
    committed = scene.run_until(again.committed(keys("t", 3)))
    assert {key: offset.offset for key, offset in committed.items()} == dict.fromkeys(keys("t", 3), 20)


def test_failing_handler_ends_the_run(scene: Scene) -> None:
    """Other handlers complete; the failed record is delivered again and not committed."""
    consumer = scene.consumer(group_id="g")
    scene.run_until(consumer.assign(keys("t", 3)))
    worker = Worker(scene, consumer)
    worker.fails_at = ("1.5", 5)
    with pytest.raises(ValueError, match=r"1\.5"):
        scene.run_until(worker.run())
    assert worker.done_of(1) == list(range(5))
    assert not worker.cancelled
    assert len(worker.done) == len(worker.begun) - 1
    positions = {key: len(worker.done_of(key.partition)) for key in keys("t", 3)}
    assert consumer.positions == positions
    worker.fails_at = ("", 0)
    running = worker.run()
    scene.run_until(lambda: len(worker.done) == 60)
    assert worker.done_of(1) == list(range(20))
    scene.run(6)  # the consumer commits automatically
    committed = scene.run_until(consumer.committed(keys("t", 3)))
    assert {key: offset.offset for key, offset in committed.items()} == dict.fromkeys(keys("t", 3), 20)
    consumer.stop()
    scene.run_until(running)


def test_close_lets_handlers_finish(scene: Scene) -> None:
    """Handlers complete their current records, which are committed."""
    consumer = scene.consumer(group_id="g")
    scene.run_until(consumer.assign(keys("t", 3)))
    worker = Worker(scene, consumer, seconds=2.0)
    running = worker.run()
    scene.run_until(lambda: len(worker.begun) == 6)
    scene.run_until(consumer.close())
    scene.run_until(running)
    assert len(worker.done) == len(worker.begun) == 6
    assert not worker.cancelled
    again = scene.consumer(group_id="g")
    committed = scene.run_until(again.committed(keys("t", 3)))
    assert {key: offset.offset for key, offset in committed.items()} == dict.fromkeys(keys("t", 3), 2)


def test_close_timeout(scene: Scene) -> None:
    """A handler beyond the timeout is cancelled."""
    consumer = scene.consumer(close_timeout_s=5.0)
    scene.run_until(consumer.assign(keys("t", 1)))
    worker = Worker(scene, consumer, seconds=1000.0)
    running = worker.run()
    scene.run_until(lambda: worker.begun)
    began = scene.simulated.simulation.now_s
    scene.run_until(consumer.close())
    scene.run_until(running)
    assert 4.9 < scene.simulated.simulation.now_s - began < 7
    assert worker.cancelled == worker.begun


def test_cancelled_run_returns_its_records(scene: Scene) -> None:
    """Handlers are cancelled; the next run starts with their records."""
    consumer = scene.consumer()
    scene.run_until(consumer.assign(keys("t", 3)))
    worker = Worker(scene, consumer, seconds=1.0)
    running = worker.run()
    scene.run_until(lambda: len(worker.begun) == 6)
    left: list[object] = []
    running.addErrback(left.append)
    running.cancel()
    assert len(left) == 1
    assert len(worker.cancelled) == 3
    assert consumer.positions == dict.fromkeys(keys("t", 3), 1)
    worker.seconds = 0.01
    again = worker.run()
    scene.run_until(lambda: len(worker.done) == 60)
    for partition in range(3):
        assert worker.done_of(partition) == list(range(20))
    consumer.stop()
    scene.run_until(again)


def test_pause_and_seek_during_a_handler(scene: Scene) -> None:
    """The current record is completed; then the pause or seek takes effect."""
    consumer = scene.consumer()
    (key,) = keys("t", 1)
    scene.run_until(consumer.assign([key]))
    worker = Worker(scene, consumer, seconds=1.0)
    running = worker.run()
    scene.run_until(lambda: len(worker.begun) == 3)
    consumer.pause([key])
    scene.run(10)
    assert worker.done_of(0) == [0, 1, 2]
    assert consumer.position(key) == 3
    consumer.resume([key])
    scene.run_until(lambda: len(worker.begun) == 5)
    scene.run_until(consumer.seek(key, 18))
    scene.run(10)
    assert worker.done_of(0) == [0, 1, 2, 3, 4, 18, 19]
    consumer.stop()
    scene.run_until(running)
