"""Reads, changes and deletes the committed offsets of groups, and computes lag."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kreplica.client_core.admin.outcomes import Outcomes
from kreplica.client_core.admin.partitions import Partitions
from kreplica.client_core.admin.request_routing import Results, outcome
from kreplica.client_core.cluster import BrokerConnection
from kreplica.client_core.errors import ClientError, check
from kreplica.client_core.fetched_batches import Isolation
from kreplica.client_core.metadata import CoordinatorKind
from kreplica.client_core.offsets import LATEST, CommittedOffset, parse_committed, topic_rows
from kreplica.model import TopicPartition
from kreplica.wire.messages import OFFSET_COMMIT, OFFSET_DELETE, OFFSET_FETCH

SEVERAL_GROUPS_FROM = 8
"""First version of OffsetFetch with several groups (KIP-709)."""

Offsets = Mapping[TopicPartition, CommittedOffset]


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """Lag of a group in one partition.

    :param end_offset: the high watermark, or the last stable offset with ``READ_COMMITTED``.
    """

    committed: CommittedOffset
    end_offset: int

    @property
    def lag(self) -> int:
        """Number of offsets that have not been consumed yet."""
        return max(self.end_offset - self.committed.offset, 0)


class GroupOffsets(Partitions):
    """Requests for committed offsets."""

    async def list_group_offsets(
        self,
        groups: Iterable[str] | Mapping[str, Iterable[TopicPartition] | None],
        *,
        require_stable: bool = False,
        timeout_s: float | None = None,
    ) -> Outcomes[str, Offsets]:
        """Return the committed offsets of groups; a nonexistent group has none.

        :param groups: group ids, or group id -> partitions to include, where None includes all.
        :param require_stable: wait for open transactions that may change the offsets (KIP-447).
        """
        requested = dict(groups) if isinstance(groups, Mapping) else dict.fromkeys(groups)
        rows = {group_id: _topic_filter(partitions) for group_id, partitions in requested.items()}

        async def send(connection: BrokerConnection, share: list[str]) -> Results[str, Offsets]:
            if connection.version(OFFSET_FETCH) >= SEVERAL_GROUPS_FROM:
                body = {
                    "groups": [{"group_id": each, "topics": rows[each]} for each in share],
                    "require_stable": require_stable,
                }
                response = await self._cluster.request(connection, OFFSET_FETCH, body)
                return {row["group_id"]: _parse_offsets(row, row["group_id"]) for row in response["groups"]}

            async def fetch(group_id: str) -> Offsets | ClientError:
                body = {"group_id": group_id, "topics": rows[group_id], "require_stable": require_stable}
                return _parse_offsets(await self._cluster.request(connection, OFFSET_FETCH, body), group_id)

            return await self.one_by_one(share, fetch)

        return await self.at_coordinators(CoordinatorKind.GROUP, rows, send, timeout_s)

    async def group_offsets(self, group_id: str, *, timeout_s: float | None = None) -> Offsets:
        """Return the committed offsets of one group.

        :raise ClientError: the group's coordinator did not respond or rejected the request.
        """
        return (await self.list_group_offsets([group_id], timeout_s=timeout_s))[group_id]

    async def alter_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, int | CommittedOffset],
        *,
        timeout_s: float | None = None,
    ) -> Outcomes[TopicPartition, None]:
        """Commit offsets for a group without members; if the group has members, the error is UNKNOWN_MEMBER_ID."""
        requested = {
            each: CommittedOffset(offset) if isinstance(offset, int) else offset for each, offset in offsets.items()
        }

        def row(partition: TopicPartition) -> dict[str, Any]:
            return {
                "partition_index": partition.partition,
                "committed_offset": requested[partition].offset,
                "committed_leader_epoch": requested[partition].leader_epoch,
                "committed_metadata": requested[partition].metadata,
            }

        async def send(connection: BrokerConnection, share: list[TopicPartition]) -> Results[TopicPartition, None]:
            body = {"group_id": group_id, "topics": topic_rows(share, row, "partitions")}
            response = await self._cluster.request(connection, OFFSET_COMMIT, body)
            return _parse_results(response, f"commit by group {group_id}")

        return await self.at_coordinator(CoordinatorKind.GROUP, group_id, requested, send, timeout_s)

    async def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition], *, timeout_s: float | None = None
    ) -> Outcomes[TopicPartition, None]:
        """Delete committed offsets in topics to which the group is not subscribed (KIP-496)."""

        def row(partition: TopicPartition) -> dict[str, Any]:
            return {"partition_index": partition.partition}

        async def send(connection: BrokerConnection, share: list[TopicPartition]) -> Results[TopicPartition, None]:
            body = {"group_id": group_id, "topics": topic_rows(share, row, "partitions")}
            response = await self._cluster.request(connection, OFFSET_DELETE, body)
            check(response, f"offsets of group {group_id}")
            return _parse_results(response, f"offsets of group {group_id}")

        return await self.at_coordinator(CoordinatorKind.GROUP, group_id, partitions, send, timeout_s)

    async def group_lag(
        self,
        group_id: str,
        *,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
        timeout_s: float | None = None,
    ) -> Outcomes[TopicPartition, PartitionLag]:
        """Return a group's lag in each partition with a committed offset.

        :param isolation: with ``READ_COMMITTED``, the lag is measured to the last stable offset.
        :raise ClientError: the committed offsets could not be requested.
        """
        committed = await self.group_offsets(group_id, timeout_s=timeout_s)
        ends = await self.list_offsets(dict.fromkeys(committed, LATEST), isolation=isolation, timeout_s=timeout_s)
        return Outcomes(
            {
                each: ends.failed[each] if each in ends.failed else PartitionLag(offset, ends[each].offset)
                for each, offset in committed.items()
            }
        )


def _topic_filter(partitions: Iterable[TopicPartition] | None) -> list[dict[str, Any]] | None:
    return None if partitions is None else topic_rows(partitions, lambda each: each.partition, "partition_indexes")


def _parse_offsets(row: dict[str, Any], group_id: str) -> Offsets | ClientError:
    try:
        if "error_code" in row:  # version 1 has error codes per partition only
            check(row, f"offsets of group {group_id}")
        return dict(parse_committed(row["topics"], group_id))
    except ClientError as error:
        return error


def _parse_results(response: dict[str, Any], what: str) -> Results[TopicPartition, None]:
    results: dict[TopicPartition, ClientError | None] = {}
    for topic in response["topics"]:
        for row in topic["partitions"]:
            partition = TopicPartition(topic["name"], row["partition_index"])
            results[partition] = outcome(row, f"{what} for {partition}")
    return results
