"""Memory limits, and fairness between partitions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest
from client_consumer_scene import Scene, partition_keys, values

from kreplica.client.consumer import ConsumedRecord
from kreplica.model import TopicPartition

SIZE = 10_000
PADDING = "x" * SIZE


def numbers(records: Iterable[ConsumedRecord]) -> list[int]:
    return [int(value.split()[0]) for value in values(records)]


@pytest.fixture
def scene() -> Iterator[Scene]:
    """The topic t with four partitions; two have many large records."""
    consumer_scene = Scene(seed=14)
    consumer_scene.create("t", 4)
    for partition in (0, 1):
        consumer_scene.write("t", partition, [f"{number} {PADDING}" for number in range(40)], batch=1)
    yield consumer_scene
    consumer_scene.close()


def test_memory_is_bounded(scene: Scene) -> None:
    """Buffered data stays within the limit while a larger log is read."""
    consumer = scene.consumer(buffer_size_max=60_000, partition_size_max=25_000, fetch_size_max=50_000)
    scene.run_until(consumer.assign(partition_keys("t", 4)))
    seen = 0
    while seen < 80:
        scene.run(1)
        buffered = sum(reading.buffer.size for reading in consumer._flow.states.values())
        assert buffered <= 60_000 + 2 * SIZE
        seen += len(scene.read(consumer, 1))


def test_paused_partitions_release_memory(scene: Scene) -> None:
    """Buffers of paused partitions are released for other partitions, and are fetched again after the resume."""
    consumer = scene.consumer(buffer_size_max=40_000, partition_size_max=20_000)
    scene.run_until(consumer.assign(partition_keys("t", 1)))
    scene.read(consumer, 1)
    scene.run(2)
    consumer.pause(partition_keys("t", 1))
    scene.run_until(consumer.assign(partition_keys("t", 2)))
    assert numbers(scene.read(consumer, 40)) == list(range(40))
    consumer.resume(partition_keys("t", 1))
    assert numbers(scene.read(consumer, 39)) == list(range(1, 40))


def test_partitions_are_delivered_in_turn(scene: Scene) -> None:
    """Two partitions with many records are delivered at about the same rate."""
    consumer = scene.consumer(partition_size_max=30_000)
    scene.run_until(consumer.assign(partition_keys("t", 4)))
    partitions = [record.partition for record in scene.read(consumer, 40)]
    assert abs(partitions.count(0) - partitions.count(1)) <= 6


def test_quiet_partitions_are_read_while_others_are_full(scene: Scene) -> None:
    """A record of a quiet partition arrives soon, although the buffers of other partitions are full."""
    consumer = scene.consumer(partition_size_max=20_000)
    scene.run_until(consumer.assign(partition_keys("t", 4)))
    scene.read(consumer, 1)
    scene.run(3)
    scene.write("t", 3, ["quiet"])
    scene.run(1.5)
    consumer.pause(partition_keys("t", 2))
    batches = scene.poll(consumer, timeout_s=0.0)
    assert [values(batch) for batch in batches] == [["quiet"]]


def test_batch_larger_than_all_limits(scene: Scene) -> None:
    """A batch that is larger than all limits is still delivered."""
    scene.write("t", 2, ["x" * 300_000])
    consumer = scene.consumer(partition_size_max=1000, fetch_size_max=1000, buffer_size_max=2000)
    scene.run_until(consumer.assign({partition_keys("t", 3)[2]: 0}))
    assert len(values(scene.read(consumer, 1))[0]) == 300_000


def test_idle_broker_leaves_memory_for_others() -> None:
    """A pending fetch from an idle broker does not reserve all memory."""
    scene = Scene(seed=11, brokers=2)
    scene.create("t", 2)
    assert {scene.brokers.leader_of("t", partition) for partition in (0, 1)} == {1, 2}
    for quiet, busy in ((0, 1), (1, 0)):
        consumer = scene.consumer(host=f"application-{quiet}", buffer_size_max=1000, fetch_size_max=1000)
        scene.run_until(consumer.assign(dict.fromkeys([TopicPartition("t", quiet)], 0)))
        scene.run(3.0)
        scene.run_until(consumer.assign(dict.fromkeys(partition_keys("t", 2), 0)))
        scene.write("t", busy, ["news"])
        (record,) = scene.read(consumer, 1, timeout_s=5.0)
        assert record.partition == busy
        scene.run_until(consumer.close())
    scene.close()
