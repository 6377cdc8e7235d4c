"""Reads details of a partition that are not in the published metadata, from ZooKeeper and the leader."""

from __future__ import annotations

from typing import Any

from kreplica.admin.cluster_state.published_metadata import BrokerConnections, PublishedPartition
from kreplica.admin.cluster_state.topic_znodes import read_if_connected
from kreplica.admin.http.schemas import BROKER_ID, COUNT, TIME_MS, listing, nullable
from kreplica.client.errors import ClientError
from kreplica.cluster import documents, znodes
from kreplica.runtime import Reactor
from kreplica.runtime.gather import gather
from kreplica.wire.messages import DESCRIBE_LOG_DIRS, LIST_OFFSETS, Api
from kreplica.zookeeper import ZooKeeperClient

REQUEST_TIMEOUT_S = 2.0
"""Timeout of a request to the leader; after it, the details from the leader are null."""

EARLIEST, LATEST = -2, -1
CONSUMER = -1

_ZOOKEEPER = "Null if the partition has no state or the broker is not connected to ZooKeeper."
_LEADER = "Null if there is no leader, or it does not respond or reports an error."

DETAILS = {
    "controller_epoch": {**nullable(COUNT), "description": f"Controller epoch of the last write. {_ZOOKEEPER}"},
    "partition_epoch": {**nullable(COUNT), "description": f"Version of the partition's state. {_ZOOKEEPER}"},
    "written_at_ms": {**nullable(TIME_MS), "description": f"Time of the last write of the state. {_ZOOKEEPER}"},
    "eligible_leader_replicas": {
        **nullable(listing(BROKER_ID)),
        "description": f"Replicas outside the ISR that have every committed record (KIP-966). {_ZOOKEEPER}",
    },
    "start_offset": {**nullable(COUNT), "description": f"Log start offset. {_LEADER}"},
    "end_offset": {**nullable(COUNT), "description": f"High watermark. {_LEADER}"},
    "size_bytes": {**nullable(COUNT), "description": f"Size of the leader's log in bytes. {_LEADER}"},
}

Row = dict[str, Any]


class PartitionDetailsReader:
    """Reads the details of partitions from ZooKeeper and their leaders."""

    def __init__(self, reactor: Reactor, client: ZooKeeperClient, brokers: BrokerConnections) -> None:
        self._reactor = reactor
        self._client = client
        self._brokers = brokers

    async def read(self, topic: str, partition: PublishedPartition) -> Row:
        """Return the members of ``DETAILS`` for a partition."""
        number, leader = partition.partition, partition.leader
        state, start, end, size = await gather(
            [
                self._state(topic, number),
                self._offset(leader, topic, number, EARLIEST),
                self._offset(leader, topic, number, LATEST),
                self._size(leader, topic, number),
            ]
        )
        return {**dict.fromkeys(DETAILS), **state, **start, **end, **size}

    async def _state(self, topic: str, number: int) -> Row:
        path = znodes.partition_state_path(topic, number)
        found = await read_if_connected(self._reactor, self._client, lambda: self._client.get_data(path))
        if found is None:
            return {}
        data, stat = found
        state = documents.decode_partition_state(path, data, stat.version)
        return {
            "controller_epoch": state.controller_epoch,
            "partition_epoch": state.partition_epoch,
            "written_at_ms": stat.mtime_ms,
            "eligible_leader_replicas": list(state.eligible_leader_replicas),
        }

    async def _offset(self, leader: int, topic: str, number: int, timestamp: int) -> Row:
        rows = [{"partition_index": number, "current_leader_epoch": -1, "timestamp": timestamp}]
        body = {"replica_id": CONSUMER, "isolation_level": 0, "topics": [{"name": topic, "partitions": rows}]}
        for topic_row in (await self._request(leader, LIST_OFFSETS, body)).get("topics", ()):
            for row in topic_row["partitions"]:
                if not row["error_code"] and row["offset"] >= 0:
                    return {"start_offset" if timestamp == EARLIEST else "end_offset": row["offset"]}
        return {}

    async def _size(self, leader: int, topic: str, number: int) -> Row:
        body = {"topics": [{"topic": topic, "partitions": [number]}]}
        response = await self._request(leader, DESCRIBE_LOG_DIRS, body)
        for directory in response.get("results", ()):
            for topic_row in directory["topics"]:
                for row in topic_row["partitions"]:
                    if not row["is_future_key"]:
                        return {"size_bytes": row["partition_size"]}
        return {}

    async def _request(self, leader: int, api: Api, body: Row) -> Row:
        if leader < 0:
            return {}
        try:
            return await self._brokers.request(leader, api, body, timeout_s=REQUEST_TIMEOUT_S)
        except ClientError:
            return {}
