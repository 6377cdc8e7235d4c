"""Dead brokers, broken connections, lost responses: records are written once and in order, or fail with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from producer_scene import Scene
from twisted.internet.defer import Deferred

from kreplica.client.producer import Producer
from kreplica.client.producer.leader_routes import LeaderRoute
from kreplica.client_core.errors import BufferFull, GaveUp, OutcomeUnknown


@pytest.fixture
def scene() -> Iterator[Scene]:
    """Three brokers."""
    scene = Scene(brokers=3)
    yield scene
    scene.close()


def send_for(scene: Scene, producer: Producer, seconds: float, sent: list[Deferred[Any]]) -> None:
    """Send three numbered records to partition 0 every few milliseconds."""
    until_s = scene.brokers.simulation.now_s + seconds
    while scene.brokers.simulation.now_s < until_s:
        sent += [producer.send("t", b"%d" % (len(sent) + more), partition=0) for more in range(3)]
        scene.brokers.run(0.004)


def check_all_written(scene: Scene, producer: Producer, sent: list[Deferred[Any]]) -> None:
    scene.run(producer.flush())
    assert all(scene.run(each).partition.partition == 0 for each in sent)
    assert scene.values(0) == [b"%d" % number for number in range(len(sent))]


def test_leaders_die(scene: Scene) -> None:
    """The new leader takes over; no record is lost, duplicated or reordered."""
    producer = scene.producer()
    sent: list[Deferred[Any]] = []
    for _ in range(3):
        send_for(scene, producer, 1.0, sent)
        leader = scene.brokers.leader_of("t", 0)
        scene.brokers.brokers[leader].kill()
        send_for(scene, producer, 2.0, sent)
        scene.run(scene.brokers.brokers[leader].start())
        scene.brokers.wait_in_sync("t", range(4))
    check_all_written(scene, producer, sent)


@pytest.mark.parametrize("one_way", [False, True])
def test_connections_break(scene: Scene, one_way: bool) -> None:
    """If responses are lost, leaders recognize the retries as duplicates."""
    producer = scene.producer(batch_size=300)
    sent: list[Deferred[Any]] = []
    network = scene.brokers.simulation.network
    for _ in range(20):
        send_for(scene, producer, 0.1, sent)
        for number in scene.brokers.brokers:
            network.drop_connections(f"broker-{number}", "application", one_way=one_way)
    check_all_written(scene, producer, sent)


def test_leaders_change(scene: Scene) -> None:
    """Records go to the new leader, and those of other partitions do not wait."""
    producer = scene.producer()
    sent: list[Deferred[Any]] = []
    for leader in (1, 2, 3, 1):
        send_for(scene, producer, 0.2, sent)
        replicas = [leader, *(number for number in (1, 2, 3) if number != leader)]
        scene.run(scene.brokers.client().reassign("t", 0, replicas))
        scene.run(lambda leader=leader: _elect(scene, leader))
    check_all_written(scene, producer, sent)


def _elect(scene: Scene, leader: int) -> bool:
    if scene.brokers.leader_of("t", 0) != leader:
        scene.run(scene.brokers.client().elect_preferred("t", 0))
    return scene.brokers.leader_of("t", 0) == leader


def test_partition_without_leader(scene: Scene) -> None:
    """While a partition has no leader, its records fail after their timeout; other partitions continue."""
    scene.create("single", 3)
    producer = scene.producer(delivery_timeout_s=3.0)
    leader = scene.brokers.leader_of("single", 0)
    others = [number for number in range(3) if scene.brokers.leader_of("single", number) != leader]
    scene.run(producer.send("single", b"warm", partition=others[0]))
    scene.brokers.brokers[leader].kill()
    scene.run(lambda: scene.brokers.leader_of("single", 0) == -1)
    lost = producer.send("single", b"lost", partition=0)
    scene.run(producer.send("single", b"passes", partition=others[0]))
    assert not lost.called
    started_s = scene.brokers.simulation.now_s
    error = scene.error(lost)
    assert isinstance(error, GaveUp)
    assert "not delivered in time" in str(error)
    assert scene.brokers.simulation.now_s - started_s == pytest.approx(3.0, abs=0.7)


def test_missing_response(scene: Scene) -> None:
    """If the response does not arrive, the outcome of the record is unknown; later records are written."""
    cluster = scene.new_cluster(request_timeout_s=1.0)
    producer = scene.producer(cluster=cluster, delivery_timeout_s=2.0)
    scene.run(producer.send("t", b"first", partition=0))
    leader = scene.brokers.leader_of("t", 0)
    scene.brokers.simulation.network.cut(f"broker-{leader}", "application", one_way=True)
    error = scene.error(producer.send("t", b"second", partition=0))
    assert isinstance(error, OutcomeUnknown)
    scene.brokers.simulation.network.heal()
    assert scene.run(producer.send("t", b"third", partition=0)).partition.partition == 0
    assert scene.values(0)[-1] == b"third"
    scene.run(producer.close())
    scene.run(cluster.close())


def test_all_brokers_are_down(scene: Scene) -> None:
    """Buffered records fill the memory up to the limit; sending continues when the cluster returns."""
    producer = scene.producer(memory_size_max=5_000, batch_size=500)
    scene.run(producer.send("t", b"0", partition=0))
    network = scene.brokers.simulation.network
    network.isolate("application")
    sent = [producer.send("t", b"%d" % number, partition=0) for number in range(1, 500)]
    refused = [each for each in sent if each.called]
    assert 0 < len(refused) < len(sent)
    assert {type(scene.error(each)) for each in refused} == {BufferFull}
    room = Deferred.fromCoroutine(producer.room())
    scene.brokers.run(5.0)
    assert not room.called
    network.heal()
    scene.run(room)
    scene.run(producer.flush())
    accepted_count = len(sent) - len(refused)
    assert scene.values(0) == [b"%d" % number for number in range(accepted_count + 1)]


def test_closing_without_responses(scene: Scene) -> None:
    """If the producer is closed before the response arrives, the outcome of the record is unknown."""
    producer = scene.producer()
    scene.run(producer.send("t", b"first", partition=0))
    scene.brokers.simulation.network.isolate("application")
    sent = producer.send("t", b"second", partition=0)
    scene.brokers.run(0.5)
    scene.run(producer.close(flush=False))
    assert isinstance(scene.error(sent), OutcomeUnknown)
    scene.brokers.simulation.network.heal()


def test_throttled_producer_waits(scene: Scene) -> None:
    """No request is sent during the throttle time (KIP-219)."""
    freed: list[LeaderRoute] = []
    route = LeaderRoute(1, scene.host.reactor, freed.append)
    route.throttle(0.0)
    assert route.is_free
    route.throttle(2.0)
    scene.brokers.run(1.9)
    assert (route.is_free, freed) == (False, [])
    scene.brokers.run(0.2)
    assert (route.is_free, freed) == (True, [route])
