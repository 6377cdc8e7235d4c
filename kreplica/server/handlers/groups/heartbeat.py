"""Heartbeat (key 12): keeps a member of a classic group alive and reports rebalances to it."""

from __future__ import annotations

from kreplica.groups.coordinator import GroupCoordinator
from kreplica.server.protocol.request import Request


class Heartbeat:
    """Responds at once."""

    def __init__(self, groups: GroupCoordinator) -> None:
        self._groups = groups

    def __call__(self, request: Request) -> None:
        body = request.body
        code = self._groups.heartbeat(
            body["group_id"], body["member_id"], body.get("group_instance_id"), body["generation_id"]
        )
        request.respond({"throttle_time_ms": 0, "error_code": int(code)})
