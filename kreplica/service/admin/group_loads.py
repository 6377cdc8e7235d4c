"""Load of the groups that this broker coordinates, for ``/v1/groups``."""

from __future__ import annotations

from collections.abc import Sequence

from kreplica.admin.load.group_loads import GroupLoad
from kreplica.groups.lag_tracking import LagTracker


class LocalGroups:
    """Implements ``admin.load.group_loads.LocalGroupLoads``."""

    def __init__(self, broker_id: int, tracker: LagTracker) -> None:
        self._broker_id = broker_id
        self._tracker = tracker

    async def current(self) -> Sequence[GroupLoad]:
        """Return the load of each group."""
        return [
            GroupLoad(
                each.group.group_id,
                self._broker_id,
                each.group.type_name,
                each.group.protocol_type,
                each.group.state_name,
                each.group.member_count,
                list(each.topics),
                each.partitions,
                each.partitions_without_commit,
                each.lag,
                each.lag_without_commit,
                each.last_commit_ms,
                each.status.name,
            )
            for each in await self._tracker.summaries()
        ]
