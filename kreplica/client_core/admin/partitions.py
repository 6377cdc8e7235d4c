"""Offsets by time and deletion of records, requested from the leaders of partitions."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from kreplica.client_core.admin.outcomes import Outcomes
from kreplica.client_core.admin.request_routing import (
    SERVER_TIMEOUT_MS,
    RequestRouter,
    Results,
    outcome,
    require_version,
)
from kreplica.client_core.cluster import BrokerConnection
from kreplica.client_core.errors import ClientError
from kreplica.client_core.fetched_batches import Isolation
from kreplica.client_core.offsets import (
    MAX_TIMESTAMP,
    TimedOffset,
    list_offsets_body,
    parse_list_offsets,
    topic_rows,
)
from kreplica.model import TopicPartition
from kreplica.wire.messages import DELETE_RECORDS, LIST_OFFSETS

EARLIEST_LOCAL = -4
"""Special time that requests the first offset in local storage (KIP-405)."""

LATEST_TIERED = -5
"""Special time that requests the last offset in tiered storage (KIP-1005)."""

TIMES_FROM = MappingProxyType({MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9})
"""First version of ListOffsets that supports each of these times."""

HIGH_WATERMARK = -1
"""Offset that deletes all committed records."""


class Partitions(RequestRouter):
    """Requests for partitions, sent to their leaders."""

    async def list_offsets(
        self,
        times: Mapping[TopicPartition, int],
        *,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
        timeout_s: float | None = None,
    ) -> Outcomes[TopicPartition, TimedOffset]:
        """Return the offset of each partition's first record at or after a time.

        :param times: milliseconds since 1970, or ``EARLIEST``, ``LATEST``, ``MAX_TIMESTAMP``, ``EARLIEST_LOCAL``,
            ``LATEST_TIERED``.
        :param isolation: with ``READ_COMMITTED``, ``LATEST`` is the last stable offset.
        """

        async def send(
            connection: BrokerConnection, share: list[TopicPartition]
        ) -> Results[TopicPartition, TimedOffset]:
            requested = {each: times[each] for each in share}
            for time in sorted(set(requested.values()) & TIMES_FROM.keys()):
                require_version(connection, LIST_OFFSETS, TIMES_FROM[time], f"the time {time}")
            body = list_offsets_body(requested, isolation)
            return parse_list_offsets(await self._cluster.request(connection, LIST_OFFSETS, body))

        return await self.at_leaders(times, send, timeout_s)

    async def delete_records(
        self, offsets: Mapping[TopicPartition, int], *, timeout_s: float | None = None
    ) -> Outcomes[TopicPartition, int]:
        """Delete the records before the given offset in each partition.

        :param offsets: the new log start offsets; ``HIGH_WATERMARK`` deletes all committed records.
        :return: the new log start offsets.
        """

        def row(partition: TopicPartition) -> dict[str, Any]:
            return {"partition_index": partition.partition, "offset": offsets[partition]}

        async def send(connection: BrokerConnection, share: list[TopicPartition]) -> Results[TopicPartition, int]:
            body = {"topics": topic_rows(share, row, "partitions"), "timeout_ms": SERVER_TIMEOUT_MS}
            response = await self._cluster.request(connection, DELETE_RECORDS, body)
            results: dict[TopicPartition, int | ClientError] = {}
            for topic in response["topics"]:
                for each in topic["partitions"]:
                    partition = TopicPartition(topic["name"], each["partition_index"])
                    results[partition] = outcome(each, f"records of {partition}") or each["low_watermark"]
            return results

        return await self.at_leaders(offsets, send, timeout_s)
