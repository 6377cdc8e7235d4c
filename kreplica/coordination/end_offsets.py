"""Log start offsets and end offsets of partitions, read locally or requested from the leader."""

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

_LATEST, _EARLIEST = -1, -2
"""Special timestamps in ListOffsets: request the end offset or the log start offset."""

LocalOffset = Callable[[TopicPartition], int | None]
"""Returns an offset of a partition if this broker leads it, else None."""


class EndOffsets:
    """Finds the end offsets of partitions, which for clients are the high watermarks; owned by the broker."""

    def __init__(
        self,
        view: ClusterView,
        connections: BrokerConnections,
        local_high_watermark: LocalOffset,
        local_log_start: LocalOffset = lambda _: None,
    ) -> None:
        self._view = view
        self._connections = connections
        self._local_high_watermark = local_high_watermark
        self._local_log_start = local_log_start

    async def of(self, keys: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the end offset of each partition.

        :return: end offsets by partition; partitions whose leader is unknown or does not respond are left out.
        """
        return await self._find(keys, self._local_high_watermark, _LATEST)

    async def first_of(self, keys: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the log start offset of each partition; otherwise like ``of``."""
        return await self._find(keys, self._local_log_start, _EARLIEST)

    async def _find(
        self, keys: Sequence[TopicPartition], local: LocalOffset, timestamp: int
    ) -> Mapping[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        keys_by_leader: dict[int, list[TopicPartition]] = {}
        for key in keys:
            offset = local(key)
            if offset is not None:
                found[key] = offset
            elif (leader := self._view.leader_of(key)) is not None:
                keys_by_leader.setdefault(leader, []).append(key)
        requests = (self._request_all(leader, led_keys, timestamp) for leader, led_keys in keys_by_leader.items())
        for offsets in await gather(requests):
            found.update(offsets)
        return found

    async def _request_all(self, leader: int, keys: list[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        for start in range(0, len(keys), PER_REQUEST_MAX):
            try:
                found.update(await self._request(leader, keys[start : start + PER_REQUEST_MAX], timestamp))
            except ClientError as error:
                log.debug("cannot get offsets from broker {leader}: {error}", leader=leader, error=str(error))
                break
        return found

    async def _request(self, leader: int, keys: list[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
        topics: dict[str, list[dict[str, Any]]] = {}
        for key in keys:
            topics.setdefault(key.topic, []).append({"partition_index": key.partition, "timestamp": timestamp})
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
