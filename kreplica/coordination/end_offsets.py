"""End offsets of partitions for consumers: the high watermark, read locally or requested from the leader."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from twisted.logger import Logger

from kreplica.client.errors import ClientError
from kreplica.coordination.brokers import BrokerConnections
from kreplica.coordination.cluster_view import ClusterView
from kreplica.model import TopicPartition
from kreplica.runtime.gather import gather
from kreplica.wire.messages import LIST_OFFSETS

log = Logger()

PER_REQUEST_MAX = 1000
TIMEOUT_S = 10.0

_LATEST = -1
"""Timestamp in ListOffsets that requests the end offset."""


class EndOffsets:
    """Finds the end offsets of partitions, which are their high watermarks; owned by a broker.

    :param local_high_watermark: returns the high watermark of a partition if this broker leads it, else None.
    """

    def __init__(
        self,
        view: ClusterView,
        connections: BrokerConnections,
        local_high_watermark: Callable[[TopicPartition], int | None],
    ) -> None:
        self._view = view
        self._connections = connections
        self._local_high_watermark = local_high_watermark

    async def of(self, keys: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the end offset of each partition.

        :return: end offsets by partition; partitions whose leader is unknown or does not respond are missing.
        """
        found: dict[TopicPartition, int] = {}
        keys_by_leader: dict[int, list[TopicPartition]] = {}
        for key in keys:
            end_offset = self._local_high_watermark(key)
            if end_offset is not None:
                found[key] = end_offset
            elif (leader := self._view.leader_of(key)) is not None:
                keys_by_leader.setdefault(leader, []).append(key)
        for offsets in await gather(self._request_all(leader, led_keys) for leader, led_keys in keys_by_leader.items()):
            found.update(offsets)
        return found

    async def _request_all(self, leader: int, keys: list[TopicPartition]) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        for start in range(0, len(keys), PER_REQUEST_MAX):
            try:
                found.update(await self._request(leader, keys[start : start + PER_REQUEST_MAX]))
            except ClientError as error:
                log.debug("cannot get end offsets from broker {leader}: {error}", leader=leader, error=str(error))
                break
        return found

    async def _request(self, leader: int, keys: list[TopicPartition]) -> dict[TopicPartition, int]:
        topics: dict[str, list[dict[str, Any]]] = {}
        for key in keys:
            topics.setdefault(key.topic, []).append({"partition_index": key.partition, "timestamp": _LATEST})
        body = {
            "replica_id": -1,
            "isolation_level": 0,
            "topics": [{"name": name, "partitions": rows} for name, rows in topics.items()],
        }
        response = await self._connections.request(leader, LIST_OFFSETS, body, timeout_s=TIMEOUT_S)
        return {
            TopicPartition(topic["name"], row["partition_index"]): row["offset"]
            for topic in response["topics"]
            for row in topic["partitions"]
            if not row["error_code"]
        }
