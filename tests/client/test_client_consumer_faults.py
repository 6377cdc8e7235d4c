"""Dead leaders, truncated and compacted logs, deleted topics, suspended brokers."""

from __future__ import annotations

import pytest
from client_consumer_scene import Scene, partition_keys, values

from kreplica.client.producer import Producer, ProducerOptions
from kreplica.client_core.errors import GaveUp, LogTruncated
from kreplica.client_core.fetched_batches import Isolation
from kreplica.model import TopicPartition
from kreplica.settings.definitions.replication import RACK_AWARE_SELECTOR

(T0,) = partition_keys("t", 1)


@pytest.fixture
def scene():
    """Three brokers."""
    consumer_scene = Scene(seed=13, brokers=3)
    yield consumer_scene
    consumer_scene.close()


def test_leaders_die(scene: Scene) -> None:
    """The new leader takes over; no record is lost, duplicated or reordered."""
    scene.create("t", 1, replicas=3)
    consumer = scene.consumer()
    scene.run_until(consumer.assign([T0]))
    for start in (0, 20, 40):
        scene.write("t", 0, [str(number) for number in range(start, start + 20)], batch=3)
        assert values(scene.read(consumer, 10)) == [str(number) for number in range(start, start + 10)]
        leader = scene.brokers.leader_of("t", 0)
        scene.brokers.brokers[leader].kill()
        assert values(scene.read(consumer, 10)) == [str(number) for number in range(start + 10, start + 20)]
        scene.run_until(scene.brokers.brokers[leader].start())
        scene.brokers.wait_in_sync("t", [0])


def test_suspended_broker(scene: Scene) -> None:
    """When the leader is suspended, the fetch times out, and the consumer reads from the new leader."""
    scene.create("t", 1, replicas=3)
    cluster = scene.cluster(request_timeout_s=5.0)
    consumer = scene.consumer(cluster=cluster)
    scene.run_until(consumer.assign([T0]))
    scene.write("t", 0, ["a"])
    assert values(scene.read(consumer, 1)) == ["a"]
    host = scene.brokers.brokers[scene.brokers.leader_of("t", 0)].host
    host.pause()
    before = scene.brokers.leader_of("t", 0)
    scene.run_until(lambda: scene.brokers.leader_of("t", 0) not in (before, -1))
    scene.write("t", 0, ["b"])
    assert values(scene.read(consumer, 1)) == ["b"]
    host.resume()
    scene.write("t", 0, ["c"])
    assert values(scene.read(consumer, 1)) == ["c"]


def create_common_prefix(scene: Scene) -> None:
    """Create the topic on brokers 1 and 2, and write the five records that both logs keep."""
    scene.create("t", 1, assignment=[[1, 2]], configs={"unclean.leader.election.enable": "true"})
    scene.write("t", 0, [str(number) for number in range(5)], batch=1)


def truncate_by_failover(scene: Scene) -> None:
    """Replace the leader, broker 1 with ten records, by broker 2 with five, and write five other records."""
    one, two = scene.brokers.brokers[1], scene.brokers.brokers[2]
    one.kill()
    scene.run_until(two.start())
    scene.run_until(lambda: scene.brokers.leader_of("t", 0) == 2, 120)
    scene.write("t", 0, [f"new {number}" for number in range(5)], batch=1)


@pytest.mark.parametrize("reset", ["earliest", "fail"])
def test_truncated_log(scene: Scene, reset: str) -> None:
    """The consumer resumes at the diverging offset, or fails if ``offset_reset`` is FAIL (KIP-320)."""
    create_common_prefix(scene)
    consumer = scene.consumer(offset_reset=reset)
    scene.run_until(consumer.assign({T0: 0}))
    scene.read(consumer, 5)
    scene.run_until(scene.brokers.brokers[2].stop())
    scene.write("t", 0, [str(number) for number in range(5, 10)], batch=1)
    assert values(scene.read(consumer, 5)) == [str(number) for number in range(5, 10)]
    truncate_by_failover(scene)
    if reset == "fail":
        with pytest.raises(LogTruncated) as caught:
            scene.read(consumer, 1)
        assert (caught.value.offset, caught.value.diverging_offset) == (10, 5)
        scene.run_until(consumer.seek(T0, 5))
    assert values(scene.read(consumer, 5)) == [f"new {number}" for number in range(5)]


def test_recreated_topic(scene: Scene) -> None:
    """The consumer waits for the topic and reads it from the start, regardless of the old position."""
    scene.create("t")
    scene.write("t", 0, [str(number) for number in range(10)])
    consumer = scene.consumer()
    scene.run_until(consumer.assign([T0]))
    scene.read(consumer, 10)
    client = scene.brokers.client()
    scene.run_until(client.delete_topic("t"))
    scene.run(5)
    assert scene.poll(consumer, timeout_s=1.0) == []
    scene.run_until(client.create_topic("t"))
    scene.run_until(client.close())
    scene.write("t", 0, [f"new {number}" for number in range(20)])
    assert values(scene.read(consumer, 20)) == [f"new {number}" for number in range(20)]


def test_transactions(scene: Scene) -> None:
    """read_committed skips aborted records and stops before open ones; read_uncommitted returns all records."""
    scene.create("t")
    one, two, three = (
        Producer(scene.cluster(), ProducerOptions(transactional_id=name, transaction_timeout_s=600.0))
        for name in ("one", "two", "three")
    )

    async def write(producer: Producer, text: str) -> None:
        producer.send("t", text.encode(), partition=0).addErrback(lambda _: None)
        await producer.flush()

    async def write_transactions() -> None:
        for producer in (one, two, three):
            await producer.begin()
        await write(one, "aborted 1")
        await write(two, "committed 1")
        await write(one, "aborted 2")
        await one.abort()
        await two.commit()
        await one.begin()
        await write(one, "committed 2")
        await one.commit()
        await write(three, "open")

    scene.run_until(write_transactions())
    committed = scene.consumer(isolation=Isolation.READ_COMMITTED)
    scene.run_until(committed.assign({T0: 0}))
    assert values(scene.read(committed, 2)) == ["committed 1", "committed 2"]
    assert scene.poll(committed, timeout_s=1.0) == []
    assert committed.position(T0) == 7
    assert scene.run_until(committed.lag()) == {T0: 0}
    uncommitted = scene.consumer()
    scene.run_until(uncommitted.assign({T0: 0}))
    assert values(scene.read(uncommitted, 5)) == ["aborted 1", "committed 1", "aborted 2", "committed 2", "open"]
    for producer in (one, two, three):
        scene.run_until(producer.close(flush=False))


def test_nearest_replica_is_read_while_it_is_up() -> None:
    """The consumer reads from the replica named by the leader until that replica stops (KIP-392)."""
    scene = Scene(13, 3, racks={1: "a", 2: "b", 3: "c"}, overrides=[f"replica.selector.class={RACK_AWARE_SELECTOR}"])
    scene.create("t", assignment=[[1, 2, 3]])
    consumer = scene.consumer(rack_id="b", fetch_wait_s=0.2)
    scene.run_until(consumer.assign([T0]))
    scene.write("t", 0, ["1"])
    assert values(scene.read(consumer, 1)) == ["1"]
    state = consumer._flow.states[T0]
    assert state.preferred == 2
    scene.run_until(scene.brokers.brokers[2].stop())
    scene.write("t", 0, ["2"])
    assert values(scene.read(consumer, 1)) == ["2"]
    assert state.preferred == -1
    scene.run_until(scene.brokers.brokers[2].start())
    scene.brokers.wait_in_sync("t", [0])
    scene.write("t", 0, ["3"])
    assert values(scene.read(consumer, 1)) == ["3"]
    scene.run(1)
    assert state.preferred == 2
    scene.close()


def test_assignment_of_a_missing_partition(scene: Scene) -> None:
    """``assign`` raises an error and changes nothing."""
    scene.create("t")
    consumer = scene.consumer()
    with pytest.raises(GaveUp):
        scene.run_until(consumer.assign({TopicPartition("t", 7): -2}), 100)
    assert consumer.assignment == frozenset()
