"""A restarted broker registers the state of its logs, and keeps the correct logs."""

from __future__ import annotations

from uuid import UUID

import pytest

from kreplica.cluster import documents, znodes
from kreplica.model import BrokerRegistration, TopicAssignment, TopicPartition
from kreplica.testing.cluster.cluster import SimulatedCluster
from kreplica.zookeeper import ZooKeeperClient


def zookeeper_client(cluster: SimulatedCluster) -> ZooKeeperClient:
    """Return a ZooKeeper client with a session."""
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
    """A running broker, and a topic."""
    cluster = SimulatedCluster(seed=1, overrides=["zookeeper.session.timeout.ms=6000"])
    cluster.start()
    cluster.run_until(cluster.client().create_topic("orders"))
    return cluster


class TestIntactLogs:
    def test_kill_and_stop_lose_nothing(self, cluster: SimulatedCluster) -> None:
        """After a kill, or a power loss after an orderly stop, the broker registers its logs as intact."""
        watcher = zookeeper_client(cluster)
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
        """Unsynced records may be lost, so the logs are registered as intact only from the next registration on."""
        watcher = zookeeper_client(cluster)
        machine = cluster.brokers[1]
        machine.power_loss()
        cluster.run_until(machine.start())
        after = registration(cluster, watcher)
        assert after.intact_since == -1
        machine.kill()
        cluster.run_until(machine.start())
        assert registration(cluster, watcher).intact_since == after.epoch

    def test_session_expiry_loses_nothing(self, cluster: SimulatedCluster) -> None:
        """The process still has all records when it registers again, so its logs remain intact."""
        watcher = zookeeper_client(cluster)
        first = registration(cluster, watcher)
        cluster.expire_session(1)
        cluster.run_until(lambda: cluster.brokers[1].program.fence.broker_epoch > first.epoch)
        assert registration(cluster, watcher).intact_since == first.epoch


class TestStrayLogs:
    def test_logs_of_deleted_recreated_and_moved_topics(self, cluster: SimulatedCluster) -> None:
        """A broker deletes the logs of topics that were deleted, recreated or moved while it was down."""
        client = cluster.client()
        for topic in ("deleted", "again", "moved"):
            cluster.run_until(client.create_topic(topic))
        machine = cluster.brokers[1]
        cluster.run_until(machine.stop())
        watcher = zookeeper_client(cluster)
        recreated = TopicAssignment("again", UUID(int=77), {0: (1,)})
        moved = TopicAssignment("moved", UUID(int=78), {0: (2,)})
        for topic in ("deleted", "again", "moved"):
            cluster.run_until(delete_topic(watcher, topic))
        for assignment in (recreated, moved):
            path = znodes.topic_path(assignment.topic)
            cluster.run_until(watcher.create(path, documents.encode_topic(assignment)))
        cluster.run_until(machine.start())
        cluster.run_until(lambda: TopicPartition("again", 0) in machine.program.directories.logs)
        assert sorted(map(str, machine.program.directories.logs)) == ["again-0", "orders-0"]
        assert machine.program.directories.topic_id(TopicPartition("again", 0)) == UUID(int=77)


async def delete_topic(client: ZooKeeperClient, topic: str) -> None:
    """Delete the znodes of a topic with one partition, as a controller would."""
    for path in (
        znodes.partition_state_path(topic, 0),
        znodes.partition_path(topic, 0),
        znodes.partitions_path(topic),
        znodes.topic_path(topic),
    ):
        await client.delete(path)
