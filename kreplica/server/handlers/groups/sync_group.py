"""SyncGroup (key 14): distributes the leader's assignments to the members of a classic group."""

from __future__ import annotations

from kreplica.errors import ErrorCode
from kreplica.groups.classic.requests import Sync, SyncResponse
from kreplica.groups.coordinator import GroupCoordinator
from kreplica.server.protocol.request import Request

PROTOCOL_FROM = 5
"""First version in which the protocol type and name are mandatory (KIP-559)."""


class SyncGroup:
    """Responds when the leader's assignment is committed."""

    def __init__(self, groups: GroupCoordinator) -> None:
        self._groups = groups

    def __call__(self, request: Request) -> None:
        body = request.body
        if request.version >= PROTOCOL_FROM and None in (body["protocol_type"], body["protocol_name"]):
            _respond(request, SyncResponse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
            return
        sync = Sync(
            generation=body["generation_id"],
            member_id=body["member_id"],
            instance_id=body.get("group_instance_id"),
            protocol_type=body.get("protocol_type"),
            protocol_name=body.get("protocol_name"),
            assignments=[(row["member_id"], bytes(row["assignment"])) for row in body["assignments"]],
        )
        group_id = body["group_id"]
        request.body = {}  # its views would keep the whole frame in memory while the member waits
        self._groups.sync(group_id, sync, lambda synced: _respond(request, synced))


def _respond(request: Request, synced: SyncResponse) -> None:
    request.respond(
        {
            "throttle_time_ms": 0,
            "error_code": int(synced.error),
            "protocol_type": synced.protocol_type,
            "protocol_name": synced.protocol_name,
            "assignment": synced.assignment,
        }
    )
