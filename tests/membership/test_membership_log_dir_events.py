"""Notification of the controller about failed log directories."""

from __future__ import annotations

from typing import Any

import pytest

from kreplica.cluster import documents, znodes
from kreplica.membership.log_dir_events import LogDirEvents
from kreplica.membership.registration import create_persistent_paths
from kreplica.testing.simulator.simulation import Simulation
from kreplica.zookeeper import ZooKeeperClient
from kreplica.zookeeper.embedded.server import EmbeddedZooKeeper


class World:
    """A ZooKeeper server, broker 7 and an observing client."""

    def __init__(self) -> None:
        self.simulation = Simulation(1)
        coordinator = self.simulation.host("coordinator")
        self.run(EmbeddedZooKeeper(coordinator.runtime, port=2181, interface="").start())
        self.watcher = self.client("watcher")
        self.run(create_persistent_paths(self.watcher))
        reactor = self.simulation.host("broker").runtime.reactor
        self.broker = self.client("broker")
        self.events = LogDirEvents(reactor, self.broker, 7)

    def run(self, goal: Any) -> Any:
        return self.simulation.run_until(goal)

    def client(self, name: str) -> ZooKeeperClient:
        runtime = self.simulation.host(name).runtime
        client = ZooKeeperClient(runtime.reactor, "coordinator:2181", random=runtime.random)
        self.run(client.start())
        return client

    def notifications(self) -> list[int]:
        """Return the broker IDs of the existing notifications."""
        found = []
        for name in sorted(self.run(self.watcher.get_children(znodes.LOG_DIR_EVENT_NOTIFICATION))):
            assert name.startswith("log_dir_event_")
            path = f"{znodes.LOG_DIR_EVENT_NOTIFICATION}/{name}"
            found.append(documents.decode_log_dir_event(path, self.run(self.watcher.get_data(path))[0]))
        return found


@pytest.fixture
def world() -> World:
    return World()


def test_failure_is_reported(world: World) -> None:
    """Each failure creates one notification with the broker ID."""
    world.events.directory_failed()
    world.simulation.run(1)
    assert world.notifications() == [7]
    world.events.directory_failed()
    world.simulation.run(1)
    assert world.notifications() == [7, 7]


def test_failure_during_a_zookeeper_outage(world: World) -> None:
    """Several failures during an outage are reported afterwards, in two notifications."""
    world.simulation.network.cut("broker", "coordinator")
    for _ in range(5):
        world.events.directory_failed()
    world.simulation.run(10)
    world.simulation.network.heal("broker", "coordinator")
    world.simulation.run(10)
    assert world.notifications() == [7, 7]


def test_stopped_broker_reports_nothing(world: World) -> None:
    """A stopped broker leaves no timer or request."""
    world.simulation.network.cut("broker", "coordinator")
    world.events.directory_failed()
    world.simulation.run(1)
    world.events.stop()
    world.run(world.broker.close())
    world.simulation.network.heal("broker", "coordinator")
    world.simulation.run(60)
    assert world.simulation.host("broker").runtime.reactor.getDelayedCalls() == []
    assert world.notifications() == [7], "only the write in progress at the stop"
