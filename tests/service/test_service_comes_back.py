"""A broker that comes back: what it says of its logs, and which of them it keeps."""

from __future__ import annotations

from uuid import UUID

import pytest

from kreplica.cluster import documents, znodes
from kreplica.model import BrokerRegistration, TopicAssignment, TopicPartition
from kreplica.testing.cluster.cluster import SimulatedCluster
from kreplica.zookeeper import ZooKeeperClient


def operator(cluster: SimulatedCluster) -> ZooKeeperClient:
    """Somebody with a ZooKeeper client, connected."""
    runtime = cluster.simulation.host("operator").runtime
    client = ZooKeeperClient(runtime.reactor, "coordinator:2181", random=runtime.random)
    cluster.run_until(client.start())
    return client


def registration(cluster: SimulatedCluster, watcher: ZooKeeperClient, broker: int = 1) -> BrokerRegistration:
    """What the broker says of itself."""
    data, stat = cluster.run_until(watcher.get_data(znodes.broker_path(broker)))
    return documents.decode_broker(broker, data, stat.czxid)


@pytest.fixture
def cluster() -> SimulatedCluster:
    """One broker that serves, and has a topic."""
    cluster = SimulatedCluster(seed=1, overrides=["zookeeper.session.timeout.ms=6000"])
    cluster.start()
    cluster.run_until(cluster.client().create_topic("orders"))
    return cluster


class TestWhatWasLost:
    def test_nothing_by_a_kill_or_a_stop(self, cluster: SimulatedCluster) -> None:
        """Killed, stopped in order, powered off after that: its logs are whole since its first registration."""
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

    def test_something_by_a_power_loss(self, cluster: SimulatedCluster) -> None:
        """A machine that went down may have lost what was not synced: the broker says so, and counts from then on."""
        watcher = operator(cluster)
        machine = cluster.brokers[1]
        machine.power_loss()
        cluster.run_until(machine.start())
        after = registration(cluster, watcher)
        assert after.intact_since == -1
        machine.kill()
        cluster.run_until(machine.start())
        assert registration(cluster, watcher).intact_since == after.epoch

    def test_nothing_by_the_end_of_a_session(self, cluster: SimulatedCluster) -> None:
        """The same process registers anew: whatever it held it holds."""
        watcher = operator(cluster)
        first = registration(cluster, watcher)
        cluster.expire_session(1)
        cluster.run_until(lambda: cluster.brokers[1].program.fence.broker_epoch > first.epoch)
        assert registration(cluster, watcher).intact_since == first.epoch


class TestStrays:
    def test_what_ceased_to_be_its_own(self, cluster: SimulatedCluster) -> None:
        """While it was down one topic went, one was made anew under its name, one moved: only its own logs are left."""
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
