"""Reads final logs and committed offsets, with the clients of the tests instead of the client library."""

from __future__ import annotations

from collections.abc import Sequence

from kreplica.model import TopicPartition
from kreplica.replication import READ_COMMITTED, READ_UNCOMMITTED
from kreplica.testing.clients.coordinator_client import GROUP, CoordinatorClient
from kreplica.testing.clients.group_member import TOPIC_NAMES_VERSION_MAX, by_topic
from kreplica.testing.clients.isolation import visible_records
from kreplica.testing.cluster.cluster import BROKER_PORT, SimulatedCluster
from kreplica.wire import messages
from kreplica.wire.records import Record

LATEST = -1


def read_logs(
    cluster: SimulatedCluster, host: str, partitions: Sequence[TopicPartition], *, read_committed: bool = True
) -> dict[TopicPartition, list[Record]]:
    """Return all records of partitions except transaction markers and, if ``read_committed``, aborted records."""
    return {partition: _read(cluster, host, partition, read_committed) for partition in partitions}


def _read(cluster: SimulatedCluster, host: str, partition: TopicPartition, read_committed: bool) -> list[Record]:
    client = cluster.leader_client(*partition, name=host)
    end: int = cluster.run_until(client.find_offset(*partition, LATEST))
    isolation = READ_COMMITTED if read_committed else READ_UNCOMMITTED
    position, records = 0, list[Record]()
    while position < end:
        row = cluster.run_until(client.fetch_row(*partition, position, isolation=isolation))
        more, position = visible_records(row, position)
        records += more
    cluster.run_until(client.close())
    return records


def committed_offsets(
    cluster: SimulatedCluster, host: str, group: str, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return the committed offsets of a group, without partitions that have none."""
    brokers = [(f"broker-{number}", BROKER_PORT) for number in cluster.brokers]
    client = CoordinatorClient(cluster.host(host).reactor, brokers, group, GROUP, client_id=host)
    topics = [{"name": name, "partition_indexes": numbers} for name, numbers in by_topic(partitions).items()]
    asked = {"groups": [{"group_id": group, "topics": topics}], "require_stable": True}
    answer = cluster.run_until(client.ask(messages.OFFSET_FETCH, asked, at_most=TOPIC_NAMES_VERSION_MAX)).body
    cluster.run_until(client.close())
    return {
        TopicPartition(topic["name"], row["partition_index"]): row["committed_offset"]
        for topic in answer["groups"][0]["topics"]
        for row in topic["partitions"]
        if row["committed_offset"] >= 0
    }
