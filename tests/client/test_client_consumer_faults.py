"""Dead leaders, truncated and compacted logs, deleted topics, suspended brokers."""

from __future__ import annotations

import pytest
from client_consumer_scene import Scene, keys, values

from kreplica.client.producer import Producer, ProducerOptions
from kreplica.client_core.errors import GaveUp, LogTruncated
from kreplica.client_core.fetched_batches import Isolation
from kreplica.model import TopicPartition
from kreplica.settings.definitions.replication import RACK_AWARE_SELECTOR

(T0,) = keys("t", 1)


@pytest.fixture
def scene():
    """Three brokers."""
    made = Scene(seed=13, brokers=3)
    yield made
    made.close()


def test_leaders_die(scene: Scene) -> None:
    """The new leader takes over; no record is lost, duplicated or reordered."""
    scene.create("t", 1, replicas=3)
    consumer = scene.consumer()
    scene.run_until(consumer.assign([T0]))
    for start in (0, 20, 40):
        scene.write("t", 0, [str(number) for number in range(start, start + 20)], batch=3)
        assert values(scene.read(consumer, 10)) == [str(number) for number in range(start, start + 10)]
        leader = scene.simulated.leader_of("t", 0)
        scene.simulated.brokers[leader].kill()
        assert values(scene.read(consumer, 10)) == [str(number) for number in range(start + 10, start + 20)]
        scene.run_until(scene.simulated.brokers[leader].start())
        scene.simulated.wait_in_sync("t", [0])


def test_suspended_broker(scene: Scene) -> None:
    """The fetch times out, and the consumer reads from the new leader."""
    scene.create("t", 1, replicas=3)
    cluster = scene.cluster(request_timeout_s=5.0)
    consumer = scene.consumer(cluster=cluster)
    scene.run_until(consumer.assign([T0]))
    scene.write("t", 0, ["a"])
    assert values(scene.read(consumer, 1)) == ["a"]
    host = scene.simulated.brokers[scene.simulated.leader_of("t", 0)].host
    host.pause()
    before = scene.simulated.leader_of("t", 0)
    scene.run_until(lambda: scene.simulated.leader_of("t", 0) not in (before, -1))
    scene.write("t", 0, ["b"])
    assert values(scene.read(consumer, 1)) == ["b"]
    host.resume()
    scene.write("t", 0, ["c"])
    assert values(scene.read(consumer, 1)) == ["c"]


def diverged(scene: Scene) -> None:
    """Return a cluster whose log has ten records; its last five differ from the original ones."""
    scene.create("t", 1, assignment=[[1, 2]], configs={"unclean.leader.election.enable": "true"})
    scene.write("t", 0, [str(number) for number in range(5)], batch=1)


def truncate_by_failover(scene: Scene) -> None:
    """Let broker 2 with five records lead instead of broker 1 with ten."""
    one, two = scene.simulated.brokers[1], scene.simulated.brokers[2]
    one.kill()
    scene.run_until(two.start())
    scene.run_until(lambda: scene.simulated.leader_of("t", 0) == 2, 120)
    scene.write("t", 0, [f"new {number}" for number in range(5)], batch=1)


@pytest.mark.parametrize("reset", ["earliest", "fail"])
def test_truncated_log(scene: Scene, reset: str) -> None:
    """The consumer resumes at the divergence, or fails if ``offset_reset`` is ``FAIL`` (KIP-320)."""
    diverged(scene)
    consumer = scene.consumer(offset_reset=reset)
    scene.run_until(consumer.assign({T0: 0}))
    scene.read(consumer, 5)
    scene.run_until(scene.simulated.brokers[2].stop())
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
    """The consumer waits for the topic and reads it from its start, independent of the old position."""
    scene.create("t")
    scene.write("t", 0, [str(number) for number in range(10)])
    consumer = scene.consumer()
    scene.run_until(consumer.assign([T0]))
    scene.read(consumer, 10)
    client = scene.simulated.client()
    scene.run_until(client.delete_topic("t"))
    scene.run(5)
    assert scene.poll(consumer, timeout_s=1.0) == []
    scene.run_until(client.create_topic("t"))
    scene.run_until(client.close())
    scene.write("t", 0, [f"new {number}" for number in range(20)])
    assert values(scene.read(consumer, 20)) == [f"new {number}" for number in range(20)]


def test_transactions(scene: Scene) -> None:
    """Aborted records are skipped, and open ones not read yet; read_uncommitted returns all records but no markers."""
    scene.create("t")
    one, two, three = (
        Producer(scene.cluster(), ProducerOptions(transactional_id=name, transaction_timeout_s=600.0))
        for name in ("one", "two", "three")
    )

    async def write(producer: Producer, text: str) -> None:
        producer.send("t", text.encode(), partition=0).addErrback(lambda _: None)
        await producer.flush()

    async def read_everything() -> None:
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

    scene.run_until(read_everything())
    committed = scene.consumer(isolation=Isolation.READ_COMMITTED)
    scene.run_until(committed.assign({T0: 0}))
    assert values(scene.read(committed, 2)) == ["committed 1", "committed 2"]
    assert scene.poll(committed, timeout_s=1.0) == []
    assert committed.position(T0) == 7
    assert scene.run_until(committed.lag()) == {T0: 0}
    every = scene.consumer()
    scene.run_until(every.assign({T0: 0}))
    assert values(scene.read(every, 5)) == ["aborted 1", "committed 1", "aborted 2", "committed 2", "open"]
    for producer in (one, two, three):
        scene.run_until(producer.close(flush=False))


def test_nearest_replica_is_read_while_it_is_available() -> None:
    """The replica that the leader names is used until it is no longer available (KIP-392)."""
    scene = Scene(13, 3, racks={1: "a", 2: "b", 3: "c"}, overrides=[f"replica.selector.class={RACK_AWARE_SELECTOR}"])
    scene.create("t", assignment=[[1, 2, 3]])
    consumer = scene.consumer(rack_id="b", fetch_wait_s=0.2)
    scene.run_until(consumer.assign([T0]))
    scene.write("t", 0, ["1"])
    assert values(scene.read(consumer, 1)) == ["1"]
    reading = consumer._flow.states[T0]
    assert reading.preferred == 2
    scene.run_until(scene.simulated.brokers[2].stop())
    scene.write("t", 0, ["2"])
    assert values(scene.read(consumer, 1)) == ["2"]
    assert reading.preferred == -1
    scene.run_until(scene.simulated.brokers[2].start())
    scene.simulated.wait_in_sync("t", [0])
    scene.write("t", 0, ["3"])
    assert values(scene.read(consumer, 1)) == ["3"]
    scene.run(1)
    assert reading.preferred == 2
    scene.close()


def test_partition_that_is_created_later(scene: Scene) -> None:
    """A missing partition is an error of ``assign``, which then changes nothing."""
    scene.create("t")
    consumer = scene.consumer()
    with pytest.raises(GaveUp):
        scene.run_until(consumer.assign({TopicPartition("t", 7): -2}), 100)
    assert consumer.assignment == frozenset()
