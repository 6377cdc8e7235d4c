"""A broker that restarts: its registered log state, and the logs that it keeps."""

from __future__ import annotations

from uuid import UUID

import pytest

from kreplica.cluster import documents, znodes
from kreplica.model import BrokerRegistration, TopicAssignment, TopicPartition
from kreplica.testing.cluster.cluster import SimulatedCluster
from kreplica.zookeeper import ZooKeeperClient


def operator(cluster: SimulatedCluster) -> ZooKeeperClient:
    """Return a connected ZooKeeper client."""
    runtime = cluster.simulation.host("operator").runtime
    client = ZooKeeperClient(runtime.reactor, "coordinator:2181", random=runtime.random)
    cluster.run_until(client.start())
    return client


def registration(cluster: SimulatedCluster, watcher: ZooKeeperClient, broker: int = 1) -> BrokerRegistration:
    """Return the broker's registration."""
    data, stat = cluster.run_until(watcher.get_data(znodes.broker_path(broker)))
    return documents.decode_broker(broker, data, stat.czxid)


@pytest.fixture
def cluster() -> SimulatedCluster:
    """A running broker with a topic."""
    cluster = SimulatedCluster(seed=1, overrides=["zookeeper.session.timeout.ms=6000"])
    cluster.start()
    cluster.run_until(cluster.client().create_topic("orders"))
    return cluster


class TestReportedLoss:
    def test_kill_and_stop_lose_nothing(self, cluster: SimulatedCluster) -> None:
        """After a kill, a normal stop, and a power loss after that, its logs are complete since the first
        registration."""
        watcher = operator(cluster)
        machine = cluster.brokers[1]
        first = registration(cluster, watcher)
        assert first.intact_since == -1
        machine.kill()
        cluster.run_until(machine.start())
        killed = registration(cluster, watcher)
        assert killed.epoch > first.epoch
        assert killed.intact_since == first.epoch
        cluster.run_until(machine.stop())
        machine.power_loss()
        cluster.run_until(machine.start())
        assert registration(cluster, watcher).intact_since == first.epoch

    def test_power_loss_may_lose_records(self, cluster: SimulatedCluster) -> None:
        """Unsynced records may be lost: the broker reports this, and considers its logs complete from then on."""
        watcher = operator(cluster)
        machine = cluster.brokers[1]
        machine.power_loss()
        cluster.run_until(machine.start())
        after = registration(cluster, watcher)
        assert after.intact_since == -1
        machine.kill()
        cluster.run_until(machine.start())
        assert registration(cluster, watcher).intact_since == after.epoch

    def test_session_expiry_loses_nothing(self, cluster: SimulatedCluster) -> None:
        """The same process registers again with all of its records."""
        watcher = operator(cluster)
        first = registration(cluster, watcher)
        cluster.expire_session(1)
        cluster.run_until(lambda: cluster.brokers[1].program.fence.broker_epoch > first.epoch)
        assert registration(cluster, watcher).intact_since == first.epoch


class TestStrays:
    def test_logs_that_are_no_longer_its_own_are_removed(self, cluster: SimulatedCluster) -> None:
        """While it was down one topic was deleted, one recreated and one moved: only its own logs are left."""
        client = cluster.client()
        for topic in ("deleted", "again", "moved"):
            cluster.run_until(client.create_topic(topic))
        machine = cluster.brokers[1]
        cluster.run_until(machine.stop())
        watcher = operator(cluster)
        again = TopicAssignment("again", UUID(int=77), {0: (1,)})
        moved = TopicAssignment("moved", UUID(int=78), {0: (2,)})
        for topic in ("deleted", "again", "moved"):
            cluster.run_until(delete_topic(watcher, topic))
        for assignment in (again, moved):
            path = znodes.topic_path(assignment.topic)
            cluster.run_until(watcher.create(path, documents.encode_topic(assignment)))
        cluster.run_until(machine.start())
        cluster.run_until(lambda: TopicPartition("again", 0) in machine.program.directories.logs)
        assert sorted(map(str, machine.program.directories.logs)) == ["again-0", "orders-0"]
        assert machine.program.directories.topic_id(TopicPartition("again", 0)) == UUID(int=77)


async def delete_topic(client: ZooKeeperClient, topic: str) -> None:
    """Delete the znodes of a topic of one partition, as a controller would."""
    for path in (
        znodes.partition_state_path(topic, 0),
        znodes.partition_path(topic, 0),
        znodes.partitions_path(topic),
        znodes.topic_path(topic),
    ):
        await client.delete(path)
