"""What a consumer reads that is told which partitions to read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from client_consumer_scene import Scene, keys

from kreplica.model import TopicPartition
from kreplica.sansio.offsets import EARLIEST


@pytest.fixture
def scene() -> Iterator[Scene]:
    """Two brokers and the topic t with two partitions."""
    made = Scene(seed=11, brokers=2)
    made.create("t", 2)
    yield made
    made.close()


def test_records_come_in_order_from_all_partitions(scene: Scene) -> None:
    """Each with its key, value, headers and place."""
    for partition in (0, 1):
        scene.write("t", partition, [f"{partition}.{number}" for number in range(50)], batch=7)
    consumer = scene.consumer()
    scene.run_until(consumer.assign(dict.fromkeys(keys("t", 2), EARLIEST)))
    records = scene.read(consumer, 100)
    for partition in (0, 1):
        own = [record for record in records if record.partition == partition]
        assert [record.offset for record in own] == list(range(50))
        assert [record.value for record in own] == [f"{partition}.{number}".encode() for number in range(50)]
    first = records[0]
    assert first.topic == "t"
    assert first.topic_partition == TopicPartition("t", first.partition)
    assert first.key == b"k"
    assert first.headers == (("h", b"v"),)
    assert first.leader_epoch >= 0
    assert consumer.positions == dict.fromkeys(keys("t", 2), 50)


def test_a_broker_without_news_leaves_room_for_others(scene: Scene) -> None:
    """Though what it is asked for might take all the room there is."""
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
