"""Records that a producer sends are in the log, once and in order."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from producer_scene import Scene

from kreplica.model import TopicPartition


@pytest.fixture
def scene() -> Iterator[Scene]:
    """One broker."""
    scene = Scene()
    yield scene
    scene.close()


def test_a_record_is_written(scene: Scene) -> None:
    """With all that belongs to it; its Deferred says where."""
    producer = scene.producer()
    written = scene.run(producer.send("t", b"value", key=b"key", headers=(("h", b"1"),), partition=2))
    assert written.partition == TopicPartition("t", 2)
    assert written.offset == 0
    assert [(each.key, each.value, each.headers, each.timestamp_ms) for each in scene.records(2)] == [
        (b"key", b"value", (("h", b"1"),), written.timestamp_ms)
    ]


def test_many_records_in_order(scene: Scene) -> None:
    """Batches of one partition go one behind the other, and every Deferred knows its offset."""
    producer = scene.producer(batch_size=500)
    sent = [producer.send("t", b"%d" % number, partition=number % 4) for number in range(2000)]
    scene.run(producer.flush())
    offsets = [scene.run(each).offset for each in sent]
    assert offsets == [number // 4 for number in range(2000)]
    for partition in range(4):
        assert scene.values(partition) == [b"%d" % number for number in range(partition, 2000, 4)]
