"""ListGroups (key 16): the groups that this broker coordinates."""

from __future__ import annotations

from typing import Any

from kreplica.groups.coordinator import GroupCoordinator
from kreplica.server.answers import answer_from
from kreplica.server.request import Request


class ListGroups:
    """Filters by states (KIP-518) and by types (KIP-848)."""

    def __init__(self, groups: GroupCoordinator) -> None:
        self._groups = groups

    def __call__(self, request: Request) -> None:
        answer_from(request, self._list(request.body))

    async def _list(self, body: dict[str, Any]) -> dict[str, Any]:
        code, listed = await self._groups.list_groups(body.get("states_filter", ()), body.get("types_filter", ()))
        return {
            "throttle_time_ms": 0,
            "error_code": int(code),
            "groups": [
                {
                    "group_id": group.group_id,
                    "protocol_type": group.protocol_type,
                    "group_state": group.state_name,
                    "group_type": group.type_name,
                }
                for group in listed
            ],
        }
