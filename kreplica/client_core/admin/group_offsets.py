"""Offsets that groups committed: reading, changing and forgetting them, and how far groups lag behind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kreplica.client_core.admin.asking import Told, outcome
from kreplica.client_core.admin.outcomes import Outcomes
from kreplica.client_core.admin.partitions import Partitions
from kreplica.client_core.cluster import BrokerConnection
from kreplica.client_core.errors import ClientError, check
from kreplica.client_core.fetched_batches import Isolation
from kreplica.client_core.metadata import CoordinatorKind
from kreplica.client_core.offsets import LATEST, CommittedOffset, parse_committed, topic_rows
from kreplica.model import TopicPartition
from kreplica.wire.messages import OFFSET_COMMIT, OFFSET_DELETE, OFFSET_FETCH

SEVERAL_GROUPS_FROM = 8
"""From this version on one OffsetFetch asks for several groups (KIP-709)."""

Offsets = Mapping[TopicPartition, CommittedOffset]


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """How far a group is behind in a partition.

    :param end_offset: of the next record that will be written.
    """

    committed: CommittedOffset
    end_offset: int

    @property
    def lag(self) -> int:
        """Records that are still to be read."""
        return max(self.end_offset - self.committed.offset, 0)


class GroupOffsets(Partitions):
    """Offsets that groups committed."""

    async def list_group_offsets(
        self,
        groups: Iterable[str] | Mapping[str, Iterable[TopicPartition] | None],
        *,
        require_stable: bool = False,
        timeout_s: float | None = None,
    ) -> Outcomes[str, Offsets]:
        """What groups committed; a group that there is not has committed nothing.

        :param groups: their ids; with a mapping, only what each committed for its partitions, None: for all.
        :param require_stable: wait for transactions that are about to commit offsets (KIP-447).
        """
        wanted = dict(groups) if isinstance(groups, Mapping) else dict.fromkeys(groups)
        rows = {group_id: _asked(partitions) for group_id, partitions in wanted.items()}

        async def ask(connection: BrokerConnection, share: list[str]) -> Told[str, Offsets]:
            if connection.version(OFFSET_FETCH) >= SEVERAL_GROUPS_FROM:
                body = {
                    "groups": [{"group_id": each, "topics": rows[each]} for each in share],
                    "require_stable": require_stable,
                }
                answer = await self._cluster.request(connection, OFFSET_FETCH, body)
                return {row["group_id"]: _committed(row, row["group_id"]) for row in answer["groups"]}

            async def fetch(group_id: str) -> Offsets | ClientError:
                body = {"group_id": group_id, "topics": rows[group_id], "require_stable": require_stable}
                return _committed(await self._cluster.request(connection, OFFSET_FETCH, body), group_id)

            return await self.one_by_one(share, fetch)

        return await self.at_coordinators(CoordinatorKind.GROUP, rows, ask, timeout_s)

    async def group_offsets(self, group_id: str, *, timeout_s: float | None = None) -> Offsets:
        """What one group committed.

        :raise ClientError: its coordinator does not tell.
        """
        return (await self.list_group_offsets([group_id], timeout_s=timeout_s))[group_id]

    async def alter_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, int | CommittedOffset],
        *,
        timeout_s: float | None = None,
    ) -> Outcomes[TopicPartition, None]:
        """Commit offsets for a group; it may not have members (UNKNOWN_MEMBER_ID)."""
        wanted = {
            each: CommittedOffset(offset) if isinstance(offset, int) else offset for each, offset in offsets.items()
        }

        def row(partition: TopicPartition) -> dict[str, Any]:
            return {
                "partition_index": partition.partition,
                "committed_offset": wanted[partition].offset,
                "committed_leader_epoch": wanted[partition].leader_epoch,
                "committed_metadata": wanted[partition].metadata,
            }

        async def ask(connection: BrokerConnection, share: list[TopicPartition]) -> Told[TopicPartition, None]:
            body = {"group_id": group_id, "topics": topic_rows(share, row, "partitions")}
            return _told(await self._cluster.request(connection, OFFSET_COMMIT, body), f"commit by group {group_id}")

        return await self.at_coordinator(CoordinatorKind.GROUP, group_id, wanted, ask, timeout_s)

    async def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition], *, timeout_s: float | None = None
    ) -> Outcomes[TopicPartition, None]:
        """Forget what a group committed for partitions of topics that it is not subscribed to (KIP-496)."""

        def row(partition: TopicPartition) -> dict[str, Any]:
            return {"partition_index": partition.partition}

        async def ask(connection: BrokerConnection, share: list[TopicPartition]) -> Told[TopicPartition, None]:
            body = {"group_id": group_id, "topics": topic_rows(share, row, "partitions")}
            answer = await self._cluster.request(connection, OFFSET_DELETE, body)
            check(answer, f"offsets of group {group_id}")
            return _told(answer, f"offsets of group {group_id}")

        return await self.at_coordinator(CoordinatorKind.GROUP, group_id, partitions, ask, timeout_s)

    async def group_lag(
        self,
        group_id: str,
        *,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
        timeout_s: float | None = None,
    ) -> Outcomes[TopicPartition, PartitionLag]:
        """How far a group is behind in each partition for which it committed an offset.

        :param isolation: with ``READ_COMMITTED``, records of transactions that are open do not count.
        :raise ClientError: the coordinator does not tell what the group committed.
        """
        committed = await self.group_offsets(group_id, timeout_s=timeout_s)
        ends = await self.list_offsets(dict.fromkeys(committed, LATEST), isolation=isolation, timeout_s=timeout_s)
        return Outcomes(
            {
                each: ends.failed[each] if each in ends.failed else PartitionLag(offset, ends[each].offset)
                for each, offset in committed.items()
            }
        )


def _asked(partitions: Iterable[TopicPartition] | None) -> list[dict[str, Any]] | None:
    return None if partitions is None else topic_rows(partitions, lambda each: each.partition, "partition_indexes")


def _committed(row: dict[str, Any], group_id: str) -> Offsets | ClientError:
    try:
        if "error_code" in row:  # version 1 says it of each partition
            check(row, f"offsets of group {group_id}")
        return dict(parse_committed(row["topics"], group_id))
    except ClientError as error:
        return error


def _told(answer: dict[str, Any], what: str) -> Told[TopicPartition, None]:
    told: dict[TopicPartition, ClientError | None] = {}
    for topic in answer["topics"]:
        for row in topic["partitions"]:
            partition = TopicPartition(topic["name"], row["partition_index"])
            told[partition] = outcome(row, f"{what} for {partition}")
    return told
