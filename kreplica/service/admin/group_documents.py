"""Converts the state of groups to documents of the admin API."""

from __future__ import annotations

from typing import Any

from kreplica.cluster.topic_names import CONSUMER_OFFSETS
from kreplica.coordination import partition_of
from kreplica.errors import ErrorCode, KafkaError
from kreplica.groups.commit_silence import no_commit_since_ms
from kreplica.groups.lag_tracking import PartitionLag
from kreplica.model import TopicPartition
from kreplica.service.broker.coordinators import Coordinators

Document = dict[str, Any]


class GroupDocuments:
    """Finds the coordinators of groups for ``admin.groups``, and reports the lag of groups coordinated here."""

    def __init__(self, coordinators: Coordinators) -> None:
        self._coordinators = coordinators

    @property
    def has_any(self) -> bool:
        return bool(self._coordinators.view.partition_count(CONSUMER_OFFSETS))

    def coordinator_of(self, group: str) -> int | None:
        view = self._coordinators.view
        count = view.partition_count(CONSUMER_OFFSETS)
        return view.leader_of(TopicPartition(CONSUMER_OFFSETS, partition_of(group, count))) if count else None

    async def lag_of(self, group_id: str) -> Document:
        """Return the lag of a group, in total and by partition.

        :raise KafkaError: GROUP_ID_NOT_FOUND; NOT_COORDINATOR, with the coordinator's ID in the message; or a retriable
            error.
        """
        try:
            found = await self._coordinators.lag.lag_of(group_id)
        except KafkaError as error:
            if error.code is ErrorCode.NOT_COORDINATOR:
                raise KafkaError(error.code, self._coordinator_text(group_id)) from None
            raise
        return {
            "group": found.group_id,
            "state": found.state_name,
            "status": found.status.name,
            "lag": found.lag,
            "lag_without_commit": found.lag_without_commit,
            "partitions_without_commit": found.partitions_without_commit,
            "no_commit_since_ms": no_commit_since_ms(self._coordinators.lag, found),
            "partitions": [_partition(row) for row in found.partitions],
        }

    def _coordinator_text(self, group_id: str) -> str:
        leader = self.coordinator_of(group_id)
        return "the coordinator is unknown" if leader is None else f"broker {leader} coordinates the group"


def _partition(row: PartitionLag) -> Document:
    committed = row.committed
    return {
        "topic": row.topic,
        "partition": row.partition,
        "committed_offset": None if committed is None else committed.offset,
        "committed_leader_epoch": None if committed is None else committed.leader_epoch,
        "committed_at_ms": None if committed is None else committed.commit_timestamp_ms,
        "metadata": None if committed is None else committed.metadata,
        "log_end_offset": row.log_end_offset,
        "lag": row.lag,
        "status": row.status.name if row.status is not None else None,
    }
