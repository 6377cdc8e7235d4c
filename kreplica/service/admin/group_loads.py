"""Load of the groups coordinated by this broker, for ``/v1/groups``."""

from __future__ import annotations

from collections.abc import Sequence

from kreplica.admin.load.group_loads import GroupLoad
from kreplica.groups.lag_tracking import GroupSummary, LagTracker
from kreplica.runtime import Reactor
from kreplica.runtime.time_slice import TimeSlice


class LocalGroups:
    """Implements ``admin.load.group_loads.LocalGroupLoads``."""

    def __init__(self, reactor: Reactor, broker_id: int, tracker: LagTracker) -> None:
        self._reactor = reactor
        self._broker_id = broker_id
        self._tracker = tracker

    async def current(self) -> Sequence[GroupLoad]:
        """Return the load of each group."""
        time_slice = TimeSlice(self._reactor)
        loads = []
        for each in await self._tracker.summaries():
            loads.append(self._load(each))
            if time_slice.is_over:
                await time_slice.next()
        return loads

    def _load(self, summary: GroupSummary) -> GroupLoad:
        group = summary.group
        return GroupLoad(
            group.group_id,
            self._broker_id,
            group.type_name,
            group.protocol_type,
            group.state_name,
            group.member_count,
            list(summary.topics),
            summary.partitions,
            summary.partitions_without_commit,
            summary.lag,
            summary.lag_without_commit,
            summary.last_commit_ms,
            summary.status.name,
        )
