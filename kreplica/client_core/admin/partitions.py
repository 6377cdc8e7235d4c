"""Partitions: offsets by time, and deleting records, as their leaders do it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from kreplica.client_core.admin.asking import SERVER_TIMEOUT_MS, Subject, Told, need, outcome
from kreplica.client_core.admin.outcomes import Outcomes
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
"""As a time: the first offset that is not in tiered storage alone (KIP-405)."""

LATEST_TIERED = -5
"""As a time: the last offset that is in tiered storage (KIP-1005)."""

TIMES_FROM = MappingProxyType({MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9})
"""The first version of ListOffsets that knows each."""

HIGH_WATERMARK = -1
"""As an offset to delete up to: all that is committed."""


class Partitions(Subject):
    """Partitions: each question goes to their leaders."""

    async def list_offsets(
        self,
        times: Mapping[TopicPartition, int],
        *,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
        timeout_s: float | None = None,
    ) -> Outcomes[TopicPartition, TimedOffset]:
        """The first record of each partition that is not older than a time.

        :param times: milliseconds since 1970, or ``EARLIEST``, ``LATEST``, ``MAX_TIMESTAMP``, ``EARLIEST_LOCAL``,
            ``LATEST_TIERED``.
        :param isolation: with ``READ_COMMITTED``, ``LATEST`` is before the first transaction that is open.
        """

        async def ask(connection: BrokerConnection, share: list[TopicPartition]) -> Told[TopicPartition, TimedOffset]:
            wanted = {each: times[each] for each in share}
            for time in sorted(set(wanted.values()) & TIMES_FROM.keys()):
                need(connection, LIST_OFFSETS, TIMES_FROM[time], f"the time {time}")
            body = list_offsets_body(wanted, isolation)
            return parse_list_offsets(await self._cluster.request(connection, LIST_OFFSETS, body))

        return await self.at_leaders(times, ask, timeout_s)

    async def delete_records(
        self, offsets: Mapping[TopicPartition, int], *, timeout_s: float | None = None
    ) -> Outcomes[TopicPartition, int]:
        """Delete the records of partitions that are before an offset.

        :param offsets: where each partition is to begin; ``HIGH_WATERMARK``: behind all that is committed.
        :return: where each begins then.
        """

        def row(partition: TopicPartition) -> dict[str, Any]:
            return {"partition_index": partition.partition, "offset": offsets[partition]}

        async def ask(connection: BrokerConnection, share: list[TopicPartition]) -> Told[TopicPartition, int]:
            body = {"topics": topic_rows(share, row, "partitions"), "timeout_ms": SERVER_TIMEOUT_MS}
            answer = await self._cluster.request(connection, DELETE_RECORDS, body)
            told: dict[TopicPartition, int | ClientError] = {}
            for topic in answer["topics"]:
                for each in topic["partitions"]:
                    partition = TopicPartition(topic["name"], each["partition_index"])
                    told[partition] = outcome(each, f"records of {partition}") or each["low_watermark"]
            return told

        return await self.at_leaders(offsets, ask, timeout_s)
