"""Watched data in ZooKeeper: cordoned brokers and the throttle for plans."""

from __future__ import annotations

from typing import Any

import pytest

from kreplica.cluster import znodes
from kreplica.cluster.plans.throttle import decode_throttle, encode_throttle
from kreplica.cluster.znodes import ZnodeError
from kreplica.membership.cordoned_brokers import CordonedBrokers
from kreplica.membership.plan_throttle import PlanThrottle
from kreplica.membership.registration import create_persistent_paths
from kreplica.testing.simulator.simulation import Simulation
from kreplica.zookeeper import ZooKeeperClient
from kreplica.zookeeper.embedded.server import EmbeddedZooKeeper


class World:
    """A ZooKeeper server, a broker's client and another client."""

    def __init__(self) -> None:
        self.simulation = Simulation(1)
        self.host = self.simulation.host("coordinator")
        self.coordinator = EmbeddedZooKeeper(self.host.runtime, port=2181, interface="", tick_time_ms=500)
        self.run(self.coordinator.start())
        self.broker = self.client("broker")
        self.reactor = self.simulation.host("broker").runtime.reactor
        self.operator = self.client("operator")
        self.run(create_persistent_paths(self.operator))

    def client(self, name: str) -> ZooKeeperClient:
        runtime = self.simulation.host(name).runtime
        client = ZooKeeperClient(runtime.reactor, "coordinator:2181", random=runtime.random, session_timeout_ms=5000)
        self.run(client.start())
        return client

    def run(self, goal: Any) -> Any:
        return self.simulation.run_until(goal)


def test_cordoned_brokers_are_read_at_the_start_and_after_changes() -> None:
    """Znode names that are not broker IDs are ignored."""
    world = World()
    world.run(world.operator.create(znodes.cordoned_path(3)))
    cordoned = CordonedBrokers(world.reactor, world.broker)
    world.run(cordoned.watch.start())
    assert cordoned.brokers == {3}
    world.run(world.operator.create(f"{znodes.CORDONED}/not-a-broker"))
    world.run(world.operator.create(znodes.cordoned_path(4)))
    world.run(lambda: cordoned.brokers == {3, 4})
    world.run(world.operator.delete(znodes.cordoned_path(3)))
    world.run(lambda: cordoned.brokers == {4})


def test_throttle_is_read_after_changes() -> None:
    """An invalid throttle is treated as no throttle."""
    world = World()
    throttle = PlanThrottle(world.reactor, world.broker)
    world.run(throttle.watch.start())
    assert throttle.bytes_per_second is None
    world.run(world.operator.set_data(znodes.PLAN_THROTTLE, encode_throttle(500)))
    world.run(lambda: throttle.bytes_per_second == 500)
    world.run(world.operator.set_data(znodes.PLAN_THROTTLE, b"fast"))
    world.run(lambda: throttle.bytes_per_second is None)


def test_changes_during_a_lost_connection_are_read_afterwards() -> None:
    world = World()
    throttle = PlanThrottle(world.reactor, world.broker)
    world.run(throttle.watch.start())
    world.simulation.network.cut("broker", "coordinator")
    world.run(world.operator.set_data(znodes.PLAN_THROTTLE, encode_throttle(7)))
    world.simulation.run(2)
    world.simulation.network.heal()
    world.run(lambda: throttle.bytes_per_second == 7)


def test_new_session_reads_everything_again() -> None:
    """Changes between two sessions are read."""
    world = World()
    cordoned = CordonedBrokers(world.reactor, world.broker)
    world.run(cordoned.watch.start())
    cordoned.brokers = frozenset({9})
    cordoned.watch.session_renewed()
    world.run(lambda: cordoned.brokers == frozenset())
    cordoned.watch.stop()
    world.run(world.operator.create(znodes.cordoned_path(3)))
    world.simulation.run(2)
    assert cordoned.brokers == frozenset(), "the path is still watched"


def test_missing_path_is_watched() -> None:
    """Data is read once the path is created."""
    world = World()
    world.run(world.operator.delete(znodes.PLAN_THROTTLE))
    throttle = PlanThrottle(world.reactor, world.broker)
    world.run(throttle.watch.start())
    world.run(world.operator.create(znodes.PLAN_THROTTLE, encode_throttle(5)))
    world.run(lambda: throttle.bytes_per_second == 5)


def test_throttle_document() -> None:
    """An empty znode means no throttle; an error names the znode and the field."""
    assert decode_throttle(b"") is None
    assert decode_throttle(encode_throttle(None)) is None
    assert decode_throttle(encode_throttle(12)) == 12
    with pytest.raises(ZnodeError, match="/kreplica/plan_throttle: bytes_per_second"):
        decode_throttle(b'{"bytes_per_second": 0}')


def test_a_read_that_fails_immediately_does_not_stop_later_reads() -> None:
    """A read of an expired session fails immediately; the next session reads again."""
    world = World()
    throttle = PlanThrottle(world.reactor, world.broker)
    world.run(throttle.watch.start())
    assert world.coordinator.serving is not None
    world.coordinator.serving.expire(world.broker.session_id)
    world.run(lambda: world.broker.state.ended)
    throttle.watch.session_renewed()
    world.run(world.broker.renew())
    world.run(world.operator.set_data(znodes.PLAN_THROTTLE, encode_throttle(9)))
    throttle.watch.session_renewed()
    world.run(lambda: throttle.bytes_per_second == 9)
