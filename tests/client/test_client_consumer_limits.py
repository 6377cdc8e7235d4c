"""Memory limits, fair rotation, and responses smaller than requested."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest
from client_consumer_scene import Scene, keys, values

from kreplica.client.consumer import ConsumedRecord
from kreplica.model import TopicPartition

SIZE = 10_000
PADDING = "x" * SIZE


def numbers(records: Iterable[ConsumedRecord]) -> list[int]:
    return [int(value.split()[0]) for value in values(records)]


@pytest.fixture
def scene() -> Iterator[Scene]:
    """Four partitions, two of them with many large records."""
    made = Scene(seed=14)
    made.create("t", 4)
    for partition in (0, 1):
        made.write("t", partition, [f"{number} {PADDING}" for number in range(40)], batch=1)
    yield made
    made.close()


def test_memory_is_bounded(scene: Scene) -> None:
    """Buffered data stays below the limit for any log size."""
    consumer = scene.consumer(buffer_size_max=60_000, partition_size_max=25_000, fetch_size_max=50_000)
    scene.run_until(consumer.assign(keys("t", 4)))
    seen = 0
    while seen < 80:
        scene.run(1)
        stocked = sum(reading.buffer.size for reading in consumer._flow.states.values())
        assert stocked <= 60_000 + 2 * SIZE
        seen += len(scene.read(consumer, 1))


def test_paused_partitions_release_memory(scene: Scene) -> None:
    """Paused partitions do not prevent reading others; their buffers are fetched again."""
    consumer = scene.consumer(buffer_size_max=40_000, partition_size_max=20_000)
    scene.run_until(consumer.assign(keys("t", 1)))
    scene.read(consumer, 1)
    scene.run(2)
    consumer.pause(keys("t", 1))
    scene.run_until(consumer.assign(keys("t", 2)))
    assert numbers(scene.read(consumer, 40)) == list(range(40))
    consumer.resume(keys("t", 1))
    assert numbers(scene.read(consumer, 39)) == list(range(1, 40))


def test_partitions_are_delivered_in_turn(scene: Scene) -> None:
    """Each of them has many records."""
    consumer = scene.consumer(partition_size_max=30_000)
    scene.run_until(consumer.assign(keys("t", 4)))
    partitions = [record.partition for record in scene.read(consumer, 40)]
    assert abs(partitions.count(0) - partitions.count(1)) <= 6


def test_quiet_partitions_are_read_while_others_are_full(scene: Scene) -> None:
    """A record of a quiet partition arrives soon, although buffers of other partitions are full."""
    consumer = scene.consumer(partition_size_max=20_000)
    scene.run_until(consumer.assign(keys("t", 4)))
    scene.read(consumer, 1)
    scene.run(3)
    scene.write("t", 3, ["quiet"])
    scene.run(1.5)
    consumer.pause(keys("t", 2))
    batches = scene.poll(consumer, timeout_s=0.0)
    assert [values(batch) for batch in batches] == [["quiet"]]


def test_batch_larger_than_all_limits(scene: Scene) -> None:
    """The batch is still delivered."""
    scene.write("t", 2, ["x" * 300_000])
    consumer = scene.consumer(partition_size_max=1000, fetch_size_max=1000, buffer_size_max=2000)
    scene.run_until(consumer.assign({keys("t", 3)[2]: 0}))
    assert len(values(scene.read(consumer, 1))[0]) == 300_000


def test_idle_broker_leaves_memory_for_others() -> None:
    """An idle broker's fetch does not reserve all memory."""
    scene = Scene(seed=11, brokers=2)
    scene.create("t", 2)
    assert {scene.simulated.leader_of("t", partition) for partition in (0, 1)} == {1, 2}
    for quiet, busy in ((0, 1), (1, 0)):
        consumer = scene.consumer(host=f"application-{quiet}", buffer_size_max=1000, fetch_size_max=1000)
        scene.run_until(consumer.assign(dict.fromkeys([TopicPartition("t", quiet)], 0)))
        scene.run(3.0)
        scene.run_until(consumer.assign(dict.fromkeys(keys("t", 2), 0)))
        scene.write("t", busy, ["news"])
        (record,) = scene.read(consumer, 1, timeout_s=5.0)
        assert record.partition == busy
        scene.run_until(consumer.close())
    scene.close()
