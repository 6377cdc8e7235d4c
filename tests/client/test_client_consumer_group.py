"""A consumer in a group: assignment, patterns, commits, and slow handlers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from client_consumer_scene import Scene, partition_keys
from twisted.internet.defer import Deferred

from kreplica.client.consumer import ConsumedRecord, Consumer
from kreplica.client.group import GroupOptions
from kreplica.runtime.pause import pause

PROTOCOLS = {
    "eager": {"protocol": "classic", "assignors": ("range",)},
    "cooperative": {"protocol": "classic", "assignors": ("cooperative-sticky",)},
    "consumer": {"protocol": "consumer"},
}


@pytest.fixture
def scene() -> Iterator[Scene]:
    """A broker, and the topic t with four partitions of ten records each."""
    consumer_scene = Scene(seed=15)
    consumer_scene.create("t", 4)
    for partition in range(4):
        consumer_scene.write("t", partition, [f"{partition}.{number}" for number in range(10)], batch=3)
    yield consumer_scene
    consumer_scene.close()


def member(scene: Scene, host: str, **options: Any) -> Consumer:
    """Return a member of the group."""
    group = {"session_timeout_s": 10.0, "heartbeat_interval_s": 1.0, **options}
    return scene.consumer(host, group=GroupOptions(group_id="g", **group), auto_commit_s=1.0)


class DelayingHandler:
    """A handler that waits for ``seconds`` per record, and notes the records that it has started and completed."""

    def __init__(self, scene: Scene, host: str, seconds: float) -> None:
        self.seconds = seconds
        self.started: list[tuple[int, int]] = []
        self.done: list[tuple[int, int]] = []
        self._reactor = scene.brokers.host(host).reactor

    async def __call__(self, record: ConsumedRecord) -> None:
        self.started.append((record.partition, record.offset))
        await pause(self._reactor, self.seconds)
        self.done.append((record.partition, record.offset))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_slow_handlers_keep_their_assignment(scene: Scene, protocol: str) -> None:
    """Handlers that take minutes per record keep their partitions, and every record is processed once."""
    consumers = [member(scene, host, **PROTOCOLS[protocol]) for host in ("one", "two")]
    for consumer in consumers:
        scene.run_until(consumer.subscribe(["t"]))
    scene.run_until(lambda: all(len(consumer.assignment) == 2 for consumer in consumers), 60)
    slow = [DelayingHandler(scene, host, 150.0) for host in ("one", "two")]
    assignments = [consumer.assignment for consumer in consumers]
    identities = [consumer.identity for consumer in consumers]
    running = [Deferred.fromCoroutine(consumer.run(each)) for consumer, each in zip(consumers, slow, strict=True)]
    scene.run_until(lambda: sum(len(each.done) for each in slow) == 8, 1000)
    assert [consumer.assignment for consumer in consumers] == assignments
    assert [consumer.identity for consumer in consumers] == identities
    for each in slow:
        each.seconds = 0.01
    scene.run_until(lambda: sum(len(each.done) for each in slow) == 40, 1000)
    assert sorted(slow[0].done + slow[1].done) == [
        (partition, offset) for partition in range(4) for offset in range(10)
    ]
    assert all(each.started == each.done or sorted(each.started) == sorted(each.done) for each in slow)
    for consumer in consumers:
        scene.run_until(consumer.close())
    for each in running:
        scene.run_until(each)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_slow_loop_keeps_its_assignment(scene: Scene, protocol: str) -> None:
    """A loop that takes minutes per record keeps its partitions, and no record is read twice."""
    one, two = (member(scene, host, **PROTOCOLS[protocol]) for host in ("one", "two"))
    for consumer in (one, two):
        scene.run_until(consumer.subscribe(["t"]))
    scene.run_until(lambda: len(one.assignment) == len(two.assignment) == 2, 60)
    first = scene.read(one, 1)
    others = scene.read(two, 20)
    scene.run(200)
    assert len(one.assignment) == 2
    seen = first + scene.read(one, 19) + others
    assert len({(record.partition, record.offset) for record in seen}) == len(seen) == 40


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_partitions_are_handed_over_in_order(scene: Scene, protocol: str) -> None:
    """The new owner of a partition starts after the last record that the previous owner has processed."""
    one = member(scene, "one", **PROTOCOLS[protocol])
    scene.run_until(one.subscribe(["t"]))
    scene.run_until(lambda: one.assignment == set(partition_keys("t", 4)))
    slow = DelayingHandler(scene, "one", 2.0)
    running = Deferred.fromCoroutine(one.run(slow))
    scene.run_until(lambda: len(slow.started) == 8)
    two = member(scene, "two", **PROTOCOLS[protocol])
    quick = DelayingHandler(scene, "two", 0.01)
    scene.run_until(two.subscribe(["t"]))
    running_two = Deferred.fromCoroutine(two.run(quick))
    scene.run_until(lambda: len(one.assignment) == len(two.assignment) == 2, 120)
    scene.run_until(lambda: len(slow.done) + len(quick.done) == 40, 120)
    assert sorted(slow.done + quick.done) == [(partition, offset) for partition in range(4) for offset in range(10)]
    scene.run_until(one.close())
    scene.run_until(lambda: len(two.assignment) == 4, 120)
    scene.write("t", 0, ["more"])
    scene.run_until(lambda: (0, 10) in quick.done)
    scene.run_until(two.close())
    for each in (running, running_two):
        scene.run_until(each)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_commit_includes_partitions_that_are_being_revoked(scene: Scene, protocol: str) -> None:
    """A revocation waits for delivered records; a commit marks them as processed."""
    group = GroupOptions(group_id="g", session_timeout_s=10.0, heartbeat_interval_s=1.0, **PROTOCOLS[protocol])
    one, two = (scene.consumer(host, group=group, auto_commit_s=None) for host in ("one", "two"))
    scene.run_until(one.subscribe(["t"]))
    scene.read(one, 40)
    joining = Deferred.fromCoroutine(two.subscribe(["t"]))
    scene.run(5)
    assert len(one.assignment) == 4
    scene.run_until(one.commit())
    committed = scene.run_until(one.committed(partition_keys("t", 4)))
    assert {key: each.offset for key, each in committed.items()} == dict.fromkeys(partition_keys("t", 4), 10)
    scene.run_until(joining)
    scene.run_until(lambda: len(one.assignment) == len(two.assignment) == 2, 60)


def test_topics_matching_a_pattern(scene: Scene) -> None:
    """The pattern matches whole topic names, and topics created later are found too."""
    consumer = scene.consumer(group_id="p", pattern_refresh_s=5.0)
    scene.run_until(consumer.subscribe(re.compile("t|u.*")))
    scene.run_until(lambda: consumer.assignment == set(partition_keys("t", 4)))
    scene.create("u1", 1)
    scene.create("tt", 1)
    scene.run_until(lambda: consumer.assignment == {*partition_keys("t", 4), *partition_keys("u1", 1)}, 60)
    scene.write("u1", 0, ["found"])
    records = scene.read(consumer, 41)
    assert {record.topic for record in records} == {"t", "u1"}
    scene.run_until(consumer.subscribe(["u1"]))
    scene.run_until(lambda: consumer.assignment == set(partition_keys("u1", 1)), 60)


def test_committed_offsets_are_the_start_positions(scene: Scene) -> None:
    """A consumer used as a context manager starts at the offsets that an earlier member committed before it left."""

    async def read(count: int) -> list[tuple[int, int]]:
        positions = []
        async with scene.consumer("one", group_id="q", topics=["t"]) as consumer:
            async for record in consumer:
                positions.append((record.partition, record.offset))
                if len(positions) == count:
                    await consumer.commit()
                    break
        return positions

    seen = scene.run_until(read(15)) + scene.run_until(read(25))
    assert sorted(seen) == [(partition, offset) for partition in range(4) for offset in range(10)]


def test_listener_can_use_the_consumer(scene: Scene) -> None:
    """Partitions are already assigned in ``on_assigned``, which may seek, and still assigned in ``on_revoked``."""
    events: list[tuple[str, int]] = []
    consumer = scene.consumer(group_id="l")

    class Listener:
        async def on_assigned(self, partitions: frozenset[Any]) -> None:
            events.append(("assigned", len(partitions)))
            for key in sorted(partitions):
                await consumer.seek(key, 8)

        async def on_revoked(self, partitions: frozenset[Any]) -> None:
            events.append(("revoked", len(partitions & consumer.assignment)))

        def on_lost(self, partitions: frozenset[Any]) -> None:
            events.append(("lost", len(partitions)))

        def on_ended(self, error: Exception) -> None:
            events.append(("ended", 0))

    scene.run_until(consumer.subscribe(["t"], listener=Listener()))
    records = scene.read(consumer, 8)
    assert {record.offset for record in records} == {8, 9}
    scene.run_until(consumer.close())
    assert events == [("assigned", 4), ("revoked", 4)]
    other = scene.consumer(group_id="l")
    scene.run_until(other.assign(partition_keys("t", 1)))
    with pytest.raises(ValueError, match="already assigned"):
        scene.run_until(other.subscribe(["t"]))
