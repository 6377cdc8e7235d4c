"""Replicas that are removed while their broker runs without a connection to ZooKeeper."""

from __future__ import annotations

from kreplica.cluster import znodes
from kreplica.cluster.partition_requests import encode_removal
from kreplica.model import TopicPartition
from kreplica.testing.cluster.cluster import SimulatedCluster
from kreplica.testing.cluster.state import assignment_of

TOPIC = "t"
OTHERS = ("coordinator", "broker-1", "broker-2")


def test_a_reconnected_broker_deletes_removed_replicas() -> None:
    """A partition is removed while a replica's broker is disconnected, then its topic is deleted and created again.

    When the broker registers again without a restart, it deletes the obsolete log and can create the new one.
    """
    cluster = SimulatedCluster(1, brokers=3, overrides=["controlled.shutdown.enable=false"])
    cluster.start()
    client = cluster.client()
    cluster.run_until(client.create_topic(TOPIC, assignment=[[1, 2], [1, 3]]))
    cluster.wait_in_sync(TOPIC, [0, 1])
    removed = TopicPartition(TOPIC, 1)
    cluster.run_until(lambda: removed in cluster.brokers[3].program.directories.logs)
    program = cluster.brokers[3].program
    for other in OTHERS:
        cluster.simulation.network.cut("broker-3", other)
    cluster.run_until(lambda: 3 not in cluster.brokers[1].program.metadata.brokers)
    zookeeper = cluster.brokers[1].program.client
    cluster.run_until(zookeeper.create(znodes.partitions_remove_path(TOPIC), b""))
    cluster.run_until(zookeeper.create(znodes.partitions_remove_path(TOPIC, 1), encode_removal(0)))
    cluster.run_until(lambda: removed.partition not in _partitions(cluster))
    cluster.run_until(client.delete_topic(TOPIC))
    cluster.run_until(lambda: assignment_of(cluster, TOPIC) is None)
    cluster.run_until(client.create_topic(TOPIC, assignment=[[1, 2], [1, 2]]))
    cluster.simulation.network.heal()
    cluster.run_until(lambda: removed not in cluster.brokers[3].program.directories.logs)
    assert cluster.brokers[3].program is program
    cluster.run_until(client.reassign(TOPIC, 1, [1, 3]))
    cluster.run_until(lambda: _partitions(cluster).get(1) == (1, 3))
    cluster.wait_in_sync(TOPIC, [0, 1])
    cluster.stop()


def _partitions(cluster: SimulatedCluster) -> dict[int, tuple[int, ...]]:
    assignment = assignment_of(cluster, TOPIC)
    return dict(assignment.partitions) if assignment is not None else {}
