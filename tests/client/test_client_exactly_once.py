"""Consuming and producing in transactions while partitions are lost and reassigned."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from client_consumer_scene import Scene, partition_keys, values
from twisted.internet.defer import Deferred

from kreplica.client.consumer import ConsumedRecord, Consumer
from kreplica.client.group import GroupIdentity, GroupOptions
from kreplica.client.producer import Producer, ProducerOptions
from kreplica.client_core.errors import TransactionFailed
from kreplica.client_core.fetched_batches import Isolation
from kreplica.runtime.pause import pause

OVERRIDES = ("group.min.session.timeout.ms=3000", "group.initial.rebalance.delay.ms=0")
(KEY,) = partition_keys("t", 1)


@pytest.fixture
def scene() -> Iterator[Scene]:
    """One broker, and the topic t with ten records."""
    consumer_scene = Scene(5, overrides=OVERRIDES)
    consumer_scene.create("t")
    consumer_scene.write("t", 0, [str(number) for number in range(10)])
    yield consumer_scene
    consumer_scene.close()


def member(scene: Scene, protocol: str) -> Consumer:
    """Return a member of the group."""
    group = GroupOptions(
        group_id="g", protocol=protocol, session_timeout_s=3.0, heartbeat_interval_s=1.0, rebalance_timeout_s=6.0
    )
    return scene.consumer(group=group, topics=["t"], auto_commit_s=None)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_records_of_a_lost_assignment_are_committed_or_read_again(scene: Scene, protocol: str) -> None:
    """After the member has rejoined, records of its lost partition are either committed or read again."""
    consumer = member(scene, protocol)
    (batch,) = scene.poll(consumer, timeout_s=10.0)
    before = consumer.identity
    scene.brokers.simulation.network.isolate("application")
    scene.run_until(lambda: not consumer.assignment, timeout_s=60.0)
    scene.brokers.simulation.network.heal()
    scene.run_until(lambda: consumer.assignment == {KEY}, timeout_s=60.0)
    scene.run(2.0)
    assert consumer.identity == before
    producer = Producer(scene.cluster("producer"), ProducerOptions(transactional_id="p"))
    refused = commit_is_refused(scene, producer, consumer, batch.next_offset)
    assert refused or protocol == "consumer"  # the epoch is unchanged if no other member owned the partition
    scene.write("t", 0, ["more"])
    records = scene.read(consumer, 11 if refused else 1)
    assert values(records) == [*(values(batch) if refused else ()), "more"]
    assert not commit_is_refused(scene, producer, consumer, 11)
    assert scene.run_until(consumer.committed([KEY]))[KEY].offset == 11
    scene.run_until(producer.close())


def commit_is_refused(scene: Scene, producer: Producer, consumer: Consumer, offset: int) -> bool:
    """Commit an offset in a transaction, and return True if the commit was refused."""

    async def commit() -> bool:
        try:
            async with producer.transaction():
                await producer.send_offsets({KEY: offset}, consumer.identity)
        except TransactionFailed:
            return True
        return False

    return scene.run_until(commit())


def test_transaction_with_refused_offsets_is_aborted(scene: Scene) -> None:
    """The abort does not fence the producer, and its next transaction succeeds."""
    producer = Producer(scene.cluster("producer"), ProducerOptions(transactional_id="p"))

    async def commit(group: GroupIdentity) -> None:
        async with producer.transaction():
            await producer.send("t", b"eleven")
            await producer.send_offsets({KEY: 1}, group)

    with pytest.raises(TransactionFailed, match=r"UNKNOWN_MEMBER_ID|ILLEGAL_GENERATION"):
        scene.run_until(commit(GroupIdentity("g", 7, "nobody")))
    scene.run_until(commit(GroupIdentity("g")))
    consumer = scene.consumer(isolation=Isolation.READ_COMMITTED)
    scene.run_until(consumer.assign({KEY: 0}))
    assert values(scene.read(consumer, 11))[-1] == "eleven"
    scene.run_until(producer.close())


def test_handler_of_a_lost_and_returned_partition(scene: Scene) -> None:
    """The record that was being processed is delivered again, followed by all later records."""
    consumer = member(scene, "classic")
    seen: list[str] = []

    async def handle(record: ConsumedRecord) -> None:
        seen.append((record.value or b"").decode())
        if len(seen) == 1:
            await pause(scene.brokers.host("application").reactor, 30.0)

    running = Deferred.fromCoroutine(consumer.run(handle))
    scene.run_until(lambda: len(seen) == 1)
    scene.brokers.simulation.network.isolate("application")
    scene.run_until(lambda: not consumer.assignment)
    scene.brokers.simulation.network.heal()
    scene.run_until(lambda: len(seen) == 11, timeout_s=60.0)
    assert seen == ["0", *(str(number) for number in range(10))]
    consumer.stop()
    scene.run_until(running)
