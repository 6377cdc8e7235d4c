"""Reads final logs, committed offsets and the state of groups without the client library."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kreplica.client_core.offsets import topic_rows
from kreplica.model import TopicPartition
from kreplica.replication import READ_COMMITTED, READ_UNCOMMITTED
from kreplica.testing.clients.coordinator_client import GROUP, CoordinatorClient
from kreplica.testing.clients.fetched_records import visible_records
from kreplica.testing.cluster.cluster import BROKER_PORT, SimulatedCluster
from kreplica.wire import messages
from kreplica.wire.messages import Api
from kreplica.wire.records import Record

LATEST = -1
TOPIC_NAMES_VERSION_MAX = 9
"""Later versions of OffsetFetch identify topics by ID."""


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
        new_records, position = visible_records(row, position)
        records += new_records
    cluster.run_until(client.close())
    return records


def committed_offsets(
    cluster: SimulatedCluster, host: str, group: str, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return the committed offsets of a group, for the partitions that have one."""
    topics = topic_rows(partitions, lambda key: key.partition, "partition_indexes")
    body = {"groups": [{"group_id": group, "topics": topics}], "require_stable": True}
    group_row = _request_from_coordinator(cluster, host, group, messages.OFFSET_FETCH, body, TOPIC_NAMES_VERSION_MAX)
    return {
        TopicPartition(topic["name"], row["partition_index"]): row["committed_offset"]
        for topic in group_row["topics"]
        for row in topic["partitions"]
        if row["committed_offset"] >= 0
    }


def state_and_size(cluster: SimulatedCluster, host: str, group: str, *, is_classic: bool) -> tuple[str, int]:
    """Return the state and the number of members of a group."""
    if is_classic:
        row = _request_from_coordinator(cluster, host, group, messages.DESCRIBE_GROUPS, {"groups": [group]})
    else:
        row = _request_from_coordinator(cluster, host, group, messages.CONSUMER_GROUP_DESCRIBE, {"group_ids": [group]})
    return row["group_state"], len(row["members"])


def _request_from_coordinator(
    cluster: SimulatedCluster, host: str, group: str, api: Api, body: dict[str, Any], at_most: int | None = None
) -> dict[str, Any]:
    """Return the row of the group in its coordinator's response."""
    brokers = [(f"broker-{number}", BROKER_PORT) for number in cluster.brokers]
    client = CoordinatorClient(cluster.host(host).reactor, brokers, group, GROUP, client_id=host)
    response = cluster.run_until(client.request_with_retries(api, body, at_most=at_most)).body
    cluster.run_until(client.close())
    row: dict[str, Any] = response["groups"][0]
    return row
