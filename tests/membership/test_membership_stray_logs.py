"""Detection and removal of stray logs."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kreplica.cluster import documents, znodes
from kreplica.membership.registration import create_persistent_paths
from kreplica.membership.stray_logs import Topic, find_strays, remove_strays, stray_reason
from kreplica.model import NO_BROKER_EPOCH, ZERO_UUID, TopicAssignment, TopicPartition
from kreplica.storage.directories.log_directories import LogDirectories
from kreplica.storage.log_config import LogConfig
from kreplica.testing.simulator.simulation import Simulation
from kreplica.zookeeper import ConnectionLoss, ZooKeeperClient
from kreplica.zookeeper.embedded.server import EmbeddedZooKeeper

ORDERS, PAYMENTS = UUID(int=1), UUID(int=2)
ASSIGNMENT = TopicAssignment("orders", ORDERS, {0: (1, 2), 1: (2, 3)})
MOVING = TopicAssignment("orders", ORDERS, {0: (3, 1)}, adding={0: (3,)}, removing={0: (1,)})


@pytest.mark.parametrize(
    ("partition", "topic_id", "assignment", "reason"),
    [
        pytest.param(0, ORDERS, ASSIGNMENT, None, id="assigned to this broker"),
        pytest.param(0, None, ASSIGNMENT, None, id="no topic ID, as written by an older release"),
        pytest.param(0, ORDERS, TopicAssignment("orders", ZERO_UUID, {0: (1,)}), None, id="a topic without an ID"),
        pytest.param(0, ORDERS, MOVING, None, id="kept until the reassignment is complete"),
        pytest.param(0, ORDERS, None, "the topic does not exist", id="deleted"),
        pytest.param(0, PAYMENTS, ASSIGNMENT, "its topic was deleted, and another", id="recreated with the same name"),
        pytest.param(1, ORDERS, ASSIGNMENT, "it is assigned to brokers 2, 3", id="moved away"),
        pytest.param(2, ORDERS, ASSIGNMENT, "the topic has no such partition", id="the partition was removed"),
    ],
)
def test_stray_detection(
    partition: int, topic_id: UUID | None, assignment: TopicAssignment | None, reason: str | None
) -> None:
    """A log is kept if its topic, topic ID and assignment match."""
    topic = Topic(assignment, czxid=9) if assignment is not None else None
    found = stray_reason(TopicPartition("orders", partition), topic_id, topic, broker_id=1)
    assert (found is None) if reason is None else (found or "").startswith(reason)


class World:
    """A ZooKeeper server, and broker 1 with a client and log directories."""

    def __init__(self) -> None:
        self.simulation = Simulation(1)
        coordinator = self.simulation.host("coordinator")
        self.run(EmbeddedZooKeeper(coordinator.runtime, port=2181, interface="").start())
        self.runtime = self.simulation.host("broker").runtime
        self.client = ZooKeeperClient(self.runtime.reactor, "coordinator:2181", random=self.runtime.random)
        self.run(self.client.start())
        self.run(create_persistent_paths(self.client))
        self.directories = LogDirectories(self.runtime, ["/data/one", "/data/two"])
        self.run(self.directories.open("cluster", 1, lambda _: LogConfig()))

    def run(self, goal: Any) -> Any:
        return self.simulation.run_until(goal)

    def make_topic(self, assignment: TopicAssignment) -> None:
        self.run(self.client.create(znodes.topic_path(assignment.topic), documents.encode_topic(assignment)))

    def make_log(self, topic: str, partition: int, topic_id: UUID) -> None:
        self.directories.create(TopicPartition(topic, partition), topic_id, LogConfig())

    def remove_strays(self, last_epoch: int = NO_BROKER_EPOCH) -> list[str]:
        """Remove stray logs and return the remaining ones."""
        self.run(remove_strays(self.runtime.reactor, self.client, self.directories, 1, last_epoch))
        return sorted(map(str, self.directories.logs))


@pytest.fixture
def world() -> World:
    return World()


def test_strays_are_removed_with_their_files(world: World) -> None:
    """Stray logs are removed, and their files after the usual delay; other logs are kept."""
    world.make_topic(ASSIGNMENT)
    world.make_log("orders", 0, ORDERS)
    world.make_log("orders", 1, ORDERS)
    world.make_log("payments", 0, PAYMENTS)
    assert world.remove_strays() == ["orders-0"]
    world.simulation.run(120)
    remaining = [name for path in ("/data/one", "/data/two") for name in world.runtime.disk.list_directory(path)]
    assert [name for name in remaining if name.startswith(("orders", "payments"))] == ["orders-0"]


def test_cluster_without_topics_removes_nothing(world: World) -> None:
    """All logs are kept if ZooKeeper has no topics."""
    world.make_log("orders", 0, ORDERS)
    assert world.remove_strays() == ["orders-0"]


def test_logs_of_an_unreadable_topic_are_kept(world: World) -> None:
    """Logs are kept if the znode of their topic is invalid."""
    world.make_topic(TopicAssignment("others", PAYMENTS, {0: (2,)}))
    world.run(world.client.create(znodes.topic_path("orders"), b"not JSON"))
    world.make_log("orders", 0, ORDERS)
    world.make_log("others", 0, PAYMENTS)
    assert world.remove_strays() == ["orders-0"]


@pytest.mark.parametrize(
    ("registered", "remaining"),
    [
        pytest.param("before", [], id="another topic, created while the broker was down"),
        pytest.param("after", ["orders-0"], id="the same topic, whose ID a tool has overwritten"),
        pytest.param("unknown", [], id="unknown"),
    ],
)
def test_topic_with_another_id(world: World, registered: str, remaining: list[str]) -> None:
    """Logs are kept if the topic ID was overwritten, because an operator can restore it."""
    last_epoch = NO_BROKER_EPOCH
    for step in ("before", "after"):
        if registered == step:
            last_epoch = world.run(world.client.create("/registration", ephemeral=True)).stat.czxid
        if step == "before":
            world.make_topic(ASSIGNMENT)
    world.make_log("orders", 0, PAYMENTS)
    assert world.remove_strays(last_epoch) == remaining


def test_zookeeper_error_removes_nothing(world: World) -> None:
    """A ZooKeeper error makes the start fail, and every log is kept."""
    world.make_topic(ASSIGNMENT)
    world.make_log("orders", 1, ORDERS)
    world.simulation.network.cut("broker", "coordinator")
    with pytest.raises(ConnectionLoss):
        world.remove_strays()
    assert sorted(map(str, world.directories.logs)) == ["orders-1"]


def test_broker_without_logs_sends_no_request(world: World) -> None:
    world.simulation.network.cut("broker", "coordinator")
    assert world.run(find_strays(world.client, {}, 1, NO_BROKER_EPOCH)) == {}
