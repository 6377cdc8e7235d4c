"""Plugins for placement by tags and for leaders in preferred racks, and plugins that fail."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from twisted.internet.task import Clock
from zope.interface import implementer

from kreplica.errors import KafkaError
from kreplica.interfaces import ILeaderElection, IReplicaPlacement
from kreplica.model import TopicPartition
from kreplica.service.plugins.plugin_decisions import ChosenElection, ChosenPlacement
from kreplica.service.plugins.plugin_failures import PluginFailures
from kreplica.testing.cluster.cluster import SimulatedCluster
from kreplica.testing.cluster.state import state_of

RACKS = {1: "a", 2: "b", 3: "a", 4: "b"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[SimulatedCluster]:
    overrides = [
        "kreplica.placement=tags",
        "kreplica.plugin.tags.brokers=1:ssd 2:ssd 3:ssd 4:hdd",
        "kreplica.plugin.tags.topics=logs-*:hdd fast:ssd",
        "kreplica.leader.election=prefer-rack",
        "kreplica.plugin.prefer-rack.rack=a",
        "auto.leader.rebalance.enable=false",
    ]
    cluster = SimulatedCluster(11, brokers=4, racks=RACKS, overrides=overrides)
    cluster.start()
    yield cluster
    cluster.stop()


def create_and_place(cluster: SimulatedCluster, topic: str, partitions: int, factor: int) -> list[list[int]]:
    client = cluster.client(broker=cluster.controller())
    cluster.run_until(client.create_topic(topic, partitions, replication_factor=factor))
    cluster.wait_in_sync(topic, range(partitions))
    rows = cluster.run_until(client.metadata())["topics"]
    (found,) = [row["partitions"] for row in rows if row["name"] == topic]
    return [each["replica_nodes"] for each in sorted(found, key=lambda each: each["partition_index"])]


def test_replicas_are_placed_on_brokers_with_the_tag(cluster):
    """Replicas are placed on brokers with the tag of the first pattern that the topic matches, or anywhere."""
    assert create_and_place(cluster, "logs-web", 3, 1) == [[4], [4], [4]]
    assert {replica for row in create_and_place(cluster, "fast", 3, 2) for replica in row} == {1, 2, 3}
    assert {replica for row in create_and_place(cluster, "other", 4, 1) for replica in row} == {1, 2, 3, 4}


def test_too_few_brokers_with_the_tag(cluster):
    """If too few brokers have the tag, the error contains their number."""
    client = cluster.client(broker=cluster.controller())
    with pytest.raises(KafkaError, match="need brokers with the tag hdd; there are 1"):
        cluster.run_until(client.create_topic("logs-db", replication_factor=2))


def test_leaders_are_in_the_preferred_rack(cluster):
    """Leaders are in the preferred rack from the first election, if an in-sync replica is in that rack."""
    create_and_place(cluster, "led", 4, 2)
    leaders = [state_of(cluster, TopicPartition("led", number)).leader for number in range(4)]
    assert {RACKS[leader] for leader in leaders} == {"a"}
    dead = leaders[0]
    cluster.brokers[dead].kill()
    cluster.run(30)
    after = [state_of(cluster, TopicPartition("led", number)) for number in range(4)]
    assert all(state.leader != dead for state in after)
    assert all(state.leader in state.isr for state in after)
    cluster.run_until(cluster.brokers[dead].start())


@implementer(IReplicaPlacement, ILeaderElection)
class FaultyPlugin:
    def __init__(self, answer):
        self.answer = answer

    def place(self, topic, partitions, replication_factor, brokers):
        return self._answer()

    def preference(self, partition, replicas, racks):
        return self._answer()

    def _answer(self):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize("answer", [RuntimeError("no"), {}, {0: [1, 1]}, {0: [1, 9]}, {0: [1]}, None])
def test_failing_placement(answer):
    """If a placement plugin fails, the built-in placement is used, and the failure is counted."""
    failures = PluginFailures(Clock(), "wrong")
    place = ChosenPlacement(FaultyPlugin(answer), failures)
    from kreplica.cluster.placement import BrokerPlace

    placed = place("t", [BrokerPlace(1), BrokerPlace(2)], 1, 2, start_index=0, shift=0)
    assert placed == {0: (1, 2)}
    assert failures.errors == 1


@pytest.mark.parametrize("answer", [RuntimeError("no"), (), (1, 2), (1, 1, 2), (1, 2, 4), None])
def test_failing_election(answer):
    """If an election plugin fails, leaders are elected in the order of the assignment, and the failure is counted."""
    failures = PluginFailures(Clock(), "wrong")
    assert ChosenElection(FaultyPlugin(answer), failures)(TopicPartition("t", 0), (3, 1, 2), {}) == (3, 1, 2)
    assert failures.errors == 1
