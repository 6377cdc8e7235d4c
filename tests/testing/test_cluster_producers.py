"""DescribeProducers on every replica, as tools that search for hanging transactions use it."""

from __future__ import annotations

import pytest

from kreplica.model import TopicPartition
from kreplica.testing.cluster.cluster import SimulatedCluster
from kreplica.wire.messages import DESCRIBE_PRODUCERS
from tests.support.broker_scene import batch

pytestmark = pytest.mark.usefixtures("logged_errors")


def test_every_replica_describes_producers() -> None:
    """A follower returns the same producers as the leader; a broker without a replica returns an error."""
    cluster = SimulatedCluster(1, brokers=3)
    cluster.start()
    client = cluster.client()
    cluster.run_until(client.create_topic("t", 1, replication_factor=2))
    cluster.wait_in_sync("t", [0])
    leader = cluster.leader_of("t", 0)
    writer = cluster.client(broker=leader)
    cluster.run_until(writer.produce("t", 0, batch(b"v", producer_id=7, producer_epoch=3, base_sequence=0)))
    cluster.wait_log_end_offsets(TopicPartition("t", 0), 1)
    cluster.run_until(client.close())
    cluster.run_until(writer.close())
    asked = {"topics": [{"name": "t", "partition_indexes": [0]}]}
    described = {}
    for broker in cluster.brokers:
        asking = cluster.client(broker=broker)
        (row,) = cluster.run_until(asking.request(DESCRIBE_PRODUCERS, asked))["topics"][0]["partitions"]
        described[broker] = (row["error_code"], [one["producer_id"] for one in row["active_producers"]])
        cluster.run_until(asking.close())
    assert sorted(described.values()) == [(0, [7]), (0, [7]), (6, [])]
    assert described[leader] == (0, [7])
    cluster.stop()
