"""Collects the state of groups that this broker coordinates, for ``/v1/why``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kreplica.admin.why.groups import GroupFacts, GroupPartition, GroupWait
from kreplica.cluster.topic_names import CONSUMER_OFFSETS
from kreplica.coordination import partition_of
from kreplica.errors import ErrorCode, KafkaError
from kreplica.groups.commit_silence import no_commit_since_ms
from kreplica.groups.diagnostics import pending_members, session_deadlines
from kreplica.groups.group import Group
from kreplica.groups.lag_tracking import PartitionLag
from kreplica.model import TopicPartition
from kreplica.service.broker.coordinators import Coordinators


class LocalGroupFacts:
    """Implements ``admin.resources.why.GroupFactsSource``."""

    def __init__(self, broker_id: int, coordinators: Coordinators, wall_clock_ms: Callable[[], int]) -> None:
        self._broker_id = broker_id
        self._coordinators = coordinators
        self._wall_clock_ms = wall_clock_ms

    def home_of(self, group: str) -> tuple[TopicPartition, int | None]:
        view = self._coordinators.view
        count = view.partition_count(CONSUMER_OFFSETS)
        if not count:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there are no groups: {CONSUMER_OFFSETS} does not exist")
        home = TopicPartition(CONSUMER_OFFSETS, partition_of(group, count))
        return home, view.leader_of(home)

    async def facts(self, group: str) -> GroupFacts:
        lag = await self._coordinators.lag.lag_of(group)
        found = self._coordinators.groups.shards.current_shard_of(group).group(group)
        if found is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, group)
        now_ms = self._wall_clock_ms()
        waits = [
            GroupWait(
                wait.step.value,
                _member_name(wait.member_id, wait.instance_id, wait.client_id, wait.client_host),
                None if wait.remaining_s is None else now_ms + round(wait.remaining_s * 1000),
            )
            for wait in pending_members(found)
        ]
        facts = GroupFacts(
            group,
            found.type_name,
            found.state_name,
            self._broker_id,
            found.member_count,
            waits,
            self._silent(found, now_ms),
            [self._partition(row) for row in lag.partitions],
        )
        return replace(facts, no_commit_since_ms=no_commit_since_ms(self._coordinators.lag, lag), read_at_ms=now_ms)

    def _silent(self, group: Group, now_ms: int) -> dict[str, int]:
        """Return the session deadlines of members without a heartbeat for more than half of their session timeout.

        :return: deadlines in milliseconds since 1970, by the member's name.
        """
        return {
            _member_name(each.member_id, each.instance_id, each.client_id, each.client_host): now_ms
            + round(each.remaining_s * 1000)
            for each in session_deadlines(group)
            if each.remaining_s < each.session_s / 2
        }

    def _partition(self, row: PartitionLag) -> GroupPartition:
        return GroupPartition(
            row.topic,
            row.partition,
            None if row.committed is None else row.committed.offset,
            None if row.committed is None else row.committed.commit_timestamp_ms,
            row.log_end_offset,
            row.lag,
            row.status.name if row.status is not None else None,
            self._coordinators.view.leader_of(TopicPartition(row.topic, row.partition)),
        )


def _member_name(member_id: str, instance_id: str | None, client_id: str, host: str) -> str:
    if not member_id:
        return ""
    name = f"instance {instance_id}" if instance_id else f"member {member_id}"
    return f"{name} (client {client_id} at {host.lstrip('/')})" if client_id or host else name
