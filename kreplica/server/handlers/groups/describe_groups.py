"""DescribeGroups (key 15): describes classic groups and their members."""

from __future__ import annotations

from typing import Any

from kreplica.errors import ErrorCode, KafkaError
from kreplica.groups.classic.requests import Description
from kreplica.groups.coordinator import NOT_FOUND, GroupCoordinator
from kreplica.runtime.slices import Steps
from kreplica.server.authorization.authorized_operations import AuthorizedOperations
from kreplica.server.protocol.request import Request
from kreplica.server.protocol.responses import respond_in_slices

NOT_FOUND_FROM = 6
"""First version in which an unknown group is an error; earlier versions report it as dead (KIP-1043)."""

STEP_GROUPS = 20
"""Groups without members that are described in one step."""

NOTHING_KNOWN = Description("")


class DescribeGroups:
    """Responds in slices; an error of one group is reported in that group's row."""

    def __init__(self, groups: GroupCoordinator, operations: AuthorizedOperations) -> None:
        self._groups = groups
        self._operations = operations

    def __call__(self, request: Request) -> None:
        respond_in_slices(request, self._response(request))

    def _response(self, request: Request) -> Steps[dict[str, Any]]:
        with_operations = request.body.get("include_authorized_operations")
        rows = []
        for number, group_id in enumerate(request.body["groups"], 1):
            row = self._describe(group_id, request.version)
            if with_operations and not row["error_code"]:
                row["authorized_operations"] = self._operations.on_group(request, row["group_id"])
            rows.append(row)
            if row["members"] or number % STEP_GROUPS == 0:
                yield
        return {"throttle_time_ms": 0, "groups": rows}

    def _describe(self, group_id: str, version: int) -> dict[str, Any]:
        try:
            description = self._groups.describe(group_id)
        except KafkaError as error:
            return _row(group_id, error.code, NOTHING_KNOWN)
        if description is NOT_FOUND and version >= NOT_FOUND_FROM:
            row = _row(group_id, ErrorCode.GROUP_ID_NOT_FOUND, description)
            return row | {"error_message": f"Group {group_id} not found."}
        return _row(group_id, ErrorCode.NONE, description)


def _row(group_id: str, code: ErrorCode, description: Description) -> dict[str, Any]:
    return {
        "error_code": int(code),
        "group_id": group_id,
        "group_state": description.state_name,
        "protocol_type": description.protocol_type,
        "protocol_data": description.protocol,
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "member_metadata": member.metadata,
                "member_assignment": member.assignment,
            }
            for member in description.members
        ],
    }
