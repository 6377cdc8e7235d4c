"""ListGroups (key 16): lists the groups that this broker coordinates."""

from __future__ import annotations

from typing import Any

from kreplica.groups.coordinator import GroupCoordinator, ListedGroup
from kreplica.runtime.slices import STEP_ROWS, Steps
from kreplica.server.protocol.request import Request
from kreplica.server.protocol.responses import in_slices, respond_with_result


class ListGroups:
    """Filters by state (KIP-518) and by type (KIP-848)."""

    def __init__(self, groups: GroupCoordinator) -> None:
        self._groups = groups

    def __call__(self, request: Request) -> None:
        respond_with_result(request, self._list(request, request.body))

    async def _list(self, request: Request, body: dict[str, Any]) -> dict[str, Any]:
        code, listed = await self._groups.list_groups(body.get("states_filter", ()), body.get("types_filter", ()))
        rows = await in_slices(request, _rows(listed))
        return {"throttle_time_ms": 0, "error_code": int(code), "groups": rows}


def _rows(listed: list[ListedGroup]) -> Steps[list[dict[str, Any]]]:
    rows = []
    for number, group in enumerate(listed, 1):
        rows.append(
            {
                "group_id": group.group_id,
                "protocol_type": group.protocol_type,
                "group_state": group.state_name,
                "group_type": group.type_name,
            }
        )
        if number % STEP_ROWS == 0:
            yield
    return rows
